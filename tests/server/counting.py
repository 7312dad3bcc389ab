"""An MMQP client on any transport that counts every message packet it writes and reads, for comparison with metrics.

It acknowledges what it gets unless told not to, and can stop reading and go on. Every packet is its own: nothing is
repeated or reconnected behind the test's back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import certs
import transports
from moq.reasons import Reason
from moq.wire import (
    ConAck,
    ConEnd,
    ConReq,
    FrameReader,
    PubAck,
    PubReq,
    PubSyn,
    Register,
    Settings,
    Subscribe,
    TopAck,
    TopReq,
    encode,
)
from tests.server.wire_client import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from moq.broker.link import Lane, Link
    from moq.wire import Item, Packet, TopicRequest

TOPIC_LANE = 1
"""The key of the lane on which this client publishes, where there are lanes."""


class CountingClient:
    """One connection."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.published: Counter[int] = Counter()
        self.received: Counter[int] = Counter()
        """Message packets by QoS, repetitions included."""
        self.received_bytes = 0
        self.answers = 0
        """PUBACKs, and first answers of QoS 2, to what it published."""
        self.acknowledges = True
        self.unanswered: list[PubReq] = []
        self.was_accepted: ConAck | None = None
        self.has_asked = False
        self.is_closed = False
        self._lanes_read: set[int] = set()
        self._changed = asyncio.Event()
        self._readers: dict[int, FrameReader] = {}

    @classmethod
    async def connect(
        cls, port: int, scheme: str, client_id: str, data_dir: Path, *, resume: bool = False
    ) -> CountingClient:
        """A client whose session outlives its connections."""
        clients: list[CountingClient] = []

        def make(link: Link) -> CountingClient:
            clients.append(cls(link))
            return clients[0]

        target = transports.parse_url(f"{scheme}://localhost:{port}")
        await transports.connect(target, make, ca=certs.paths(data_dir).ca)
        client = clients[0]
        client.send(ConReq(resume=resume, client_id=client_id, settings=Settings(expiry_s=60)))
        await client.until(lambda: client.was_accepted is not None)
        return client

    # --- doing ----------------------------------------------------------------------------------------

    def send(self, packet: Packet) -> None:
        self.link.control.write(encode(packet))

    async def ask(self, request: TopicRequest) -> None:
        self.has_asked = False
        self.send(TopReq(1, [request]))
        await self.until(lambda: self.has_asked)

    async def subscribe(self, topic: str, qos: int) -> None:
        await self.ask(Subscribe(qos, False, 7, topic))

    async def register(self, topic: str) -> None:
        await self.ask(Register(0, False, 1, topic))

    def publish(self, payload: bytes, qos: int, packet_id: int = 0, *, dup: bool = False) -> None:
        self.published[qos] += 1
        packet = PubReq(0, False, dup, qos, packet_id, 1, None, None, None, payload)
        self.link.lane(TOPIC_LANE).write(encode(packet))

    def release(self, packet_id: int) -> None:
        self.send(PubSyn(0, packet_id, Reason.RELEASE))

    def pause(self) -> None:
        """Read nothing more of any lane that brought messages, or of the one there is."""
        for lane_id in self._lanes_read or {0}:
            self.link.pause_reading(lane_id)

    def resume(self) -> None:
        for lane_id in self._lanes_read or {0}:
            self.link.resume_reading(lane_id)

    async def leave(self) -> None:
        self.send(ConEnd(Reason.SUCCESS))
        await self.until(lambda: self.is_closed)

    async def cut(self) -> None:
        """Break the connection without a word."""
        self.link.abort()
        await self.until(lambda: self.is_closed)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    # --- what the link reports ------------------------------------------------------------------------

    def data_received(self, lane_id: int, data: bytes) -> None:
        for item in self._readers.setdefault(lane_id, FrameReader(1 << 24)).feed(data):
            self._take(item, lane_id)
        self._changed.set()

    def _take(self, item: Item, lane_id: int) -> None:
        match item:
            case ConAck():
                self.was_accepted = item
            case TopAck():
                self.has_asked = True
            case PubAck() | PubSyn(reason=Reason.SUCCESS):
                self.answers += 1
            case PubReq():
                self._lanes_read.add(lane_id)
                self.received[item.qos] += 1
                self.received_bytes += len(item.payload)
                self._answer(item)
            case PubSyn(reason=Reason.RELEASE):
                self.send(PubAck(0, item.packet_id, Reason.SUCCESS))

    def _answer(self, packet: PubReq) -> None:
        if not self.acknowledges:
            self.unanswered.append(packet)
        elif packet.qos == 1:
            self.send(PubAck(0, packet.packet_id, Reason.SUCCESS))
        elif packet.qos == 2:
            self.send(PubSyn(0, packet.packet_id, Reason.SUCCESS))

    def lane_finished(self, lane_id: int) -> None: ...
    def lane_reset(self, lane_id: int, reason: int) -> None: ...

    def lane_writable(self, lane: Lane) -> None:
        self._changed.set()

    def closed(self, reason: int | None, message: str) -> None:
        self.is_closed = True
        self._changed.set()
