"""Reads what tracers wrote, as anybody would who knows nothing of them: with Arrow, as one dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq

from moq.trace.records import Origin
from moq.trace.schema import TABLES

if TYPE_CHECKING:
    from pathlib import Path

ORIGIN = Origin("client", "quic", "mmqp", "192.0.2.7:4")


def rows(directory: Path, table: str = "messages", **wanted: object) -> list[dict[str, Any]]:
    """Every row, or those with these values."""
    found = ds.dataset(directory / table, format="parquet", partitioning="hive").to_table().to_pylist()
    return [row for row in found if all(row[name] == value for name, value in wanted.items())]


def files(directory: Path, pattern: str = "*.parquet") -> list[Path]:
    return sorted(path for table in TABLES for path in (directory / table).rglob(pattern))


def check_files(directory: Path) -> int:
    """Read every file that has its name; returns how many there are."""
    for path in files(directory):
        pq.read_table(path)
    return len(files(directory))
