"""`moq top` as lines of text: a pure function of a snapshot, what went before, what is asked for and the room there is.

A line is a list of spans, each a text and a style. Whoever has a terminal paints them; nothing here knows one, nor
changes what it is given.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from moq.cli.top_tables import TABLES, TABS, arranged, cells, fitting, rows_of
from moq.cli.top_text import clean, duration, fit, milliseconds, quantity, size, sparkline, text_width

if TYPE_CHECKING:
    from moq.cli.top_tables import Row, Snapshot

PLAIN, BOLD, DIM, TITLE, ALERT, GOOD, CHOSEN = "plain", "bold", "dim", "title", "alert", "good", "chosen"
STYLES: Final = (PLAIN, BOLD, DIM, TITLE, ALERT, GOOD, CHOSEN)

HISTORY: Final = 120
"""Snapshots whose rates the sparklines remember."""

MIN_SPARK: Final = 4

HEAD_LINES: Final = 5
"""Title, three lines of figures, tabs."""

HELP: Final = (
    ("1 2 3 4, Tab", "connections, streams, topics, drops"),
    ("< >", "sort by the column to the left or right"),
    ("b", "sort as the broker does: the busiest first"),
    ("r", "turn the order round"),
    ("/", "show only rows with a text; Enter keeps it, Esc clears it"),
    ("p, Space", "pause, and go on"),
    ("arrows, PgUp, PgDn, Home, End", "scroll"),
    ("?, h", "this page, and back"),
    ("q, Ctrl-C", "quit"),
)


class Span(NamedTuple):
    """A piece of a line."""

    text: str
    style: str = PLAIN


Line = list[Span]


@dataclass(slots=True)
class View:
    """What somebody wants to see."""

    tab: str = TABS[0]
    sort: str | None = None
    """The key of a column; None: as the broker has sorted."""
    is_reversed: bool = False
    wanted: str = ""
    """Only rows with this text."""
    is_typing: bool = False
    """It is being typed."""
    is_paused: bool = False
    shows_help: bool = False
    offset: int = 0
    """Rows scrolled past."""
    is_over: bool = False


@dataclass(slots=True)
class History:
    """The rates of the last snapshots."""

    incoming: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    outgoing: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def add(self, snapshot: Snapshot) -> None:
        """One more."""
        self.incoming.append(snapshot["broker"]["messages_in_per_s"])
        self.outgoing.append(snapshot["broker"]["messages_out_per_s"])


def render(
    snapshot: Snapshot | None, history: History, view: View, *, where: str, trouble: str, width: int, height: int
) -> list[Line]:
    """The whole screen; `trouble` is what keeps snapshots from coming."""
    footer = _footer(view, width)
    if snapshot is None:
        body = [[Span(fit(trouble or "waiting for the first snapshot ...", width), ALERT if trouble else DIM)]]
        return _screen([_title(None, view, where, width), *body], footer, width, height)
    if view.shows_help:
        lines = [[Span(fit(f"  {keys}", min(34, width)), BOLD), Span(what)] for keys, what in HELP]
        return _screen([_title(snapshot, view, where, width), [], *lines], footer, width, height)
    head = [_title(snapshot, view, where, width), *_figures(snapshot, history, width)]
    if trouble:
        head[-1] = [Span(fit(trouble, width), ALERT)]
    head.append(_tabs(snapshot, view, width))
    return _screen([*head, *_table(snapshot, view, width, page(height))], footer, width, height)


def page(height: int) -> int:
    """Rows of a table that a screen of this height has room for."""
    return max(height - HEAD_LINES - 2, 0)  # but for the titles of the columns and the footer


def row_count(snapshot: Snapshot | None, view: View) -> int:
    """Rows of the table that is shown."""
    return 0 if snapshot is None else len(_rows(snapshot, view))


def plain(snapshot: Snapshot, where: str, width: int) -> list[Line]:
    """Everything a snapshot has, one table after the other, for paper and pipes."""
    lines = [_title(snapshot, View(), where, width), *_figures(snapshot, History(), width)]
    for tab in TABS:
        rows = len(rows_of(snapshot, tab))
        lines += [[], [Span(tab.upper(), TITLE)], *_table(snapshot, View(tab=tab), width, rows)]
    return lines


def _screen(lines: list[Line], footer: Line, width: int, height: int) -> list[Line]:
    """Lines and a footer, as many as there is room for."""
    shown = [_clipped(line, width) for line in lines[: max(height - 1, 0)]]
    filling: list[Line] = [[] for _ in range(height - 1 - len(shown))]
    return [*shown, *filling, _clipped(footer, width)] if height > 0 else []


def _clipped(line: Line, width: int) -> Line:
    shown: Line = []
    for span in line:
        cells_left = width - sum(text_width(text) for text, _ in shown)
        if cells_left <= 0:
            break
        text = span.text if text_width(span.text) <= cells_left else fit(span.text, cells_left)
        shown.append(Span(text, span.style))
    return shown


# --- the head ----------------------------------------------------------------------------------------------


def _title(snapshot: Snapshot | None, view: View, where: str, width: int) -> Line:
    line = [Span("moq top ", TITLE), Span(clean(where))]
    if snapshot is not None:
        broker = snapshot["broker"]
        line.append(Span(f"  moq {clean(str(broker['version']))}  up {duration(broker['uptime_s'])}", DIM))
    if view.is_paused:
        line.append(Span("  PAUSED", ALERT))
    return _clipped(line, width)


def _figures(snapshot: Snapshot, history: History, width: int) -> list[Line]:
    broker = snapshot["broker"]
    half = width // 2
    rates = [
        *_rate("in", broker["messages_in_per_s"], broker["bytes_in_per_s"], list(history.incoming), half - 1),
        Span(" "),
        *_rate("out", broker["messages_out_per_s"], broker["bytes_out_per_s"], list(history.outgoing), half),
    ]
    drops = sum(figures["per_s"] for figures in broker["drops"].values())
    numbers = [
        ("connections", quantity(broker["connections"]), False),
        ("sessions", quantity(broker["sessions"]), False),
        ("subs", quantity(broker["subscriptions"]), False),
        ("topics", quantity(broker["topics"]), False),
        ("retained", quantity(broker["retained"]), False),
        ("queued", quantity(broker["queued"]), False),
    ]
    health = [
        ("inflight", quantity(broker["inflight"]), False),
        ("store", quantity(broker["store_pending"]), False),
        ("held", size(broker["held_bytes"]), False),
        ("", broker["pressure"], broker["pressure"] != "calm"),
        ("drops/s", quantity(drops), drops > 0),
        ("cpu", f"{broker['cpu_share'] * 100:.0f}%", broker["cpu_share"] > 0.9),
        ("rss", size(broker["rss_bytes"]), False),
        ("lag", f"{milliseconds(broker['loop_lag_s'])}ms", broker["loop_lag_s"] > 0.1),
    ]
    return [rates, _pairs(numbers), _pairs(health)]


def _rate(label: str, messages: float, octets: float, history: list[float], width: int) -> Line:
    text = f"{quantity(messages)} msg/s {size(octets)}B/s "
    room = width - len(label) - 1 - len(text)
    spark = sparkline(history, min(room, len(history))) if room >= MIN_SPARK else ""
    return [Span(f"{label} ", DIM), Span(text, BOLD), Span(fit(spark, max(room, 0)), GOOD)]


def _pairs(pairs: list[tuple[str, str, bool]]) -> Line:
    line: Line = []
    for label, value, is_alarming in pairs:
        if label:
            line.append(Span(f"{label} ", DIM))
        line += [Span(value, ALERT if is_alarming else BOLD), Span("  ")]
    return line


def _tabs(snapshot: Snapshot, view: View, width: int) -> Line:
    line: Line = []
    for number, tab in enumerate(TABS, 1):
        line += [Span(f" {number} {tab} ", CHOSEN if tab == view.tab else DIM), Span(" ")]
    notes = [_whole(snapshot, view.tab)]
    if view.sort is not None:
        notes.append(f"by {next(column.title for column in TABLES[view.tab] if column.key == view.sort)}")
    if view.wanted and not view.is_typing:
        notes.append(f"/{clean(view.wanted)}")
    note = "  ".join(filter(None, notes))
    used = sum(text_width(text) for text, _ in line)
    return [*line, Span(fit(note, max(width - used, 0), right=True), DIM)]


def _whole(snapshot: Snapshot, tab: str) -> str:
    """How many the list is a part of, if it is."""
    broker = snapshot["broker"]
    totals = {
        "connections": broker["connected"],
        "streams": broker["active_streams"],
        "topics": broker["active_topics"],
    }
    shown = len(rows_of(snapshot, tab))
    return f"the busiest {shown} of {totals[tab]}" if totals.get(tab, shown) > shown else ""


# --- tables ------------------------------------------------------------------------------------------------


def _table(snapshot: Snapshot, view: View, width: int, room: int) -> list[Line]:
    """The titles of the columns and as many rows as there is room for."""
    columns = fitting(view.tab, width)
    rows = _rows(snapshot, view)
    offset = max(min(view.offset, len(rows) - room), 0)
    titles = [
        Span(text, CHOSEN if column.key == view.sort else TITLE)
        for text, (column, _) in zip(cells(None, columns), columns, strict=True)
    ]
    lines = [_spaced(titles)]
    for row in rows[offset : offset + room]:
        quiet = not any(row.get(key) for key in row if key.endswith("per_s"))
        lines.append(_spaced([Span(text, DIM if quiet else PLAIN) for text in cells(row, columns)]))
    if not rows:
        lines.append([Span("nothing matches" if view.wanted else "nothing in the last second", DIM)])
    return lines


def _rows(snapshot: Snapshot, view: View) -> list[Row]:
    rows = rows_of(snapshot, view.tab)
    return arranged(rows, view.tab, sort=view.sort, is_reversed=view.is_reversed, wanted=view.wanted)


def _spaced(spans: list[Span]) -> Line:
    line: Line = []
    for span in spans:
        line += [Span(" "), span] if line else [span]
    return line


def _footer(view: View, width: int) -> Line:
    if view.is_typing:
        return [Span("/", BOLD), Span(clean(view.wanted)), Span("_", BOLD)]
    keys = " q quit  ? help  Tab table  < > sort  r reverse  / filter  p pause"
    return [Span(fit(keys, width), DIM)]
