"""What a start finds: another broker, another application, an older or newer schema, damage, wrong modes."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from moq.broker.store import SessionRecord, SubscriptionRecord, Table, TopicRecord
from moq.errors import ConfigError, StoreError
from moq.store import schema
from tests.store.opened import SQLiteKeeper, copy_files, enqueue, facts, open_sqlite, queues, read, settle

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """
import sys, pathlib
from tests.store.opened import open_sqlite
store = open_sqlite(pathlib.Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


def run(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path / "broker.db", isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def filled(path: Path, messages: int = 500) -> None:
    """A directory that a broker left in peace."""
    store = open_sqlite(path)
    for number in range(messages):
        enqueue(store, "c", number, b"%d" % number * 20)
    store.close()


def test_a_start_says_what_it_restored(tmp_path: Path) -> None:
    keeper = SQLiteKeeper(tmp_path)
    store = keeper.store
    store.put(Table.SESSION, "c", SessionRecord(60.0, 1e10, (None, None), None, None))
    store.put(Table.SUBSCRIPTION, ("c", "a", None), SubscriptionRecord(1, None, False, False, 0, 1, False, 0, False))
    store.put(Table.TOPIC, "a", TopicRecord(0, None, None, "", b"", 0))
    enqueue(store, "c", 1, b"x")
    keeper.restart()
    recovered = keeper.sqlite._database.recovered
    assert str(recovered).startswith(
        "restored 1 sessions, 1 subscriptions, 1 topics, 0 retained and 1 queued messages in "
    )
    assert recovered.was_clean
    keeper.close()


def test_two_brokers_cannot_share_a_directory(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(ConfigError) as refused:
            open_sqlite(tmp_path)
        assert f"{tmp_path} is in use by another broker, process {holder.pid};" in str(refused.value)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        open_sqlite(tmp_path).close()


def test_files_can_be_read_by_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = open_sqlite(tmp_path / "new" / "data")
        enqueue(store, "c", 1, b"x" * 1_000)
        settle(store)
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new" / "data").rglob("*")}
    assert len(modes) == 6
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items()), modes
    assert stat.S_IMODE((tmp_path / "new" / "data").stat().st_mode) == 0o700
    store.close()


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("relaxed", 1)])
def test_durability_decides_how_often_the_disk_is_waited_for(tmp_path: Path, durability: str, level: int) -> None:
    store = open_sqlite(tmp_path, durability=durability)
    assert store._database.connection.execute("PRAGMA synchronous").fetchone() == (level,)
    assert store._database.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"the data directory .*/file/data cannot be used: Not a directory"):
        open_sqlite(tmp_path / "file" / "data")


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "broker.db").mkdir()
    with pytest.raises(ConfigError, match=r"broker\.db cannot be opened: unable to open database file"):
        open_sqlite(tmp_path)


def test_a_spool_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "spool").touch()
    with pytest.raises(ConfigError, match=r"/spool cannot be used: File exists"):
        open_sqlite(tmp_path)
    (tmp_path / "spool").unlink()
    open_sqlite(tmp_path).close()


def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 9))
    with pytest.raises(ConfigError, match=r"the store needs 3\.35\.0 or newer"):
        open_sqlite(tmp_path)


# --- schema -------------------------------------------------------------------------------------------


def test_a_database_of_another_application_is_refused(tmp_path: Path) -> None:
    run(tmp_path, "CREATE TABLE songs (title)")
    with pytest.raises(ConfigError, match=r"broker\.db is a database of another application"):
        open_sqlite(tmp_path)
    run(tmp_path, "DROP TABLE songs", "PRAGMA application_id = 1")
    with pytest.raises(ConfigError, match=r"another application"):
        open_sqlite(tmp_path)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    run(tmp_path, "PRAGMA user_version = 99")
    newest = len(schema.steps())
    with pytest.raises(
        ConfigError, match=rf"broker\.db has schema version 99, this broker knows up to {newest}; start"
    ):
        open_sqlite(tmp_path)


def test_a_file_of_version_1_is_brought_up_to_date_with_all_it_holds(tmp_path: Path) -> None:
    """Version 1 written by hand, not by the store: what an older broker left must still be understood."""
    run(
        tmp_path,
        *schema._statements(schema.steps()[0]),
        f"PRAGMA application_id = {schema.APPLICATION_ID}",
        "PRAGMA user_version = 1",
        "INSERT INTO session VALUES ('c', NULL, 60.0, NULL, NULL, NULL, NULL)",
        "INSERT INTO queue VALUES (7, 'c')",
        "INSERT INTO message VALUES (3, 1, 'a/b', x'6869', NULL, 1, 0, 'p', '{\"user\": [[\"k\", \"v\"]]}')",
        "INSERT INTO delivery VALUES (7, 5, 3, 1, 0, 0, NULL, 2, NULL)",
    )
    steps = [*schema.steps(), "ALTER TABLE session ADD COLUMN note TEXT;", "UPDATE session SET note = 'two steps';"]
    keeper = SQLiteKeeper.__new__(SQLiteKeeper)
    keeper.path, keeper.sqlite = tmp_path, open_sqlite(tmp_path, steps=steps)
    assert keeper.sqlite._database.connection.execute("PRAGMA user_version").fetchone() == (len(steps),)
    assert keeper.sqlite._database.connection.execute("SELECT note FROM session").fetchall() == [("two steps",)]
    assert [key for key, _ in facts(keeper.store, Table.SESSION)] == ["c"]
    (delivery,) = read(keeper, "c").deliveries
    assert (delivery.number, delivery.message.payload, delivery.message.properties.user) == (5, b"hi", (("k", "v"),))  # type: ignore[union-attr]
    enqueue(keeper.store, "c", 6, b"new")
    assert read(keeper, "c").payloads == [b"hi", b"new"]
    keeper.close()


