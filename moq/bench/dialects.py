"""What the load generator says: handshakes, message frames of one fixed size, acknowledgements; MMQP and MQTT 3.1.1.

Every message of a run has the same size, and its payload begins with flow, sequence number and time of sending, so
that a sender patches three numbers into a copied frame and a receiver reads them at fixed places:

    MMQP   control length flags │ packet id │ alias │ flow seq sent_ns padding
    MQTT   control length       │ topic (and packet id above QoS 0) │ flow seq sent_ns padding

A topic has the same alias for those who publish on it and for those who subscribe to it, so at QoS 0 what a
subscriber gets is byte for byte what was sent.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from moq import wire
from moq.errors import ConfigError, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

BODY: Final = struct.Struct(">IIQ")
"""Flow, sequence number, time of sending in nanoseconds."""

KEEP_ALIVE_S: Final = 600
"""Longer than any run: no keep-alive packet mixes with the messages."""
SESSION_EXPIRY_S: Final = 3600
"""Longer than any subscriber is away."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message of one flow, ready to be copied."""

    data: bytes
    body_at: int
    packet_id_at: int | None
    head: bytes
    """The first bytes of every frame of this size and QoS, on whatever topic."""
    layout: struct.Struct
    """Takes a frame apart: head, packet identifier (meaningless at QoS 0), flow, sequence number, time."""
    stamp_at: int | None = None
    """Where the time stands that the broker can read, if it has one."""


class Dialect(Protocol):
    """One protocol's bytes."""

    answer_size: int
    """Every acknowledgement has this many bytes."""

    def hello(self, client_id: str, is_persistent: bool = False) -> bytes:
        """The packet that opens a session, or goes on with a persistent one that is there."""

    def goodbye(self) -> bytes:
        """The packet after which the broker closes the connection; a persistent session stays."""

    def register(self, flows: Sequence[int]) -> bytes:
        """The packet that announces what will be published; empty if none is needed."""

    def subscribe(self, flows: Sequence[int], qos: int) -> bytes:
        """The packet that subscribes to the topics of these flows."""

    def packet_end(self, buf: bytes | bytearray, pos: int) -> int | None:
        """Where the packet at `pos` ends, or None while its length has not arrived."""

    def check(self, packet: bytes) -> None:
        """Raise RequestRefused if the broker's answer says no."""

    def frame(self, flow: int, qos: int, payload_bytes: int) -> Frame:
        """A message of this flow."""

    def first_answers(self, qos: int) -> list[bytes]:
        """What a receiver says to a message, for each packet identifier."""

    def next_answer(self, answer: bytes) -> bytes | None:
        """What is said to an acknowledgement, or None if it ends its exchange."""

    def unnamed(self, packet: bytes) -> bytes | None:
        """A message as its frames usually are, if this is one that names its topic besides; else None."""


def topic(flow: int) -> str:
    """Topics of one length, so that frames have one size."""
    return f"bench/{flow:06d}"


class MMQP:
    """Frames of MMQP; a flow's alias is its number plus one."""

    answer_size = 5

    def hello(self, client_id: str, is_persistent: bool = False) -> bytes:
        """CONREQ."""
        settings = wire.Settings(is_persistent, KEEP_ALIVE_S, SESSION_EXPIRY_S if is_persistent else None)
        return wire.encode(wire.ConReq(resume=is_persistent, settings=settings, client_id=client_id))

    def goodbye(self) -> bytes:
        """CONEND."""
        return wire.encode(wire.ConEnd(0))

    def register(self, flows: Sequence[int]) -> bytes:
        """TOPREQ with REGISTER requests."""
        return self._request([wire.Register(0, False, flow + 1, topic(flow)) for flow in flows])

    def subscribe(self, flows: Sequence[int], qos: int) -> bytes:
        """TOPREQ with SUBSCRIBE requests."""
        return self._request([wire.Subscribe(qos, False, flow + 1, topic(flow)) for flow in flows])

    def _request(self, requests: list[wire.TopicRequest]) -> bytes:
        return wire.encode(wire.TopReq(1, requests))

    def packet_end(self, buf: bytes | bytearray, pos: int) -> int | None:
        """Type, length of the length, length."""
        if pos >= len(buf):
            return None
        start = pos + 2 + (buf[pos] >> 2 & 3)
        return start + int.from_bytes(buf[pos + 1 : start], "big") if start <= len(buf) else None

    def check(self, packet: bytes) -> None:
        """CONACK has its reason in byte 4 of the figure, TOPACK one for each request."""
        kind, start = packet[0] >> 4, 2 + (packet[0] >> 2 & 3)
        reasons = {2: packet[start + 1 : start + 2], 6: packet[start + 2 :]}.get(kind)
        if reasons is None:
            raise RequestRefused(f"the broker sent a packet of type {kind} to the load generator", packet[-1])
        for reason in reasons:
            if reason >= 0x80:
                raise RequestRefused("the load generator", reason)

    def frame(self, flow: int, qos: int, payload_bytes: int) -> Frame:
        """PUBREQ by alias."""
        data = wire.encode(
            wire.PubReq(0, False, False, qos, 1 if qos else 0, flow + 1, None, None, None, bytes(payload_bytes))
        )
        body_at = len(data) - payload_bytes
        head_size = body_at - 4
        layout = struct.Struct(f">{head_size}sH2xIIQ{payload_bytes - BODY.size}x")
        return Frame(data, body_at, head_size if qos else None, data[:head_size], layout)

    def first_answers(self, qos: int) -> list[bytes]:
        """PUBACK, or PUBSYN received."""
        control = 0x90 if qos == 1 else 0x80
        return [struct.pack(">BBHB", control, 3, packet_id, 0) for packet_id in range(0x10000)]

    def next_answer(self, answer: bytes) -> bytes | None:
        """PUBSYN received → PUBSYN release → PUBACK."""
        if answer[-1] >= 0x80:
            raise RequestRefused("a message of the load generator", answer[-1])
        if answer[0] == 0x90:
            return None
        return answer[:-1] + b"\1" if answer[-1] == 0 else b"\x90" + answer[1:-1] + b"\0"

    def unnamed(self, packet: bytes) -> bytes | None:
        """The first PUBREQ of a topic that this connection has not mentioned: the broker binds an alias with it."""
        if packet[0] >> 4 != wire.PubReq.TYPE:
            return None
        (message,) = wire.FrameReader(len(packet)).feed(packet)
        assert isinstance(message, wire.PubReq)
        return wire.encode(replace(message, topic=None))


