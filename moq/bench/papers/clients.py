"""Clients that speak whole packets and count what passes their link, both ways.

They are not the client library: what is to be measured is the broker and the messages it needs, and eighty libraries in
one process would mostly measure themselves. Every packet between a client and the broker passes exactly one of these
links, so the sum over all clients is the number of messages on the wire.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import transports
from moq import wire
from moq.errors import ConnectionLost, RequestRefused
from moq.wire import mqtt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from moq.broker.link import Lane, Link
    from transports import Target

HANDSHAKE_TIMEOUT_S: Final = 20.0
KEEP_ALIVE_S: Final = 600
"""Longer than any run: no keep-alive packet mixes with what is counted."""
MAX_PACKET_BYTES: Final = 1 << 20
REFUSED: Final = 0x80

PacketT = TypeVar("PacketT")


class Client(Generic[PacketT]):
    """One connection to the broker."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.sent = 0
        self.received = 0
        self.received_bytes = 0
        self._answers: asyncio.Queue[PacketT | ConnectionLost] = asyncio.Queue()

    @classmethod
    async def open(cls, target: Target, client_id: str) -> Self:
        """Connect and open a session."""
        made: list[Self] = []

        def make_handler(link: Link) -> Client[PacketT]:
            made.append(cls(link))
            return made[0]

        await transports.connect(target, make_handler)
        await made[0].hello(client_id)
        return made[0]

    async def hello(self, client_id: str) -> None:
        """Say who this is and wait for the answer."""
        raise NotImplementedError

    def encode(self, packet: PacketT) -> bytes:
        """The packet's bytes."""
        raise NotImplementedError

    def decode(self, data: bytes) -> Iterable[PacketT]:
        """What these bytes complete."""
        raise NotImplementedError

    def take(self, packet: PacketT) -> None:
        """A packet arrived: whoever waits for an answer gets it."""
        self._answers.put_nowait(packet)

    def send(self, packet: PacketT) -> None:
        """Count it and write it."""
        self.sent += 1
        self.link.control.write(self.encode(packet))

    async def ask(self, packet: PacketT) -> PacketT:
        """Send a request and wait for its answer."""
        self.send(packet)
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            answer = await self._answers.get()
        if isinstance(answer, ConnectionLost):
            raise answer
        return answer

    def data_received(self, lane_id: int, data: bytes) -> None:
        """See `LinkHandler`."""
        self.received_bytes += len(data)
        for packet in self.decode(data):
            self.received += 1
            self.take(packet)

    def lane_finished(self, lane_id: int) -> None:
        """There is one lane, and its end is the link's."""

    def lane_reset(self, lane_id: int, reason: int) -> None:
        """There is one lane, and its end is the link's."""

    def lane_writable(self, lane: Lane) -> None:
        """Nobody here writes enough to fill a lane."""

    def closed(self, reason: int | None, message: str) -> None:
        """Wake whoever waits for an answer."""
        self._answers.put_nowait(ConnectionLost(message, reason))


class MMQPClient(Client[wire.Packet]):
    """Speaks MMQP, over TCP."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._reader = wire.FrameReader(MAX_PACKET_BYTES)

    async def hello(self, client_id: str) -> None:
        """CONREQ."""
        answer = await self.ask(wire.ConReq(settings=wire.Settings(keep_alive_s=KEEP_ALIVE_S), client_id=client_id))
        if not isinstance(answer, wire.ConAck) or answer.reason >= REFUSED:
            raise RequestRefused(f"the session of {client_id}", getattr(answer, "reason", REFUSED))

    async def request(self, *requests: wire.TopicRequest) -> None:
        """TOPREQ; all of them must be granted."""
        answer = await self.ask(wire.TopReq(1, list(requests)))
        reasons = answer.reasons if isinstance(answer, wire.TopAck) else bytes([REFUSED])
        if refusals := [reason for reason in reasons if reason >= REFUSED]:
            raise RequestRefused(f"a topic request of {requests}", refusals[0])

    def encode(self, packet: wire.Packet) -> bytes:
        """See `Client`."""
        return wire.encode(packet)

    def decode(self, data: bytes) -> Iterable[wire.Packet]:
        """Whole packets: none here is long enough to come in chunks."""
        for item in self._reader.feed(data):
            assert not isinstance(item, wire.PayloadStarted | wire.PayloadChunk | wire.PayloadEnded)
            yield item


class MQTTClient(Client[mqtt.Packet]):
    """Speaks MQTT 3.1.1, as the papers' clients do, over TCP."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._reader = mqtt.MQTTFrameReader(MAX_PACKET_BYTES, chunk_bytes=MAX_PACKET_BYTES, version=mqtt.VERSION_3_1_1)
        self.on_bytes: Callable[[bytes], None] | None = None
        """Once set, takes what arrives as it is: for loads where taking packets apart would be the limit."""

    async def hello(self, client_id: str) -> None:
        """CONNECT."""
        answer = await self.ask(mqtt.Connect(mqtt.VERSION_3_1_1, keep_alive=KEEP_ALIVE_S, client_id=client_id))
        if not isinstance(answer, mqtt.ConnAck) or answer.reason:
            raise RequestRefused(f"the session of {client_id}", getattr(answer, "reason", REFUSED))

    async def subscribe(self, topic_filter: str) -> None:
        """SUBSCRIBE at QoS 0."""
        answer = await self.ask(mqtt.Subscribe(1, None, [mqtt.Subscription(topic_filter, 0)]))
        if not isinstance(answer, mqtt.SubAck) or answer.reasons[0] >= REFUSED:
            raise RequestRefused(f"a subscription to {topic_filter}", REFUSED)

    def encode(self, packet: mqtt.Packet) -> bytes:
        """See `Client`."""
        return mqtt.encode(packet, mqtt.VERSION_3_1_1)

    def decode(self, data: bytes) -> Iterable[mqtt.Packet]:
        """Whole packets: none here is long enough to come in chunks."""
        for item in self._reader.feed(data):
            assert not isinstance(item, mqtt.PayloadStarted | mqtt.PayloadChunk | mqtt.PayloadEnded)
            yield item

    def data_received(self, lane_id: int, data: bytes) -> None:
        """See `LinkHandler`."""
        if self.on_bytes is None:
            super().data_received(lane_id, data)
            return
        self.received_bytes += len(data)
        self.on_bytes(data)


def published_bytes(topic: str, payload: bytes) -> bytes:
    """A PUBLISH of QoS 0 in MQTT 3.1.1."""
    return mqtt.encode(mqtt.Publish(False, 0, False, topic, 0, None, payload), mqtt.VERSION_3_1_1)
