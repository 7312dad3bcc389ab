"""A storm that is measured, as a process of its own: `python -m moq.bench.storm_clients PLAN`, a JSON object.

It keeps many connections under way: each connects, says who it is, hears the answer and leaves. An empty object says
that the first has been answered. Between the lines "count" and "stop" on stdin it counts how many, and how long each
took from its first packet to the broker's answer. At the lowest priority, like the storm among the bad neighbours.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.bench.brokers import usage
from moq.bench.idle_clients import raise_file_limit
from moq.bench.neighbours_storm import Caller
from moq.bench.results import sparse
from moq.errors import MoqError
from transports import quic, tcp, tls
from transports.options import TransportOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.broker.link import Link

CONNECT_TIMEOUT_S: Final = 30.0
REST_S: Final = 0.05
"""After a failure: a broker that refuses is not asked a thousand times a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StormPlan:
    """Who connects where, how many at once."""

    scheme: str
    host: str
    port: int
    ca: str
    at_once: int
    is_resumed: bool = False
    engine: str = "aioquic"


class TimedCaller(Caller):
    """Knows when it was answered."""

    answered_at: float | None = None

    def data_received(self, lane_id: int, data: bytes) -> None:
        """That is the answer."""
        self.answered_at = time.perf_counter()
        super().data_received(lane_id, data)


class Storm:
    """All callers, and what they have seen."""

    def __init__(self, plan: StormPlan) -> None:
        self._plan = plan
        self._ca = Path(plan.ca)
        self._tls = tls.client_context(self._ca) if plan.scheme == "tls" else None
        self._options = TransportOptions(connect_timeout_s=CONNECT_TIMEOUT_S)
        self.counts: dict[int, int] = {}
        self.connected = self.resumed = self.failed = 0
        self.why = ""
        self.has_begun = asyncio.Event()

    async def call(self) -> None:
        """Connect again and again."""
        callers: list[TimedCaller] = []
        ticket: list[object] = []

        def make(link: Link) -> TimedCaller:
            callers.append(TimedCaller(link))
            return callers[-1]

        while True:
            callers.clear()
            started = time.perf_counter()
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    link = await self._connect(make, ticket)
                    await callers[0].is_over.wait()
            except (MoqError, OSError, TimeoutError) as error:
                self.failed += 1
                self.why = str(error) or f"no answer within {CONNECT_TIMEOUT_S:g} s"
                await asyncio.sleep(REST_S)
                continue
            answered_at = callers[0].answered_at
            if answered_at is None:
                self.failed += 1
                self.why = "the broker closed the connection"
                continue
            self.has_begun.set()
            self.connected += 1
            self.resumed += bool(getattr(link, "is_resumed", False))
            took_us = round((answered_at - started) * 1e6)
            self.counts[took_us] = self.counts.get(took_us, 0) + 1

    async def _connect(self, make: Callable[[Link], TimedCaller], ticket: list[object]) -> Link:
        plan = self._plan
        if plan.scheme != "quic":
            return await tcp.connect(
                plan.host, plan.port, make, tls=self._tls, server_name="localhost", options=self._options
            )
        return await quic.connect(
            plan.host,
            plan.port,
            make,
            ca=self._ca,
            server_name="localhost",
            options=self._options,
            engine=plan.engine,
            session_ticket=ticket.pop() if plan.is_resumed and ticket else None,
            on_session_ticket=ticket.append if plan.is_resumed else None,
        )


async def _lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def _run(plan: StormPlan) -> None:
    lines, storm = await _lines(), Storm(plan)
    calls = [asyncio.create_task(storm.call()) for _ in range(plan.at_once)]
    await storm.has_begun.wait()
    print("{}", flush=True)
    await lines.readline()
    storm.counts.clear()
    storm.connected = storm.resumed = storm.failed = 0
    started, before = time.perf_counter(), usage(os.getpid())
    await lines.readline()
    seconds = time.perf_counter() - started
    told = {
        "seconds": seconds,
        "connected": storm.connected,
        "resumed": storm.resumed,
        "failed": storm.failed,
        "why": storm.why,
        "cpu_s": usage(os.getpid()).cpu_s - before.cpu_s,
        "latency_us": sparse(storm.counts),
    }
    print(json.dumps(told), flush=True)
    for each in calls:
        each.cancel()
    os._exit(0)


def main() -> None:
    """Run what the first argument describes."""
    plan = StormPlan(**json.loads(sys.argv[1]))
    raise_file_limit(4 * plan.at_once + 256)
    os.nice(19)
    asyncio.run(_run(plan))


if __name__ == "__main__":
    main()
