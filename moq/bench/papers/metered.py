"""A broker of ours as a process, and the meter on it: processor time and memory, its workers included."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.bench.brokers import TICKS_PER_S, broker_command, ready_line, started
from transports import Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NANOSECONDS: Final = 1e9

SETTLE_S: Final = 5.5
"""The broker lets connections of the last five seconds wait for each other (`transports.fair`): a measurement of the
steady state begins after that."""

NO_FIGURES: Final = ("--sys-interval-s", "0", "--log-level", "warning")
"""`$SYS` publishes by itself, which a meter would count as work for the clients."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a broker and the processes it started have used so far."""

    cpu_s: float
    rss_bytes: int
    worker_rss_bytes: int
    """Of the processes it started."""


@dataclass(frozen=True, slots=True)
class Metered:
    """A broker that accepts connections."""

    pid: int
    target: Target

    def usage(self) -> Usage:
        """Processor time and memory now."""
        workers = _descendants(self.pid)
        return Usage(
            sum(_cpu_s(pid) for pid in (self.pid, *workers)),
            _rss_bytes(self.pid),
            sum(_rss_bytes(pid) for pid in workers),
        )


@contextlib.asynccontextmanager
async def running_broker(*options: str, python_path: Path | None = None) -> AsyncIterator[Metered]:
    """Start one on free ports, `python_path` before all else Python looks at; stop it at the end."""
    environment = [] if python_path is None else ["env", f"PYTHONPATH={python_path}"]
    with tempfile.TemporaryDirectory(prefix="moq-papers-") as name:
        directory = Path(name)
        async with started([*environment, *broker_command(directory, *NO_FIGURES, *options)], directory) as process:
            ready = await ready_line(process, directory)
            yield Metered(process.pid, Target("tcp", "127.0.0.1", ready["tcp"]))


def _cpu_s(pid: int) -> float:
    """To the nanosecond where the kernel counts so: a broker with little to do uses less than a tick in a second."""
    total = 0.0
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            try:
                total += int((thread / "schedstat").read_text().split()[0]) / NANOSECONDS
            except FileNotFoundError:
                fields = (thread / "stat").read_text().rpartition(")")[2].split()
                total += (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return total


def _rss_bytes(pid: int) -> int:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                found += [child, *_descendants(child)]
    return found
