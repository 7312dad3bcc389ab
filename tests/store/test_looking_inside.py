"""What docs/reference/store.md tells people to do with the files works while a broker runs."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from moq.broker.store import MessageRecord, SessionRecord, Table
from tests.store.opened import SQLiteKeeper, enqueue, facts, read

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "store.md"
STATEMENTS = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_documented_statements_show_what_is_there(sqlite: SQLiteKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite.store.put(Table.SESSION, "thermostat", SessionRecord(60.0, 1_800_000_000.0, (None, None), None, None))
    enqueue(sqlite.store, "thermostat", 1, b"x" * 10, expires_at=1_800_000_000.0, packet_id=4)
    enqueue(sqlite.store, "thermostat", 2, b"x" * 1_000)
    sqlite.settle()
    (sqlite.path / "backup").mkdir()
    monkeypatch.chdir(sqlite.path)
    with closing(sqlite3.connect("file:broker.db?mode=ro", uri=True)) as connection:
        counts, waiting, away, backup = (connection.execute(statement).fetchall() for statement in STATEMENTS)
    assert counts == [("thermostat", 2, 1_010, 1)]
    assert waiting == [
        (1, "a/b", 10, 1, 4, "2027-01-15 08:00:00", "somebody"),
        (2, "a/b", 1_000, 1, 0, None, "somebody"),
    ]
    assert away == [("thermostat", "2027-01-15 08:00:00")]
    assert backup == []


def test_a_backup_taken_while_a_broker_runs_can_be_started_from(sqlite: SQLiteKeeper) -> None:
    enqueue(sqlite.store, "c", 1, b"small")
    enqueue(sqlite.store, "c", 2, b"large" * 100)
    enqueue(sqlite.store, "c", 3, b"delivered since" * 100)
    sqlite.store.put(Table.RETAINED, ("t", 1), MessageRecord("t", b"kept" * 100, 1, True, "p", 1e10, None))
    sqlite.settle()
    backup = sqlite.path.with_name("backup")
    backup.mkdir()
    with closing(sqlite3.connect(sqlite.path / "broker.db")) as connection:
        connection.execute(f"VACUUM INTO '{backup / 'broker.db'}'")
    sqlite.store.dequeue("c", 3)
    enqueue(sqlite.store, "c", 4, b"since" * 100)
    sqlite.settle()
    shutil.copytree(sqlite.path / "spool", backup / "spool")

    restored = SQLiteKeeper(backup)
    assert read(restored, "c").payloads == [b"small", b"large" * 100]
    assert [key for key, _ in facts(restored.store, Table.RETAINED)] == [("t", 1)]
    restored.close()
