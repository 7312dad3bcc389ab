"""The arithmetic of calibration: percentiles, intervals of a loss, how many packets a precision takes, verdicts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

TOLERANCE: Final = 0.1
Z_95: Final = 1.96

STRAY_LOSS: Final = 0.001
"""A path that should lose nothing may lose one packet in a thousand: the machine also does other things."""


def percentile(ordered: Sequence[float], share: float) -> float:
    """A percentile of values in order, interpolated between neighbours."""
    if not ordered:
        return math.nan
    position = (len(ordered) - 1) * share
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def summary(values: Sequence[float]) -> dict[str, float]:
    """How values are distributed."""
    ordered = sorted(values)
    shares = {"min": 0.0, "p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {"count": len(ordered)} | {name: round(percentile(ordered, share), 3) for name, share in shares.items()}


def inflation(burst_start: float, burst_end: float) -> float:
    """How many packets lost in bursts tell as much as one lost on its own (Gilbert-Elliott's p and r; 1 without)."""
    if not burst_start:
        return 1.0
    correlation = 1 - burst_start - burst_end
    return max((1 + correlation) / (1 - correlation), 1.0)


def loss_interval(lost: int, sent: int, inflated: float = 1.0) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, over as many packets as they are worth."""
    if not sent:
        return (0.0, 1.0)
    count, share = sent / inflated, lost / sent
    spread = Z_95**2 / count
    centre = (share + spread / 2) / (1 + spread)
    half = Z_95 / (1 + spread) * math.sqrt(share * (1 - share) / count + spread / count / 4)
    return (max(centre - half, 0.0), min(centre + half, 1.0))


def packets_for(share: float, precision: float = TOLERANCE, inflated: float = 1.0) -> int:
    """How many packets make the 95 % interval of a loss as narrow as a part of it."""
    if not 0 < share < 1:
        return 0
    return math.ceil((Z_95 / precision) ** 2 * (1 - share) / share * inflated)


def is_within(measured: float, wanted: float) -> bool:
    """Whether a value is within ten percent of the one that was wanted."""
    return abs(measured - wanted) <= TOLERANCE * wanted


def is_loss_within(share: float, wanted: float) -> bool:
    """Whether a loss is what was wanted; none is none but for a stray packet."""
    return share <= STRAY_LOSS if wanted == 0 else is_within(share, wanted)
