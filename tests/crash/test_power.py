"""The power cut is one that a database survives exactly if it syncs: SQLite with `FULL` does, with `NORMAL` not."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.crash import power
from tests.crash.shim import Shim

if TYPE_CHECKING:
    from pathlib import Path

WRITER = """
import os, pathlib, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA journal_mode=WAL")
database.execute("PRAGMA wal_autocheckpoint=20")
database.execute(f"PRAGMA synchronous={sys.argv[2]}")
database.execute("CREATE TABLE IF NOT EXISTS facts (number INTEGER PRIMARY KEY, noise BLOB)")
number = database.execute("SELECT coalesce(max(number), 0) FROM facts").fetchone()[0]
while True:
    number += 1
    database.execute("INSERT INTO facts VALUES (?, ?)", (number, os.urandom(3000)))
    print(number, flush=True)
"""

CUTS = 6


def committed_until_killed(shim: Shim, synchronous: str, commits: int) -> int:
    """Let a process commit, kill it some commits later; returns the last that it reported."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(shim.data_dir / "facts.db"), synchronous],
        env=os.environ | shim.recording_environment,
        stdout=subprocess.PIPE,
    ) as writer:
        assert writer.stdout is not None
        reported = [writer.stdout.readline() for _ in range(commits)]
        writer.kill()
        return int([*reported, *writer.stdout][-1])


def surviving(shim: Shim) -> int:
    (shim.data_dir / "facts.db-shm").unlink(missing_ok=True)
    database = sqlite3.connect(shim.data_dir / "facts.db")
    try:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        count, newest = database.execute("SELECT count(*), coalesce(max(number), 0) FROM facts").fetchone()
        assert count == newest
        return int(newest)
    finally:
        database.close()


def lost_commits(tmp_path: Path, synchronous: str) -> list[int]:
    """How many commits each of several power cuts took back."""
    random = Random(4)
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    lost = []
    with Shim(tmp_path, data_dir) as shim:
        for _ in range(CUTS):
            committed = committed_until_killed(shim, synchronous, random.randint(20, 80))
            power.cut(shim.journal, random)
            lost.append(max(0, committed - surviving(shim)))
    return lost


def test_a_power_cut_spares_what_was_synced(tmp_path: Path) -> None:
    assert lost_commits(tmp_path, "FULL") == [0] * CUTS


def test_a_power_cut_takes_what_was_not_synced(tmp_path: Path) -> None:
    assert any(lost_commits(tmp_path, "NORMAL"))


RENAMER = """
import os, sys
directory, is_synced = sys.argv[1], sys.argv[2] == "synced"
for number in range(20):
    with open(f"{directory}/{number}.part", "wb") as part:
        part.write(b"whole")
        part.flush()
        os.fsync(part.fileno())
    os.rename(f"{directory}/{number}.part", f"{directory}/{number}")
    if is_synced:
        descriptor = os.open(directory, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
"""


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_name_survives_a_power_cut_once_its_directory_is_synced(tmp_path: Path, is_synced: bool) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    with Shim(tmp_path, data_dir) as shim:
        how = "synced" if is_synced else "hoping"
        environment = os.environ | shim.recording_environment
        subprocess.run([sys.executable, "-c", RENAMER, str(shim.data_dir), how], env=environment, check=True)
        damage = power.cut(shim.journal, Random(1))
    whole = [path for path in data_dir.iterdir() if path.suffix != ".part" and path.read_bytes() == b"whole"]
    assert (len(whole) == 20) is is_synced
    assert (damage.names > 0) is not is_synced
