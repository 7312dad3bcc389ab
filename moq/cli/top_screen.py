"""The terminal of `moq top`: curses paints lines and reads keys, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import curses
import locale
import os
import signal
import sys
from typing import TYPE_CHECKING, Final, Self

from moq.cli import top_keys
from moq.cli.top_plain import wants_colour
from moq.cli.top_view import ALERT, BOLD, CHOSEN, DIM, GOOD, PLAIN, TITLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from moq.cli.top_view import Line

KEYS: Final = {
    curses.KEY_UP: top_keys.UP,
    curses.KEY_DOWN: top_keys.DOWN,
    curses.KEY_LEFT: top_keys.LEFT,
    curses.KEY_RIGHT: top_keys.RIGHT,
    curses.KEY_PPAGE: top_keys.PAGE_UP,
    curses.KEY_NPAGE: top_keys.PAGE_DOWN,
    curses.KEY_HOME: top_keys.HOME,
    curses.KEY_END: top_keys.END,
    curses.KEY_ENTER: top_keys.ENTER,
    curses.KEY_BACKSPACE: top_keys.BACKSPACE,
    curses.KEY_BTAB: top_keys.BACK_TAB,
    "\n": top_keys.ENTER,
    "\r": top_keys.ENTER,
    "\x1b": top_keys.ESCAPE,
    "\x08": top_keys.BACKSPACE,
    "\x7f": top_keys.BACKSPACE,
}

ESCAPE_MS: Final = 50
"""How long a lone Esc is held for the rest of what may be the key of an arrow."""


def can_show() -> bool:
    """True if the terminal can be painted on."""
    try:
        curses.setupterm()
    except curses.error:
        return False
    return bool(curses.tigetstr("cup"))


class Screen:
    """The terminal while it is ours; leaving the context gives it back as it was."""

    def __init__(self, on_key: Callable[[str], None], on_resize: Callable[[], None]) -> None:
        self._on_key = on_key
        self._on_resize = on_resize
        self._attributes: dict[str, int] = {}
        self._encoding = "utf-8"

    def __enter__(self) -> Self:
        locale.setlocale(locale.LC_ALL, "")
        self._encoding = locale.getpreferredencoding(False)
        os.environ.setdefault("ESCDELAY", str(ESCAPE_MS))
        self._window = curses.initscr()
        curses.noecho()
        curses.cbreak()
        self._window.keypad(True)
        self._window.nodelay(True)
        with contextlib.suppress(curses.error):  # a terminal that cannot hide its cursor
            curses.curs_set(0)
        self._attributes = _attributes()
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin, self._read_keys)
        loop.add_signal_handler(signal.SIGWINCH, self._resize)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGWINCH)
        loop.remove_reader(sys.stdin)
        self._window.keypad(False)
        curses.nocbreak()
        curses.echo()
        curses.endwin()

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self._window.getmaxyx()

    def paint(self, lines: list[Line]) -> None:
        """Show these lines."""
        window = self._window
        window.erase()
        for y, line in enumerate(lines):
            window.move(y, 0)
            for text, style in line:
                shown = text.encode(self._encoding, "replace").decode(self._encoding)
                with contextlib.suppress(curses.error):  # the last cell of the last line is full: it was written
                    window.addstr(shown, self._attributes[style])
        window.refresh()

    def _read_keys(self) -> None:
        while True:
            try:
                key = self._window.get_wch()
            except curses.error:
                return
            if key != curses.KEY_RESIZE:
                self._on_key(KEYS.get(key, key if isinstance(key, str) else ""))

    def _resize(self) -> None:
        width, height = os.get_terminal_size(sys.stdout.fileno())
        curses.resizeterm(height, width)
        self._window.clear()
        self._on_resize()


def _attributes() -> dict[str, int]:
    """What each style is on this terminal."""
    attributes = {
        PLAIN: curses.A_NORMAL,
        BOLD: curses.A_BOLD,
        DIM: curses.A_DIM,
        TITLE: curses.A_BOLD,
        ALERT: curses.A_BOLD | curses.A_REVERSE,
        GOOD: curses.A_NORMAL,
        CHOSEN: curses.A_REVERSE,
    }
    if not wants_colour():
        return attributes
    curses.start_color()
    if not curses.has_colors():
        return attributes
    background = -1
    try:
        curses.use_default_colors()
    except curses.error:
        background = curses.COLOR_BLACK
    for number, (style, colour) in enumerate(
        ((ALERT, curses.COLOR_RED), (GOOD, curses.COLOR_GREEN), (TITLE, curses.COLOR_CYAN)), 1
    ):
        curses.init_pair(number, colour, background)
        attributes[style] = curses.color_pair(number) | (curses.A_NORMAL if style == GOOD else curses.A_BOLD)
    return attributes
