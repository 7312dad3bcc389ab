"""`moq bench restart`: how long a broker with much to remember takes to be ready, and what that costs."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.bench import report
from moq.bench.brokers import LOG, ClientEngines, Running, broker_command, ready_line, started
from moq.bench.dialects import MQTT, check_payload_bytes
from moq.bench.durable_absent import take_backlog
from moq.bench.durable_store import disk
from moq.bench.flows import Flow, Tally
from moq.bench.latencies import Latencies
from moq.bench.restart_data import Amounts, client_id, make_directory
from moq.cli import connection
from moq.cli.exits import Exit
from transports import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moq.cli.connection import Commands

READY_TIMEOUT_S: Final = 300.0

CLEAN: Final = "a clean end"
KILLED: Final = "kill -9"
COLD: Final = "kill -9, nothing cached"
EMPTY: Final = "nothing, an empty directory"

EXAMPLES = """
  moq bench restart                                 10,000 sessions, a million queued messages
  moq bench restart --sessions 100 --subscriptions 1000 --retained 1000 --queued 10000
  moq bench restart --repeat 5 --markdown

A data directory is filled under $TMPDIR, which takes a minute. The broker is started on it after a clean end, after
kill -9, and after kill -9 with its files out of the system's cache; and on an empty one beside. After each start one
subscriber with a persistent session returns and takes its queue. The exit code is 1 if anything was not restored.
"""


@dataclass(frozen=True, slots=True)
class Start:
    """One start, or the medians of several."""

    ready_s: float
    """From starting the process to its ready line, Python's own start included."""
    rss_bytes: float
    peak_rss_bytes: float
    read_bytes: float
    """By the process, from files, cached or not."""
    disk_bytes: float
    """Of those, from the disk itself."""
    first_message_s: float
    """From a subscriber's first packet to the first message it had waiting."""
    last_message_s: float
    faults: float
    """Messages of its queue that did not come, or not as they should."""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(commands, "restart", "time to ready with much to restore", EXAMPLES)
    parser.set_defaults(run=run)
    for name, default, what in (
        ("sessions", 10_000, "persistent sessions"),
        ("subscriptions", 100_000, "of all of them together"),
        ("retained", 100_000, "retained messages"),
        ("queued", 1_000_000, "messages waiting for all sessions together"),
    ):
        parser.add_argument(
            f"--{name}", type=_positive, default=default, metavar="N", help=f"{what} (default: {default:,})"
        )
    parser.add_argument("--size", type=_positive, default=100, metavar="BYTES", help="of a payload (default: 100)")
    parser.add_argument("--repeat", type=_positive, default=3, metavar="N", help="starts of each kind (default: 3)")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object with every start")
    output.add_argument("--markdown", action="store_true", help="tables as Markdown, with machine and date")


def run(args: argparse.Namespace) -> int:
    """Fill a directory, start brokers on it, and tell."""
    check_payload_bytes(args.size)
    amounts = Amounts(args.sessions, args.subscriptions, args.retained, args.queued, args.size)
    with tempfile.TemporaryDirectory(prefix="moq-bench-") as name:
        directory = Path(name)
        data, empty = directory / "data", directory / "empty"
        data.mkdir(mode=0o700)
        empty.mkdir(mode=0o700)
        started_at = time.perf_counter()
        make_directory(data, amounts)
        print(f"filled in {time.perf_counter() - started_at:.1f} s", file=sys.stderr)
        stored_bytes = _size(data)
        bench = _Bench(directory, data, empty, amounts)
        starts = asyncio.run(bench.measure(args.repeat))
    _show(args, amounts, starts, stored_bytes, bench.restored)
    return Exit.OK if bench.is_complete(starts) else Exit.FAILURE


