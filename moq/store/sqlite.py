"""The store in the data directory: SQLite behind the interface the core knows.

Two threads, and what passes between them:

    event loop                                        writer
    ----------                                        ------
    put, enqueue, dequeue, read, …   a few µs each
        └→ pending batch
    on_pending() once, so that the loop calls
    advance() ── cuts the batch ────────────────────→ BEGIN … COMMIT
        (meanwhile a next batch grows)                    │
    advance() ←───────────────────── on_progress() ───────┘
        durable grows, questions are answered,
        the next batch is cut

Everything a turn of the loop changed is one batch, so what one call of the core changed is never torn apart. While the
writer is busy the next batch grows; so batches are small and quick under little load and large under much. The loop's
side works on dictionaries, never blocks and never touches SQLite, except to read back facts when a broker starts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Final

from moq.broker.store import QueueRecord, Table
from moq.errors import StoreError
from moq.store import schema
from moq.store.batch import Batch, Read, Sweep, Trim
from moq.store.database import Database
from moq.store.figures import StoreFigures
from moq.store.rows import FACTS
from moq.store.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
    from pathlib import Path

    from moq.broker.message import Message
    from moq.broker.store import DeliveryRecord, Record
    from moq.store.database import Recovered
    from moq.store.timeline import Clocks, Timeline

logger = logging.getLogger(__name__)

MAX_BATCH_ROWS: Final = 20_000
MAX_BATCH_BYTES: Final = 16 * 1024 * 1024
"""A batch past either takes no more turns of the loop: a transaction stays well under a second."""

HANGS_AFTER_S: Final = 5.0
"""A commit that takes longer is a disk that hangs: a transaction is bounded to well under a second of work."""

_QUEUES: Final = """
    SELECT owner, messages, size, next_number,
        (SELECT group_concat(packet_id) FROM delivery WHERE queue = counted.queue AND packet_id <> 0)
    FROM (
        SELECT queue, count(*) AS messages, sum(size) AS size, max(number) + 1 AS next_number
        FROM delivery GROUP BY queue
    ) AS counted JOIN queue ON queue.id = counted.queue WHERE owner IS NOT NULL"""


class SQLiteStore:
    """Facts and queues in a data directory; see `Store`.

    All of it is called from one thread. `on_pending` is called in that thread, from within a change, when `advance` has
    something to do at the end of the turn; `on_progress` in the writer's thread, when it has something to do soon.
    """

    def __init__(
        self,
        path: Path,
        *,
        durability: str,
        spool_bytes: int,
        on_pending: Callable[[], None],
        on_progress: Callable[[], None],
        clocks: Clocks | None = None,
        steps: Sequence[str] | None = None,
    ) -> None:
        self.path = path
        self.figures = StoreFigures()
        self.last = 0
        self.durable = 0
        self._durability = durability
        self._spool_bytes = spool_bytes
        self._on_pending = on_pending
        self._on_progress = on_progress
        self._clocks = clocks
        self._steps = schema.steps() if steps is None else steps
        self._batch = Batch(0)
        self._is_announced = False
        """Whether `advance` is going to be called anyway."""
        self._waiting: deque[Batch] = deque()
        """Batches that are full, oldest first."""
        self._at_writer: Batch | None = None
        self._handed_over_at = 0.0
        self._safe: deque[Batch] = deque()
        """Filled by the writer's thread."""
        self._progressed = threading.Event()
        self._sweeps: list[set[int]] = []
        """For each sweep under way the queues it skips: those read since are partly in memory too."""

    def open(self) -> Recovered:
        """Lock the directory, recover and start; raises `ConfigError` or `StoreError` with what is wrong where."""
        self._database = Database(self.path, self._durability, self._spool_bytes, self._clocks, self._steps)
        self._queues = {owner: queue for queue, owner in self._database.owners()}
        self._owners = {queue: owner for owner, queue in self._queues.items()}
        self._last_queue = self._database.highest("queue")
        self._last_message = self._database.highest("message")
        self._writer = Writer(self._database, self.figures, self._on_done)
        return self._database.recovered

    def close(self, timeout_s: float = 10.0) -> None:
        """Make everything safe and let go of the directory. What cannot be made safe in time is lost, and said."""
        is_safe = self.flush_and_wait(timeout_s)
        self._writer.stop()
        if is_safe:
            self._database.close()
        else:
            self._database.abandon()
            raise StoreError(f"{self.pending} changes were not stored: {self.failure or 'the disk is too slow'}")

    @property
    def timeline(self) -> Timeline:
        """What time it is for stored times."""
        return self._database.timeline

    @property
    def failure(self) -> str | None:
        """Why nothing can be made safe at present, such as a full disk; None if all is well."""
        if self._writer.failure is None and self._at_writer is not None:
            waited_s = time.monotonic() - self._handed_over_at
            if waited_s > HANGS_AFTER_S:
                return f"{self.path} does not answer: a commit has been under way for {waited_s:.0f} s"
        return self._writer.failure

    @property
    def pending(self) -> int:
        """How many changes are not safe yet."""
        return self.last - self.durable

    # --- the conversation with the writer -------------------------------------------------------------

    def advance(self) -> bool:
        """Take what the writer has made safe, answer questions and hand over the next batch; whether `durable` grew.

        To be called soon after `on_pending` and `on_progress`, between calls of the core and never within one.
        """
        before = self.durable
        self._is_announced = True
        while self._safe:
            batch = self._safe.popleft()
            self._at_writer = None
            self.durable = batch.last
            for answer in batch.answers:
                try:
                    answer()
                except Exception:  # one client's trouble must not keep everyone's changes from being stored
                    logger.exception("what the store read was not taken")
        self._is_announced = False
        self._cut()
        return self.durable > before

    def flush_and_wait(self, timeout_s: float = 10.0) -> bool:
        """Block until all is safe, questions are answered and no more were asked; whether that came to pass in time."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._progressed.clear()
            self.advance()
            if self._at_writer is None and not self._waiting and self._batch.is_empty():
                return True
            if not self._progressed.wait(max(0.0, deadline - time.monotonic())):
                return False

    def _cut(self) -> None:
        batch = self._batch
        is_next = self._at_writer is None and not self._waiting
        if batch.is_empty():
            if is_next:
                self.durable = batch.first = self.last
        elif is_next or batch.rows >= MAX_BATCH_ROWS or batch.payload_bytes >= MAX_BATCH_BYTES:
            batch.last = self.last
            self._waiting.append(batch)
            self._batch = Batch(self.last)
        if self._at_writer is None and self._waiting:
            self._at_writer = self._waiting.popleft()
            self._handed_over_at = time.monotonic()
            self._writer.hand_over(self._at_writer)

    def _on_done(self, batch: Batch | None) -> None:
        """In the writer's thread."""
        if batch is not None:
            self._safe.append(batch)
        self._progressed.set()
        self._on_progress()

    def _changed(self) -> None:
        self.last += 1
        if not self._is_announced:
            self._announce()

    def _announce(self) -> None:
        self._is_announced = True
        self._on_pending()

    # --- facts ----------------------------------------------------------------------------------------

    def put(self, table: Table, key: Hashable, record: Record) -> None:
        """See `Store`."""
        self._batch.put(table, key, record)
        self._changed()

    def delete(self, table: Table, key: Hashable) -> None:
        """See `Store`."""
        self._batch.forget(table, key)
        self._changed()

    def load(self, table: Table) -> Iterator[tuple[Hashable, Record]]:
        """See `Store`. Gives what is safe, row by row; a retained message whose file is gone is left out."""
        layout = FACTS[table]
        with closing(self._database.reader()) as reader:
            for row in reader.execute(f"SELECT {', '.join(layout.columns)} FROM {layout.name} ORDER BY rowid"):
                if table is Table.RETAINED and row[3] is not None:
                    if (payload := self._database.spool.read(row[3], row[4])) is None:
                        continue
                    row = (*row[:2], payload, *row[3:])
                yield layout.from_row(row)

    # --- queues ---------------------------------------------------------------------------------------

    def enqueue(
        self, owner: str, number: int, message: Message, expires_at: float, qos: int, packet_id: int, share: str | None
    ) -> None:
        """See `Store`."""
        queue = self._queues.get(owner)
        if queue is None:
            queue = self._new_queue(owner)
        if not message.stored_as:
            self._last_message += 1
            message.stored_as = self._last_message
        self._batch.add(queue, number, (message, expires_at, qos, packet_id, False, share))
        self._changed()

    def mark(self, owner: str, number: int, packet_id: int, released: bool) -> None:
        """See `Store`."""
        if (queue := self._queues.get(owner)) is not None:
            self._batch.mark(queue, number, packet_id, released)
        self._changed()

    def dequeue(self, owner: str, number: int) -> None:
        """See `Store`."""
        if (queue := self._queues.get(owner)) is not None:
            self._batch.remove(queue, number)
        self._changed()

    def trim(self, owner: str, after: int, messages: int, size: int, then: Callable[[int, int], None]) -> None:
        """See `Store`."""
        self._batch.ask(Trim(self._queues.get(owner, 0), after, messages, size, then))
        self._changed()

    def sweep(self, before: float, skip: Collection[str], then: Callable[[list[tuple[str, int]]], None]) -> None:
        """See `Store`. A large sweep takes several transactions, so that others come in between; each is told of."""
        skipped = {self._queues[owner] for owner in skip if owner in self._queues}

        def sweep_slice() -> None:
            self._batch.ask(Sweep(before, tuple(skipped), on_slice))
            self._changed()

        def on_slice(gone: list[tuple[int, int]], is_last: bool) -> None:
            then([(self._owners[queue], size) for queue, size in gone if queue in self._owners])
            if is_last:
                self._sweeps.remove(skipped)
            else:
                sweep_slice()

        self._sweeps.append(skipped)
        sweep_slice()

    def read(
        self, owner: str, after: int, messages: int, size: int, then: Callable[[list[DeliveryRecord], bool], None]
    ) -> None:
        """See `Store`."""
        queue = self._queues.get(owner, 0)
        for skipped in self._sweeps:
            skipped.add(queue)
        self._batch.ask(Read(queue, after, messages, size, then))
        if not self._is_announced:
            self._announce()

    def rename(self, owner: str, new_owner: str) -> None:
        """See `Store`."""
        if (queue := self._queues.pop(owner, None)) is not None:
            self._drop(new_owner)
            self._queues[new_owner] = queue
            self._owners[queue] = new_owner
            self._batch.give(queue, new_owner)
        self._changed()

    def drop(self, owner: str) -> None:
        """See `Store`."""
        self._drop(owner)
        self._changed()

    def queues(self) -> list[QueueRecord]:
        """See `Store`. Gives what is safe; counts without reading a message."""
        with closing(self._database.reader()) as reader:
            return [
                QueueRecord(owner, messages, size, next_number, tuple(map(int, ids.split(","))) if ids else ())
                for owner, messages, size, next_number, ids in reader.execute(_QUEUES)
            ]

    def _new_queue(self, owner: str) -> int:
        self._last_queue += 1
        self._queues[owner] = self._last_queue
        self._owners[self._last_queue] = owner
        self._batch.create(self._last_queue, owner)
        return self._last_queue

    def _drop(self, owner: str) -> None:
        if (queue := self._queues.pop(owner, None)) is not None:
            del self._owners[queue]
            self._batch.drop(queue)
