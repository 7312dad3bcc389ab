"""The tables of a report as HTML: percentiles, deliveries and costs, networks, the machine."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Final

from moq.bench.drawing import number_text
from moq.bench.findings import main_metric, subject_of
from moq.bench.report_words import NOTHING, bytes_text, digits, interval_text, look, ratio_text
from moq.bench.summary import CPU_SHARE, DELIVERIES, LATENCIES, P99, RSS, extra_metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from moq.bench.results import Run
    from moq.bench.summary import Cell, Group

MS: Final = 1e-3
MEASURED_NAMES: Final = ("measured", "p50", "share", "value")
"""Where a calibration keeps what it found, the first that is there."""

QUANTITIES: Final = {"rtt_ms": "round trip, ms", "loss": "loss", "rate_bit_s": "rate, bit/s"}


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML already. A table that is too wide scrolls by itself."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "\n".join(
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in row[1:]) + "</tr>" for row in rows
    )
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return f'<div class="wide"><table>{caption}<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def swatch(contender: str) -> str:
    """The line a contender has in all charts."""
    seen = look(contender)
    dash = ' stroke-dasharray="5 3"' if seen.is_dashed else ""
    return (
        '<svg class="swatch" viewBox="0 0 24 8" aria-hidden="true">'
        f'<line x1="0" y1="4" x2="24" y2="4" stroke="{seen.colour}" stroke-width="3"{dash}/></svg>'
    )


def named(contender: str) -> str:
    """A contender with its line."""
    return f"{swatch(contender)} {escape(contender)}"


def legend(contenders: Sequence[str]) -> str:
    """All contenders of a section."""
    items = "".join(
        f"<li>{named(contender)} <small>{escape(look(contender).name)}</small></li>" for contender in contenders
    )
    return f'<ul class="legend">{items}</ul>'


def glance(groups: Sequence[Group]) -> str:
    """All sections in one table: the main figure of each contender, and its ratio to the one the findings are about."""
    contenders = list(dict.fromkeys(name for group in groups for name in group.contenders))
    rows = []
    for number, group in enumerate(groups):
        cell = group.main
        metric = main_metric(cell)
        unit = "" if metric is DELIVERIES else ", ms"
        title = f'<a href="#section-{number}">{escape(group.name)}</a><br><small>{metric.name}{unit}</small>'
        rows.append([title, *(_glance_cell(cell, contender) for contender in contenders)])
    return table("", ["", *contenders], rows)


def _glance_cell(cell: Cell, contender: str) -> str:
    runs, metric = cell.by_contender.get(contender, []), main_metric(cell)
    if not runs or not (found := metric.interval(runs)):
        return NOTHING
    if all(run.is_overloaded for run in runs):
        return '<span class="worse">overloaded</span>'
    subject = subject_of(list(cell.by_contender))
    text = interval_text(found, 1.0 if metric is DELIVERIES else MS)
    against = metric.compare(cell.by_contender[subject], runs)
    if contender == subject or against is None or against.low is None:
        return text
    kind = "same"
    if against.is_shown:
        kind = "better" if (against.ratio > 1) == metric.is_better_when_greater else "worse"
    return f'{text}<br><small class="{kind}">&times;{ratio_text(against)}</small>'


def latencies(cell: Cell) -> str:
    """Percentiles in milliseconds, and how the 99th compares."""
    subject = subject_of(list(cell.by_contender))
    rows = []
    for contender, runs in cell.by_contender.items():
        against = None if contender == subject else P99.compare(cell.by_contender[subject], runs)
        rows.append(
            [
                named(contender),
                *(interval_text(metric.interval(runs), MS) for metric in LATENCIES),
                ratio_text(against) if against else "",
            ]
        )
    headings = ["latency, ms", *(metric.name for metric in LATENCIES), f"p99 to {subject}"]
    return table("Latency from when a message was due", headings, rows)


def deliveries(cell: Cell) -> str:
    """What arrived, and what it cost."""
    headings = (
        *("contender", "runs", "deliveries/s", "lost", "repeated", "out of order", "kept up"),
        *("broker CPU, %", "CPU µs/ delivery", "broker RSS", "generator CPU, %", "others' CPU, %"),
    )
    return table("Deliveries and cost", headings, [_delivery_row(*item) for item in cell.by_contender.items()])


def _delivery_row(contender: str, runs: Sequence[Run]) -> list[str]:
    expected = sum(run.expected for run in runs)
    lost = sum(run.lost for run in runs)
    received = sum(run.received for run in runs)
    rss = RSS.interval(runs)
    seconds = sum(run.duration_s for run in runs) or 1.0
    kept_up = sum(not run.is_overloaded for run in runs)
    return [
        named(contender),
        str(len(runs)),
        interval_text(DELIVERIES.interval(runs)),
        f"{lost / expected:.2%} ({lost:,})" if lost and expected else "0",
        f"{sum(run.repeated for run in runs):,}",
        f"{sum(run.disordered for run in runs):,}",
        "yes" if kept_up == len(runs) else f'<span class="worse">{kept_up} of {len(runs)}</span>',
        interval_text(CPU_SHARE.interval(runs), 100),
        digits(1e6 * sum(run.broker_cpu_s for run in runs) / received) if received else NOTHING,
        bytes_text(rss.estimate) if rss and rss.estimate else NOTHING,
        digits(100 * sum(run.generator_cpu_s for run in runs) / seconds),
        digits(100 * max(run.others_cpu_share for run in runs)),
    ]


def extras(cell: Cell) -> str:
    """What only this scenario has."""
    names = list(dict.fromkeys(name for run in cell.runs for name in run.extra))
    if not names:
        return ""
    rows = [
        [named(contender), *(extra_text(name, runs) for name in names)] for contender, runs in cell.by_contender.items()
    ]
    return table("Of this scenario", ["contender", *(name.replace("_", " ") for name in names)], rows)


def extra_text(name: str, runs: Sequence[Run]) -> str:
    """A figure of a scenario's own: bytes with their unit, counts as they are, others with their interval."""
    metric = extra_metric(name)
    found = metric.interval(runs)
    if found is None:
        return NOTHING
    if "bytes" in name:
        return bytes_text(found.estimate)
    is_count = all(value == round(value) for value in metric.values(runs))
    return f"{found.estimate:,.0f}" if is_count else interval_text(found)


