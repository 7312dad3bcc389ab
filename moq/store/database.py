"""The database file of a data directory: opened, checked, recovered, closed.

    <data directory>/          0700
      broker.lock              who has it
      broker.db  -wal  -shm    0600
      spool/                   0700, large payloads

Nothing here ever starts empty because something could not be read: whatever is wrong is said, with the file and what
can be done about it.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moq.errors import ConfigError, StoreError
from moq.store import schema
from moq.store.directory import DirectoryLock
from moq.store.spool import Spool, sync_directory
from moq.store.timeline import Anchor, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from moq.store.timeline import Clocks

logger = logging.getLogger(__name__)

FILE_NAME: Final = "broker.db"
SPOOL_NAME: Final = "spool"

SYNCHRONOUS: Final = {"full": "FULL", "relaxed": "NORMAL"}

BUSY_TIMEOUT_S: Final = 5.0
"""How long a person who writes with the sqlite3 shell may hold us up before it counts as a failure."""

_SPOOLED: Final = """
    SELECT spool FROM message WHERE spool IS NOT NULL UNION ALL SELECT spool FROM retained WHERE spool IS NOT NULL"""

_LOST: Final = "spool IN (SELECT value FROM json_each(?))"
_REMOVE_LOST: Final = (
    f"DELETE FROM retained WHERE {_LOST}",
    f"DELETE FROM delivery WHERE message IN (SELECT id FROM message WHERE {_LOST})",
)

_COUNTS: Final = """
    SELECT (SELECT count(*) FROM session), (SELECT count(*) FROM subscription), (SELECT count(*) FROM topic),
        (SELECT count(*) FROM retained), (SELECT count(*) FROM delivery)"""

_IS_CONSISTENT: Final = """
    SELECT (SELECT total(refs) FROM message) = (SELECT count(*) FROM delivery)
        AND NOT EXISTS (SELECT 1 FROM delivery WHERE queue NOT IN (SELECT id FROM queue))"""

_REPAIRS: Final = (
    ("deliveries without a queue", "DELETE FROM delivery WHERE queue NOT IN (SELECT id FROM queue)"),
    ("deliveries without a message", "DELETE FROM delivery WHERE message NOT IN (SELECT id FROM message)"),
    ("messages without a delivery", "DELETE FROM message WHERE id NOT IN (SELECT message FROM delivery)"),
    (
        "wrong counts of deliveries",
        """UPDATE message SET refs = counted.refs
        FROM (SELECT message, count(*) AS refs FROM delivery GROUP BY message) AS counted
        WHERE counted.message = id AND message.refs <> counted.refs""",
    ),
)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a start found."""

    sessions: int
    subscriptions: int
    topics: int
    retained: int
    queued: int
    seconds: float
    was_clean: bool
    """Whether the broker before ended in peace; if not, the whole file was checked."""

    def __str__(self) -> str:
        return (
            f"restored {self.sessions} sessions, {self.subscriptions} subscriptions, {self.topics} topics, "
            f"{self.retained} retained and {self.queued} queued messages in {self.seconds:.2f} s"
            f"{'' if self.was_clean else ', checked after an unclean end'}"
        )


