"""Wall-clock times that never jump: a monotonic clock plus one difference, taken once for the process.

If the operating system sets its clock, traces go on as before; how far two machines are apart is measured between them
(`offsets.py`) instead of believed.
"""

from __future__ import annotations

import time
from typing import Final

_TRIES: Final = 16


def _epoch_ns() -> int:
    """The difference of the two clocks, from the pair of readings that lie closest together."""
    found = []
    for _ in range(_TRIES):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        found.append((after - before, wall - (before + after) // 2))
    return min(found)[1]


EPOCH_NS: Final = _epoch_ns()
"""Added to the monotonic clock: nanoseconds since 1970."""


def now_ns() -> int:
    """The time, in nanoseconds since 1970."""
    return time.monotonic_ns() + EPOCH_NS


def from_loop(seconds: float) -> int:
    """A time of the event loop's clock, which is the same monotonic one."""
    return int(seconds * 1e9) + EPOCH_NS
