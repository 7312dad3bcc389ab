"""Runs put in order: which belong together, what they agree on, and their figures with intervals.

group   one scenario on one network with one set of parameters: a section of the report
  cell  the same at one rate: what contenders are compared in
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moq.bench.quantiles import CONFIDENCE, compare, interval
from moq.bench.results import CLOSED_LOOP, OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from moq.bench.quantiles import Comparison, Interval
    from moq.bench.results import Parameter, Run

PERCENTS: Final = (50.0, 95.0, 99.0, 99.9)
THROUGHPUT: Final = "deliveries/s"

Measured = dict[str, list["Run"]]
"""By contender."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of a run that runs are compared by."""

    name: str
    of: Callable[[Run], float | None]
    is_better_when_greater: bool = False

    def values(self, runs: Iterable[Run]) -> list[float]:
        """Of all runs that have it."""
        return [value for run in runs if (value := self.of(run)) is not None]

    def interval(self, runs: Iterable[Run], confidence: float = CONFIDENCE) -> Interval | None:
        """Of some repetitions."""
        values = self.values(runs)
        return interval(values, confidence) if values else None

    def compare(self, first: Iterable[Run], second: Iterable[Run], confidence: float = CONFIDENCE) -> Comparison | None:
        """Second to first."""
        return compare(self.values(first), self.values(second), confidence)


def percentile_metric(percent: float) -> Metric:
    """A percentile of the latencies."""
    return Metric(f"p{percent:g}", lambda run: run.percentile_us(percent))


LATENCIES: Final = tuple(percentile_metric(percent) for percent in PERCENTS)
P50, P99 = LATENCIES[0], LATENCIES[2]
DELIVERIES: Final = Metric(THROUGHPUT, lambda run: run.deliveries_per_s, is_better_when_greater=True)
CPU_SHARE: Final = Metric("broker CPU", lambda run: run.broker_cpu_share)
RSS: Final = Metric("broker RSS", lambda run: float(run.broker_rss_bytes))


def extra_metric(name: str, *, is_better_when_greater: bool = False) -> Metric:
    """What only some scenarios have."""
    return Metric(name, lambda run: run.extra.get(name), is_better_when_greater)


@dataclass(frozen=True, slots=True)
class Cell:
    """One scenario, network, set of parameters and rate."""

    rate: float
    by_contender: Measured

    @property
    def is_closed_loop(self) -> bool:
        """Whether the broker set the pace."""
        return self.rate == CLOSED_LOOP

    @property
    def runs(self) -> list[Run]:
        """Of all contenders."""
        return [run for runs in self.by_contender.values() for run in runs]


@dataclass(frozen=True, slots=True)
class Group:
    """One scenario, network and set of parameters, at one rate or several."""

    profile: str
    scenario: str
    varied: tuple[tuple[str, Parameter], ...]
    """Parameters that tell this group from others of the scenario."""
    cells: list[Cell]

    @property
    def name(self) -> str:
        """In words."""
        place = "" if self.profile == OUTSIDE else f" on {self.profile}"
        return self.scenario + place + "".join(f", {parameter_text(*item)}" for item in self.varied)

    @property
    def runs(self) -> list[Run]:
        """Of all rates and contenders."""
        return [run for cell in self.cells for run in cell.runs]

    @property
    def contenders(self) -> list[str]:
        """In the order they were first seen."""
        return list(dict.fromkeys(run.contender for run in self.runs))

    @property
    def main(self) -> Cell:
        """The highest rate that all contenders kept up with, else the lowest."""
        kept_up = [cell for cell in self.cells if not any(run.is_overloaded for run in cell.runs)]
        most = max(len(cell.by_contender) for cell in self.cells)
        complete = [cell for cell in kept_up if len(cell.by_contender) == most]
        return max(complete, key=lambda cell: cell.rate) if complete else self.cells[0]


def groups(runs: Sequence[Run]) -> list[Group]:
    """All runs, in the order of their first appearance; rates ascend."""
    by_scene: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        by_scene.setdefault((run.profile, run.scenario), []).append(run)
    found: list[Group] = []
    for (profile, scenario), members in by_scene.items():
        names = _varied(members)
        by_parameters: dict[tuple[tuple[str, Parameter], ...], list[Run]] = {}
        for run in members:
            key = tuple((name, run.parameters[name]) for name in names if name in run.parameters)
            by_parameters.setdefault(key, []).append(run)
        found += [Group(profile, scenario, key, _cells(same)) for key, same in by_parameters.items()]
    return found


def _varied(runs: Sequence[Run]) -> list[str]:
    """Parameters that one contender alone had several values of: a setting of one contender makes no other scenario."""
    seen: dict[tuple[str, str], set[Parameter]] = {}
    for run in runs:
        for name, value in run.parameters.items():
            if name != "rate":
                seen.setdefault((run.contender, name), set()).add(value)
    return list(dict.fromkeys(name for (_, name), values in seen.items() if len(values) > 1))


def _cells(runs: Sequence[Run]) -> list[Cell]:
    by_rate: dict[float, Measured] = {}
    for run in runs:
        by_rate.setdefault(run.rate, {}).setdefault(run.contender, []).append(run)
    return [Cell(rate, by_rate[rate]) for rate in sorted(by_rate)]


def parameter_text(name: str, value: Parameter) -> str:
    """`payload_bytes` 1024 is "payload 1024 B"."""
    words = {"payload_bytes": f"{value} B", "qos": f"QoS {value}"}
    return words.get(name, f"{name.replace('_', ' ')} {value}")
