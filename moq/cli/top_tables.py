"""The tables of `moq top`: which columns there are, which of them a terminal has room for, and the rows in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from moq.cli.top_text import clean, duration, fit, milliseconds, quantity, size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Row = dict[str, Any]
    Snapshot = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column; those of the lowest rank are shown first, as far as there is room."""

    key: str
    title: str
    width: int
    show: Callable[[Any], str]
    rank: int = 0
    is_text: bool = False
    is_elastic: bool = False
    """Takes the room that is left."""


def name(value: object) -> str:
    """A name that somebody else chose."""
    return "-" if value is None else clean(str(value))


def topic(value: object) -> str:
    """A topic; what has none is said in words."""
    return "(further topics)" if value is None else "(responses)" if value == "" else clean(str(value))


def _text(key: str, title: str, width: int, rank: int = 0, *, is_elastic: bool = False) -> Column:
    show = topic if key == "topic" else name
    return Column(key, title, width, show, rank, is_text=True, is_elastic=is_elastic)


TABLES: Final[dict[str, tuple[Column, ...]]] = {
    "connections": (
        _text("client_id", "CLIENT", 14, is_elastic=True),
        _text("user", "USER", 10, 7),
        _text("transport", "VIA", 4, 0),
        _text("dialect", "DIALECT", 7, 6),
        _text("peer", "PEER", 21, 9),
        Column("connected_s", "SINCE", 6, duration, 5),
        Column("messages_in_per_s", "IN/s", 6, quantity, 0),
        Column("messages_out_per_s", "OUT/s", 6, quantity, 0),
        Column("bytes_in_per_s", "B IN/s", 7, size, 1),
        Column("bytes_out_per_s", "B OUT/s", 7, size, 1),
        Column("waiting", "WAIT", 6, quantity, 2),
        Column("inflight", "INFL", 5, quantity, 4),
        Column("unsent_bytes", "UNSENT", 6, size, 2),
        Column("streams_in", "S.IN", 4, quantity, 5),
        Column("streams_out", "S.OUT", 5, quantity, 5),
        Column("rtt_s", "RTT ms", 6, milliseconds, 3),
        Column("congestion_window_bytes", "CWND", 6, size, 8),
        Column("lost", "LOST", 5, quantity, 4),
    ),
    "streams": (
        _text("client_id", "CLIENT", 14, is_elastic=True),
        Column("stream", "STREAM", 6, quantity),
        _text("direction", "DIR", 3),
        _text("topic", "TOPIC", 16, is_elastic=True),
        Column("messages_per_s", "MSG/s", 7, quantity),
        Column("bytes_per_s", "BYTES/s", 8, size),
        Column("unsent_bytes", "UNSENT", 7, size),
    ),
    "topics": (
        _text("topic", "TOPIC", 20, is_elastic=True),
        Column("messages_in_per_s", "IN/s", 7, quantity),
        Column("messages_out_per_s", "OUT/s", 7, quantity),
        Column("bytes_in_per_s", "B IN/s", 8, size, 1),
        Column("bytes_out_per_s", "B OUT/s", 8, size, 1),
        Column("subscribers", "SUBS", 6, quantity),
        Column("retained", "RETAINED", 8, quantity, 2),
    ),
    "drops": (
        _text("reason", "REASON", 20),
        Column("per_s", "DROPS/s", 8, quantity),
        Column("total", "SINCE START", 12, quantity),
    ),
}
"""By the name of their part of a snapshot, in the order of the tabs."""

TABS: Final = tuple(TABLES)


def rows_of(snapshot: Snapshot, tab: str) -> list[Row]:
    """The rows of a table, the busiest first."""
    if tab == "drops":
        return [{"reason": reason, **figures} for reason, figures in snapshot["broker"]["drops"].items()]
    rows: list[Row] = snapshot[tab]
    return rows


def arranged(rows: list[Row], tab: str, *, sort: str | None, is_reversed: bool, wanted: str) -> list[Row]:
    """The rows with the wanted text somewhere, in order of a column: names rising, numbers falling."""
    columns = TABLES[tab]
    if wanted:
        texts = [column for column in columns if column.is_text]
        sought = wanted.casefold()
        rows = [row for row in rows if any(sought in column.show(row[column.key]).casefold() for column in texts)]
    chosen = next((column for column in columns if column.key == sort), None)
    if chosen is None:
        return rows[::-1] if is_reversed else list(rows)
    key = chosen.key
    if chosen.is_text:
        return sorted(rows, key=lambda row: chosen.show(row[key]).casefold(), reverse=is_reversed)
    return sorted(rows, key=lambda row: -1 if row[key] is None else row[key], reverse=not is_reversed)


def fitting(tab: str, width: int) -> list[tuple[Column, int]]:
    """The columns that a width has room for, with their widths, in the order of the table."""
    columns = TABLES[tab]
    chosen: set[str] = set()
    left = width + 1
    for column in sorted(columns, key=lambda column: column.rank):
        if left < column.width + 1:
            break
        chosen.add(column.key)
        left -= column.width + 1
    shown = [column for column in columns if column.key in chosen]
    elastic = [column for column in shown if column.is_elastic]
    widths = {column.key: column.width for column in shown}
    for place, column in enumerate(elastic):
        share = left // (len(elastic) - place)
        widths[column.key] += share
        left -= share
    return [(column, widths[column.key]) for column in shown]


def cells(row: Row | None, columns: Sequence[tuple[Column, int]]) -> list[str]:
    """One line of a table, cell by cell; without a row, the titles."""
    return [
        fit(column.title if row is None else column.show(row[column.key]), width, right=not column.is_text)
        for column, width in columns
    ]
