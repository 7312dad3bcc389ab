"""How changes become transactions: reduced to their net effect, one batch at a time, bounded."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from moq.broker.store import Table
from moq.store import sqlite as sqlite_module
from moq.store import statements, writer
from tests.store.opened import Page, SQLiteKeeper, enqueue, open_sqlite, queues, read, settle

if TYPE_CHECKING:
    from pathlib import Path


def rows(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path / "broker.db")) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_what_came_and_went_before_the_turn_ended_never_reaches_the_disk(sqlite: SQLiteKeeper) -> None:
    store = sqlite.sqlite
    enqueue(store, "c", 1, b"makes the queue known")
    sqlite.settle()
    batches = store.figures.batches
    enqueue(store, "c", 2, b"x" * 1_000)
    store.mark("c", 2, 7, False)
    store.dequeue("c", 2)
    assert store.advance()
    assert store.durable == store.last
    assert store.figures.batches == batches


def test_a_queue_that_came_and_went_never_reaches_the_disk(sqlite: SQLiteKeeper) -> None:
    enqueue(sqlite.store, "c", 1, b"x")
    sqlite.store.drop("c")
    assert sqlite.sqlite.advance()
    assert sqlite.sqlite.figures.batches == 0


def test_a_message_in_many_queues_is_kept_once_until_the_last_has_it(sqlite: SQLiteKeeper) -> None:
    sent = enqueue(sqlite.store, "a", 1, b"large" * 100)
    for owner in "bcd":
        enqueue(sqlite.store, owner, 1, sent)
    sqlite.settle()
    assert rows(sqlite.path, "message") == 1
    for owner in "abcd":
        assert read(sqlite, owner).payloads == [b"large" * 100]
        sqlite.store.dequeue(owner, 1)
    sqlite.settle()
    assert rows(sqlite.path, "message") == 0
    assert list((sqlite.path / "spool").iterdir()) == []


def test_the_loop_is_told_once_per_turn(tmp_path: Path) -> None:
    told: list[str] = []
    store = open_sqlite(tmp_path, on_pending=lambda: told.append("pending"))
    store.put(Table.RECEIVED, ("c", 1), None)
    store.put(Table.RECEIVED, ("c", 2), None)
    store.read("c", 0, 1, 1, Page())
    assert told == ["pending"]
    store.advance()
    store.read("c", 0, 1, 1, Page())
    assert told == ["pending", "pending"]
    store.close()


def test_the_writer_says_when_a_batch_is_safe_and_the_loop_takes_it(tmp_path: Path) -> None:
    progressed = threading.Event()
    store = open_sqlite(tmp_path, on_progress=progressed.set)
    store.put(Table.RECEIVED, ("c", 1), None)
    assert not store.advance()
    assert progressed.wait(10)
    assert (store.durable, store.pending) == (0, 1)
    assert store.advance()
    assert (store.durable, store.pending) == (1, 0)
    assert (store.figures.batches, store.figures.changes, store.figures.last_batch) == (1, 1, 1)
    assert store.figures.rows == 1
    assert store.figures.commit_seconds.sum > 0
    store.close()


def test_changes_made_by_an_answer_are_in_the_next_batch(sqlite: SQLiteKeeper) -> None:
    enqueue(sqlite.store, "c", 1, b"x")
    sqlite.store.read("c", 0, 1, 1, lambda page, _: sqlite.store.dequeue("c", page[0].number))
    sqlite.settle()
    assert queues(sqlite.store) == {}
    assert sqlite.sqlite.figures.batches == 2


@pytest.mark.parametrize("limit", ["MAX_BATCH_ROWS", "MAX_BATCH_BYTES"])
def test_a_full_batch_takes_no_more_turns(sqlite: SQLiteKeeper, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(sqlite_module, limit, 10)
    for turn in range(10):
        for number in range(5):
            enqueue(sqlite.store, "c", turn * 5 + number, b"123")
        sqlite.sqlite.advance()
    sqlite.settle()
    assert sqlite.sqlite.figures.last_batch <= 15
    assert queues(sqlite.store)["c"].messages == 50


def test_more_rows_than_a_statement_takes_are_written_by_several(
    sqlite: SQLiteKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "ROWS_PER_STATEMENT", 4)
    monkeypatch.setattr(statements, "SMALL_REST", 1)
    for number in range(10):
        enqueue(sqlite.store, "c", number, b"%d" % number)
    assert read(sqlite, "c", after=-1).payloads == [b"%d" % number for number in range(10)]


def test_a_large_sweep_takes_several_transactions_and_tells_of_each(sqlite: SQLiteKeeper) -> None:
    count = statements.SWEEP_SLICE * 2 + 1
    for number in range(count):
        enqueue(sqlite.store, "c", number, b"x", expires_at=100.0)
    sqlite.settle()
    batches = sqlite.sqlite.figures.batches
    answers: list[int] = []
    sqlite.store.sweep(100.0, [], lambda gone: answers.append(len(gone)))
    sqlite.settle()
    assert answers == [statements.SWEEP_SLICE, statements.SWEEP_SLICE, 1]
    assert sqlite.sqlite.figures.batches == batches + 3
    assert queues(sqlite.store) == {}


def test_a_large_sweep_leaves_alone_what_was_read_meanwhile(
    sqlite: SQLiteKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "SWEEP_SLICE", 1)
    monkeypatch.setattr(statements, "_SWEEP", statements._SWEEP.replace("LIMIT 5000", "LIMIT 1"))
    for owner in "abc":
        enqueue(sqlite.store, owner, 1, b"x", expires_at=100.0)
    sqlite.settle()
    answers: list[list[tuple[str, int]]] = []
    sqlite.store.sweep(100.0, [], answers.append)
    page = Page()
    sqlite.store.read("c", 0, 1, 1, page)
    sqlite.settle()
    assert [answer for answer in answers if answer] == [[("a", 1)], [("b", 1)]]
    assert page.numbers == read(sqlite, "c").numbers == [1]


def test_a_sweep_does_not_speak_of_queues_dropped_since(sqlite: SQLiteKeeper) -> None:
    enqueue(sqlite.store, "c", 1, b"x", expires_at=100.0)
    answers: list[list[tuple[str, int]]] = []
    sqlite.store.sweep(100.0, [], answers.append)
    sqlite.store.drop("c")
    sqlite.settle()
    assert answers == [[]]


def test_a_large_dropped_queue_is_gone_at_once_and_cleared_by_and_by(sqlite: SQLiteKeeper) -> None:
    for number in range(statements.DROP_SLICE * 2 + 1):
        enqueue(sqlite.store, "c", number, b"x")
    sqlite.settle()
    sqlite.store.drop("c")
    sqlite.settle()
    assert queues(sqlite.store) == {}
    sqlite.restart()
    assert queues(sqlite.store) == {}
    while sqlite.sqlite._writer._has_dropped:
        sqlite.store.put(Table.RECEIVED, ("c", 1), None)
        sqlite.settle()
    assert (rows(sqlite.path, "delivery"), rows(sqlite.path, "message"), rows(sqlite.path, "queue")) == (0, 0, 0)


def test_a_dropped_queue_is_cleared_while_nothing_else_happens(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path)
    for number in range(statements.DROP_SLICE * 3):
        enqueue(store, "c", number, b"x")
    settle(store)
    batches = store.figures.batches
    store.drop("c")
    settle(store)
    store.close()
    assert store.figures.batches >= batches + 1
    store = open_sqlite(tmp_path)
    with closing(sqlite3.connect(tmp_path / "broker.db", timeout=10)) as watcher:
        while watcher.execute("SELECT count(*) FROM queue").fetchone()[0]:
            pass
    assert store.figures.changes == 0
    store.close()


def test_a_commit_takes_the_time_along_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_sqlite(tmp_path)
    at_the_start = anchored_at(tmp_path)
    store.put(Table.RECEIVED, ("c", 1), None)
    settle(store)
    assert anchored_at(tmp_path) == at_the_start
    monkeypatch.setattr(writer, "ANCHOR_INTERVAL_S", 0.0)
    store.put(Table.RECEIVED, ("c", 2), None)
    settle(store)
    assert anchored_at(tmp_path) > at_the_start
    store.close()


def anchored_at(path: Path) -> float:
    with closing(sqlite3.connect(path / "broker.db")) as connection:
        (boottime,) = connection.execute("SELECT boottime FROM anchor").fetchone()
    return float(boottime)


def test_a_commit_that_does_not_end_is_a_failure_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moq.store.sqlite.HANGS_AFTER_S", -1.0)
    store = open_sqlite(tmp_path)
    store.put(Table.RECEIVED, ("c", 1), None)
    store.advance()
    assert "does not answer: a commit has been under way for 0 s" in str(store.failure)
    settle(store)
    assert store.failure is None
    store.close()
