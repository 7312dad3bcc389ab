"""What a broker's store did during a run, from the counters at its `/metrics`."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SCRAPE_TIMEOUT_S: Final = 10.0
SYNCS: Final = 21


@dataclass(frozen=True, slots=True)
class StoreUse:
    """Transactions, what was in them and how long they took."""

    batches: float
    changes: float
    rows: float
    commit_s: float

    def __sub__(self, before: StoreUse) -> StoreUse:
        return StoreUse(
            self.batches - before.batches,
            self.changes - before.changes,
            self.rows - before.rows,
            self.commit_s - before.commit_s,
        )

    @property
    def commit_ms(self) -> float:
        """Of one transaction, on average."""
        return self.commit_s / self.batches * 1000 if self.batches else 0.0


async def store_use(http_port: int | None) -> StoreUse | None:
    """So far; None if the broker has no store that lasts, or does not tell."""
    if http_port is None:
        return None
    values = await scrape(http_port)
    if "moq_store_batches_total" not in values:
        return None
    return StoreUse(
        values["moq_store_batches_total"],
        values["moq_store_changes_total"],
        values["moq_store_rows_total"],
        values["moq_store_commit_seconds_sum"],
    )


async def scrape(http_port: int) -> dict[str, float]:
    """Every metric without labels by name."""
    async with asyncio.timeout(SCRAPE_TIMEOUT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", http_port)
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        text = (await reader.read()).decode()
        writer.close()
    lines = (line.split() for line in text.partition("\r\n\r\n")[2].splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines if "{" not in name}


def disk() -> dict[str, object]:
    """Where the data directories of a run are, and what it costs there to make 4 KiB safe: figures hang on it."""
    with tempfile.NamedTemporaryFile(prefix="moq-bench-") as file:
        took_ms = []
        for _ in range(SYNCS):
            file.write(bytes(4096))
            file.flush()
            started = time.perf_counter()
            os.fsync(file.fileno())
            took_ms.append((time.perf_counter() - started) * 1000)
        return {"file_system": _file_system(Path(file.name)), "sync_ms": round(statistics.median(took_ms), 3)}


def _file_system(path: Path) -> str:
    """The type of the mount that holds a file: that with the longest name above it."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    above = [(len(mount[1]), mount[2]) for mount in mounts if path.resolve().is_relative_to(mount[1])]
    return max(above)[1]
