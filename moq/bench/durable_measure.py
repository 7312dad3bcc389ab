"""Measurements of durable brokers: what an absent subscriber costs, and how transactions grow with the load."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from moq.bench.durable_absent import AbsentLoad
from moq.bench.durable_store import store_use
from moq.bench.load import STALL_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moq.bench.brokers import Running
    from moq.bench.load import Shape


@dataclass(frozen=True, slots=True)
class Absence:
    """Messages kept for a subscriber who was away, and how they came when it returned; or the medians of several."""

    messages: float
    published_per_s: float
    answered_p50_us: float
    """From publishing a message to its acknowledgement, with a full window."""
    answered_p99_us: float
    messages_per_commit: float
    """0 if nothing was committed, or the broker does not tell."""
    commit_ms: float
    taken_per_s: float
    first_message_s: float
    broker_cpu_s: float
    """For both, publishing and taking."""
    broker_rss_bytes: float
    faults: float
    """Messages lost, repeated or out of order."""

    @property
    def is_clean(self) -> bool:
        """True if every message arrived once and in order."""
        return not self.faults


@dataclass(frozen=True, slots=True)
class Point:
    """One place of the batching curve, or the medians of several."""

    offered_per_s: float
    answered_per_s: float
    messages_per_commit: float
    commits_per_s: float
    commit_ms: float
    answered_p50_us: float
    """From when a message was due to its acknowledgement."""
    answered_p99_us: float
    broker_cpu_share: float
    is_overloaded: float
    """1 if the load was more than the broker takes."""


async def measure_absence(running: Running, shape: Shape, messages: int) -> Absence:
    """Publish so many messages for a subscriber who is away, and let it return."""
    load = AbsentLoad(shape, running.dialect, messages)
    try:
        await load.open(running.connect_publisher, running.connect_subscriber)
        gc.collect()
        gc.disable()
        answered, stored, used = load.count_answers(), await store_use(running.http_port), running.usage()
        seconds = await load.publish_all()
        stored_after = await store_use(running.http_port)
        taken = await load.bring_back(running.connect_subscriber)
        used_after = running.usage()
    finally:
        gc.enable()
        load.close()
        await asyncio.sleep(0)
    percentiles, tally = answered.percentiles_us(), load.tally
    work = stored_after - stored if stored and stored_after else None
    return Absence(
        messages=answered.total,
        published_per_s=answered.total / seconds,
        answered_p50_us=percentiles["p50"],
        answered_p99_us=percentiles["p99"],
        messages_per_commit=answered.total / work.batches if work and work.batches else 0.0,
        commit_ms=work.commit_ms if work else 0.0,
        taken_per_s=taken.messages / taken.last_s if taken.messages else 0.0,
        first_message_s=taken.first_s if taken.messages else float("inf"),
        broker_cpu_s=used_after.cpu_s - used.cpu_s,
        broker_rss_bytes=used_after.rss_bytes,
        faults=tally.lost + tally.repeated + tally.disordered,
    )


async def measure_point(running: Running, shape: Shape, warm_up_s: float, duration_s: float) -> Point:
    """Offer a rate for a while, for a subscriber who is away."""
    assert shape.rate is not None
    load = AbsentLoad(shape, running.dialect)
    try:
        await load.open(running.connect_publisher, running.connect_subscriber)
        gc.collect()
        gc.disable()
        load.start()
        await asyncio.sleep(warm_up_s)
        answered, stored, used = load.count_answers(), await store_use(running.http_port), running.usage()
        started = time.perf_counter()
        await asyncio.sleep(duration_s)
        seconds, count = time.perf_counter() - started, answered.total
        stored_after, used_after = await store_use(running.http_port), running.usage()
        # A backlog longer than anybody waits is an overload too: the latencies would only tell how long the run was.
        await load.drain()
    finally:
        gc.enable()
        load.close()
        await asyncio.sleep(0)
    assert stored is not None
    assert stored_after is not None
    work, percentiles = stored_after - stored, answered.percentiles_us()
    return Point(
        offered_per_s=shape.rate,
        answered_per_s=count / seconds,
        messages_per_commit=count / work.batches if work.batches else 0.0,
        commits_per_s=work.batches / seconds,
        commit_ms=work.commit_ms,
        answered_p50_us=percentiles.get("p50", 0.0),
        answered_p99_us=percentiles.get("p99", 0.0),
        broker_cpu_share=(used_after.cpu_s - used.cpu_s) / seconds,
        is_overloaded=float(load.is_overloaded or percentiles.get("p50", 0.0) > STALL_S * 1e6),
    )


def median_absence(runs: Sequence[Absence]) -> Absence:
    """Each figure's median; faults add up, for one lossy run makes a lossy result."""
    return Absence(**{**_medians(runs), "faults": sum(run.faults for run in runs)})


def median_point(runs: Sequence[Point]) -> Point:
    """Each figure's median."""
    return Point(**_medians(runs))


def _medians(runs: Sequence[Absence] | Sequence[Point]) -> dict[str, float]:
    values = [asdict(run) for run in runs]
    return {name: statistics.median(value[name] for value in values) for name in values[0]}
