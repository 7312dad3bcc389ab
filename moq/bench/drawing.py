"""Charts as SVG without a library: lines over linear or logarithmic axes, intervals as whiskers, moments as marks.

`draw` gives an element for a page, `draw_file` a file that stands alone. A chart is narrow, so that its letters are
still legible where a page shrinks it to the width of a telephone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH: Final = 440
HEIGHT: Final = 290
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 34, 44
CAPTION_HEIGHT: Final = 28
LEGEND_LINE: Final = 17
WANTED_TICKS: Final = 5
MOST_TICKS: Final = 7
COLOURS: Final = ("#1b6ca8", "#d1495b", "#2e8b57", "#8d5fbf", "#c77d0a", "#4f5d75")
INK, GREY, GRID = "#222", "#555", "#e2e2e2"


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its points, from left to right."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str | None = None
    """None: the next of the palette."""
    is_dashed: bool = False
    has_dots: bool = True
    has_line: bool = True
    whiskers: Sequence[tuple[float, float, float]] = ()
    """Intervals: x, lowest y, highest y."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at one place of the x axis."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over one pair of axes."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    is_x_logarithmic: bool = False
    is_y_logarithmic: bool = False
    has_legend: bool = True
    marks: Sequence[Mark] = ()
    y_range: tuple[float, float] | None = None
    """None: from the data; a linear one begins at zero."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Round numbers on so many pixels."""

    ticks: tuple[float, ...]
    low: float
    high: float
    start: float
    end: float
    is_logarithmic: bool = False

    @classmethod
    def linear(cls, values: Iterable[float], start: float, end: float, *, is_tight: bool = False) -> Axis:
        """About five ticks around all values; a tight axis ends where they do."""
        known = list(values) or [0.0]
        ticks = linear_ticks(min(known), max(known))
        low, high = (min(known), max(known)) if is_tight else (ticks[0], ticks[-1])
        return cls(tuple(tick for tick in ticks if low <= tick <= high), low, high, start, end)

    @classmethod
    def logarithmic(cls, values: Iterable[float], start: float, end: float) -> Axis:
        """From the step below the smallest value above zero to the one above the largest."""
        steps = logarithmic_steps(list(values))
        return cls(tuple(sparse_ticks(steps)), steps[0], steps[-1], start, end, is_logarithmic=True)

    def at(self, value: float) -> float:
        """Where a value is."""
        low, high = (math.log10(self.low), math.log10(self.high)) if self.is_logarithmic else (self.low, self.high)
        share = ((math.log10(value) if self.is_logarithmic else value) - low) / ((high - low) or 1.0)
        return round(self.start + share * (self.end - self.start), 1)

    def has(self, value: float) -> bool:
        """Whether it has a place for a value."""
        return value > 0 or not self.is_logarithmic


def draw(chart: Chart) -> str:
    """The chart as an `<svg>` element, or nothing if it has no points."""
    if not any(series.points for series in chart.series):
        return ""
    height = HEIGHT + (LEGEND_LINE * len(chart.series) if chart.has_legend else 0)
    return "\n".join(
        [
            f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(chart.title)}"'
            ' font-family="system-ui, sans-serif" font-size="12">',
            f"<title>{escape(chart.title)}</title>",
            *_parts(chart),
            "</svg>",
        ]
    )


def draw_file(charts: Sequence[Chart], caption: str) -> str:
    """A file of its own: all charts beside each other, the caption below."""
    legend = max(len(chart.series) if chart.has_legend else 0 for chart in charts) * LEGEND_LINE
    width, height = WIDTH * len(charts), HEIGHT + legend + CAPTION_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, chart in enumerate(charts):
        parts += [f'<g transform="translate({number * WIDTH} 0)">', *_parts(chart), "</g>"]
    parts += [text(width / 2, height - 10, caption, "middle", GREY), "</svg>"]
    return "\n".join(parts) + "\n"


def linear_ticks(low: float, high: float) -> list[float]:
    """Round numbers from at most `low` to at least `high`, about five of them."""
    span = (high - low) or abs(high) or 1.0
    rough = span / WANTED_TICKS
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def logarithmic_steps(values: Sequence[float]) -> list[float]:
    """1, 2 and 5 times the powers of ten around all values above zero."""
    above = [value for value in values if value > 0] or [1.0]
    first, last = math.floor(math.log10(min(above)) + 1e-9), math.ceil(math.log10(max(above)) - 1e-9)
    steps = [factor * 10.0**power for power in range(first, last + 2) for factor in (1, 2, 5)]
    begin = max(number for number, step in enumerate(steps) if step <= min(above) * (1 + 1e-9))
    end = min(number for number, step in enumerate(steps) if step >= max(above) * (1 - 1e-9))
    return steps[begin : max(end, begin + 1) + 1]


