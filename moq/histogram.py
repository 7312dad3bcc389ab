"""Histograms as plain numbers: whoever measures adds, whoever is interested reads. No lock, no clock, no library.

One thread adds to a histogram. Another may read it meanwhile: it then misses the newest value at worst.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence


def spread(first: float, last: float) -> tuple[float, ...]:
    """Bounds in steps of 1, 2.5 and 5 from one power of ten to another, both included."""
    bounds, power = [], first
    while power < last * 0.99:
        bounds += [power, power * 2.5, power * 5]
        power *= 10
    return tuple(float(f"{bound:.3g}") for bound in [*bounds, last])


LATENCY_S: Final = spread(0.000_01, 10.0)
"""From ten microseconds, less than a turn of the event loop, to ten seconds."""

SIZES: Final = tuple(float(4**exponent) for exponent in range(10))
"""Of anything counted: 1, 4, 16, … 262,144."""

BYTES: Final = tuple(float(1024 * 4**exponent) for exponent in range(8))
"""1 KiB to 16 MiB."""


class Histogram:
    """How often values up to each bound were seen, and past the last one."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = LATENCY_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Of each bucket alone, the one without a bound last."""
        self.sum = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """A value was seen so many times; a bound belongs to the bucket below it."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, int]]:
        """Bounds and how many values were at most that, as Prometheus wants them."""
        total, cumulated = 0, []
        for bound, count in zip((*map(_text, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            cumulated.append((bound, total))
        return cumulated


def _text(bound: float) -> str:
    return str(float(bound))
