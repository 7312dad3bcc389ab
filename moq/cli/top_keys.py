"""What the keys of `moq top` do to the view; pure, so that a test can type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moq.cli.top_tables import TABLES, TABS

if TYPE_CHECKING:
    from moq.cli.top_view import View

UP, DOWN, LEFT, RIGHT = "up", "down", "left", "right"
PAGE_UP, PAGE_DOWN, HOME, END = "page up", "page down", "home", "end"
ENTER, ESCAPE, BACKSPACE, TAB, BACK_TAB = "enter", "escape", "backspace", "\t", "back tab"

MAX_FILTER: Final = 100


def press(view: View, key: str, page: int, rows: int) -> None:
    """Change the view by a key: a character, or a name from above; `page` of the `rows` are shown at once."""
    if view.is_typing:
        _type(view, key)
    elif key in ("q", "Q"):
        view.is_over = True
    elif view.shows_help:
        view.shows_help = False
    elif key in SCROLLS:
        step = SCROLLS[key] * (page if key in (PAGE_UP, PAGE_DOWN) else 1)
        view.offset = max(min(view.offset + step, rows - page), 0)
    else:
        _command(view, key)


SCROLLS: Final = {UP: -1, DOWN: 1, "k": -1, "j": 1, PAGE_UP: -1, PAGE_DOWN: 1, HOME: -(1 << 30), END: 1 << 30}


def _command(view: View, key: str) -> None:
    match key:
        case "?" | "h":
            view.shows_help = True
        case "p" | " ":
            view.is_paused = not view.is_paused
        case "r":
            view.is_reversed = not view.is_reversed
        case "b":
            view.sort, view.is_reversed = None, False
        case "<" | ">" | "," | "." | "left" | "right":
            _sort(view, -1 if key in ("<", ",", LEFT) else 1)
        case "/":
            view.is_typing = True
        case "escape":
            view.wanted = ""
        case "\t" | "back tab":
            _show(view, TABS[(TABS.index(view.tab) + (1 if key == TAB else -1)) % len(TABS)])
        case "1" | "2" | "3" | "4":
            _show(view, TABS[int(key) - 1])
        case _:
            pass


def _show(view: View, tab: str) -> None:
    view.tab, view.sort, view.is_reversed, view.offset = tab, None, False, 0


def _sort(view: View, step: int) -> None:
    """Go on to the next column; before the first and after the last is the order of the broker."""
    keys = [None, *(column.key for column in TABLES[view.tab])]
    view.sort = keys[(keys.index(view.sort) + step) % len(keys)]


def _type(view: View, key: str) -> None:
    if key == ENTER:
        view.is_typing = False
    elif key == ESCAPE:
        view.is_typing, view.wanted = False, ""
    elif key == BACKSPACE:
        view.wanted = view.wanted[:-1]
    elif len(key) == 1 and key.isprintable() and len(view.wanted) < MAX_FILTER:
        view.wanted += key
    view.offset = 0
