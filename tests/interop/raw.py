"""An MQTT connection that says exactly what it is told, for what no well-behaved client does."""

from __future__ import annotations

import socket
from collections import deque
from typing import TYPE_CHECKING, Final, TypeVar

from moq.wire import mqtt

if TYPE_CHECKING:
    from typing import Self

    from moq.wire.mqtt import Item, Packet, Properties, Subscription, Will

PATIENCE_S = 10
"""How long an answer may take; only a missing one takes as long."""

P = TypeVar("P")

_PUBLISHED = bytes.fromhex("00 10 80 83 87 90 91 97 99")
_RELEASED = bytes.fromhex("00 92")
REASONS: Final[dict[type, bytes]] = {
    mqtt.ConnAck: bytes.fromhex("00 80 81 82 83 84 85 86 87 88 89 8a 8c 90 95 97 99 9a 9b 9c 9d 9f"),
    mqtt.PubAck: _PUBLISHED,
    mqtt.PubRec: _PUBLISHED,
    mqtt.PubRel: _RELEASED,
    mqtt.PubComp: _RELEASED,
    mqtt.SubAck: bytes.fromhex("00 01 02 80 83 87 8f 91 97 9e a1 a2"),
    mqtt.UnsubAck: bytes.fromhex("00 11 80 83 87 8f 91"),
    mqtt.Disconnect: bytes.fromhex(
        "00 80 81 82 83 87 89 8b 8d 8e 8f 90 93 94 95 96 97 98 99 9a 9b 9c 9d 9e 9f a0 a1 a2"
    ),
    mqtt.Auth: bytes.fromhex("00 18"),
}
"""The reason codes that a server may use in each packet of MQTT 5."""


class Raw:
    """A socket with the codec; it answers nothing by itself."""

    def __init__(self, port: int, version: int = 5) -> None:
        self.version = version
        self.socket = socket.create_connection(("localhost", port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = mqtt.MQTTFrameReader(1 << 24, version=version)
        self._arrived: deque[Item] = deque()
        self.limit = 0
        """The maximum packet size that a test has agreed on."""

    def send(self, *packets: Packet | bytes) -> None:
        """Send packets, or bytes as they are, in one write."""
        self.socket.sendall(
            b"".join(p if isinstance(p, bytes) else mqtt.encode(p, self.version) for p in packets),
        )

    def receive(self) -> Item | None:
        """The next packet; None once the broker has closed the connection."""
        while not self._arrived:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._arrived.extend(self._frames.feed(data))
        packet = self._arrived.popleft()
        if self.version == mqtt.VERSION_5:
            assert has_known_reasons(packet), packet
        return packet

    def expect(self, kind: type[P]) -> P:
        """The next packet, which is of this kind."""
        packet = self.receive()
        assert isinstance(packet, kind), f"expected {kind.__name__}, got {packet}"
        return packet

    def is_closed(self) -> bool:
        """Wait for what comes next; True if it is the end of the connection."""
        packet = self.receive()
        assert packet is None, f"expected the end of the connection, got {packet}"
        return True

    def skip_to_the_end(self) -> bytes:
        """Wait for the end of the connection; returns the bytes that came before it, whatever they mean."""
        data = b""
        while more := self.socket.recv(1 << 16):
            data += more
        return data

    def connect(
        self,
        client_id: str = "",
        *,
        clean: bool = True,
        keep_alive: int = 0,
        properties: Properties | None = None,
        will: Will | None = None,
        will_qos: int = 0,
        will_retain: bool = False,
    ) -> mqtt.ConnAck:
        """CONNECT, and the CONNACK that answers it."""
        self.send(
            mqtt.Connect(
                self.version,
                clean,
                will_qos,
                will_retain,
                keep_alive,
                properties,
                client_id,
                will,
            )
        )
        return self.expect(mqtt.ConnAck)

    def subscribe(
        self, *subscriptions: Subscription, packet_id: int = 1, properties: Properties | None = None
    ) -> bytes:
        """SUBSCRIBE, and the reasons of the SUBACK that answers it."""
        self.send(mqtt.Subscribe(packet_id, properties, list(subscriptions)))
        suback = self.expect(mqtt.SubAck)
        assert suback.packet_id == packet_id
        return bytes(suback.reasons)

    def ping(self) -> None:
        """Come back once the broker has dealt with all that was sent, and nothing else has arrived."""
        self.send(mqtt.PingReq())
        self.expect(mqtt.PingResp)

    def close(self) -> None:
        """End without a word."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def has_known_reasons(packet: Item) -> bool:
    """True if every reason code is one of its packet's; a raw connection accepts no other."""
    if isinstance(packet, (mqtt.SubAck, mqtt.UnsubAck)):
        return set(packet.reasons) <= set(REASONS[type(packet)])
    known = REASONS.get(type(packet))
    return known is None or packet.reason in known  # type: ignore[union-attr]


def publish(
    topic: str,
    payload: bytes = b"",
    qos: int = 0,
    packet_id: int = 0,
    *,
    retain: bool = False,
    dup: bool = False,
    properties: Properties | None = None,
) -> mqtt.Publish:
    """A PUBLISH in the order people think of it."""
    return mqtt.Publish(dup, qos, retain, topic, packet_id, properties, payload)
