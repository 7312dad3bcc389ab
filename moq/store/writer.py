"""The one thread that touches the disk: takes batches, commits each in one transaction, and says so.

A batch that cannot be committed is kept and tried again, with pauses, until it can: nothing after it is written before
it. Meanwhile `failure` says why.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from moq.store.batch import Batch
from moq.store.statements import Statements

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.store.database import Database
    from moq.store.figures import StoreFigures

logger = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 2.0
"""Between two attempts at a batch: a disk that has room again is noticed soon, a broken one is not hammered."""

ANCHOR_INTERVAL_S: Final = 5.0
"""A commit takes the time of day along at most this often: across a boot expiry is off by no more."""


class Writer:
    """Carries out batches in its own thread, in the order they were handed to it."""

    def __init__(self, database: Database, figures: StoreFigures, done: Callable[[Batch | None], None]) -> None:
        """`done` is called in the writer's thread with each batch that is safe, and with None if `failure` changed."""
        self.failure: str | None = None
        self._database = database
        self._figures = figures
        self._done = done
        self._inbox: SimpleQueue[Batch | None] = SimpleQueue()
        self._idle_work = Batch(0)
        """Stands for a slice of dropped queues, when nothing else is to be done."""
        self._stopping = threading.Event()
        self._has_dropped = database.has_dropped()
        self._anchored_at = database.timeline.now()
        self._thread = threading.Thread(target=self._run, name="moq-store", daemon=True)
        self._thread.start()

    def hand_over(self, batch: Batch) -> None:
        """Have a batch carried out; it must not be touched again until it is done."""
        self._inbox.put(batch)

    def stop(self) -> None:
        """Give up on what is not safe yet and end the thread."""
        self._stopping.set()
        self._inbox.put(None)
        self._thread.join()

    # --- its thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            pause = FIRST_PAUSE_S
            while not self._stopping.is_set() and not self._try(batch):
                self._stopping.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)

    def _next(self) -> Batch | None:
        """The next batch; None if there will be none."""
        try:
            return self._inbox.get(block=not self._has_dropped)
        except Empty:
            return self._idle_work

    def _try(self, batch: Batch) -> bool:
        started = time.perf_counter()
        try:
            self._commit(batch)
        except Exception as error:
            self._roll_back()
            self._figures.failures += 1
            self._set_failure(f"{self._database.path} cannot be written: {_reason(error)}", error)
            return False
        self._set_failure(None)
        figures = self._figures
        figures.batches += 1
        figures.changes += batch.last - batch.first
        figures.last_batch = batch.last - batch.first
        figures.batch_changes.add(batch.last - batch.first)
        figures.commit_seconds.add(time.perf_counter() - started)
        figures.spooled_bytes = self._database.spool.bytes_written
        if batch is not self._idle_work:
            self._done(batch)
        return True

    def _commit(self, batch: Batch) -> None:
        connection, spool = self._database.connection, self._database.spool
        statements = Statements(connection, spool)
        has_dropped = self._has_dropped or any(None in segment.owners.values() for segment in batch.segments)
        connection.execute("BEGIN IMMEDIATE")
        answers = []
        for segment in batch.segments:
            statements.apply(segment)
            if segment.question is not None:
                answers.append(statements.answer(segment.question))
        if has_dropped:
            has_dropped = not statements.clear_dropped()
        now = self._database.timeline.now()
        if is_anchor_due := now - self._anchored_at >= ANCHOR_INTERVAL_S:
            self._database.write_anchor()
        spool.before_commit()
        connection.execute("COMMIT")
        spool.after_commit()
        self._has_dropped = has_dropped
        if is_anchor_due:
            self._anchored_at = now
        self._figures.rows += statements.rows
        batch.answers = answers

    def _roll_back(self) -> None:
        try:
            self._database.connection.rollback()
        except sqlite3.Error as error:
            logger.error("%s: not even a rollback: %s", self._database.path, error)
        self._database.spool.after_rollback()

    def _set_failure(self, failure: str | None, error: Exception | None = None) -> None:
        if failure == self.failure:
            return
        self.failure = failure
        if failure is None:
            logger.warning("%s is written again", self._database.path)
        else:
            expected = isinstance(error, sqlite3.Error | OSError)
            logger.error("%s; trying again until it works", failure, exc_info=None if expected else error)
        self._done(None)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror} ({error.filename})" if error.filename else str(error.strerror)
    return str(error)
