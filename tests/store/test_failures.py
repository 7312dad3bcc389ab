"""A disk that is full or broken: nothing is promised, nothing is lost, and it goes on by itself."""

from __future__ import annotations

import logging
import resource
import shutil
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from moq.broker.store import MessageRecord, Table
from moq.errors import StoreError
from moq.store import writer
from moq.store.spool import Spool
from moq.store.statements import Statements
from tests.store.opened import SQLiteKeeper, copy_files, enqueue, facts, open_sqlite, queues, read, settle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from moq.store import SQLiteStore


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(writer, "LONGEST_PAUSE_S", 0.01)


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Writes past a size fail, as they do when a disk breaks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def wait_for_failure(store: SQLiteStore, progressed: threading.Event) -> str:
    """Nothing is safe until it is said why not."""
    while store.failure is None:
        assert progressed.wait(10)
        progressed.clear()
        store.advance()
    return store.failure


def test_a_full_disk_stops_promises_until_there_is_room(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    progressed = threading.Event()
    store = open_sqlite(tmp_path, on_progress=progressed.set)
    enqueue(store, "c", 1, b"fits")
    settle(store)
    connection = store._database.connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    durable = store.durable
    for number in range(2, 1_000):
        enqueue(store, "c", number, b"x" * 90)
    store.advance()
    failure = wait_for_failure(store, progressed)
    assert failure == f"{tmp_path / 'broker.db'} cannot be written: database or disk is full"
    enqueue(store, "c", 1_000, b"more")
    assert not store.flush_and_wait(0.05)
    assert (store.durable, store.pending) == (durable, 999)
    assert store.figures.failures > 0

    connection.execute(f"PRAGMA max_page_count = {pages * 1_000}")
    settle(store)
    assert store.failure is None
    assert queues(store)["c"].messages == 1_000
    store.close()
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said == [f"{failure}; trying again until it works", f"{tmp_path / 'broker.db'} is written again"]


def test_a_write_error_is_survived_and_the_batch_kept(tmp_path: Path) -> None:
    progressed = threading.Event()
    store = open_sqlite(tmp_path, on_progress=progressed.set)
    settle(store)
    with no_file_larger_than((tmp_path / "broker.db-wal").stat().st_size):
        enqueue(store, "c", 1, b"x")
        store.advance()
        assert str(tmp_path) in wait_for_failure(store, progressed)
        assert store.durable < store.last
    settle(store)
    assert queues(store)["c"].messages == 1
    store.close()


def test_a_payload_that_cannot_be_spooled_waits_and_leaves_nothing_behind(tmp_path: Path) -> None:
    progressed = threading.Event()
    store = open_sqlite(tmp_path, on_progress=progressed.set)
    with no_file_larger_than(100_000):
        enqueue(store, "c", 1, b"x" * 50_000)
        enqueue(store, "c", 2, b"x" * 200_000)
        store.advance()
        assert "File too large" in wait_for_failure(store, progressed)
        store._writer.stop()
        assert list((tmp_path / "spool").iterdir()) == []
    store._database.abandon()


def test_a_missing_spool_directory_is_named(tmp_path: Path) -> None:
    progressed = threading.Event()
    store = open_sqlite(tmp_path, on_progress=progressed.set)
    (tmp_path / "spool").rmdir()
    enqueue(store, "c", 1, b"x" * 1_000)
    store.advance()
    assert f"No such file or directory ({tmp_path / 'spool' / 'm1.part'})" in wait_for_failure(store, progressed)
    (tmp_path / "spool").mkdir()
    settle(store)
    assert store.figures.spooled_bytes == 1_000
    store.close()


def test_a_store_that_cannot_be_closed_safely_says_how_much_is_lost(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path)
    (tmp_path / "spool").rmdir()
    enqueue(store, "c", 1, b"x" * 1_000)
    with pytest.raises(StoreError, match=r"1 changes were not stored: .*No such file or directory"):
        store.close(timeout_s=0.2)
    store = open_sqlite(tmp_path)
    assert queues(store) == {}
    store.close()


def test_an_end_that_cannot_be_noted_is_an_unclean_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = open_sqlite(tmp_path)
    enqueue(store, "c", 1, b"x")
    settle(store)
    store._database.connection.execute("PRAGMA query_only = 1")
    store.close()
    assert "the next start will check all" in caplog.text
    store = open_sqlite(tmp_path)
    assert not store._database.recovered.was_clean
    assert queues(store)["c"].messages == 1
    store.close()


def test_a_fault_of_our_own_does_not_end_the_writer(
    sqlite: SQLiteKeeper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Statements, "apply", lambda self, segment: segment.no_such_thing)
        sqlite.store.put(Table.RECEIVED, ("c", 1), None)
        assert not sqlite.sqlite.flush_and_wait(0.1)
        assert "no_such_thing" in str(sqlite.store.failure)
    sqlite.settle()
    assert facts(sqlite.store, Table.RECEIVED) == [(("c", 1), None)]
    assert any(record.exc_info for record in caplog.records)


def test_a_connection_that_is_gone_is_a_failure_like_any_other(sqlite: SQLiteKeeper) -> None:
    progressed = threading.Event()
    store = open_sqlite(sqlite.path.with_name("other"), on_progress=progressed.set)
    store._database.connection.close()
    store.put(Table.RECEIVED, ("c", 1), None)
    store.advance()
    assert "closed" in wait_for_failure(store, progressed)
    with pytest.raises(StoreError, match="1 changes were not stored"):
        store.close(timeout_s=0.05)


# --- spooled payloads ---------------------------------------------------------------------------------


def test_a_crash_before_the_commit_leaves_no_file(sqlite: SQLiteKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    crashed = sqlite.path.with_name("crashed")
    before_commit = Spool.before_commit

    def crash(spool: Spool) -> None:
        before_commit(spool)
        copy_files(sqlite.path, crashed)
        (crashed / "spool" / "m99.part").write_bytes(b"not all of")

    with monkeypatch.context() as patched:
        patched.setattr(Spool, "before_commit", crash)
        enqueue(sqlite.store, "c", 1, b"x" * 1_000)
        sqlite.settle()
    assert (crashed / "spool" / "m1").read_bytes() == b"x" * 1_000
    store = open_sqlite(crashed)
    assert queues(store) == {}
    assert list((crashed / "spool").iterdir()) == []
    store.close()


def test_a_crash_after_the_commit_has_the_file(sqlite: SQLiteKeeper) -> None:
    enqueue(sqlite.store, "c", 1, b"x" * 1_000)
    sqlite.store.put(Table.RETAINED, ("t", 1), MessageRecord("t", b"y" * 1_000, 1, True, "p", 1e10, None))
    sqlite.settle()
    crashed = SQLiteKeeper.__new__(SQLiteKeeper)
    crashed.path = sqlite.path.with_name("crashed")
    copy_files(sqlite.path, crashed.path)
    crashed.sqlite = open_sqlite(crashed.path)
    assert read(crashed, "c").payloads == [b"x" * 1_000]
    ((_, record),) = facts(crashed.store, Table.RETAINED)
    assert isinstance(record, MessageRecord)
    assert record.payload == b"y" * 1_000
    crashed.close()


def test_a_crash_before_the_removal_of_a_file_ends_with_the_next_start(
    sqlite: SQLiteKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(sqlite.store, "c", 1, b"x" * 1_000)
    sqlite.settle()
    crashed = sqlite.path.with_name("crashed")
    with monkeypatch.context() as patched:
        patched.setattr(Spool, "after_commit", lambda spool: copy_files(sqlite.path, crashed))
        sqlite.store.dequeue("c", 1)
        sqlite.settle()
    assert [path.name for path in (crashed / "spool").iterdir()] == ["m1"]
    store = open_sqlite(crashed)
    assert list((crashed / "spool").iterdir()) == []
    store.close()


def test_a_replaced_or_removed_retained_payload_leaves_no_file(sqlite: SQLiteKeeper) -> None:
    for payload in (b"x" * 1_000, b"y" * 1_000):
        sqlite.store.put(Table.RETAINED, ("t", 1), MessageRecord("t", payload, 1, True, "p", 1e10, None))
        sqlite.settle()
    assert [path.read_bytes() for path in (sqlite.path / "spool").iterdir()] == [b"y" * 1_000]
    sqlite.store.delete(Table.RETAINED, ("t", 1))
    sqlite.settle()
    assert list((sqlite.path / "spool").iterdir()) == []


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_a_delivery_whose_file_is_lost_is_reported_and_left_out(
    sqlite: SQLiteKeeper, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    for number, payload in enumerate([b"before", b"x" * 1_000, b"after"], 1):
        enqueue(sqlite.store, "c", number, payload)
    sqlite.store.put(Table.RETAINED, ("t", 1), MessageRecord("t", b"y" * 1_000, 1, True, "p", 1e10, None))
    sqlite.settle()
    for file in (sqlite.path / "spool").iterdir():
        file.write_bytes(b"x" * 10)
        if damage == "missing":
            file.unlink()
    assert read(sqlite, "c").payloads == [b"before", b"after"]
    assert facts(sqlite.store, Table.RETAINED) == []
    assert [f"spool/{name}" in caplog.text for name in ("m2", "r1")] == [True, True]
    sqlite.restart()
    assert queues(sqlite.store)["c"].messages == (2 if damage == "missing" else 3)


def test_a_file_that_cannot_be_removed_does_not_stop_anything(
    sqlite: SQLiteKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    enqueue(sqlite.store, "c", 1, b"x" * 1_000)
    sqlite.settle()
    (sqlite.path / "spool" / "m1").unlink()
    (sqlite.path / "spool" / "m1").mkdir()
    sqlite.store.dequeue("c", 1)
    sqlite.settle()
    assert "m1 cannot be removed" in caplog.text
    shutil.rmtree(sqlite.path / "spool" / "m1")
