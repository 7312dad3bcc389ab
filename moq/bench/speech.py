"""The dialects as an open-loop client speaks them: messages of any size and QoS, requests, and whatever comes back.

`Speech.packets` takes a buffer apart without copying it. Each packet is a plain tuple, for there may be a hundred
thousand in a second:

    (kind, qos, packet_id, at, end)     `at` is where the payload begins, or for an ANSWER where the packet does
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from moq import wire
from moq.bench.dialects import MMQP, MQTT, Dialect, topic
from moq.errors import RemoteProtocolError, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PUBLISH: Final = 0
REQUEST: Final = 1
RESPONSE: Final = 2
ANSWER: Final = 3
"""Kinds of packets: those of MMQP, and an acknowledgement."""

REPLIES: Final = 500_000
"""Added to a flow's number, the topic of its responses where a protocol knows no requests."""

Packet = tuple[int, int, int, int, int]

STAMP: Final = struct.Struct(">Q")
"""Nanoseconds since 1970."""

_U16: Final = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class Template:
    """A message to be copied."""

    data: bytes
    body_at: int
    packet_id_at: int | None
    stamp_at: int | None = None
    """Where the time goes at which the message was due, if it carries one besides its payload."""


class Speech(Dialect, Protocol):
    """One protocol's bytes, both ways."""

    has_requests: bool
    """Whether requests are packets of their own; otherwise a response is a message on a topic of its own."""

    def announce(self, flows: Sequence[int], *, is_request: bool) -> bytes:
        """The packet that says what will be published; empty if none is needed."""

    def ask_for(self, flows: Sequence[int], qos: int, *, is_request: bool) -> bytes:
        """The packet that subscribes."""

    def template(self, flow: int, qos: int, size: int, kind: int) -> Template:
        """A message of this kind with so large a payload."""

    def packets(self, buf: bytearray) -> Iterator[Packet]:
        """Those in the buffer that are whole."""

    def first_answer(self, qos: int, packet_id: int) -> bytes:
        """What a receiver says to a message above QoS 0."""


class SpeaksMMQP(MMQP):
    """MMQP, with the kinds and flags the papers gave it."""

    has_requests = True

    def __init__(self, *, is_stamped: bool = False) -> None:
        """With stamps, a trace of the broker tells when each message was due."""
        self._is_stamped = is_stamped

    def announce(self, flows: Sequence[int], *, is_request: bool) -> bytes:
        """TOPREQ with REGISTER requests."""
        return self._request([wire.Register(0, is_request, flow + 1, topic(flow)) for flow in flows])

    def ask_for(self, flows: Sequence[int], qos: int, *, is_request: bool) -> bytes:
        """TOPREQ with SUBSCRIBE requests."""
        return self._request([wire.Subscribe(qos, is_request, flow + 1, topic(flow)) for flow in flows])

    def template(self, flow: int, qos: int, size: int, kind: int) -> Template:
        """PUBREQ by alias; at QoS 3 one subscriber's confirmation is waited for."""
        packet_id = 1 if qos or kind != PUBLISH else 0
        waited = 1 if qos == 3 else None
        extension = wire.PublishExtension(timestamp_ns=0) if self._is_stamped and kind == PUBLISH else None
        packet = wire.PubReq(kind, False, False, qos, packet_id, flow + 1, None, waited, extension, bytes(size))
        data = wire.encode(packet)
        body_at, packet_id_at = len(data) - size, 3 + (data[0] >> 2 & 3)
        stamp_at = None if extension is None else body_at - STAMP.size
        return Template(data, body_at, packet_id_at if packet_id else None, stamp_at)

    def packets(self, buf: bytearray) -> Iterator[Packet]:
        """PUBREQ: flags, packet identifier, alias, then what the flags name."""
        pos, size = 0, len(buf)
        while pos + 2 <= size:
            control = buf[pos]
            start = pos + 2 + (control >> 2 & 3)
            end = start + int.from_bytes(buf[pos + 1 : start], "big")
            if end > size or start > size:
                return
            if control >> 4 == wire.PubReq.TYPE:
                flags = buf[start]
                at = start + 5
                if flags & 0x08:
                    at += 1 + buf[at]
                if flags & 0x30 == 0x30:
                    at += 2
                if flags & 0x04:
                    at = _extension_end(buf, at)
                yield control & 3, flags >> 4 & 3, buf[start + 1] << 8 | buf[start + 2], at, end
            else:
                yield ANSWER, 0, buf[start] << 8 | buf[start + 1], pos, end
            pos = end

    def first_answer(self, qos: int, packet_id: int) -> bytes:
        """PUBACK, or PUBSYN received."""
        return struct.pack(">BBHB", 0x90 if qos == 1 else 0x80, 3, packet_id, 0)

    def next_answer(self, answer: bytes) -> bytes | None:
        """As `MMQP` has it, and PUBSYN of TYPE 3, which names the subscribers that confirm, → PUBSYN release."""
        if answer[0] >> 4 != wire.PubSyn.TYPE or answer[0] & 3 != 3:
            return super().next_answer(answer)
        start = 2 + (answer[0] >> 2 & 3)
        if (reason := answer[start + 2]) >= 0x80:
            raise RequestRefused("a message of QoS 3 of the load generator", reason)
        return struct.pack(">BB2sB", 0x80, 3, answer[start : start + 2], 1)