def calibrations(found: Mapping[str, Mapping[str, object]]) -> str:
    """What each network was asked for, and what was measured on it."""
    rows = [
        [escape(name), escape(quantity), *_calibrated(value)]
        for name, calibration in found.items()
        for quantity, value in quantities(calibration)
    ]
    if not rows:
        return ""
    return table("", ["network", "quantity", "wanted", "measured", "within 10 %"], rows)


def quantities(calibration: Mapping[str, object]) -> list[tuple[str, Mapping[str, object]]]:
    """What a calibration measured and in what a network was wanted, by name; each direction by itself if it has two."""
    found: list[tuple[str, Mapping[str, object]]] = []
    for name, words in QUANTITIES.items():
        value = calibration.get(name)
        if not isinstance(value, Mapping):
            continue
        if "wanted" in value:
            found.append((words, value))
        else:
            found += [(f"{words}, {way}", part) for way, part in value.items() if isinstance(part, Mapping)]
    return found


def _calibrated(value: Mapping[str, object]) -> list[str]:
    measured = next((value[name] for name in MEASURED_NAMES if name in value), None)
    is_within = value.get("is_within_10_percent")
    verdict = {True: "yes", False: '<span class="worse">NO</span>'}.get(is_within is True, "")
    return [_figure(value.get("wanted")), _figure(measured), "" if is_within is None else verdict]


def _figure(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number_text(value)
    return "" if value is None else escape(str(value))


def facts(found: Mapping[str, object]) -> str:
    """Names and values."""
    return table("", ["", ""], [[escape(name), _fact(value)] for name, value in found.items()])


def _fact(value: object) -> str:
    if isinstance(value, Mapping):
        return escape(", ".join(f"{name} {part}" for name, part in value.items()))
    return escape(str(value))
