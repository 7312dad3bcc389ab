"""The background thread: takes buffers and rows from a queue, writes them, and survives whatever a disk does.

A file that cannot be written is abandoned with all its rows, which are counted as lost, and the next rows begin a new
one: so tracing goes on by itself once there is room again.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from moq.trace.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from moq.trace.parquet import TableFile
    from moq.trace.records import Buffer, Pool

    Rows = list[tuple[object, ...]]
    Job = tuple[str, Buffer | Rows, Pool | None]

logger = logging.getLogger(__name__)

POLL_S: Final = 1.0
"""It looks this often whether a file is due, when nothing else wakes it."""

MESSAGES: Final = "messages"


class WriterThread:
    """Writes the files of one trace."""

    def __init__(self, directory: Path, role: str, process: str) -> None:
        self.jobs: SimpleQueue[Job | None] = SimpleQueue()
        self.lost = 0
        """Messages that could not be written."""
        self._directory = directory
        self._role = role
        self._process = process
        self._is_failing = False
        # It ends with the process: one that is killed or crashes must not wait for a disk.
        self._thread = threading.Thread(target=self._run, name="moq trace", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Write what is queued, complete the files and end; False if that takes too long."""
        self.jobs.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        from moq.trace.parquet import TableFile

        prefix = f"{self._role}-{self._process}"
        files = {table: TableFile(self._directory, table, prefix) for table in TABLES}
        is_running = True
        while is_running:
            try:
                job = self.jobs.get(timeout=POLL_S)
                is_running = job is not None
                if job is not None:
                    self._write(files[job[0]], job)
            except Empty:
                pass
            for table, file in files.items():
                self._attempt(table, file, file.complete_if_old if is_running else file.complete)

    def _write(self, file: TableFile, job: Job) -> None:
        from moq.trace import parquet

        table, work, pool = job
        if isinstance(work, list):
            count = len(work)
            make = partial(parquet.row_table, table, work, self._role, self._process)
        else:
            count = work.count
            make = partial(parquet.buffer_table, table, work, self._role, self._process)
        is_written = self._attempt(table, file, lambda: file.write(make, count))
        if pool is not None and not isinstance(work, list):
            pool.give_back(work)
        if is_written and self._is_failing:
            logger.warning("the trace is being written again; %d messages were lost", self.lost)
            self._is_failing = False

    def _attempt(self, table: str, file: TableFile, act: Callable[[], None]) -> bool:
        """Do something with a file; if that fails, however it does, the file is given up and nothing else."""
        try:
            act()
        except Exception as error:
            rows = file.abandon()
            self.lost += rows if table == MESSAGES else 0
            if not self._is_failing:
                logger.error("the trace in %s cannot be written, records are lost: %s", self._directory, error)
            self._is_failing = True
            return False
        return True