class _Bench:
    """Starts brokers, one after the other."""

    def __init__(self, directory: Path, data: Path, empty: Path, amounts: Amounts) -> None:
        self.restored: dict[str, str] = {}
        """What the last start of each kind said."""
        self._directory = directory
        self._data = data
        self._empty = empty
        self._amounts = amounts
        self._next_session = 0

    async def measure(self, repeat: int) -> dict[str, list[Start]]:
        """Every kind of start, taking turns."""
        starts: dict[str, list[Start]] = {kind: [] for kind in (EMPTY, CLEAN, KILLED, COLD)}
        for turn in range(repeat):
            # Each start ends as the next one needs it: in peace before a clean start, with kill -9 before the others.
            for kind, ends_killed in ((EMPTY, False), (CLEAN, True), (KILLED, True), (COLD, False)):
                print(f"{turn + 1}/{repeat}  after {kind} …", end=" ", file=sys.stderr, flush=True)
                if kind == COLD:
                    _forget_cached(self._data)
                start = await self._start(kind, ends_killed)
                starts[kind].append(start)
                print(f"ready in {start.ready_s:.2f} s", file=sys.stderr, flush=True)
        return starts

    async def _start(self, kind: str, ends_killed: bool) -> Start:
        data = self._empty if kind == EMPTY else self._data
        spawned_at = time.perf_counter()
        async with started(broker_command(data), self._directory) as process:
            ready = await ready_line(process, self._directory, READY_TIMEOUT_S)
            ready_s = time.perf_counter() - spawned_at
            rss, peak, (read, from_disk) = *_memory(process.pid), _reads(process.pid)
            self.restored[kind] = _restored_line(self._directory / LOG)
            first_s = last_s = faults = 0.0
            if kind != EMPTY:
                engines = ClientEngines("aioquic", "aioquic")
                running = Running(process.pid, MQTT(), Target("tcp", "127.0.0.1", ready["tcp"]), None, engines)
                first_s, last_s, faults = await self._take_a_queue(running)
            if ends_killed:
                process.kill()
        return Start(ready_s, rss, peak, read, from_disk, first_s, last_s, faults)

    async def _take_a_queue(self, running: Running) -> tuple[float, float, float]:
        """Let a subscriber whose queue nobody has taken yet return."""
        session = self._next_session % self._amounts.sessions
        self._next_session += 1
        frame = running.dialect.frame(session, 1, self._amounts.payload_bytes)
        flow, tally = Flow(0, frame, 1, lambda block: None), Tally(Latencies())
        flow.next_seq = self._amounts.queue_length
        subscriber, taken = await take_backlog(
            running.connect_subscriber, running.dialect, client_id(session), [flow], tally
        )
        subscriber.link.abort()
        return taken.first_s, taken.last_s, float(tally.lost + tally.repeated + tally.disordered)

    def is_complete(self, starts: dict[str, list[Start]]) -> bool:
        """True if a clean start found everything, and everybody got what waited."""
        expected = f"restored {self._amounts.sessions} sessions"
        found = all(self.restored[kind].startswith(expected) for kind in (CLEAN, KILLED, COLD))
        return found and not any(start.faults for runs in starts.values() for start in runs)


def _show(
    args: argparse.Namespace,
    amounts: Amounts,
    starts: dict[str, list[Start]],
    stored_bytes: int,
    restored: dict[str, str],
) -> None:
    medians = {kind: _median(runs) for kind, runs in starts.items()}
    if args.json:
        results = [
            {
                "after": kind,
                "said": restored[kind],
                "median": asdict(medians[kind]),
                "runs": [asdict(run) for run in runs],
            }
            for kind, runs in starts.items()
        ]
        machine = {**report.machine(), **disk()}
        told = {"machine": machine, "amounts": asdict(amounts), "stored_bytes": stored_bytes, "results": results}
        print(json.dumps(told, ensure_ascii=False))
        return
    blank = "\n" if args.markdown else ""
    where = disk()
    print(
        f"{report.machine_line()}; data on {where['file_system']}, a sync of 4 KiB takes {where['sync_ms']} ms{blank}"
    )
    print(
        f"{amounts.sessions:,} sessions, {amounts.subscriptions:,} subscriptions, {amounts.retained:,} retained and "
        f"{amounts.queued:,} queued messages of {amounts.payload_bytes} B: {stored_bytes / 1e6:.0f} MB on disk; "
        f"medians of {args.repeat} starts{blank}"
    )
    headings = (
        "start after",
        "ready s",
        "RSS MB",
        "peak MB",
        "read MB",
        "from disk MB",
        "first ms",
        "last ms",
        "checked",
    )
    print(report.table(headings, [_row(kind, start) for kind, start in medians.items()], markdown=args.markdown))
    for kind, said in restored.items():
        print(f"{blank}after {kind}: {said}")


def _row(kind: str, start: Start) -> list[str]:
    has_queue = kind != EMPTY
    return [
        kind,
        f"{start.ready_s:.2f}",
        f"{start.rss_bytes / 1e6:.0f}",
        f"{start.peak_rss_bytes / 1e6:.0f}",
        f"{start.read_bytes / 1e6:.0f}",
        f"{start.disk_bytes / 1e6:.0f}",
        f"{start.first_message_s * 1000:.1f}" if has_queue else "",
        f"{start.last_message_s * 1000:.1f}" if has_queue else "",
        "" if not has_queue else "all arrived" if not start.faults else f"{start.faults:,.0f} AMISS",
    ]


def _median(runs: Sequence[Start]) -> Start:
    values = [asdict(run) for run in runs]
    medians = {name: statistics.median(value[name] for value in values) for name in values[0]}
    return Start(**{**medians, "faults": sum(run.faults for run in runs)})


def _restored_line(log: Path) -> str:
    """What a broker said of what it found."""
    found = re.search(r"restored .*", log.read_text(errors="replace"))
    return found.group() if found else "nothing was said"


def _memory(pid: int) -> tuple[int, int]:
    """Resident now, and at most so far."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) * 1024, int(status["VmHWM"].split()[0]) * 1024


def _reads(pid: int) -> tuple[int, int]:
    """Bytes read so far, and those the disk had to give."""
    counters = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(counters["rchar"]), int(counters["read_bytes"])


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _forget_cached(directory: Path) -> None:
    """Let the system drop what it has cached of a directory's files, as after a boot."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number greater than 0")
    return int(text)
