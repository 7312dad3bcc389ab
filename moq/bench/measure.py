"""One measurement: warm up, count for a while, drain, and say what it cost."""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from moq.bench.brokers import machine_user_s, usage
from moq.bench.latencies import PERCENTILES, Latencies
from moq.bench.load import STALL_S, Load

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.bench.brokers import Running
    from moq.bench.dialects import Dialect
    from moq.bench.load import Shape

CHECK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one run, or the medians of several."""

    deliveries_per_s: float
    messages_per_s: float
    latency_us: dict[str, float]
    lost: int
    repeated: int
    disordered: int
    is_overloaded: bool
    streams: int
    """On which the messages came to one subscriber: as many as topics, if the transport has streams."""
    duration_s: float
    broker_cpu_s: float
    broker_cpu_share: float
    """Of one processor."""
    broker_rss_bytes: int
    generator_cpu_share: float
    """Near 1, with a broker that is less busy, the generator was the limit."""
    others_cpu_share: float
    """Processors used by other processes meanwhile: above a tenth or so the figures are too low."""

    @property
    def is_clean(self) -> bool:
        """True if every message arrived once and in order."""
        return not (self.lost or self.repeated or self.disordered or self.is_overloaded)

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**asdict(self), "is_clean": self.is_clean}


async def measure(
    running: Running,
    shape: Shape,
    warm_up_s: float,
    duration_s: float,
    make_load: Callable[[Shape, Dialect], Load] = Load,
) -> Result:
    """Put this load on a broker."""
    load = make_load(shape, running.dialect)
    try:
        await load.open(running.connect_publisher, running.connect_subscriber)
        gc.collect()
        gc.disable()
        load.start()
        await _run(load, warm_up_s)
        return await _count(load, running, duration_s)
    finally:
        gc.enable()
        load.close()
        # Closing takes a turn of the loop; the broker is stopped after this.
        await asyncio.sleep(0)


async def _run(load: Load, seconds: float) -> None:
    """Let the load run, but not on after it has stalled."""
    end = time.perf_counter() + seconds
    received, since = load.tally.received, time.perf_counter()
    while (now := time.perf_counter()) < end and not load.is_overloaded:
        if load.tally.received != received:
            received, since = load.tally.received, now
        elif now - since > STALL_S:
            return
        await asyncio.sleep(min(CHECK_S, end - now))


async def _count(load: Load, running: Running, duration_s: float) -> Result:
    latencies = load.tally.latencies = Latencies()
    before, own_before, all_before = running.usage(), usage(os.getpid()), machine_user_s()
    received, started = load.tally.received, time.perf_counter()
    await _run(load, duration_s)
    seconds = time.perf_counter() - started
    after, own_after, all_after = running.usage(), usage(os.getpid()), machine_user_s()
    received = load.tally.received - received
    ours_s = after.user_s - before.user_s + own_after.user_s - own_before.user_s
    percentiles = latencies.percentiles_us()
    await load.drain()
    tally = load.tally
    return Result(
        deliveries_per_s=received / seconds,
        messages_per_s=received / load.shape.subscribers / seconds,
        latency_us={name: float(value) for name, value in percentiles.items()},
        lost=tally.lost,
        repeated=tally.repeated,
        disordered=tally.disordered,
        is_overloaded=load.is_overloaded,
        streams=load.streams,
        duration_s=seconds,
        broker_cpu_s=after.cpu_s - before.cpu_s,
        broker_cpu_share=(after.cpu_s - before.cpu_s) / seconds,
        broker_rss_bytes=after.rss_bytes,
        generator_cpu_share=(own_after.cpu_s - own_before.cpu_s) / seconds,
        others_cpu_share=max(0.0, all_after - all_before - ours_s) / seconds,
    )


def median(results: list[Result]) -> Result:
    """Each figure's median; losses add up, for one lossy run makes a lossy result."""

    def middle(name: str) -> float:
        return statistics.median(float(getattr(result, name)) for result in results)

    names = [f"p{percent:g}" for percent in PERCENTILES]
    return Result(
        deliveries_per_s=middle("deliveries_per_s"),
        messages_per_s=middle("messages_per_s"),
        latency_us={
            name: statistics.median(result.latency_us[name] for result in results if result.latency_us)
            for name in names
            if any(result.latency_us for result in results)
        },
        lost=sum(result.lost for result in results),
        repeated=sum(result.repeated for result in results),
        disordered=sum(result.disordered for result in results),
        is_overloaded=any(result.is_overloaded for result in results),
        streams=int(middle("streams")),
        duration_s=middle("duration_s"),
        broker_cpu_s=middle("broker_cpu_s"),
        broker_cpu_share=middle("broker_cpu_share"),
        broker_rss_bytes=int(middle("broker_rss_bytes")),
        generator_cpu_share=middle("generator_cpu_share"),
        others_cpu_share=middle("others_cpu_share"),
    )
