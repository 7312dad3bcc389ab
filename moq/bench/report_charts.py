"""The charts of a report: distributions and their tails, percentiles, load, time, and what a processor gives."""

from __future__ import annotations

import statistics
from html import escape
from typing import TYPE_CHECKING, Final

from moq.bench import drawing
from moq.bench.drawing import GREY, Axis, Chart, Mark, Series
from moq.bench.quantiles import pooled
from moq.bench.report_words import look
from moq.bench.results import SLICE_S
from moq.bench.summary import LATENCIES, P50, P99

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from moq.bench.results import Run
    from moq.bench.summary import Cell, Group, Metric

CURVE_POINTS: Final = 160
TAIL: Final = 1e-5
"""The smallest share of messages that is drawn."""

SHAPES: Final = {"p50": "●", "p99": "■", "p99.9": "▲"}
ROW: Final = 36
ROWS_TOP: Final = 46
MS: Final = 1e-3
"""Of a microsecond."""


def distribution(cell: Cell) -> str:
    """Which share of the messages came within which time."""
    series = [
        _series(name, [(us * MS, 100 * share) for us, share in _cumulative(runs)])
        for name, runs in cell.by_contender.items()
    ]
    return _draw("messages delivered within a latency", "latency, ms", "% of messages", series, y_range=(0.0, 100.0))


def tail(cell: Cell) -> str:
    """Which share took longer: each step down is a tenth of the messages."""
    series = [
        _series(name, [(us * MS, 100 * (1 - share)) for us, share in _cumulative(runs) if 1 - share > TAIL])
        for name, runs in cell.by_contender.items()
    ]
    return _draw("the slowest: messages above a latency", "latency, ms", "% of messages", series, is_y_logarithmic=True)


def against_load(group: Group, metric: Metric) -> str:
    """A percentile over the rates that were asked for."""
    series = []
    for contender in group.contenders:
        points: list[tuple[float, float]] = []
        whiskers: list[tuple[float, float, float]] = []
        for cell in group.cells:
            # Whoever did not keep up has no latency at that rate, only one of what it managed.
            kept_up = [run for run in cell.by_contender.get(contender, ()) if not run.is_overloaded]
            found = metric.interval(kept_up)
            if found is not None and not cell.is_closed_loop:
                points.append((cell.rate, found.estimate * MS))
                if found.low is not None and found.high is not None and found.high < 100 * found.estimate:
                    whiskers.append((cell.rate, found.low * MS, found.high * MS))
        series.append(_series(contender, points, whiskers=whiskers, has_dots=True))
    return _draw(f"{metric.name} against load", "messages/s", "ms", series, is_y_logarithmic=True)


def over_time(cell: Cell, marks: Sequence[Mark]) -> str:
    """The 99th percentile of each tenth of a second, the median of the repetitions."""
    series = [_series(name, _timeline(runs)) for name, runs in cell.by_contender.items()]
    return _draw(
        "p99 of each tenth of a second, by when it was due",
        "s",
        "ms",
        series,
        is_x_logarithmic=False,
        is_y_logarithmic=True,
        marks=marks,
    )


def against_cpu(group: Group) -> str:
    """What was delivered for the processor time the broker took."""
    series = [
        _series(
            contender,
            sorted(
                (100 * run.broker_cpu_share, run.deliveries_per_s)
                for run in group.runs
                if run.contender == contender and run.broker_cpu_s > 0
            ),
            has_dots=True,
            has_line=False,
        )
        for contender in group.contenders
    ]
    return _draw(
        "deliveries against the broker's processor time", "% of one processor", "deliveries/s", series,
        is_x_logarithmic=False,
    )  # fmt: skip


def has_throughput(group: Group) -> bool:
    """Whether the processor chart would show more than one height."""
    rates = [run.deliveries_per_s for run in group.runs if run.broker_cpu_s > 0]
    return bool(rates) and (len(group.cells) > 1 or max(rates) > 1.05 * min(rates))