class SpeaksMQTT(MQTT):
    """MQTT 3.1.1, where a response is a message on another topic."""

    has_requests = False

    def announce(self, flows: Sequence[int], *, is_request: bool) -> bytes:
        """Nothing."""
        return b""

    def ask_for(self, flows: Sequence[int], qos: int, *, is_request: bool) -> bytes:
        """SUBSCRIBE."""
        return self.subscribe(flows, qos)

    def template(self, flow: int, qos: int, size: int, kind: int) -> Template:
        """PUBLISH."""
        frame = self.frame(flow + (REPLIES if kind == RESPONSE else 0), qos, size)
        return Template(frame.data, frame.body_at, frame.packet_id_at)

    def packets(self, buf: bytearray) -> Iterator[Packet]:
        """PUBLISH: topic, packet identifier above QoS 0."""
        pos = 0
        while (end := self.packet_end(buf, pos)) is not None and end <= len(buf):
            control, at = buf[pos], pos + 2
            while buf[at - 1] >= 0x80:
                at += 1
            if control >> 4 == 3:
                qos = control >> 1 & 3
                at += 2 + (buf[at] << 8 | buf[at + 1])
                packet_id = 0
                if qos:
                    (packet_id,) = _U16.unpack_from(buf, at)
                    at += 2
                yield PUBLISH, qos, packet_id, at, end
            else:
                yield ANSWER, 0, _U16.unpack_from(buf, at)[0] if end - at >= 2 else 0, pos, end
            pos = end

    def first_answer(self, qos: int, packet_id: int) -> bytes:
        """PUBACK or PUBREC."""
        return struct.pack(">BBH", 0x40 if qos == 1 else 0x50, 2, packet_id)


_NUMBERS: Final = ((0x80, 4), (0x40, 8), (0x04, 2), (0x02, 4))
"""Flags of an extension with a number of so many bytes: TTL, TIME, TYP, DDL."""
_LISTS: Final = 0x20 | 0x01
"""IDS and PRP, which no message of the generator has."""


def _extension_end(buf: bytearray, at: int) -> int:
    """Where the extension of a PUBREQ ends: messages may carry the time they were sent at."""
    flags = buf[at]
    if flags & _LISTS:
        raise RemoteProtocolError(f"a message of the load generator came with extension flags {flags:#04x}")
    return at + 1 + sum(size for flag, size in _NUMBERS if flags & flag)
