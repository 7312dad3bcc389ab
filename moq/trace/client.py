"""A client's tracer: records of what it sends and receives, of its connection, and of the broker's clock."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Final

from moq.errors import MoqError
from moq.trace.clock import now_ns
from moq.trace.connections import Connections
from moq.trace.offsets import estimate
from moq.trace.records import MAX_NS, NO_TIME, UNKNOWN
from moq.trace.schema import CLOCK, PUBLISHER_ROLE, SUBSCRIBER_ROLE
from moq.trace.writer import INTERVAL_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from moq.broker.link import Lane, Link
    from moq.trace.connections import Traced
    from moq.trace.offsets import Offset
    from moq.trace.writer import TraceWriter

logger = logging.getLogger(__name__)

DIALECT: Final = "mmqp"
"""What our clients speak."""

FIRST_QUESTIONS: Final = 5
"""About the broker's clock as a connection begins, so that a short run has a good answer too."""
QUESTION_S: Final = 10.0
"""Between the questions after that."""


class ClientTrace:
    """See `moq.client.tracer.ClientTracer`."""

    def __init__(self, writer: TraceWriter) -> None:
        self.writer = writer
        self._sampler = writer.sampler
        self._connections = Connections(writer)
        self._current: dict[Link, Traced] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._best: Offset | None = None

    def open(self) -> None:
        """See `ClientTracer`."""
        self.writer.open()

    def start(self, ask_time: Callable[[], Awaitable[bytes]]) -> None:
        """See `ClientTracer`."""
        self._tasks = [asyncio.create_task(self._tick()), asyncio.create_task(self._ask(ask_time))]

    async def close(self) -> None:
        """See `ClientTracer`."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.get_running_loop().run_in_executor(None, self.writer.close)

    def stamp_ns(self) -> int:
        """See `ClientTracer`."""
        return now_ns()

    def opened(self, link: Link, client_id: str) -> None:
        """See `ClientTracer`."""
        self._current = {link: self._connections.add(link, DIALECT, client_id)}
        self._best = None

    def closed(self, link: Link) -> None:
        """See `ClientTracer`."""
        self._connections.remove(link)

    def sent(
        self,
        link: Link,
        lane: Lane,
        topic: str,
        alias: int,
        qos: int,
        kind: int,
        payload_bytes: int,
        stamp_ns: int,
        waiting: int,
        dup: bool,
    ) -> None:
        """See `ClientTracer`."""
        traced = self._current.get(link)
        if topic == CLOCK or traced is None:
            return
        stamp_ns = stamp_ns if stamp_ns <= MAX_NS else NO_TIME
        weight = self._sampler.weigh(stamp_ns)
        if not weight:
            return
        self.writer.message(
            PUBLISHER_ROLE,
            traced.number,
            traced.origin,
            topic,
            lane.stream_id,
            alias,
            qos,
            kind,
            payload_bytes,
            stamp_ns,
            NO_TIME,
            NO_TIME,
            NO_TIME,
            lane.unsent,
            waiting,
            dup,
            UNKNOWN,
            weight,
        )

    def received(
        self,
        link: Link,
        lane_id: int,
        topic: str,
        alias: int,
        qos: int,
        kind: int,
        payload_bytes: int,
        stamp_ns: int,
        dup: bool,
    ) -> None:
        """See `ClientTracer`."""
        received_at_ns = now_ns()
        traced = self._current.get(link)
        if topic == CLOCK or traced is None:
            return
        stamp_ns = stamp_ns if stamp_ns <= MAX_NS else NO_TIME
        weight = self._sampler.weigh(stamp_ns)
        if not weight:
            return
        self.writer.message(
            SUBSCRIBER_ROLE,
            traced.number,
            traced.origin,
            topic,
            lane_id,
            alias,
            qos,
            kind,
            payload_bytes,
            stamp_ns,
            NO_TIME,
            NO_TIME,
            received_at_ns,
            UNKNOWN,
            UNKNOWN,
            dup,
            UNKNOWN,
            weight,
        )

    # --- inside ---------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            self._connections.look()
            self.writer.tick()
            await asyncio.sleep(INTERVAL_S)

    async def _ask(self, ask_time: Callable[[], Awaitable[bytes]]) -> None:
        """Compare clocks, more often at first; the very first answer is late by a registration and is not counted."""
        try:
            await ask_time()
            for _ in range(FIRST_QUESTIONS):
                await self._compare(ask_time)
            while True:
                await asyncio.sleep(QUESTION_S)
                await self._compare(ask_time)
        except (MoqError, ValueError, KeyError) as error:
            logger.info("the broker's clock is not compared with ours: %s", error)

    async def _compare(self, ask_time: Callable[[], Awaitable[bytes]]) -> None:
        asked_ns = now_ns()
        answer = json.loads(await ask_time())
        answered_ns = now_ns()
        found = estimate(asked_ns, answer["received_at_ns"], answer["sent_at_ns"], answered_ns)
        is_best = self._best is None or found.round_trip_ns < self._best.round_trip_ns
        if is_best:
            self._best = found
        for link, traced in self._current.items():
            self.writer.clock(
                traced.origin.client_id, link.peer, answered_ns, found.offset_ns, found.round_trip_ns, is_best
            )
