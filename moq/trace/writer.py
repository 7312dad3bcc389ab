"""The trace of one process: buffers that the event loop fills, and a thread that writes them.

    loop: message, state, clock ──► Pool ──► queue ──► thread: parquet.py ──► DIR
          every INTERVAL_S: tick

The loop never waits for the thread. When the disk is too slow, or full, records are dropped and counted, in `dropped`
and in the table `totals`; tracing goes on when there is room again, and whatever is traced goes on all the while.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
from typing import TYPE_CHECKING, Final, Self

from moq.errors import ConfigError
from moq.trace.clock import now_ns
from moq.trace.records import DUPLICATE, KIND_SHIFT, MESSAGE, ROLE_SHIFT, STATE, Pool
from moq.trace.sampling import Sampler
from moq.trace.schema import TABLES
from moq.trace.thread import WriterThread

if TYPE_CHECKING:
    from pathlib import Path

    from moq.trace.records import Origin

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 0.1
"""Between two ticks, and so between two looks at a connection's state."""
FLUSH_NS: Final = 1_000_000_000
"""A buffer is written when it is this old, however little is in it."""

MESSAGES_PER_BUFFER: Final = 8192
STATES_PER_BUFFER: Final = 2048
BUFFERS: Final = 6
"""Of each table: at the default bound on the rate, what comes while a disk hangs for ten seconds. 5 MB in all."""
MAX_ROWS: Final = 1000
"""Rows of small tables that may wait for the thread."""

MAX_JOBS: Final = 2 * BUFFERS
CLOSE_TIMEOUT_S: Final = 10.0
"""How long closing waits for a disk that hangs."""

EXTRA: Final = "pip install 'moq-broker[trace]'"

DEFAULT_MAX_RATE: Final = 5_000
"""Records per second: at two microseconds each, thread included, one percent of a processor. The thread takes its part
in bursts, during which messages wait: see docs/benchmarks.md for what that does to the slowest of them."""


