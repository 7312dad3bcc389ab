"""Latencies in whole microseconds, counted rather than kept: a minute at a million a second fits in a small table."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)


class Latencies:
    """How many messages took how long."""

    def __init__(self) -> None:
        self.counts: defaultdict[int, int] = defaultdict(int)

    @property
    def total(self) -> int:
        """How many were counted."""
        return sum(self.counts.values())

    def percentiles_us(self) -> dict[str, int]:
        """The smallest latency that so many percent do not exceed; empty if nothing was counted."""
        if not self.counts:
            return {}
        wanted = [(percent, self.total * percent / 100) for percent in PERCENTILES]
        found: dict[str, int] = {}
        seen = 0
        for latency_us in sorted(self.counts):
            seen += self.counts[latency_us]
            while wanted and seen >= wanted[0][1]:
                found[f"p{wanted.pop(0)[0]:g}"] = latency_us
        return found
