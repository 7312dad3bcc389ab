"""RFC's experiment: what the broker writes to a hundred subscribers of one topic, with periods and without."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from moq.bench.papers import published
from moq.bench.papers.clients import MQTTClient, published_bytes
from moq.bench.papers.metered import SETTLE_S, running_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from moq.bench.papers.metered import Metered
    from moq.bench.papers.progress import Progress

TOPIC: Final = "degree"
STANDARD, PACED = VARIANTS = ("without periods", "with periods")
TICK_S: Final = 0.002
"""Publishers send what is due in these steps: shorter than the time between two messages of all of them together
would be a busy loop for nothing."""
STALL_S: Final = 2.0
"""With nothing arriving for this long, what is missing is lost."""
GRACE_S: Final = 1.0
"""How long after the last period has ended something that should not come is waited for."""
BUCKET_S: Final = 0.5
"""Of the curve over time."""
START_ESTIMATE_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of it; the periods shrink with the duration."""

    publishers: tuple[int, ...] = published.RFC_PUBLISHERS
    subscribers: int = published.RFC_SUBSCRIBERS
    duration_s: float = published.RFC_DURATION_S
    periods: tuple[tuple[float, float], ...] = published.RFC_PERIODS
    settle_s: float = SETTLE_S

    @property
    def steps(self) -> int:
        """Each number of publishers with and without periods."""
        return len(VARIANTS) * len(self.publishers)

    @property
    def estimate_s(self) -> float:
        """About how long it takes."""
        longest_s = max(period_s for period_s, _ in self.periods)
        return self.steps * (self.duration_s + self.settle_s + START_ESTIMATE_S) + len(self.publishers) * (
            longest_s + GRACE_S
        )

    def periods_of_subscribers(self) -> list[float]:
        """The period of each, by the shares of the paper."""
        periods = [period_s for period_s, share in self.periods for _ in range(round(share * self.subscribers))]
        assert len(periods) == self.subscribers
        return periods