class TraceWriter:
    """Writes the trace of one process, or one client in it; `open` it, `tick` it, `close` it."""

    def __init__(self, directory: Path, role: str, *, sample: float = 1.0, max_rate: float = DEFAULT_MAX_RATE) -> None:
        """`role` is that of its tables but messages; `sample` a probability."""
        if not 0 < sample <= 1:
            raise ConfigError(f"trace_sample is {sample}; a probability is above 0 and at most 1")
        if max_rate <= 0:
            raise ConfigError(f"trace_max_rate is {max_rate}; it must be greater than 0")
        self.directory = directory
        self.role = role
        self.process = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.sampler = Sampler(sample, max_rate, INTERVAL_S, random.random)
        self._thread = WriterThread(directory, role, self.process)
        self._is_open = False
        self._messages = self._pool("messages", MESSAGE.size, MESSAGES_PER_BUFFER)
        self._states = self._pool("connections", STATE.size, STATES_PER_BUFFER)
        self._rows: dict[str, list[tuple[object, ...]]] = {"clocks": [], "totals": []}
        self._connections = 0
        self._counted = (0, 0, 0)
        self._flushed_ns = now_ns()

    def open(self) -> Self:
        """Make the directory, remove what killed writers left, start the thread.

        Raises:
            ConfigError: The directory cannot be written to, or Arrow is not installed.
        """
        try:
            from moq.trace import parquet
        except ImportError as error:
            raise ConfigError(f"trace needs NumPy and Arrow ({error}); install them with {EXTRA}") from error
        try:
            for table in TABLES:
                (self.directory / table).mkdir(parents=True, exist_ok=True)
            probe = self.directory / f".probe-{self.process}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise ConfigError(f"trace is {str(self.directory)!r}, where nothing can be written: {error}") from error
        if removed := parquet.remove_leftovers(self.directory):
            logger.info("removed %d unfinished trace files of writers that are gone", removed)
        self._thread.start()
        self._is_open = True
        return self

    @property
    def recorded(self) -> int:
        """Messages put into a buffer."""
        current = self._messages.current
        return self._messages.recorded + (0 if current is None else current.count)

    @property
    def dropped(self) -> int:
        """Messages that were sampled and lost."""
        return self._messages.dropped + self._thread.lost

    def next_connection(self) -> int:
        """A number for a connection."""
        self._connections += 1
        return self._connections

    # --- records --------------------------------------------------------------------------------------

    def message(
        self,
        role: int,
        connection: int,
        origin: Origin,
        topic: str,
        stream_id: int,
        alias: int,
        qos: int,
        kind: int,
        payload_bytes: int,
        sent_at_ns: int,
        broker_in_ns: int,
        broker_out_ns: int,
        received_at_ns: int,
        queue_bytes: int,
        queue_messages: int,
        is_duplicate: bool,
        sequence: int,
        weight: float,
    ) -> None:
        """Record a message that the sampler chose. For nulls see `records.py`."""
        buffer = self._messages.place(broker_out_ns or received_at_ns or sent_at_ns)
        if buffer is None:
            return
        names = buffer.names
        number, place = names.numbers.get(topic), names.connections.get(connection)
        MESSAGE.pack_into(
            buffer.data,
            buffer.used,
            sent_at_ns,
            broker_in_ns,
            broker_out_ns,
            received_at_ns,
            sequence,
            stream_id,
            queue_bytes,
            queue_messages,
            names.place(connection, origin) if place is None else place,
            names.number(topic) if number is None else number,
            payload_bytes,
            weight,
            alias,
            qos,
            is_duplicate * DUPLICATE | kind << KIND_SHIFT | role << ROLE_SHIFT,
        )
        buffer.used += MESSAGE.size

    def state(self, connection: int, origin: Origin, at_ns: int, figures: tuple[int, ...]) -> None:
        """Record how a connection is: the figures from `round_trip_ns` to `unsent_bytes`."""
        buffer = self._states.place(at_ns)
        if buffer is not None:
            STATE.pack_into(buffer.data, buffer.used, at_ns, *figures, buffer.names.place(connection, origin))
            buffer.used += STATE.size

    def clock(self, client_id: str, peer: str, at_ns: int, offset_ns: int, round_trip_ns: int, is_best: bool) -> None:
        """Record how far a broker's clock is ahead of ours."""
        self._add("clocks", (at_ns, client_id, peer, offset_ns, round_trip_ns, is_best))

    def tick(self) -> None:
        """To be called every INTERVAL_S."""
        self.sampler.tick()
        now = now_ns()
        if now - self._flushed_ns >= FLUSH_NS:
            self._flushed_ns = now
            self._flush(now, FLUSH_NS)

    def close(self) -> None:
        """Write what there is, complete the files and end the thread."""
        if not self._is_open:
            return
        self._is_open = False
        self._flush(now_ns(), -FLUSH_NS)
        if not self._thread.stop(CLOSE_TIMEOUT_S):
            logger.error("the trace in %s is not complete: the disk does not answer", self.directory)

    # --- inside ---------------------------------------------------------------------------------------

    def _pool(self, table: str, size: int, capacity: int) -> Pool:
        pool = Pool(size, capacity, BUFFERS, lambda buffer: self._thread.jobs.put((table, buffer, pool)))
        return pool

    def _flush(self, now: int, age_ns: int) -> None:
        for pool in (self._messages, self._states):
            pool.flush(now - age_ns)
        counted = (self.sampler.offered, self.recorded, self.dropped)
        if counted != self._counted:
            offered, recorded, dropped = (new - old for new, old in zip(counted, self._counted, strict=True))
            self._counted = counted
            self._add("totals", (now, offered, recorded, dropped, self.sampler.probability))
        for table, rows in self._rows.items():
            # While the thread is behind they wait here, where there is a bound on them.
            if rows and (self._thread.jobs.qsize() < MAX_JOBS or age_ns < 0):
                self._rows[table] = []
                self._thread.jobs.put((table, rows, None))

    def _add(self, table: str, row: tuple[object, ...]) -> None:
        rows = self._rows[table]
        rows.append(row)
        del rows[:-MAX_ROWS]
