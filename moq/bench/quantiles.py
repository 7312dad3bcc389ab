"""What may be said from a few repetitions: percentiles of histograms, intervals, and whether two sets of runs differ.

The figure of several runs is the median of their figures, and how far it may be off is asked by the bootstrap: draw as
many runs from those there are, with replacement, and see how much the median moves. Three or five runs show too little
of that, so the movement is scaled by n / (n - 1) and Student's t takes the place of the normal distribution, which is
4.3 instead of 1.96 for three runs. Latencies and rates are compared as ratios, so all this is done with logarithms.
"""

from __future__ import annotations

import functools
import math
import random
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONFIDENCE: Final = 0.95
RESAMPLES: Final = 1000
FEWEST: Final = 2
"""Repetitions from which an interval can be made at all."""

RESOLUTION: Final = 0.003
"""Of one figure, relative, as a standard deviation: it has three digits. Runs that agree to the digit are no proof."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure, and between which bounds it is at some confidence; without bounds from a single run."""

    estimate: float
    low: float | None
    high: float | None
    repetitions: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many times as large the figure of the second set is as that of the first."""

    ratio: float
    low: float | None
    high: float | None
    probability_greater: float | None
    """How sure it is that the second figure is the greater: near 0 it is smaller, near 1 greater, between unknown."""
    repetitions: tuple[int, int]

    @property
    def is_shown(self) -> bool:
        """Whether there is a difference, as far as the interval goes."""
        return self.low is not None and self.high is not None and (self.low > 1 or self.high < 1)


@dataclass(frozen=True, slots=True)
class _Spread:
    """A median, how far off it may be, and from how many values beyond the first that is known."""

    middle: float
    error: float
    freedom: int


def percentile(histogram: Mapping[int, int], percent: float) -> float | None:
    """The smallest key that so many percent of the counts do not exceed; None if nothing was counted."""
    total = sum(histogram.values())
    if not total:
        return None
    wanted, seen = total * percent / 100, 0
    for key in sorted(histogram):
        seen += histogram[key]
        if seen >= wanted:
            break
    return float(key)


def percentiles(histogram: Mapping[int, int], percents: Sequence[float]) -> list[float | None]:
    """Several of them."""
    return [percentile(histogram, percent) for percent in percents]


def pooled(histograms: Sequence[Mapping[int, int]]) -> dict[int, int]:
    """The counts of all together."""
    found: dict[int, int] = {}
    for histogram in histograms:
        for key, count in histogram.items():
            found[key] = found.get(key, 0) + count
    return found


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The median of some runs' figures and its bounds; on a logarithmic scale if all of them are above zero."""
    middle = statistics.median(values)
    if len(values) < FEWEST:
        return Interval(middle, None, None, len(values))
    is_positive = min(values) > 0
    spread = _spread(tuple(math.log(value) for value in values) if is_positive else tuple(values))
    reach = student_quantile((1 + confidence) / 2, spread.freedom) * (
        math.hypot(spread.error, RESOLUTION) if is_positive else spread.error
    )
    if is_positive:
        return Interval(middle, _exp(spread.middle - reach), _exp(spread.middle + reach), len(values))
    return Interval(middle, middle - reach, middle + reach, len(values))


def compare(first: Sequence[float], second: Sequence[float], confidence: float = CONFIDENCE) -> Comparison | None:
    """The ratio of the medians, second to first; None where a figure is missing or not above zero."""
    if not first or not second or min(*first, *second) <= 0:
        return None
    repetitions = (len(first), len(second))
    ratio = statistics.median(second) / statistics.median(first)
    if min(repetitions) < FEWEST:
        return Comparison(ratio, None, None, None, repetitions)
    found = _difference(first, second)
    reach = student_quantile((1 + confidence) / 2, found.freedom) * found.error
    return Comparison(
        ratio,
        _exp(found.middle - reach),
        _exp(found.middle + reach),
        student_share(found.middle / found.error, found.freedom),
        repetitions,
    )


def probability_beyond(first: Sequence[float], second: Sequence[float], bound: float) -> float | None:
    """How sure it is that the second figure is more than `bound` times the first; None if nothing can be said."""
    if min(len(first), len(second)) < FEWEST or min(*first, *second) <= 0:
        return None
    found = _difference(first, second)
    return student_share((found.middle - math.log(bound)) / found.error, found.freedom)


def _difference(first: Sequence[float], second: Sequence[float]) -> _Spread:
    """Of the logarithms."""
    a, b = (_spread(tuple(math.log(value) for value in values)) for values in (first, second))
    return _Spread(b.middle - a.middle, math.hypot(a.error, b.error, RESOLUTION), _welch(a, b))


@functools.lru_cache(maxsize=4096)
def _spread(values: tuple[float, ...]) -> _Spread:
    """How much the median of these moves from draw to draw. The draws are the same each time."""
    count = len(values)
    draw = random.Random(count).choices
    medians = [statistics.median(draw(values, k=count)) for _ in range(RESAMPLES)]
    error = statistics.pstdev(medians) * math.sqrt(count / (count - 1))
    return _Spread(statistics.median(values), error, count - 1)


def _welch(a: _Spread, b: _Spread) -> int:
    """Degrees of freedom of a difference: of both sets, if they vary alike, else nearer to those that vary more."""
    total = (a.error**2 + b.error**2) ** 2
    parts = a.error**4 / a.freedom + b.error**4 / b.freedom
    return max(1, math.floor(total / parts + 1e-9)) if parts else min(a.freedom, b.freedom)


def student_share(t: float, freedom: int) -> float:
    """How much of Student's distribution is below `t` (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    first, start = (2, 1.0) if freedom % 2 == 0 else (3, cosine)
    term, total = start, start if freedom > 1 else 0.0
    for power in range(first, freedom - 1, 2):
        term *= (power - 1) / power * cosine**2
        total += term
    within = sine * total if freedom % 2 == 0 else 2 / math.pi * (angle + sine * total)
    return (1 + within) / 2


def student_quantile(share: float, freedom: int) -> float:
    """Below which value so much of Student's distribution is."""
    if share < 0.5:
        return -student_quantile(1 - share, freedom)
    low, high = 0.0, 1.0
    while student_share(high, freedom) < share and high < 1e12:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student_share(middle, freedom) < share else (low, middle)
    return high


def _exp(value: float) -> float:
    """Two runs that differ wildly have bounds beyond all numbers."""
    return math.exp(min(700.0, max(-700.0, value)))