QUICK: Final = Plan(
    publishers=(6,),
    subscribers=10,
    duration_s=2.0,
    periods=((1.0, 0.3), (0.5, 0.3), (0.25, 0.3), (0.0, 0.1)),
    settle_s=0.0,
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When each message is due, fixed beforehand: message k of publisher i at (k + i / publishers) / rate."""

    publishers: int
    duration_s: float
    rate: float = published.RFC_RATE

    @property
    def messages(self) -> int:
        """Of all publishers."""
        return self.publishers * round(self.duration_s * self.rate)

    @property
    def span_s(self) -> float:
        """From the first message to the last."""
        return (self.messages - 1) / (self.rate * self.publishers)

    def due(self, elapsed_s: float) -> int:
        """How many should have been sent by now; they take turns."""
        return min(self.messages, math.floor(elapsed_s * self.rate * self.publishers) + 1)

    def deliveries(self, period_s: float) -> int:
        """At most so many to a subscriber with this period: the first at once, then one as each period ends.

        The last value of a burst is never lost, so a period that has begun delivers at its end.
        """
        return self.messages if period_s == 0 else 1 + math.ceil(self.span_s / period_s - 1e-9)


@dataclass(slots=True)
class Run:
    """What one number of publishers gave, with or without periods."""

    variant: str
    publishers: int
    limit_messages: int
    """What arithmetic allows the broker to send."""
    message_bytes: int
    """A PUBLISH as subscribers get it, header and topic included."""
    written_bytes: int = 0
    seconds: float = 0.0
    """From the first message due to the last byte received."""
    late_ms: float = 0.0
    """How late the generator was at worst."""
    cpu_s: float = 0.0
    bytes_by_time: list[tuple[float, float]] = field(default_factory=list)

    @property
    def limit_bytes(self) -> int:
        """The same in bytes."""
        return self.limit_messages * self.message_bytes

    @property
    def share_of_limit(self) -> float:
        """1 if the broker wrote what arithmetic says."""
        return self.written_bytes / self.limit_bytes


class Traffic:
    """What all subscribers have received, and when."""

    def __init__(self, wanted_bytes: int) -> None:
        self.total = 0
        self.complete = asyncio.Event()
        self._wanted = wanted_bytes
        self.last_s = 0.0
        self.by_bucket: dict[int, int] = {}
        self.started = time.perf_counter()

    def count(self, data: bytes) -> None:
        """Bytes arrived somewhere: called for every read of every subscriber."""
        self.last_s = time.perf_counter() - self.started
        self.total += len(data)
        if self.total >= self._wanted:
            self.complete.set()
        bucket = int(self.last_s / BUCKET_S)
        self.by_bucket[bucket] = self.by_bucket.get(bucket, 0) + len(data)

    @property
    def idle_s(self) -> float:
        """Since something arrived."""
        return time.perf_counter() - self.started - self.last_s

    def curve(self) -> list[tuple[float, float]]:
        """Megabytes per second over time."""
        last = max(self.by_bucket, default=0)
        return [(number * BUCKET_S, self.by_bucket.get(number, 0) / BUCKET_S / 1e6) for number in range(last + 1)]


async def run(plan: Plan, progress: Progress) -> list[Run]:
    """Each number of publishers, with periods and without."""
    runs: list[Run] = []
    for publishers in plan.publishers:
        for variant in VARIANTS:
            progress.begin(f"RFC, {publishers} publishers, {variant}")
            async with running_broker() as broker:
                runs.append(await _measure(plan, publishers, variant, broker))
            progress.end(f"{runs[-1].written_bytes / 1e6:.1f} MB, {runs[-1].share_of_limit:.3f} of the arithmetic")
    return runs


async def _measure(plan: Plan, publishers: int, variant: str, broker: Metered) -> Run:
    periods = plan.periods_of_subscribers() if variant == PACED else [0.0] * plan.subscribers
    schedule = Schedule(publishers, plan.duration_s)
    message = published_bytes(TOPIC, bytes(published.RFC_PAYLOAD_BYTES))
    run = Run(variant, publishers, sum(schedule.deliveries(period_s) for period_s in periods), len(message))
    clients: list[MQTTClient] = []
    try:
        for number, period_s in enumerate(periods):
            clients.append(await MQTTClient.open(broker.target, f"subscriber-{number}"))
            await clients[-1].subscribe(topic_filter(period_s))
        clients += [await MQTTClient.open(broker.target, f"publisher-{number}") for number in range(publishers)]
        await asyncio.sleep(plan.settle_s)
        traffic, before = Traffic(run.limit_bytes), broker.usage()
        for subscriber in clients[: len(periods)]:
            subscriber.on_bytes = traffic.count
        writers = [publisher.link.control.write for publisher in clients[len(periods) :]]
        run.late_ms = 1000 * await _publish(schedule, writers, message, traffic.started)
        await _settle(traffic, max(periods))
        run.written_bytes, run.seconds = traffic.total, traffic.last_s
        run.cpu_s = broker.usage().cpu_s - before.cpu_s
        run.bytes_by_time = traffic.curve()
    finally:
        for client in clients:
            client.link.abort()
    return run


def topic_filter(period_s: float) -> str:
    """The subscription of a subscriber with this period, as any MQTT client can write it."""
    period = round(period_s / published.RFC_PERIOD_UNIT_S)
    return f"$MRP;{period}/{TOPIC}" if period else TOPIC


async def _publish(
    schedule: Schedule, writers: Sequence[Callable[[bytes], None]], message: bytes, started: float
) -> float:
    """Send every message when it is due, whatever the broker does; returns how late the latest was, in seconds."""
    sent, late_s = 0, 0.0
    while sent < schedule.messages:
        elapsed_s = time.perf_counter() - started
        due = schedule.due(elapsed_s)
        if sent < due:
            late_s = max(late_s, elapsed_s - sent / (schedule.rate * schedule.publishers))
        for number in range(sent, due):
            writers[number % len(writers)](message)
        sent = due
        await asyncio.sleep(TICK_S)
    return late_s


async def _settle(traffic: Traffic, longest_period_s: float) -> None:
    """Wait for what is still to come, then for what should not: until the longest period has ended, and a bit more."""
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(traffic.complete.wait(), STALL_S)
            break
        if traffic.idle_s > longest_period_s + STALL_S:
            break
    await asyncio.sleep(longest_period_s + GRACE_S)
