"""The load of a subscriber that is away: publishers whose messages must be kept, and the return that takes them all.

    subscribe, leave ──► publish: every message is acknowledged, none can be delivered ──► return: the backlog comes

It is where a durable broker really writes: what a connected subscriber acknowledges at once may never reach a disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moq.bench.latencies import Latencies
from moq.bench.load import STALL_S, Load, Subscriber
from moq.broker.link import CONTROL

if TYPE_CHECKING:
    from moq.bench.dialects import Dialect
    from moq.bench.flows import Block, Flow, Tally
    from moq.bench.load import Connect, Publisher, Shape
    from moq.broker.link import Link

ABSENT_ID: Final = "bench-sub-0"
"""As `Load` names its first subscriber."""

ANSWERS_TIMEOUT_S: Final = 120.0
"""For all acknowledgements of a run: only a broker that hangs takes as long."""

STILL_S: Final = 5 * STALL_S
"""A backlog of which nothing comes for so long is not going to."""


@dataclass(frozen=True, slots=True)
class Return:
    """How the backlog came, in seconds from the beginning of the connection."""

    messages: int
    first_s: float
    last_s: float


class Returning(Subscriber):
    """A subscriber whose messages may come right behind the answer to its hello."""

    def __init__(self, dialect: Dialect, link: Link) -> None:
        super().__init__(dialect, link)
        self.first_at = self.last_at = 0.0
        self.has_come = asyncio.Event()
        """Set whenever something came."""

    def data_received(self, lane_id: int, data: bytes) -> None:
        """One answer, then messages."""
        if self._is_open or lane_id != CONTROL:
            super().data_received(lane_id, data)
            return
        data = self._control + data
        end = self.dialect.packet_end(data, 0)
        if end is None or end > len(data):
            self._control = data
            return
        self._answers.put_nowait(data[:end])
        self.start()
        if len(data) > end:
            self.messages_received(lane_id, data[end:])

    def messages_received(self, lane_id: int, data: bytes) -> None:
        """Note when."""
        super().messages_received(lane_id, data)
        self.last_at = time.perf_counter()
        self.first_at = self.first_at or self.last_at
        self.has_come.set()


class AbsentLoad(Load):
    """Publishers, and one subscriber with a persistent session who is away."""

    def __init__(self, shape: Shape, dialect: Dialect, messages: int | None = None) -> None:
        """`messages`: how many there are in a closed loop; without it, or with a rate, until somebody says stop."""
        super().__init__(shape, dialect)
        self._quota = None if messages is None else max(1, messages // shape.publishers)
        self._is_answered = asyncio.Event()

    async def _open_subscribers(self, connect_subscriber: Connect) -> None:
        await super()._open_subscribers(connect_subscriber)
        for subscriber in self._subscribers:
            await subscriber.leave()
        self._subscribers.clear()

    def count_answers(self) -> Latencies:
        """From now on; returns where they are counted."""
        answered = Latencies()
        for publisher in self._publishers:
            publisher.answered = answered
        return answered

    async def publish_all(self) -> float:
        """Publish the quota; returns how many seconds it took until everything was acknowledged."""
        started = time.perf_counter()
        self.start()
        async with asyncio.timeout(ANSWERS_TIMEOUT_S):
            await self._is_answered.wait()
        return time.perf_counter() - started

    def _fill(self, publisher: Publisher) -> None:
        now_ns = time.perf_counter_ns()
        while publisher.on_their_way + self._block <= self._window:
            count = self._block if self._quota is None else min(self._block, self._quota - publisher.sent)
            if count <= 0:
                return
            publisher.send(count, now_ns)

    def _block_done(self, publisher: Publisher, block: Block) -> None:
        super()._block_done(publisher, block)
        if not any(publisher.on_their_way for publisher in self._publishers):
            self._is_answered.set()

    async def bring_back(self, connect_subscriber: Connect) -> Return:
        """Let the subscriber return and take everything; what is missing is counted as lost."""
        flows = [flow for publisher in self._publishers for flow in publisher.flows]
        subscriber, taken = await take_backlog(connect_subscriber, self._dialect, ABSENT_ID, flows, self.tally)
        self._subscribers.append(subscriber)
        return taken


async def take_backlog(
    connect: Connect, dialect: Dialect, client_id: str, flows: list[Flow], tally: Tally
) -> tuple[Returning, Return]:
    """Go on with a persistent session and take what waits, at QoS 1; what does not come is counted as lost."""
    made: list[Returning] = []

    def make_handler(link: Link) -> Returning:
        made.append(Returning(dialect, link))
        made[0].prepare(flows, tally, dialect.first_answers(1))
        return made[0]

    started = time.perf_counter()
    await connect(make_handler)
    subscriber = made[0]
    await subscriber.ask(dialect.hello(client_id, is_persistent=True))
    expected = sum(flow.next_seq for flow in flows)
    with contextlib.suppress(TimeoutError):
        while tally.received < expected:
            async with asyncio.timeout(STILL_S):
                await subscriber.has_come.wait()
            subscriber.has_come.clear()
    tally.lost += sum(place.flow.next_seq - place.seq for place in subscriber.places)
    return subscriber, Return(tally.received, subscriber.first_at - started, subscriber.last_at - started)
