"""An active pair: one publisher and one subscriber that stay connected while others do something to the broker.

Its messages are due at fixed times and counted from there, as everywhere. Between them it sleeps and wakes shortly
before the next, rather than wait busily as a load does: what it is measured beside needs the processor too.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moq.bench.brokers import machine_user_s, usage
from moq.bench.latencies import Latencies
from moq.bench.load import Load, Shape
from moq.bench.quantiles import percentile
from moq.bench.results import sparse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from moq.bench.brokers import Running

RATE: Final = 200.0
"""Messages a second: enough for a 99th percentile within seconds, few enough to leave the processors to others."""

WARM_UP_S: Final = 1.0
"""Before anything is measured."""

AWAKE_NS: Final = 1_500_000
"""Before a message is due the pair waits busily for so long: timers are a millisecond late."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What the pair saw for a while, and what the broker did meanwhile."""

    started_at: float
    duration_s: float
    latency_us: Mapping[int, int]
    expected: int
    received: int
    broker_cpu_s: float
    broker_rss_bytes: int
    generator_cpu_s: float
    others_cpu_share: float

    @property
    def p99_us(self) -> float | None:
        """The slow messages."""
        return percentile(self.latency_us, 99)


class Pair(Load):
    """Sends at a low rate for as long as it is wanted."""

    def __init__(self, running: Running, rate: float = RATE) -> None:
        super().__init__(Shape(rate=rate, payload_bytes=100), running.dialect)
        self._running = running

    @property
    def sent(self) -> int:
        """Messages so far."""
        return sum(publisher.sent for publisher in self._publishers)

    async def measure(self, seconds: float) -> Phase:
        """The latencies of what is due from now on for so long."""
        latencies = self.tally.latencies = Latencies()
        started_at, started = time.time(), time.perf_counter()
        sent, received = self.sent, self.tally.received
        before, own_before, all_before = self._running.usage(), usage(os.getpid()), machine_user_s()
        await asyncio.sleep(seconds)
        duration_s = time.perf_counter() - started
        after, own_after, all_after = self._running.usage(), usage(os.getpid()), machine_user_s()
        self.tally.latencies = Latencies()
        ours_s = after.user_s - before.user_s + own_after.user_s - own_before.user_s
        return Phase(
            started_at=started_at,
            duration_s=duration_s,
            latency_us=sparse(latencies.counts),
            expected=self.sent - sent,
            received=self.tally.received - received,
            broker_cpu_s=after.cpu_s - before.cpu_s,
            broker_rss_bytes=after.rss_bytes,
            generator_cpu_s=own_after.cpu_s - own_before.cpu_s,
            others_cpu_share=max(0.0, all_after - all_before - ours_s) / duration_s,
        )

    def pause(self) -> None:
        """Send nothing for a while."""
        self._is_publishing = False

    def resume(self) -> None:
        """The next message is due now."""
        self._is_publishing = True
        self._started_ns = time.perf_counter_ns() - self.sent * self._interval_ns
        self._send_what_is_due()

    def _send_what_is_due(self) -> None:
        """Send, then sleep until shortly before the next."""
        if not self._is_publishing:
            return
        (publisher,) = self._publishers
        now_ns, interval_ns = time.perf_counter_ns(), self._interval_ns
        due = (now_ns - self._started_ns) // interval_ns + 1 - publisher.sent
        if due > 0:
            publisher.send(due, self._started_ns + publisher.sent * interval_ns, interval_ns)
        loop = asyncio.get_running_loop()
        wait_ns = self._started_ns + publisher.sent * interval_ns - time.perf_counter_ns() - AWAKE_NS
        if wait_ns > 0:
            loop.call_later(wait_ns / 1e9, self._send_what_is_due)
        else:
            loop.call_soon(self._send_what_is_due)


@asynccontextmanager
async def active_pair(running: Running, rate: float = RATE) -> AsyncIterator[Pair]:
    """Connected and sending until the block ends; it is drained then, so that what was lost is known."""
    pair = Pair(running, rate)
    try:
        await pair.open(running.connect_publisher, running.connect_subscriber)
        pair.start()
        yield pair
        await pair.drain()
    finally:
        pair.close()
        # Closing takes a turn of the loop; the broker is stopped after this.
        await asyncio.sleep(0)
