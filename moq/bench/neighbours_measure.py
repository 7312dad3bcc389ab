"""What bad neighbours cost: the round trips of a client that minds its own business, with them and without, in turns.

Both times another client publishes the load that the bad ones subscribe to: more at once than is kept for them, and
then a steady flow.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import certs
import moq
from moq.bench.brokers import usage
from moq.bench.neighbours_bad import LOAD_TOPIC, bad_neighbours

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

OWN_TOPIC: Final = "own/business"
PERIOD_S: Final = 0.004
"""Between an answer and the next message."""

LOAD: Final = bytes(4 * 1024)
LOAD_PERIOD_S: Final = 0.005
FIRST_MESSAGES: Final = 2_000
"""Of the load: 8 MB, twice what is kept for one subscriber."""

QUEUED_BYTES: Final = 4 * 1024 * 1024
STORM_CONNECTIONS: Final = 200
"""Under way at once."""

OPTIONS: Final = (
    *("--limit", f"max_queued_bytes={QUEUED_BYTES}"),
    *("--limit", f"max_connections_per_address={2 * STORM_CONNECTIONS}"),
    *("--store", "memory"),
)
"""Of the broker: what it keeps for one slow subscriber is small, so that its memory shows whether it keeps to it. So is
the number of connections: a QUIC connection that was abandoned without a word stays until it was silent for long."""

ALLOWED_BYTES: Final = 96 * 1024 * 1024
"""Of two subscribers, so much waiting, as much in flight, and a high-water mark of 1 MiB; of the storm, 70 kB for each
QUIC connection that shakes hands, is open or was closed a moment ago, some 700 of them; and Python's own slack. 15 MiB
were measured over TCP and TLS, 63 over QUIC."""

RESAMPLES: Final = 500
CONFIDENCE: Final = 0.9


@dataclass(slots=True)
class Neighbours:
    """Seconds of every round trip, round by round, and what the broker's memory did."""

    quiet: list[list[float]] = field(default_factory=list)
    beside: list[list[float]] = field(default_factory=list)
    rss_before: int = 0
    rss_highest: int = 0

    @property
    def growth_bytes(self) -> int:
        """Of the broker's memory, at most."""
        return self.rss_highest - self.rss_before

    def ratio(self, share: float) -> float:
        """How many times as long a percentile is beside bad neighbours, all rounds taken together."""
        return quantile(_pooled(self.beside), share) / quantile(_pooled(self.quiet), share)

    def ratio_range(self, share: float) -> tuple[float, float]:
        """Where nine in ten such ratios are if rounds are drawn at random from those there were (bootstrap)."""
        draw = random.Random(1).choices
        ratios = sorted(
            Neighbours(draw(self.quiet, k=len(self.quiet)), draw(self.beside, k=len(self.beside))).ratio(share)
            for _ in range(RESAMPLES)
        )
        return quantile(ratios, (1 - CONFIDENCE) / 2), quantile(ratios, (1 + CONFIDENCE) / 2)


async def measure_neighbours(
    url: str, data_dir: Path, pid: int, rounds: int, samples: int, say: Callable[[str], None] = lambda text: None
) -> Neighbours:
    """Quiet and beside bad neighbours in turns, at the broker of this process and data directory."""
    found, ca = Neighbours(), certs.paths(data_dir).ca
    async with (
        moq.connect(url, data_dir=data_dir) as loader,
        moq.connect(url, data_dir=data_dir) as client,
        client.subscribe(OWN_TOPIC) as inbox,
    ):
        await client.publish(OWN_TOPIC, b"", qos=1)
        await anext(inbox)
        found.rss_before = found.rss_highest = usage(pid).rss_bytes
        for number in range(rounds):
            async with _loaded(loader):
                found.quiet.append(await _round_trips(client, inbox, samples))
            async with bad_neighbours(url, ca, STORM_CONNECTIONS), _loaded(loader):
                found.beside.append(await _round_trips(client, inbox, samples))
                found.rss_highest = max(found.rss_highest, usage(pid).rss_bytes)
            p99s = [quantile(runs[-1], 0.99) * 1000 for runs in (found.quiet, found.beside)]
            say(f"round {number + 1}/{rounds}: p99 {p99s[0]:.1f} ms quiet, {p99s[1]:.1f} ms beside bad neighbours")
    return found


def quantile(values: list[float], share: float) -> float:
    """The value that so large a share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def _pooled(rounds: list[list[float]]) -> list[float]:
    return [value for values in rounds for value in values]


async def _round_trips(client: moq.Client, inbox: moq.Subscription, samples: int) -> list[float]:
    found: list[float] = []
    for _ in range(samples):
        sent_at = time.perf_counter()
        await client.publish(OWN_TOPIC, b"", qos=0)
        await anext(inbox)
        found.append(time.perf_counter() - sent_at)
        await asyncio.sleep(PERIOD_S)
    return found


async def _load(client: moq.Client) -> None:
    for _ in range(FIRST_MESSAGES):
        await client.publish(LOAD_TOPIC, LOAD, qos=1)
    while True:
        await client.publish(LOAD_TOPIC, LOAD, qos=1)
        await asyncio.sleep(LOAD_PERIOD_S)


@asynccontextmanager
async def _loaded(client: moq.Client) -> AsyncIterator[None]:
    loading = asyncio.create_task(_load(client))
    try:
        yield
    finally:
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
