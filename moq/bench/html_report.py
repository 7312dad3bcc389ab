"""Results of benchmarks as one HTML page that needs nothing else: findings first, then every figure behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from moq.bench import findings, report_charts, report_tables
from moq.bench.drawing import Mark
from moq.bench.report_style import STYLE
from moq.bench.report_words import rate_text
from moq.bench.results import OUTSIDE
from moq.bench.summary import Group, groups

if TYPE_CHECKING:
    from moq.bench.findings import Finding
    from moq.bench.results import Results
    from moq.bench.summary import Cell

TITLE: Final = "Benchmark report"

HOW_TO_READ: Final = (
    (
        "Latency",
        "counts from when a message was due, by a clock set before the run, to when the subscriber had it. A broker or "
        "a network that stalls pays for every message it held up.",
    ),
    ("p99", "is the latency that 99 % of the messages did not exceed; the figure is the median of the repetitions."),
    (
        "Brackets",
        "are 95 % intervals of that median, by the bootstrap over repetitions, made wider for few of them. A ratio "
        "whose interval contains 1 shows no difference: there may be one, but not from these runs.",
    ),
    (
        "Repetitions",
        "take turns among the contenders, so that a busy minute of the machine hits all of them.",
    ),
)


def render(results: Results) -> str:
    """The whole page."""
    found = groups(results.runs)
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{TITLE}: {escape(_subtitle(found))}</title><style>{STYLE}</style></head><body>",
        f"<header><h1>{TITLE}</h1><p>{escape(_subtitle(found))}</p>{_machine_line(results)}</header><main>",
        _findings(found, results.calibrations),
        *(_section(number, group, results.calibrations) for number, group in enumerate(found)),
        _networks(results.calibrations),
        _reproduce(results),
        "</main></body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _subtitle(found: Sequence[Group]) -> str:
    scenarios = list(dict.fromkeys(group.scenario for group in found))
    networks = list(dict.fromkeys(group.profile for group in found if group.profile != OUTSIDE))
    runs = sum(len(group.runs) for group in found)
    place = f" on {', '.join(networks)}" if networks else ""
    return f"{', '.join(scenarios) or 'nothing'}{place}; {runs} runs"


def _machine_line(results: Results) -> str:
    facts = "; ".join(f"{name} {value}" for name, value in results.machine.items())
    return f'<p class="note">{escape(facts)}</p>' if facts else ""


def _findings(found: Sequence[Group], calibrations: Mapping[str, Mapping[str, object]]) -> str:
    if not found:
        return "<p>There are no runs.</p>"
    used = {group.profile: calibrations.get(group.profile, {}) for group in found}
    items = [_item(each) for each in (*_off_networks(used), *findings.findings(found))]
    reading = "".join(f"<dt>{escape(word)}</dt><dd>{escape(text)}</dd>" for word, text in HOW_TO_READ)
    return "\n".join(
        [
            '<section><h2>Findings</h2><ul class="findings">',
            *items,
            f'</ul><p class="note">{escape(findings.caution(findings.comparisons_in(found)))}</p>',
            f"<details><summary>How to read this page</summary><dl>{reading}</dl></details>",
            "<h2>At a glance</h2>",
            report_tables.glance(found),
            '<p class="note">Below a figure: how many times that of the contender the findings are about. '
            '<span class="worse">Worse</span> and <span class="better">better</span> are shown differences; '
            '<span class="same">grey</span> is none shown.</p></section>',
        ]
    )


def _item(found: Finding) -> str:
    kind = ' class="warning"' if found.is_warning else ""
    return f"<li{kind}><strong>{escape(found.place)}:</strong> {escape(found.text)}</li>"


def _off_networks(calibrations: Mapping[str, Mapping[str, object]]) -> list[Finding]:
    off = [
        name
        for name, calibration in calibrations.items()
        if calibration.get("is_within_10_percent") is False
        or any(part.get("is_within_10_percent") is False for _, part in report_tables.quantities(calibration))
    ]
    text = "what was measured is more than 10 % off what was asked for; see below."
    return [findings.Finding(f"Network {name}", text, is_warning=True) for name in off]


def _section(number: int, group: Group, calibrations: Mapping[str, Mapping[str, object]]) -> str:
    main = group.main
    marks = steps(calibrations.get(group.profile, {}))
    others = [cell for cell in group.cells if cell is not main]
    load = [report_charts.against_load(group, metric) for metric in report_charts.LOAD_METRICS] if others else []
    at = f"<h3>At {escape(rate_text(main.rate))}</h3>" if others else ""
    return "\n".join(
        [
            f'<section id="section-{number}"><h2>{escape(group.name)}</h2>',
            f'<p class="note">{escape(_described(group))}</p>',
            report_tables.legend(group.contenders),
            _charts(load),
            at,
            _cell(main, group, marks, is_main=True),
            *(
                f"<details><summary>At {escape(rate_text(cell.rate))}</summary>{_cell(cell, group, marks)}</details>"
                for cell in others
            ),
            "</section>",
        ]
    )


def _cell(cell: Cell, group: Group, marks: Sequence[Mark], *, is_main: bool = False) -> str:
    charts = [report_charts.distribution(cell), report_charts.tail(cell), report_charts.percentiles(cell)]
    if is_main and report_charts.has_throughput(group):
        charts.append(report_charts.against_cpu(group))
    timeline = report_charts.over_time(cell, marks)
    charts.insert(0 if marks else 3, timeline)
    has_latencies = any(run.latency_us for run in cell.runs)
    return "\n".join(
        [
            _charts(charts),
            report_tables.extras(cell),
            report_tables.latencies(cell) if has_latencies else "",
            report_tables.deliveries(cell) if any(run.expected for run in cell.runs) else "",
        ]
    )


def _charts(charts: Sequence[str]) -> str:
    drawn = "".join(f"<figure>{chart}</figure>" for chart in charts if chart)
    return f'<div class="charts">{drawn}</div>' if drawn else ""


def _described(group: Group) -> str:
    """What all runs of a group have in common."""
    shared = dict(group.runs[0].parameters)
    for run in group.runs:
        shared = {name: value for name, value in shared.items() if run.parameters.get(name) == value}
    seconds = sorted({round(run.duration_s) for run in group.runs})
    lasting = f"{seconds[0]} s" if len(seconds) == 1 else f"{seconds[0]} to {seconds[-1]} s"
    repetitions = max(len(runs) for cell in group.cells for runs in cell.by_contender.values())
    rates = ", ".join(rate_text(cell.rate) for cell in group.cells)
    words = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shared.items() if name != "rate")
    return f"{repetitions} repetitions of {lasting}; {rates}" + (f"; {words}" if words else "")


def steps(calibration: Mapping[str, object]) -> list[Mark]:
    """The moments at which a network changed, as the lab tells them."""
    profile = calibration.get("profile")
    found = calibration.get("steps") or (profile.get("steps") if isinstance(profile, Mapping) else None)
    marks: list[Mark] = []
    is_down = False
    for step in found if isinstance(found, list | tuple) else ():
        at_s = step.get("at_s") if isinstance(step, Mapping) else None
        if isinstance(at_s, int | float):
            was_down, is_down = is_down, _loses_all(step)
            marks.append(Mark(float(at_s), "link down" if is_down else "link up" if was_down else "change"))
    return marks


def _loses_all(step: object) -> bool:
    """Whether a step, or a direction anywhere in it, lets nothing through."""
    if not isinstance(step, Mapping):
        return False
    loss = step.get("loss_percent")
    return (isinstance(loss, int | float) and loss >= 100) or any(map(_loses_all, step.values()))


def _networks(calibrations: Mapping[str, Mapping[str, object]]) -> str:
    shown = report_tables.calibrations(calibrations)
    if not shown:
        return ""
    return (
        '<section id="networks"><h2>Networks, as measured before the runs</h2>'
        f'<p class="note">Emulated by netem.</p>{shown}</section>'
    )


def _reproduce(results: Results) -> str:
    return "\n".join(
        [
            '<section id="environment"><h2>Take it again</h2>',
            f"<pre><code>{escape(results.command)}</code></pre>",
            "<h3>Machine</h3>" + report_tables.facts(results.machine) if results.machine else "",
            "<h3>Environment</h3>" + report_tables.facts(results.environment) if results.environment else "",
            "</section>",
        ]
    )
