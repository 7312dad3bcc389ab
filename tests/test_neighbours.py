"""Bad neighbours: a subscriber that stops reading, one that reads a byte a second, and a storm of connections, at once.

A client that minds its own business sends a message to itself again and again, first alone and then beside them, in
turns. Its 99th percentile may not be more than twice the quiet one. Whatever else a machine does only adds to either:
so the best of several rounds are compared, and `NOISE_S` is allowed for what remains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from moq.bench.neighbours_measure import ALLOWED_BYTES, OPTIONS, measure_neighbours, quantile
from tests.running import Broker

if TYPE_CHECKING:
    from pathlib import Path

SCHEMES = ("tcp", "tls", "quic")

ROUNDS = 3
SAMPLES = 300
"""Messages of one round, quiet or not: three are slower than the 99th percentile."""

NOISE_S = 0.010
"""What a process on a shared machine may wait for a processor beside two busy ones: a few scheduler slices."""


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_bad_neighbours_cost_others_little_time_and_the_broker_little_memory(tmp_path: Path, scheme: str) -> None:
    with Broker(tmp_path, *OPTIONS) as broker:
        found = await measure_neighbours(broker.url(scheme), tmp_path, broker.process.pid, ROUNDS, SAMPLES)
    quiet = [quantile(values, 0.99) for values in found.quiet]
    beside = [quantile(values, 0.99) for values in found.beside]
    said = f"p99 in ms, quiet {_ms(quiet)}, beside bad neighbours {_ms(beside)}; {found.growth_bytes >> 20} MiB more"
    print(said)
    assert min(beside) <= 2 * min(quiet) + NOISE_S, said
    assert found.growth_bytes < ALLOWED_BYTES, said


def _ms(values: list[float]) -> list[float]:
    return [round(value * 1000, 1) for value in values]
