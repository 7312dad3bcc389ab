"""Buffers to Parquet files: what the background thread does. The one module that imports NumPy and Arrow.

    DIR/messages/date=2026-11-18/.broker-host-17-3f2a-000001.parquet.tmp    being written, and locked by its writer
    DIR/messages/date=2026-11-18/broker-host-17-3f2a-000001.parquet         complete

A Parquet file without its end cannot be read, so it gets its name when it is whole. A writer that was killed leaves a
temporary file behind that no reader looks at, because its name begins with a dot, and that nobody has locked any more:
the next writer to start in the directory removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from moq.trace.records import (
    DUPLICATE,
    KIND_SHIFT,
    MESSAGE_FIELDS,
    NO_TIME,
    ROLE_SHIFT,
    STATE_FIELDS,
    TWO_BITS,
    UNKNOWN,
)
from moq.trace.schema import KINDS, ROLES, TABLES, VERSION, VERSION_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from moq.trace.records import Buffer, Names

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
MAX_FILE_S: Final = 30.0
"""A file is completed at this size, or age: what a crash loses, against how many files Spark has to open."""

COMPRESSION: Final = "zstd"
COMPRESSION_LEVEL: Final = 1
"""Time spent compressing is taken from the broker."""

SMALL_TABLE: Final = 1024
"""With more names than this, those of a buffer are sorted out; with fewer it costs less to write them all."""

_MESSAGE: Final = np.dtype(list(MESSAGE_FIELDS))
_STATE: Final = np.dtype(list(STATE_FIELDS))
_STRING: Final = pa.dictionary(pa.int32(), pa.string())


def arrow_schema(table: str) -> Any:
    """The schema of a table."""
    fields = [
        pa.field(
            column.name,
            _STRING if column.type == "string" else getattr(pa, column.type.replace("bool", "bool_"))(),
            nullable=bool(column.null),
        )
        for column in TABLES[table]
    ]
    return pa.schema(fields)


def buffer_table(table: str, buffer: Buffer, role: str, process: str) -> Any:
    """The records of a buffer."""
    return _message_table(buffer, process) if table == "messages" else _state_table(buffer, role, process)


def _message_table(buffer: Buffer, process: str) -> Any:
    data = np.frombuffer(buffer.data, _MESSAGE, buffer.count)
    flags = data["flags"]
    columns = _writer_columns(len(data), None, process)
    columns["role"] = _chosen(flags >> ROLE_SHIFT & TWO_BITS, ROLES)
    columns |= _origin_columns(data["connection"], buffer.names)
    columns["topic"] = _topics(data["topic"], buffer.names)
    columns["kind"] = _chosen(flags >> KIND_SHIFT & TWO_BITS, KINDS)
    columns["is_duplicate"] = pa.array((flags & DUPLICATE).astype(bool))
    columns["alias"] = _nullable(data["alias"].astype(np.int32), 0)
    columns["qos"] = pa.array(data["qos"].astype(np.int8))
    columns["payload_bytes"] = pa.array(data["payload_bytes"].astype(np.int64))
    columns["weight"] = pa.array(data["weight"].astype(np.float64))
    columns["stream_id"] = _plain(data["stream_id"])
    for name in ("queue_bytes", "queue_messages", "sequence"):
        columns[name] = _nullable(data[name], UNKNOWN)
    for name in ("sent_at_ns", "broker_in_ns", "broker_out_ns", "received_at_ns"):
        columns[name] = _nullable(data[name], NO_TIME)
    return _table("messages", columns)


def _state_table(buffer: Buffer, role: str, process: str) -> Any:
    data = np.frombuffer(buffer.data, _STATE, buffer.count)
    columns = _writer_columns(len(data), role, process)
    columns |= _origin_columns(data["connection"], buffer.names)
    columns["round_trip_ns"] = _nullable(data["round_trip_ns"], 0)
    columns["open_streams"] = _nullable(data["open_streams"], UNKNOWN)
    for name, _ in STATE_FIELDS:
        if name not in columns:
            columns[name] = _plain(data[name])
    return _table("connections", columns)


def row_table(table: str, rows: Sequence[tuple[object, ...]], role: str, process: str) -> Any:
    """Rows of a small table, without the columns that every row has."""
    columns = _writer_columns(len(rows), role, process)
    schema = arrow_schema(table)
    names = [column.name for column in TABLES[table] if column.name not in columns]
    for position, name in enumerate(names):
        columns[name] = pa.array([row[position] for row in rows], schema.field(name).type)
    return _table(table, columns)


def _table(name: str, columns: dict[str, Any]) -> Any:
    schema = arrow_schema(name)
    return pa.Table.from_arrays([columns[field.name] for field in schema], schema=schema)


def _writer_columns(count: int, role: str | None, process: str) -> dict[str, Any]:
    zeros = np.zeros(count, np.int32)
    columns = {"version": pa.array(np.full(count, VERSION, np.int32)), "process": _dictionary(zeros, [process])}
    if role is not None:
        columns["role"] = _dictionary(zeros, [role])
    return columns


def _origin_columns(places: NDArray[Any], names: Names) -> dict[str, Any]:
    """What is said of connections; with few of them, all are looked at rather than those of the buffer sorted out."""
    used = names.origins[: int(places.max()) + 1]
    if len(used) > SMALL_TABLE:
        unique, places = np.unique(places, return_inverse=True)
        used = [used[int(place)] for place in unique]
    columns = {"connection": pa.array(np.array([number for number, _ in used], np.int64)[places])}
    for name in ("client_id", "transport", "dialect", "peer"):
        values = [getattr(origin, name) for _, origin in used]
        distinct = {value: number for number, value in enumerate(dict.fromkeys(values))}
        mapping = np.array([distinct[value] for value in values], np.int32)
        columns[name] = _dictionary(mapping[places], list(distinct))
    return columns


def _topics(numbers: NDArray[Any], names: Names) -> Any:
    if len(names.topics) <= SMALL_TABLE:
        return _dictionary(numbers.astype(np.int32), names.topics[: int(numbers.max()) + 1])
    unique, places = np.unique(numbers, return_inverse=True)
    return _dictionary(places.astype(np.int32), [names.topics[int(number)] for number in unique])


def _chosen(numbers: NDArray[Any], values: Sequence[str]) -> Any:
    return _dictionary(numbers.astype(np.int32), list(values))


def _dictionary(indices: NDArray[Any], values: list[str]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(values, pa.string()))


def _plain(values: NDArray[Any]) -> Any:
    return pa.array(np.ascontiguousarray(values))


def _nullable(values: NDArray[Any], null: int) -> Any:
    return pa.array(np.ascontiguousarray(values), mask=values == null)


class TableFile:
    """The files of one table, one after the other."""

    def __init__(self, directory: Path, table: str, prefix: str) -> None:
        self._directory = directory / table
        self._table = table
        self._prefix = prefix
        self._number = 0
        self._writer: Any = None
        self._file: Any = None
        self._final: Path
        self._temporary: Path
        self._opened_at = 0.0
        self.rows = 0
        """In the file that is not complete: what is lost if it cannot be completed."""

    def write(self, make: Callable[[], Any], count: int) -> None:
        """Append so many rows, to a new file if there is none."""
        self.rows += count
        rows = make()
        if self._writer is None:
            self._open()
        self._writer.write_table(rows)
        if self._file.tell() >= MAX_FILE_BYTES:
            self.complete()

    def complete_if_old(self) -> None:
        """Complete the file if that is due."""
        if self._writer is not None and time.monotonic() - self._opened_at >= MAX_FILE_S:
            self.complete()

    def complete(self) -> None:
        """Write the end of the file and give it its name."""
        if self._writer is None:
            return
        self._writer.add_key_value_metadata({VERSION_KEY: str(VERSION).encode()})
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._temporary.rename(self._final)
        self._file.close()
        self._writer = self._file = None
        self.rows = 0

    def abandon(self) -> int:
        """Forget a file that cannot be written; returns how many rows went with it."""
        rows, self.rows = self.rows, 0
        for part in (self._writer, self._file):
            if part is not None:
                with contextlib.suppress(OSError, pa.ArrowException):
                    part.close()
        if self._file is not None:
            self._temporary.unlink(missing_ok=True)
        self._writer = self._file = None
        return rows

    def _open(self) -> None:
        self._number += 1
        day = self._directory / f"date={datetime.now(UTC):%Y-%m-%d}"
        day.mkdir(parents=True, exist_ok=True)
        name = f"{self._prefix}-{self._number:06d}.parquet"
        self._final, self._temporary = day / name, day / f".{name}.tmp"
        self._file = self._temporary.open("xb")
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        strings = [column.name for column in TABLES[self._table] if column.type == "string"]
        numbers = [column.name for column in TABLES[self._table] if column.type in ("int32", "int64")]
        self._writer = pq.ParquetWriter(
            self._file,
            arrow_schema(self._table),
            compression=COMPRESSION,
            compression_level=COMPRESSION_LEVEL,
            write_statistics=False,  # a fifth of the work, and a study reads all there is
            use_dictionary=strings,
            column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
            store_schema=False,  # readers see strings, and not how we happened to hold them
        )
        self._opened_at = time.monotonic()


def remove_leftovers(directory: Path) -> int:
    """Remove the temporary files of writers that are gone; returns how many there were."""
    removed = 0
    for path in directory.glob("*/date=*/.*.parquet.tmp"):
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                removed += 1
        except OSError:
            continue  # its writer is alive, or has just renamed it
    return removed