def percentiles(cell: Cell) -> str:
    """Percentiles with their intervals, a row for each contender."""
    rows: list[tuple[str, list[tuple[str, float, float, float]]]] = []
    for contender, runs in cell.by_contender.items():
        marks = []
        for metric in LATENCIES:
            found = metric.interval(runs)
            if metric.name in SHAPES and found is not None:
                low, high = (found.low, found.high) if found.low and found.high else (found.estimate,) * 2
                low, high = max(low, found.estimate / 30), min(high, found.estimate * 30)
                marks.append((SHAPES[metric.name], found.estimate * MS, low * MS, high * MS))
        rows.append((contender, marks))
    values = [value for _, marks in rows for _, *figures in marks for value in figures if value > 0]
    return _rows(rows, Axis.logarithmic(values, 20, drawing.WIDTH - 20)) if values else ""


def _rows(rows: Sequence[tuple[str, Sequence[tuple[str, float, float, float]]]], axis: Axis) -> str:
    title = "percentiles with their intervals: " + " ".join(f"{shape} {name}" for name, shape in SHAPES.items())
    bottom = ROWS_TOP + ROW * len(rows)
    parts = [
        f'<svg viewBox="0 0 {drawing.WIDTH} {bottom + 40}" role="img" aria-label="{escape(title)}"'
        ' font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        drawing.text(drawing.WIDTH / 2, 16, title, "middle", weight="600"),
    ]
    for tick in axis.ticks:
        at = axis.at(tick)
        parts += [
            drawing.line(at, ROWS_TOP - 14, at, bottom),
            drawing.text(at, bottom + 16, drawing.number_text(tick), "middle", GREY),
        ]
    for number, (contender, marks) in enumerate(rows):
        y, colour = ROWS_TOP + ROW * number, look(contender).colour
        parts += [drawing.text(20, y, contender), drawing.line(20, y + 13, drawing.WIDTH - 20, y + 13)]
        for shape, value, low, high in marks:
            if value > 0:
                parts.append(drawing.line(axis.at(low), y + 13, axis.at(high), y + 13, colour, 3))
                parts.append(drawing.text(axis.at(value), y + 17, shape, "middle", colour))
    parts += [drawing.text(drawing.WIDTH / 2, bottom + 34, "latency, ms", "middle"), "</svg>"]
    return "\n".join(parts)


def _series(
    contender: str,
    points: Sequence[tuple[float, float]],
    *,
    has_dots: bool = False,
    has_line: bool = True,
    whiskers: Sequence[tuple[float, float, float]] = (),
) -> Series:
    seen = look(contender)
    return Series(contender, points, seen.colour, seen.is_dashed, has_dots, has_line, whiskers)


def _draw(
    title: str,
    x: str,
    y: str,
    series: Sequence[Series],
    *,
    is_x_logarithmic: bool = True,
    is_y_logarithmic: bool = False,
    marks: Sequence[Mark] = (),
    y_range: tuple[float, float] | None = None,
) -> str:
    """Without a legend of its own: a section has one for all of its charts."""
    return drawing.draw(
        Chart(title, x, y, series, is_x_logarithmic, is_y_logarithmic, has_legend=False, marks=marks, y_range=y_range)
    )


def _cumulative(runs: Sequence[Run]) -> list[tuple[float, float]]:
    """Latencies in microseconds and the share of all messages up to each, at most so many points."""
    histogram = pooled([run.latency_us for run in runs])
    return _thinned(_shares(histogram), CURVE_POINTS)


def _shares(histogram: Mapping[int, int]) -> list[tuple[float, float]]:
    total, seen = sum(histogram.values()), 0
    found = []
    for us in sorted(histogram):
        seen += histogram[us]
        found.append((float(us or 1), seen / total))
    return found


def _thinned(points: list[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Fewer points where they are dense, all of them in the tail."""
    if len(points) <= most:
        return points
    step = len(points) / most
    kept = {round(number * step) for number in range(most)}
    return [point for number, point in enumerate(points) if number in kept or point[1] > 0.99]


def _timeline(runs: Sequence[Run]) -> list[tuple[float, float]]:
    by_slice: dict[int, list[float]] = {}
    for run in runs:
        for part in run.timeline:
            if part.count:
                by_slice.setdefault(round(part.at_s / SLICE_S), []).append(part.p99_us)
    return [(number * SLICE_S, statistics.median(by_slice[number]) * MS) for number in sorted(by_slice)]


LOAD_METRICS: Final = (P50, P99)
