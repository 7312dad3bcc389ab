"""Text in cells of a terminal: names made harmless, cut to a width, and numbers short enough for a column.

Client identifiers and topics are chosen by strangers. Nothing of them reaches a terminal that it would act on: control
characters, escape sequences, marks that turn the direction of writing, characters without a width of their own.
"""

from __future__ import annotations

import unicodedata
from typing import Final

ELLIPSIS: Final = "…"

_COMBINING: Final = frozenset({"Mn", "Me"})
"""Categories of characters that stand on the one before."""


def clean(text: str) -> str:
    """The text as it may be shown: what a terminal could act on is written out, marks do not pile up."""
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    was_mark = True  # one that begins a text has nothing to stand on
    for char in text:
        is_mark = unicodedata.category(char) in _COMBINING
        is_shown = char.isprintable() and not (is_mark and was_mark)
        shown.append(char if is_shown else _written_out(char))
        was_mark = is_mark
    return "".join(shown)


def _written_out(char: str) -> str:
    number = ord(char)
    if number <= 0xFF:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def char_width(char: str) -> int:
    """Cells that a character takes."""
    if unicodedata.category(char) in _COMBINING:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def text_width(text: str) -> int:
    """Cells that a text takes."""
    return len(text) if text.isascii() else sum(map(char_width, text))


def fit(text: str, width: int, *, right: bool = False) -> str:
    """The text in exactly so many cells: cut with an ellipsis, or filled with spaces."""
    used = text_width(text)
    if used > width:
        text, used = _cut(text, width)
    filling = " " * (width - used)
    return filling + text if right else text + filling


def _cut(text: str, width: int) -> tuple[str, int]:
    if width <= 0:
        return "", 0
    kept: list[str] = []
    used = 0
    for char in text:
        cells = char_width(char)
        if used + cells > width - 1:
            break
        kept.append(char)
        used += cells
    return "".join(kept) + ELLIPSIS, used + 1


def quantity(value: float | None) -> str:
    """A number in at most five characters: 0.3, 12, 1234, 12.3k, 1.2M."""
    if value is None:
        return "-"
    if value < 10 and value != round(value):
        return f"{value:.1f}"
    return _scaled(value, 1000, ("", "k", "M", "G", "T"))


def size(value: float | None) -> str:
    """A number of bytes in at most six characters: 0, 512, 1.2K, 34.5M."""
    return "-" if value is None else _scaled(value, 1024, ("", "K", "M", "G", "T"))


def _scaled(value: float, base: int, units: tuple[str, ...]) -> str:
    for unit in units[:-1]:
        if abs(value) < 9999.5 and not unit:
            return f"{value:.0f}"
        if abs(value) < base and unit:
            return f"{value:.1f}{unit}"
        value /= base
    return f"{value:.1f}{units[-1]}"


def duration(seconds: float | None) -> str:
    """A time for people: 12s, 3m20s, 4h07m, 5d03h."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def milliseconds(seconds: float | None) -> str:
    """A short time: 0.12, 3.4, 250 ms, without the unit."""
    if seconds is None:
        return "-"
    value = seconds * 1000
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


BARS: Final = "▁▂▃▄▅▆▇█"


def sparkline(values: list[float], width: int) -> str:
    """The last values as bars, the highest of them at full height."""
    shown = values[-width:] if width > 0 else []
    highest = max(shown, default=0.0)
    bars = [BARS[0] if not highest else BARS[round(value / highest * (len(BARS) - 1))] for value in shown]
    return "".join(bars).rjust(max(width, 0))
