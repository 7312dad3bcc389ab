"""Line charts as SVG, by hand: axes with round numbers, one line with dots for each series, a legend."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from moq.bench.papers.results import Chart

WIDTH: Final = 640
HEIGHT: Final = 360
LEFT, RIGHT, TOP, BOTTOM = 72, 16, 34, 46
LEGEND_LINE: Final = 18
COLOURS: Final = ("#1b6ca8", "#d1495b", "#2e8b57", "#8d5fbf", "#c77d0a", "#4f5d75")
WANTED_TICKS: Final = 5


def draw(chart: Chart) -> str:
    """The chart as an `<svg>` element."""
    xs = [x for points in chart.series.values() for x, _ in points]
    ys = [y for points in chart.series.values() for _, y in points]
    if not xs:
        return ""
    x_ticks = linear_ticks(min(xs), max(xs))
    y_ticks = logarithmic_ticks(ys) if chart.is_logarithmic else linear_ticks(0.0, max(ys))
    height = HEIGHT + LEGEND_LINE * len(chart.series)
    x_at = _scale((min(xs), max(xs)), (LEFT, WIDTH - RIGHT))
    y_at = _scale((y_ticks[0], y_ticks[-1]), (HEIGHT - BOTTOM, TOP), is_logarithmic=chart.is_logarithmic)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(chart.title)}">',
        f'<text x="{WIDTH / 2}" y="18" class="title">{escape(chart.title)}</text>',
        *(_horizontal(y_at(tick), tick) for tick in y_ticks),
        *(_vertical(x_at(tick), tick) for tick in x_ticks if min(xs) <= tick <= max(xs)),
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" class="label">{escape(chart.x)}</text>',
        f'<text transform="translate(14 {HEIGHT / 2}) rotate(-90)" class="label">{escape(chart.y)}</text>',
    ]
    for number, (name, points) in enumerate(chart.series.items()):
        colour = COLOURS[number % len(COLOURS)]
        at = [(x_at(x), y_at(y)) for x, y in points if y > 0 or not chart.is_logarithmic]
        parts += _curve(at, colour)
        y = HEIGHT + LEGEND_LINE * number + 8
        parts.append(f'<path d="M{LEFT} {y}h24" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + 32}" y="{y + 4}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"])


def linear_ticks(low: float, high: float) -> list[float]:
    """Round numbers from at most `low` to at least `high`, about five of them."""
    span = (high - low) or abs(high) or 1.0
    rough = span / WANTED_TICKS
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def logarithmic_ticks(values: Sequence[float]) -> list[float]:
    """Powers of ten around all values above zero."""
    above = [value for value in values if value > 0] or [1.0]
    first = math.floor(math.log10(min(above)))
    last = max(math.ceil(math.log10(max(above))), first + 1)
    return [10.0**power for power in range(first, last + 1)]


def number_text(value: float) -> str:
    """Short: 1500000 is 1.5M."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scale = 1e3 if letter == "k" else limit
            return f"{value / scale:.4g}{letter}"
    return f"{value:.4g}"


def _scale(
    values: tuple[float, float], pixels: tuple[float, float], *, is_logarithmic: bool = False
) -> Callable[[float], float]:
    low, high = (math.log10(value) for value in values) if is_logarithmic else values
    span = (high - low) or 1.0

    def at(value: float) -> float:
        share = ((math.log10(value) if is_logarithmic else value) - low) / span
        return round(pixels[0] + share * (pixels[1] - pixels[0]), 1)

    return at


def _horizontal(y: float, tick: float) -> str:
    return (
        f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" class="grid"/>'
        f'<text x="{LEFT - 6}" y="{y + 4}" class="tick">{number_text(tick)}</text>'
    )


def _vertical(x: float, tick: float) -> str:
    return (
        f'<path d="M{x} {TOP}V{HEIGHT - BOTTOM}" class="grid"/>'
        f'<text x="{x}" y="{HEIGHT - BOTTOM + 16}" class="label">{number_text(tick)}</text>'
    )


def _curve(points: list[tuple[float, float]], colour: str) -> list[str]:
    path = "L".join(f"{x} {y}" for x, y in points)
    dots = [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in points]
    return [f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots] if points else []