class MQTT:
    """Frames of MQTT 3.1.1."""

    answer_size = 4

    def hello(self, client_id: str, is_persistent: bool = False) -> bytes:
        """CONNECT, with a clean session or not."""
        fields = (
            b"\0\4MQTT\4" + (b"\0" if is_persistent else b"\2") + KEEP_ALIVE_S.to_bytes(2, "big") + _string(client_id)
        )
        return _packet(0x10, fields)

    def goodbye(self) -> bytes:
        """DISCONNECT."""
        return _packet(0xE0, b"")

    def register(self, flows: Sequence[int]) -> bytes:
        """MQTT knows no registration."""
        return b""

    def subscribe(self, flows: Sequence[int], qos: int) -> bytes:
        """SUBSCRIBE."""
        return _packet(0x82, b"\0\1" + b"".join(_string(topic(flow)) + bytes([qos]) for flow in flows))

    def packet_end(self, buf: bytes | bytearray, pos: int) -> int | None:
        """Seven bits of the length in each byte."""
        remaining = 0
        for shift, byte in enumerate(buf[pos + 1 : pos + 5]):
            remaining |= (byte & 0x7F) << 7 * shift
            if byte < 0x80:
                return pos + 2 + shift + remaining
        return None

    def check(self, packet: bytes) -> None:
        """CONNACK, or SUBACK with one code for each topic."""
        codes = {0x20: packet[3:4], 0x90: packet[-1:]}.get(packet[0])
        if codes is None or (packet[0] == 0x20 and codes != b"\0") or codes == b"\x80":
            raise RequestRefused(f"the broker answered {packet.hex()} to the load generator", packet[-1])

    def frame(self, flow: int, qos: int, payload_bytes: int) -> Frame:
        """PUBLISH."""
        name = _string(topic(flow))
        packet_id = b"\0\1" if qos else b""
        data = _packet(0x30 | qos << 1, name + packet_id + bytes(payload_bytes))
        body_at = len(data) - payload_bytes
        head_size = body_at - len(name) - len(packet_id)
        # At QoS 0 the length of the topic is read where a packet identifier is expected; nobody looks at it.
        fields = f"{len(name)}xH" if qos else f"H{len(name) - 2}x"
        layout = struct.Struct(f">{head_size}s{fields}IIQ{payload_bytes - BODY.size}x")
        return Frame(data, body_at, body_at - 2 if qos else None, data[:head_size], layout)

    def first_answers(self, qos: int) -> list[bytes]:
        """PUBACK or PUBREC."""
        return [struct.pack(">BBH", 0x40 if qos == 1 else 0x50, 2, packet_id) for packet_id in range(0x10000)]

    def next_answer(self, answer: bytes) -> bytes | None:
        """PUBREC → PUBREL → PUBCOMP."""
        control = {0x50: 0x62, 0x62: 0x70}.get(answer[0])
        return None if control is None else bytes([control]) + answer[1:]

    def unnamed(self, packet: bytes) -> bytes | None:
        """Every PUBLISH has its topic."""
        return None


def check_payload_bytes(size: int) -> None:
    """Refuse a size that has no room for the numbers."""
    if size < BODY.size:
        raise ConfigError(f"size is {size}; a message needs {BODY.size} bytes for its sequence number and time")


def _string(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


def _packet(control: int, fields: bytes) -> bytes:
    length = bytearray()
    remaining = len(fields)
    while remaining >= 0x80:
        length.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    length.append(remaining)
    return bytes([control]) + bytes(length) + fields
