"""Two results beside each other: which figures are worse, which better, and of which nothing can be said.

Every figure is judged by how sure it is to be worse (or better) than the tolerance allows. Among hundreds of figures
some look worse by chance, so they are judged together (Benjamini and Hochberg): of those that are called different, at
most one minus the confidence are expected to be no different, and if none is, an alarm is as unlikely as that.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from moq.bench.quantiles import FEWEST, probability_beyond
from moq.bench.results import OUTSIDE
from moq.bench.summary import DELIVERIES, LATENCIES, extra_metric, parameter_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from moq.bench.quantiles import Comparison, Interval
    from moq.bench.results import Parameter, Results, Run
    from moq.bench.summary import Metric

TOLERANCE: Final = 0.05
METRICS: Final = (
    *(metric for metric in LATENCIES if metric.name in ("p50", "p99", "p99.9")),
    DELIVERIES,
    extra_metric("idle_bytes_per_connection"),
    extra_metric("connects_per_s", is_better_when_greater=True),
    extra_metric("connected_p99_ms"),
)
KEPT_UP: Final = "kept up"


class Verdict(StrEnum):
    """What may be said of a figure."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "no difference shown"
    UNKNOWN = "too few repetitions"


@dataclass(frozen=True, slots=True)
class Key:
    """What must agree before two figures may be compared."""

    profile: str
    scenario: str
    parameters: tuple[tuple[str, Parameter], ...]
    rate: float
    contender: str

    @classmethod
    def of(cls, run: Run) -> Key:
        """The key of a run."""
        parameters = tuple(sorted((name, value) for name, value in run.parameters.items() if name != "rate"))
        return cls(run.profile, run.scenario, parameters, run.rate, run.contender)

    def text(self, names: frozenset[str]) -> str:
        """In words, with the parameters of these names."""
        place = "" if self.profile == OUTSIDE else f" on {self.profile}"
        shown = "".join(f", {parameter_text(*item)}" for item in self.parameters if item[0] in names)
        return f"{self.scenario}{place}{shown}" + (f", {self.rate:,.0f}/s" if self.rate else "")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one contender in both results."""

    key: Key
    metric: str
    before: Interval | None
    after: Interval | None
    comparison: Comparison | None
    probability_worse: float | None
    """That it is worse by more than the tolerance."""
    probability_better: float | None
    """That it is better by more than the tolerance."""
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Compared:
    """All figures of two results."""

    rows: list[Row]
    only_before: list[Key]
    only_after: list[Key]
    tolerance: float
    confidence: float

    def of(self, verdict: Verdict) -> list[Row]:
        """Those with this verdict."""
        return [row for row in self.rows if row.verdict is verdict]

    @property
    def varied(self) -> frozenset[str]:
        """Parameters that tell keys apart, and so have to be shown."""
        seen: dict[tuple[str, str, str], set[Parameter]] = {}
        for key in (*(row.key for row in self.rows), *self.only_before, *self.only_after):
            for name, value in key.parameters:
                seen.setdefault((key.profile, key.scenario, name), set()).add(value)
        return frozenset(name for (_, _, name), values in seen.items() if len(values) > 1)

    @property
    def visible_ratio(self) -> float | None:
        """About how large a difference must be to be seen with these repetitions; None if none is."""
        reaches = [
            found.high / found.ratio
            for row in self.rows
            if (found := row.comparison) is not None and found.high is not None
        ]
        return statistics.median(reaches) if reaches else None


def compare_results(before: Results, after: Results, tolerance: float, confidence: float) -> Compared:
    """All that both have."""
    first, second = by_key(before), by_key(after)
    rows: list[Row] = []
    for key in first:
        if key in second:
            rows += _rows(key, first[key], second[key], tolerance, confidence)
            rows += _kept_up(key, first[key], second[key])
    return Compared(
        judged(rows, confidence),
        [key for key in first if key not in second],
        [key for key in second if key not in first],
        tolerance,
        confidence,
    )


def by_key(results: Results) -> Mapping[Key, list[Run]]:
    """Repetitions together."""
    found: dict[Key, list[Run]] = {}
    for run in results.runs:
        found.setdefault(Key.of(run), []).append(run)
    return found


def judged(rows: Sequence[Row], confidence: float) -> list[Row]:
    """The rows with their verdicts, found by looking at all of them."""
    worse = _surest([row.probability_worse for row in rows], confidence)
    better = _surest([row.probability_better for row in rows], confidence)
    made = []
    for number, row in enumerate(rows):
        verdict = row.verdict
        if row.probability_worse is not None:
            verdict = Verdict.WORSE if number in worse else Verdict.BETTER if number in better else Verdict.SAME
        made.append(
            Row(
                row.key,
                row.metric,
                row.before,
                row.after,
                row.comparison,
                row.probability_worse,
                row.probability_better,
                verdict,
            )
        )
    return made


def _surest(probabilities: Sequence[float | None], confidence: float) -> set[int]:
    """Which of these claims may be made together."""
    doubts = sorted((1 - value, number) for number, value in enumerate(probabilities) if value is not None)
    allowed = 1 - confidence
    accepted = 0
    for rank, (doubt, _) in enumerate(doubts, start=1):
        if doubt <= allowed * rank / len(doubts):
            accepted = rank
    return {number for _, number in doubts[:accepted]}


def _rows(key: Key, first: list[Run], second: list[Run], tolerance: float, confidence: float) -> list[Row]:
    return [
        _row(key, metric, first, second, tolerance, confidence)
        for metric in METRICS
        if metric.values(first) and metric.values(second)
    ]


def _row(key: Key, metric: Metric, first: list[Run], second: list[Run], tolerance: float, confidence: float) -> Row:
    a, b = metric.values(first), metric.values(second)
    greater = _beyond(a, b, 1 + tolerance)
    smaller = _beyond(b, a, 1 + tolerance)
    worse, better = (smaller, greater) if metric.is_better_when_greater else (greater, smaller)
    return Row(
        key,
        metric.name,
        metric.interval(first, confidence),
        metric.interval(second, confidence),
        metric.compare(first, second, confidence),
        worse,
        better,
        Verdict.UNKNOWN if worse is None else Verdict.SAME,
    )


def _beyond(first: Sequence[float], second: Sequence[float], bound: float) -> float | None:
    """How sure it is that the second is so much greater; nothing is greater than itself where both are zero."""
    if min(len(first), len(second)) < FEWEST:
        return None
    if min(*first, *second) <= 0:
        return 1.0 if min(second) > max(first) * bound else 0.0
    return probability_beyond(first, second, bound)


def _kept_up(key: Key, first: list[Run], second: list[Run]) -> list[Row]:
    """A rate that one of them never kept up with and the other always did needs no percentiles."""
    shares = [sum(not run.is_overloaded for run in runs) / len(runs) for runs in (first, second)]
    if set(shares) != {0.0, 1.0} or min(len(first), len(second)) < FEWEST:
        return []
    verdict = Verdict.WORSE if shares[0] else Verdict.BETTER
    return [Row(key, KEPT_UP, None, None, None, None, None, verdict)]
