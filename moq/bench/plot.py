"""Small drawings without a library: panels of lines over logarithmic axes, as SVG that a browser or a page shows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH: Final = 420
HEIGHT: Final = 300
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 36, 44
CAPTION_HEIGHT: Final = 28
COLOURS: Final = ("#0b6e99", "#c4521d", "#4d7c2a", "#7a4fa3")
LEGEND_LINE: Final = 16


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its points, from left to right. Two with the same first word share a colour."""

    name: str
    points: Sequence[tuple[float, float]]
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over one pair of axes, both logarithmic."""

    title: str
    x_title: str
    series: Sequence[Series]


@dataclass(frozen=True, slots=True)
class Axis:
    """Whole decades on so many pixels."""

    first: int
    last: int
    start: float
    end: float

    @classmethod
    def over(cls, values: Iterable[float], start: float, end: float) -> Axis:
        """From the decade below the smallest to the one above the largest value."""
        logs = [math.log10(value) for value in values if value > 0] or [0.0]
        first = math.floor(min(logs))
        return cls(first, max(first + 1, math.ceil(max(logs))), start, end)

    def at(self, value: float) -> float:
        """Where a value is."""
        share = (math.log10(value) - self.first) / (self.last - self.first)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Every decade: where, and its name."""
        values = [10.0**power for power in range(self.first, self.last + 1)]
        return [(self.at(value), f"{value:,.0f}" if value >= 1 else f"{value:g}") for value in values]


def draw(panels: Sequence[Panel], caption: str) -> str:
    """All panels beside each other, the caption below."""
    width, height = WIDTH * len(panels), HEIGHT + CAPTION_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        parts += [f'<g transform="translate({number * WIDTH} 0)">', *_panel(panel), "</g>"]
    parts += [_text(width / 2, height - 10, caption, "middle", "#555"), "</svg>"]
    return "\n".join(parts) + "\n"


def _panel(panel: Panel) -> list[str]:
    x_axis = Axis.over((x for series in panel.series for x, _ in series.points), LEFT, WIDTH - RIGHT)
    y_axis = Axis.over((y for series in panel.series for _, y in series.points), HEIGHT - BOTTOM, TOP)
    parts = [
        _text(LEFT, TOP - 14, panel.title, "start", "#111"),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, panel.x_title, "middle", "#111"),
    ]
    for at, name in x_axis.ticks():
        parts += [_line(at, TOP, at, HEIGHT - BOTTOM), _text(at, HEIGHT - BOTTOM + 16, name, "middle", "#333")]
    for at, name in y_axis.ticks():
        parts += [_line(LEFT, at, WIDTH - RIGHT, at), _text(LEFT - 6, at + 4, name, "end", "#333")]
    families = list(dict.fromkeys(series.name.partition(" ")[0] for series in panel.series))
    for number, series in enumerate(panel.series):
        colour = COLOURS[families.index(series.name.partition(" ")[0]) % len(COLOURS)]
        dash = ' stroke-dasharray="5 3"' if series.is_dashed else ""
        places = [(x_axis.at(x), y_axis.at(y)) for x, y in series.points if x > 0 and y > 0]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in places]
        legend_y = TOP + 14 + number * LEGEND_LINE
        parts.append(
            f'<line x1="{LEFT + 8}" y1="{legend_y - 4}" x2="{LEFT + 30}" y2="{legend_y - 4}" stroke="{colour}"'
            f' stroke-width="1.8"{dash}/>'
        )
        parts.append(_text(LEFT + 36, legend_y, series.name, "start", "#111"))
    return parts


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'


def _text(x: float, y: float, text: str, anchor: str, colour: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
