"""What `moq top` shows: lines of a snapshot, keys that change the view, and names that cannot harm a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moq.broker.snapshot import VERSION as BROKER_VERSION
from moq.broker.top import INTERVAL_S as BROKER_INTERVAL_S
from moq.broker.top import TOPIC as BROKER_TOPIC
from moq.cli import top, top_keys
from moq.cli.top_keys import press
from moq.cli.top_plain import ANSI, to_text
from moq.cli.top_screen import KEYS
from moq.cli.top_tables import TABLES, TABS
from moq.cli.top_text import clean, duration, fit, milliseconds, quantity, size, sparkline, text_width
from moq.cli.top_view import ALERT, STYLES, History, View, page, plain, render, row_count
from moq.errors import RemoteProtocolError
from tests.cli.top_snapshots import make_connection, make_snapshot, make_stream, make_topic

if TYPE_CHECKING:
    from moq.cli.top_view import Line

HOSTILE = "a\x1b[31mb\x1b]0;title\x07\x9b2J\r\n\t\u202ec\u2028\ud7ff\U000e0001"


def texts(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def screen(
    snapshot: dict[str, Any] | None, view: View | None = None, width: int = 80, height: int = 24, trouble: str = ""
) -> list[str]:
    history = History()
    if snapshot is not None:
        history.add(snapshot)
    lines = render(
        snapshot, history, view or View(), where="quic://localhost", trouble=trouble, width=width, height=height
    )
    assert {style for line in lines for _, style in line} <= set(STYLES)
    return texts(lines)


BUSY = make_snapshot(
    [make_connection(f"client-{number:02}", 100.0 - number) for number in range(50)],
    [make_stream(f"client-{number:02}", f"room/{number}") for number in range(50)],
    [make_topic(f"room/{number}") for number in range(50)],
    connected=10_000,
)


def test_command_and_broker_agree() -> None:
    assert (top.TOPIC, top.VERSION, top.INTERVAL_S) == (BROKER_TOPIC, BROKER_VERSION, BROKER_INTERVAL_S)


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 40), (200, 10), (40, 12), (10, 3), (1, 1), (5, 0)])
def test_a_screen_is_filled_and_never_overrun(tab: str, width: int, height: int) -> None:
    lines = screen(BUSY, View(tab=tab), width, height)
    assert len(lines) == height
    assert all(text_width(line) <= width for line in lines)


def test_at_80_by_24_the_head_and_seventeen_connections_are_seen() -> None:
    lines = screen(BUSY)
    assert lines[0] == "moq top quic://localhost  moq 0.1.0  up 3h12m"
    assert "in 12.3k msg/s 1.2MB/s" in lines[1]
    assert "out 24.7k msg/s 2.4MB/s" in lines[1]
    assert "calm" in lines[3]
    assert "lag 0.40ms" in lines[3]
    assert lines[4].endswith("the busiest 50 of 10000")
    assert " ".join(lines[5].split()) == "CLIENT VIA IN/s OUT/s B IN/s B OUT/s WAIT INFL UNSENT RTT ms"
    assert [line.split()[0] for line in lines[6:23]] == [f"client-{number:02}" for number in range(17)]
    assert "q quit" in lines[23]


def test_a_wide_screen_has_more_columns() -> None:
    assert all(column.title in screen(BUSY, width=160)[5] for column in TABLES["connections"])
    assert "127.0.0.1:50123" in screen(BUSY, width=160)[6]


@given(st.text(max_size=30))
def test_no_name_reaches_the_terminal_with_anything_it_could_act_on(name: str) -> None:
    shown = clean(name)
    assert shown.isprintable() or not shown
    assert clean(shown) == shown
    for width in range(8):
        assert text_width(fit(shown, width)) == width


def test_hostile_names_are_written_out() -> None:
    assert clean(HOSTILE) == (r"a\x1b[31mb\x1b]0;title\x07\x9b2J\x0d\x0a\x09\u202ec\u2028" + "\\ud7ff" + r"\U000e0001")
    snapshot = make_snapshot(
        [make_connection(HOSTILE, user=HOSTILE, peer=HOSTILE)], [make_stream(HOSTILE, HOSTILE)], [make_topic(HOSTILE)]
    )
    for tab in TABS:
        for line in screen(snapshot, View(tab=tab, wanted="a"), 200):
            assert line.isprintable()
    assert all(line.isprintable() for line in texts(plain(snapshot, HOSTILE, 120)))


def test_marks_do_not_pile_up() -> None:
    assert clean("e\u0301") == "e\u0301"
    assert clean("e\u0301\u0302\u0303") == "e\u0301\\u0302\\u0303"
    assert clean("\u0301e") == "\\u0301e"


def test_wide_characters_keep_the_columns_in_line() -> None:
    snapshot = make_snapshot([make_connection("日本語クライアントの長い名前です", 1.0), make_connection("plain", 1.0)])
    lines = screen(snapshot)
    wide, narrow = lines[6], lines[7]
    assert text_width(wide) == text_width(narrow) == 80
    before = wide[: wide.index(" quic ")]
    assert text_width(before) == narrow.index(" quic ")
    assert before.rstrip().endswith("…")


def test_numbers_fit_their_columns() -> None:
    assert [quantity(value) for value in (None, 0, 0.25, 9.0, 12.6, 9999, 10_000, 1_234_567, 5e12)] == [
        "-",
        "0",
        "0.2",
        "9",
        "13",
        "9999",
        "10.0k",
        "1.2M",
        "5.0T",
    ]
    assert [size(value) for value in (None, 0, 512, 20_480, 3 << 20, 5 << 30)] == [
        "-",
        "0",
        "512",
        "20.0K",
        "3.0M",
        "5.0G",
    ]
    assert [duration(value) for value in (None, 5.9, 65, 3_661, 90_000)] == ["-", "5s", "1m05s", "1h01m", "1d01h"]
    assert [milliseconds(value) for value in (None, 0.0001, 0.0123, 0.25)] == ["-", "0.10", "12.3", "250"]


def test_a_sparkline_has_the_highest_at_full_height() -> None:
    assert sparkline([0, 5, 10], 3) == "▁▅█"
    assert sparkline([1, 2], 4) == "  ▅█"
    assert sparkline([0.0, 0.0], 2) == "▁▁"
    assert sparkline([], 3) == "   "


def test_drops_and_pressure_are_alarming() -> None:
    drops = {"congested": {"per_s": 5.0, "total": 12_345}}
    snapshot = make_snapshot(drops=drops, pressure="dropping")
    lines = render(snapshot, History(), View(tab="drops"), where="", trouble="", width=80, height=24)
    assert {text for line in lines for text, style in line if style == ALERT} == {"dropping", "5"}
    assert texts(lines)[6].split() == ["congested", "5", "12.3k"]


def test_what_has_no_topic_is_said_in_words() -> None:
    snapshot = make_snapshot(topics=[make_topic(None), make_topic("")], streams=[make_stream("a", None)])
    shown = "\n".join(screen(snapshot, View(tab="topics")))
    assert "(further topics)" in shown
    assert "(responses)" in shown


def test_trouble_stands_above_the_last_snapshot() -> None:
    assert "waiting for the first" in screen(None)[1]
    assert screen(None, trouble="connection lost")[1].strip() == "connection lost"
    lines = screen(BUSY, trouble="connection lost")
    assert lines[3].strip() == "connection lost"
    assert lines[6].startswith("client-00")


def test_plain_text_has_every_table_in_full() -> None:
    lines = texts(plain(BUSY, "tcp://localhost", 120))
    assert [line for line in lines if line in ("CONNECTIONS", "STREAMS", "TOPICS", "DROPS")] == [
        "CONNECTIONS",
        "STREAMS",
        "TOPICS",
        "DROPS",
    ]
    assert sum("client-49" in line for line in lines) == 2


def test_colours_only_where_they_are_wanted() -> None:
    (line,) = [line for line in plain(BUSY, "tcp://localhost", 120) if line and line[0].text == "CONNECTIONS"]
    assert to_text(line, is_coloured=False) == "CONNECTIONS"
    assert to_text(line, is_coloured=True) == "\x1b[1mCONNECTIONS\x1b[0m"
    assert ANSI.keys() == set(STYLES)


# --- keys --------------------------------------------------------------------------------------------------


def typed(view: View, *keys: str, rows: int = 50, shown: int = 17) -> View:
    for key in keys:
        press(view, key, shown, rows)
    return view


def test_tabs_are_chosen_by_number_and_in_turn() -> None:
    assert typed(View(), "3").tab == "topics"
    assert typed(View(), "\t").tab == "streams"
    assert typed(View(), "\t", "\t", "\t", "\t").tab == "connections"
    assert typed(View(), top_keys.BACK_TAB).tab == "drops"


def test_columns_are_sorted_by_in_turn_names_rising_and_numbers_falling() -> None:
    snapshot = make_snapshot([make_connection("b", 5), make_connection("C", 10), make_connection("a", 1)])
    view = typed(View(), ">")
    assert view.sort == "client_id"
    assert [line.split()[0] for line in screen(snapshot, view)[6:9]] == ["a", "b", "C"]
    assert [line.split()[0] for line in screen(snapshot, typed(view, "r"))[6:9]] == ["C", "b", "a"]
    view = View(sort="messages_in_per_s")
    assert [line.split()[0] for line in screen(snapshot, view)[6:9]] == ["C", "b", "a"]
    assert "by IN/s" in screen(snapshot, view)[4]
    assert typed(view, "b").sort is None
    assert typed(View(), "<").sort == TABLES["connections"][-1].key


def test_unknown_values_sort_as_the_least() -> None:
    snapshot = make_snapshot([make_connection("a", rtt_s=None), make_connection("b", rtt_s=0.0)])
    assert [line.split()[0] for line in screen(snapshot, View(sort="rtt_s"))[6:8]] == ["b", "a"]


def test_a_filter_is_typed_kept_and_cleared() -> None:
    view = typed(View(tab="topics"), "/", *"OM/4x", top_keys.BACKSPACE)
    assert (view.wanted, view.is_typing) == ("OM/4", True)
    assert screen(BUSY, view)[-1] == "/OM/4_"
    typed(view, top_keys.ENTER)
    assert row_count(BUSY, view) == 11
    assert screen(BUSY, view)[4].endswith("/OM/4")
    typed(view, top_keys.ESCAPE)
    assert row_count(BUSY, view) == 50
    assert typed(View(), "/", "q", top_keys.ESCAPE).wanted == ""
    assert "nothing matches" in "\n".join(screen(BUSY, View(wanted="zzz")))


def test_scrolling_ends_where_the_rows_do() -> None:
    view = View()
    assert typed(view, top_keys.UP).offset == 0
    assert typed(view, top_keys.PAGE_DOWN).offset == 17
    assert typed(view, top_keys.END).offset == 33
    assert screen(BUSY, view)[22].startswith("client-49")
    assert typed(view, top_keys.UP).offset == 32
    assert typed(view, top_keys.HOME, top_keys.DOWN).offset == 1
    assert screen(BUSY, view)[6].startswith("client-01")
    assert page(24) == 17
    assert page(3) == 0


def test_help_pause_and_quit() -> None:
    view = typed(View(), "?")
    assert any("scroll" in line for line in screen(BUSY, view))
    assert not typed(view, "x").shows_help
    assert "PAUSED" in screen(BUSY, typed(View(), "p"))[0]
    assert not typed(View(), "p", " ").is_paused
    assert typed(View(), "q").is_over
    assert typed(View(), "?", "q").is_over
    assert typed(View(), "", "z", "\x00") == View()


def test_every_key_of_the_terminal_has_a_meaning() -> None:
    known = {value for name, value in vars(top_keys).items() if name.isupper() and isinstance(value, str)}
    assert set(KEYS.values()) <= known


# --- snapshots ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [b"", b"\xff", b"[]", b"{}", b'"x"', b"7", b'{"version": 2}'])
def test_what_is_no_snapshot_is_refused_in_words(payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=r"\$SYS/top is not a snapshot|snapshot.version is 2"):
        top.read(payload)