def sparse_ticks(steps: Sequence[float]) -> Sequence[float]:
    """All of a few steps; of many, the powers of ten."""
    return steps if len(steps) <= MOST_TICKS else [step for step in steps if f"{step:e}".startswith("1.0")]


def number_text(value: float) -> str:
    """Short: 1500000 is 1.5M."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scale = 1e3 if letter == "k" else limit
            return f"{value / scale:.4g}{letter}"
    return f"{value:.4g}"


def text(x: float, y: float, words: str, anchor: str = "start", colour: str = INK, weight: str = "") -> str:
    """A `<text>` element."""
    bold = f' font-weight="{weight}"' if weight else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}"{bold}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = GRID, width: float = 1, *, dash: str = "") -> str:
    """A straight line."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" stroke-width="{width:g}"{dashes}/>'


def _parts(chart: Chart) -> list[str]:
    xs = [x for series in chart.series for x, _ in series.points]
    ys = [y for series in chart.series for _, y in series.points]
    ys += [y for series in chart.series for _, *bounds in series.whiskers for y in bounds]
    x_axis = (
        Axis.logarithmic(xs, LEFT, WIDTH - RIGHT)
        if chart.is_x_logarithmic
        else Axis.linear(xs, LEFT, WIDTH - RIGHT, is_tight=True)
    )
    lowest_to_highest = chart.y_range or ys
    y_axis = (
        Axis.logarithmic(lowest_to_highest, HEIGHT - BOTTOM, TOP)
        if chart.is_y_logarithmic
        else Axis.linear([0.0, *lowest_to_highest], HEIGHT - BOTTOM, TOP)
    )
    parts = [*_frame(chart, x_axis, y_axis), *_marks(chart, x_axis)]
    for number, series in enumerate(chart.series):
        colour = series.colour or COLOURS[number % len(COLOURS)]
        parts += _curve(series, colour, x_axis, y_axis)
        if chart.has_legend:
            parts += _legend_line(series, colour, HEIGHT + LEGEND_LINE * number + 6)
    return parts


def _frame(chart: Chart, x_axis: Axis, y_axis: Axis) -> list[str]:
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts = [text(middle, 16, chart.title, "middle", weight="600")]
    for tick in y_axis.ticks:
        at = y_axis.at(tick)
        parts += [line(LEFT, at, WIDTH - RIGHT, at), text(LEFT - 6, at + 4, number_text(tick), "end", GREY)]
    for tick in x_axis.ticks:
        at = x_axis.at(tick)
        parts += [line(at, TOP, at, HEIGHT - BOTTOM), text(at, HEIGHT - BOTTOM + 16, number_text(tick), "middle", GREY)]
    parts.append(text(middle, HEIGHT - 8, chart.x, "middle"))
    parts.append(
        f'<text transform="translate(13 {(HEIGHT - BOTTOM + TOP) / 2:g}) rotate(-90)" text-anchor="middle"'
        f' fill="{INK}">{escape(chart.y)}</text>'
    )
    return parts


def _marks(chart: Chart, x_axis: Axis) -> list[str]:
    parts: list[str] = []
    for number, mark in enumerate(chart.marks):
        if x_axis.low <= mark.x <= x_axis.high:
            at = x_axis.at(mark.x)
            is_right = at > (LEFT + WIDTH) / 2
            parts.append(line(at, TOP, at, HEIGHT - BOTTOM, GREY, 1, dash="2 3"))
            words_at = at - 4 if is_right else at + 4
            parts.append(text(words_at, TOP + 12 + 14 * (number % 3), mark.label, "end" if is_right else "start", GREY))
    return parts


def _curve(series: Series, colour: str, x_axis: Axis, y_axis: Axis) -> list[str]:
    places = [(x_axis.at(x), y_axis.at(y)) for x, y in series.points if x_axis.has(x) and y_axis.has(y)]
    parts: list[str] = []
    for x, low, high in series.whiskers:
        if x_axis.has(x) and y_axis.has(low):
            parts.append(line(x_axis.at(x), y_axis.at(low), x_axis.at(x), y_axis.at(high), colour, 1.2))
    if series.has_line and len(places) > 1:
        dash = ' stroke-dasharray="5 3"' if series.is_dashed else ""
        path = " ".join(f"{x:g},{y:g}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>')
    if series.has_dots or len(places) == 1:
        parts += [f'<circle cx="{x:g}" cy="{y:g}" r="2.8" fill="{colour}"/>' for x, y in places]
    return parts


def _legend_line(series: Series, colour: str, y: float) -> list[str]:
    return [
        line(LEFT, y, LEFT + 24, y, colour, 2, dash="5 3" if series.is_dashed else ""),
        text(LEFT + 32, y + 4, series.name),
    ]
