"""Lines of `moq top` as text: for files and pipes, and with escape sequences for a terminal that is not painted on."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from moq.cli.top_view import ALERT, BOLD, CHOSEN, DIM, GOOD, PLAIN, TITLE

if TYPE_CHECKING:
    from moq.cli.top_view import Line

ANSI: Final = {
    PLAIN: "",
    BOLD: "\x1b[1m",
    DIM: "\x1b[2m",
    TITLE: "\x1b[1m",
    ALERT: "\x1b[1;31m",
    GOOD: "\x1b[32m",
    CHOSEN: "\x1b[7m",
}


def wants_colour() -> bool:
    """True on a terminal, unless somebody said NO_COLOR."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def to_text(line: Line, *, is_coloured: bool) -> str:
    """A line for a terminal that is not painted on, or for a file."""
    if not is_coloured:
        return "".join(text for text, _ in line).rstrip()
    return "".join(f"{ANSI[style]}{text}\x1b[0m" if ANSI[style] else text for text, style in line)