def test_a_step_that_fails_leaves_the_version_before_it(tmp_path: Path) -> None:
    filled(tmp_path)
    steps = [*schema.steps(), "CREATE TABLE extra (a);\nALTER TABLE no_such_table ADD COLUMN b;"]
    with pytest.raises(ConfigError, match="no such table: no_such_table"):
        open_sqlite(tmp_path, steps=steps)
    store = open_sqlite(tmp_path)
    assert queues(store)["c"].messages == 500
    assert store._database.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'extra'").fetchall() == []
    store.close()


def test_the_schema_is_part_of_the_package() -> None:
    assert schema.steps()[0].startswith("-- The schema of broker.db, version 1.")


# --- damage -------------------------------------------------------------------------------------------


def flip(path: Path, offset: int, length: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        damaged = bytes(byte ^ 0xFF for byte in file.read(length))
        file.seek(offset)
        file.write(damaged)


def test_a_damaged_header_is_refused_with_what_can_be_done(tmp_path: Path) -> None:
    filled(tmp_path)
    flip(tmp_path / "broker.db", 0, 16)
    with pytest.raises(StoreError) as refused:
        open_sqlite(tmp_path)
    for part in (f"{tmp_path / 'broker.db'} is damaged: file is not a database", "backup", ".recover"):
        assert part in str(refused.value)


def test_a_page_damaged_by_a_crash_is_found_at_the_start(tmp_path: Path) -> None:
    filled(tmp_path)
    run(tmp_path, "UPDATE run SET ended_clean = 0", "PRAGMA wal_checkpoint(TRUNCATE)")
    (page,) = _root_page(tmp_path, "delivery")
    flip(tmp_path / "broker.db", (page - 1) * 4096, 200)
    with pytest.raises(StoreError, match=r"broker\.db is damaged: "):
        open_sqlite(tmp_path)


def _root_page(path: Path, table: str) -> tuple[int]:
    with closing(sqlite3.connect(path / "broker.db")) as connection:
        found: tuple[int] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        return found


def test_an_index_that_misses_rows_is_found_after_a_crash(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path)
    for number in range(500):
        enqueue(store, "c", number, b"x", expires_at=1e10 + number)
    store.close()
    run(tmp_path, "UPDATE run SET ended_clean = 0", "PRAGMA wal_checkpoint(TRUNCATE)")
    (page,) = _root_page(tmp_path, "delivery_expires_at")
    flip(tmp_path / "broker.db", (page - 1) * 4096 + 3, 2)
    with pytest.raises(StoreError, match=r"broker\.db is damaged: "):
        open_sqlite(tmp_path)


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_lost_database_beside_its_payloads_is_not_replaced_by_an_empty_one(tmp_path: Path, is_empty: bool) -> None:
    store = open_sqlite(tmp_path)
    enqueue(store, "c", 1, b"x" * 1_000)
    store.close()
    (tmp_path / "broker.db").unlink()
    if is_empty:
        (tmp_path / "broker.db").touch()
    with pytest.raises(StoreError, match=r"broker\.db is missing or empty although .*spool/m1 is there"):
        open_sqlite(tmp_path)


def test_what_a_hand_has_parted_is_put_right_after_an_unclean_end(
    sqlite: SQLiteKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1, 6):
        sent = enqueue(sqlite.store, "c", number, b"x")
        enqueue(sqlite.store, "d", number, sent)
    enqueue(sqlite.store, "e", 1, b"x")
    sqlite.settle()
    mended = sqlite.path.with_name("mended")
    copy_files(sqlite.path, mended)
    run(
        mended,
        "DELETE FROM message WHERE id = 1",
        "DROP TRIGGER delivery_removed",
        "DELETE FROM delivery WHERE message = 2 OR (message = 3 AND queue = 1)",
        "DELETE FROM queue WHERE owner = 'e'",
    )
    store = open_sqlite(mended)
    assert not store._database.recovered.was_clean
    assert str(store._database.recovered).endswith("checked after an unclean end")
    assert {owner: queue.messages for owner, queue in queues(store).items()} == {"c": 2, "d": 3}
    assert store._database.connection.execute("SELECT id, refs FROM message").fetchall() == [(3, 1), (4, 2), (5, 2)]
    for what in ("1 deliveries without a queue", "2 deliveries without a message", "wrong counts"):
        assert what in caplog.text
    store.close()


def test_a_wrong_count_of_deliveries_is_put_right_after_an_unclean_end(
    sqlite: SQLiteKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    sent = enqueue(sqlite.store, "c", 1, b"x")
    enqueue(sqlite.store, "d", 1, sent)
    sqlite.settle()
    mended = sqlite.path.with_name("mended")
    copy_files(sqlite.path, mended)
    run(mended, "UPDATE message SET refs = 1")
    store = open_sqlite(mended)
    store.dequeue("c", 1)
    settle(store)
    assert list(queues(store)) == ["d"]
    assert "put right 1 wrong counts" in caplog.text
    store.close()
