"""What the numbers say, in sentences that are never stronger than their intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moq.bench.quantiles import CONFIDENCE, FEWEST
from moq.bench.report_words import interval_text, look, rate_text, ratio_text
from moq.bench.results import OUTSIDE
from moq.bench.summary import DELIVERIES, P99, extra_metric, parameter_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moq.bench.quantiles import Comparison
    from moq.bench.results import Run
    from moq.bench.summary import Cell, Group, Metric

SUBJECT: Final = "moq quic"
"""Whom the sentences are about, if it took part; else the first contender."""

NOTEWORTHY_SHARE: Final = 0.1
"""Of a processor, used by others: the figures are then worse than they need be."""

NO_DIFFERENCE: Final = "no difference shown"

OWN_FIGURES: Final = {
    "idle_connections": "{} idle connections",
    "idle_bytes_per_connection": "{} kiB of the broker's memory for each",
    "idle_cpu_percent": "{} % of a processor while idle",
    "connects_per_s": "{} connects a second",
    "connected_p99_ms": "99 % of them within {} ms",
}
"""Of some scenarios, in words; memory in kiB."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence or two about one cell; or a warning about all of them."""

    place: str
    text: str
    is_warning: bool = False


def subject_of(contenders: Sequence[str]) -> str:
    """Whom the others are compared with."""
    return SUBJECT if SUBJECT in contenders else contenders[0]


def main_metric(cell: Cell) -> Metric:
    """What matters most: where the broker sets the pace, the pace; else the slow messages."""
    return DELIVERIES if cell.is_closed_loop and any(run.received for run in cell.runs) else P99


def findings(groups: Sequence[Group]) -> list[Finding]:
    """What each group says, the warnings first."""
    return warnings([run for group in groups for run in group.runs]) + [finding(group) for group in groups]


def finding(group: Group) -> Finding:
    """The comparison at the main rate, the figures of the scenario's own, and who could not at which rate."""
    cell = group.main
    place = group.scenario if group.profile == OUTSIDE else f"on {group.profile}, {group.scenario}"
    place += "".join(f", {parameter_text(*item)}" for item in group.varied)
    place += f", {rate_text(cell.rate)}" if len(group.cells) > 1 or cell.is_closed_loop else ""
    kept_up = {name: runs for name, runs in cell.by_contender.items() if not all(run.is_overloaded for run in runs)}
    sentences = [_comparison(kept_up, main_metric(cell))] if kept_up and any(run.received for run in cell.runs) else []
    sentences += [_own(name, runs) for name, runs in cell.by_contender.items() if _has_own(runs)]
    for each in group.cells:
        at = f"At {rate_text(each.rate)} " if len(group.cells) > 1 else ""
        sentences += [at + _unable(name, runs) for name, runs in each.by_contender.items() if _is_lacking(runs)]
    return Finding(place[0].upper() + place[1:], " ".join(sentences))


def _has_own(runs: Sequence[Run]) -> bool:
    return any(name in run.extra for run in runs for name in OWN_FIGURES)


def _own(contender: str, runs: Sequence[Run]) -> str:
    """Figures that only this scenario has."""
    told = []
    for name, words in OWN_FIGURES.items():
        metric = extra_metric(name)
        found = metric.interval(runs)
        if found is not None:
            scale = 1 / 1024 if "bytes" in name else 1.0
            is_count = scale == 1.0 and len(set(metric.values(runs))) == 1 and found.estimate.is_integer()
            told.append(words.format(f"{found.estimate:,.0f}" if is_count else interval_text(found, scale)))
    return f"{look(contender).name}: {', '.join(told)}."


def _comparison(by_contender: dict[str, list[Run]], metric: Metric) -> str:
    subject = subject_of(list(by_contender))
    own = metric.interval(by_contender[subject])
    if own is None:
        return f"{look(subject).name} delivered nothing."
    unit = "" if metric is DELIVERIES else " ms"
    sentence = f"{_name(metric)} of {look(subject).name} is {interval_text(own, _scale(metric))}{unit}"
    others = {name: metric.compare(runs, by_contender[subject]) for name, runs in by_contender.items()}
    shown = [_ratio(name, found) for name, found in others.items() if found and found.is_shown]
    unknown = [
        f"{look(name).name} ({ratio_text(found)})"
        for name, found in others.items()
        if name != subject and found and not found.is_shown
    ]
    if own.repetitions < FEWEST:
        return f"{sentence}, once: without repetitions nothing is said about differences."
    if shown:
        sentence += f": {_listed(shown)}"
    if unknown:
        sentence += f"; {NO_DIFFERENCE} to {_listed(unknown)}"
    return f"{sentence}."


def _ratio(name: str, found: Comparison) -> str:
    """Of the subject to another."""
    relation = "times that of" if found.ratio > 1 else "of that of"
    return f"{ratio_text(found)} {relation} {look(name).name}"


def _is_lacking(runs: Sequence[Run]) -> bool:
    return any(run.lost or run.is_overloaded for run in runs)


def _unable(name: str, runs: Sequence[Run]) -> str:
    """A percentile of what arrived flatters whoever lost the rest."""
    overloaded = sum(run.is_overloaded for run in runs)
    lost, expected = sum(run.lost for run in runs), sum(run.expected for run in runs)
    facts = []
    if overloaded:
        facts.append(f"did not keep up in {overloaded} of {len(runs)} runs")
    if lost:
        facts.append(f"lost {lost / expected:.2%} of the messages; its latencies are of the others")
    return f"{look(name).name} {' and '.join(facts)}."


def warnings(runs: Sequence[Run]) -> list[Finding]:
    """What makes the figures less than they seem."""
    busy = max((run.others_cpu_share for run in runs), default=0.0)
    found = []
    if busy >= NOTEWORTHY_SHARE:
        found.append(
            Finding("Machine", f"Other processes kept up to {busy:.1f} processors busy during a run.", is_warning=True)
        )
    faults = [
        f"{count:,} {name}"
        for name, count in (
            ("repeated", sum(run.repeated for run in runs)),
            ("out of order", sum(run.disordered for run in runs)),
        )
        if count
    ]
    if faults:
        found.append(Finding("Deliveries", f"{_listed(faults)}; see the tables.", is_warning=True))
    return found


def caution(comparisons: int) -> str:
    """Many comparisons contain some that are wrong."""
    if not comparisons:
        return ""
    off = comparisons * (1 - CONFIDENCE)
    return (
        f"Brackets are {CONFIDENCE:.0%} intervals from repeated runs. The findings make {comparisons} comparisons: "
        f"about {max(1, round(off))} of these intervals may miss the truth by chance."
    )


def comparisons_in(groups: Sequence[Group]) -> int:
    """How many times two contenders are compared in the findings."""
    return sum(len(group.main.by_contender) - 1 for group in groups)


def _name(metric: Metric) -> str:
    return "the rate of deliveries" if metric is DELIVERIES else metric.name


def _scale(metric: Metric) -> float:
    """Latencies are told in milliseconds."""
    return 1.0 if metric is DELIVERIES else 1e-3


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