class Database:
    """One data directory, locked and recovered."""

    def __init__(
        self, directory: Path, durability: str, spool_bytes: int, clocks: Clocks | None, steps: Sequence[str]
    ) -> None:
        if sqlite3.sqlite_version_info < schema.OLDEST_SQLITE:
            oldest = ".".join(map(str, schema.OLDEST_SQLITE))
            raise ConfigError(f"SQLite is {sqlite3.sqlite_version}; the store needs {oldest} or newer")
        started = time.perf_counter()
        self.path = directory / FILE_NAME
        self.spool = Spool(directory / SPOOL_NAME, spool_bytes)
        self._lock = DirectoryLock(directory)
        with ExitStack() as undo, self._errors_in_words():
            undo.callback(self._lock.release)
            self.connection = self._connect()
            undo.callback(self.connection.close)
            schema.migrate(self.connection, self.path, steps)
            self._configure(durability)
            was_clean = self._start()
            self.recovered = self._recover(started, was_clean)
            self.timeline = Timeline(self._anchor(), clocks)
            self.write_anchor()
            undo.pop_all()

    def close(self) -> None:
        """Note the time and that all ended well, fold the log into the file and let go."""
        try:
            self.write_anchor()
            self.connection.execute("UPDATE run SET ended_clean = 1")
        except sqlite3.Error as error:
            logger.warning("%s: the end could not be noted, the next start will check all: %s", self.path, error)
        self.abandon()

    def abandon(self) -> None:
        """Let go without a word: the next start will check."""
        self.connection.close()
        self._lock.release()

    def reader(self) -> sqlite3.Connection:
        """Another connection, which sees what has been committed and cannot write."""
        return sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)

    def write_anchor(self) -> None:
        """Note the time for the next start."""
        anchor = self.timeline.anchor()
        values = (anchor.boot_id, anchor.boottime, anchor.wall, anchor.timeline)
        self.connection.execute("INSERT OR REPLACE INTO anchor VALUES (1, ?, ?, ?, ?)", values)

    # --- opening --------------------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        self._create()
        return sqlite3.connect(
            self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=512
        )

    def _configure(self, durability: str) -> None:
        connection = self.connection
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
        # A log of 16 MB costs a fraction of a second to fold in, and is folded in a fourth as often as usual.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        connection.create_function("doom", 1, self.spool.doom)
        for table in ("message", "retained"):
            self._watch(table)

    def _create(self) -> None:
        """Make the file if there is none, readable by its owner alone: SQLite gives the log the same mode."""
        if self.path.exists() and self.path.stat().st_size:
            return
        log = self.path.with_name(f"{FILE_NAME}-wal")
        remains = [path for path in (log, *self.spool.directory.glob("[mr]*")) if path.exists() and path.stat().st_size]
        if remains:
            raise StoreError(
                f"{self.path} is missing or empty although {remains[0]} is there; put a backup of it in its place, or "
                f"move the other files away to start with nothing"
            )
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        sync_directory(self.path.parent)

    def _watch(self, table: str) -> None:
        """Hear of files no row names any more. Temporary: the sqlite3 shell has no function for it."""
        self.connection.execute(
            f"CREATE TEMP TRIGGER {table}_removed AFTER DELETE ON main.{table} WHEN OLD.spool IS NOT NULL "
            "BEGIN SELECT doom(OLD.spool); END"
        )
        self.connection.execute(
            f"CREATE TEMP TRIGGER {table}_replaced AFTER UPDATE OF spool ON main.{table} "
            "WHEN OLD.spool IS NOT NULL AND OLD.spool IS NOT NEW.spool BEGIN SELECT doom(OLD.spool); END"
        )

    # --- recovery -------------------------------------------------------------------------------------

    def _start(self) -> bool:
        connection = self.connection
        (was_clean,) = connection.execute("SELECT ended_clean FROM run").fetchone()
        if not was_clean:
            self._check()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE run SET ended_clean = 0")
        if not was_clean:
            self._repair()
        self._open_spool()
        connection.execute("DELETE FROM queue WHERE NOT EXISTS (SELECT 1 FROM delivery WHERE queue = queue.id)")
        connection.execute("COMMIT")
        self.spool.after_commit()
        return bool(was_clean)

    def _check(self) -> None:
        faults = [fault for (fault,) in self.connection.execute("PRAGMA quick_check(3)") if fault != "ok"]
        if faults:
            raise sqlite3.DatabaseError("; ".join(faults).replace("\n", " "))

    def _repair(self) -> None:
        """Bring deliveries and messages together: transactions never part them, a person who mends a file may."""
        if self.connection.execute(_IS_CONSISTENT).fetchone()[0]:
            return
        for what, statement in _REPAIRS:
            if count := self.connection.execute(statement).rowcount:
                logger.warning("%s: put right %d %s", self.path, count, what)

    def _open_spool(self) -> None:
        """Remove files nobody names, and what names files that are not there: it could never be delivered."""
        missing = sorted(self.spool.open(name for (name,) in self.connection.execute(_SPOOLED).fetchall()))
        if not missing:
            return
        for name in missing:
            logger.error("%s is missing: its message is lost", self.spool.directory / name)
        for statement in _REMOVE_LOST:
            self.connection.execute(statement, (json.dumps(missing),))

    def _recover(self, started: float, was_clean: bool) -> Recovered:
        sessions, subscriptions, topics, retained, queued = self.connection.execute(_COUNTS).fetchone()
        seconds = time.perf_counter() - started
        return Recovered(sessions, subscriptions, topics, retained, queued, seconds, was_clean)

    def _anchor(self) -> Anchor | None:
        row = self.connection.execute("SELECT boot_id, boottime, wall, timeline FROM anchor").fetchone()
        return None if row is None else Anchor(*row)

    def highest(self, table: str) -> int:
        """The highest number given to a row of a table."""
        return int(self.connection.execute(f"SELECT ifnull(max(id), 0) FROM {table}").fetchone()[0])

    def owners(self) -> list[tuple[int, str]]:
        """Every queue that belongs to somebody."""
        return self.connection.execute("SELECT id, owner FROM queue WHERE owner IS NOT NULL").fetchall()

    def has_dropped(self) -> bool:
        """Whether a queue was dropped and is not cleared yet."""
        return self.connection.execute("SELECT 1 FROM queue WHERE owner IS NULL LIMIT 1").fetchone() is not None

    @contextmanager
    def _errors_in_words(self) -> Iterator[None]:
        """Say what went wrong with which file, and what a person can do."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise ConfigError(f"{self.path} cannot be opened: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"{self.path} is damaged: {error}. Put a backup in its place, or save what can be read with "
                f"`sqlite3 {self.path} .recover | sqlite3 recovered.db`; the broker does not start without it"
            ) from error
        except OSError as error:
            raise ConfigError(f"{error.filename or self.path} cannot be used: {error.strerror}") from error
