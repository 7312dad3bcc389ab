"""What the benchmarks beside an active pair share: their options, their runs, their results and tables."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.bench import brokers, report, results_json
from moq.bench.report_tables import extra_text
from moq.bench.report_words import interval_text
from moq.bench.results import REPORT, Results, Run
from moq.bench.summary import P50, P99
from moq.cli import connection
from moq.cli.exits import Exit
from moq.config import QUIC_ENGINES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence

    from moq.bench.pair import Pair, Phase

    Say = Callable[[str], None]
    Measure = Callable[[Say], Coroutine[None, None, list[Run]]]

STOP_TIMEOUT_S: Final = 5.0

OPEN_DOORS: Final = (
    *("--limit", "max_connections=1000000"),
    *("--limit", "max_connections_per_address=1000000"),
    *("--limit", "memory_watermark_bytes=1099511627776"),
    *("--store", "memory"),
)
"""Options of a broker that is to hold as many connections as the machine can."""


def add_options(parser: argparse.ArgumentParser, transports: Sequence[str], default: Sequence[str]) -> None:
    """What both have."""
    parser.add_argument(
        "--transports",
        type=lambda text: _names(text, transports),
        default=list(default),
        metavar="NAME,…",
        help=f"of everybody: {', '.join(transports)} (default: {','.join(default)})",
    )
    parser.add_argument("--repeat", type=connection.count, default=3, metavar="N", help="runs of each (default: 3)")
    parser.add_argument(
        "--quic-engine", choices=QUIC_ENGINES, default="aioquic", help="of the broker (default: aioquic)"
    )
    parser.add_argument("--client-engine", choices=QUIC_ENGINES, help="of the clients (default: qh3 where it is)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="also write results.json, runs.parquet and report.html")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object with every run")
    output.add_argument("--markdown", action="store_true", help="the table as Markdown, with machine and date")


def _names(text: str, known: Sequence[str]) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(known):
        raise argparse.ArgumentTypeError(f"{unknown.pop()!r} is no transport; known are {', '.join(known)}")
    return names


def run_command(
    args: argparse.Namespace,
    command: str,
    columns: Sequence[str],
    measure: Callable[[Say], Coroutine[None, None, list[Run]]],
) -> int:
    """Measure, show, write; failure if the pair lost a message."""
    brokers.pin_generator()
    runs = asyncio.run(measure(_say))
    results = Results(command=command, machine=report.machine(), runs=runs)
    if args.json:
        print(json.dumps({"machine": dict(results.machine), "runs": [results_json.to_dict(run) for run in runs]}))
    else:
        print(f"{report.machine_line()}; medians of {args.repeat} runs, with 95% intervals\n")
        print(_table(runs, columns, markdown=args.markdown))
    if args.out is not None:
        results.write(args.out)
        print(args.out / REPORT, file=sys.stderr)
    return Exit.OK if runs and not any(run.lost for run in runs) else Exit.FAILURE


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _table(runs: Sequence[Run], columns: Sequence[str], *, markdown: bool) -> str:
    by_contender: dict[str, list[Run]] = {}
    for run in runs:
        by_contender.setdefault(run.contender, []).append(run)
    headings = ("contender", *(name.replace("_", " ") for name in columns), "pair p50 ms", "p99 ms", "lost")
    rows = [
        [
            contender,
            *(extra_text(name, same) for name in columns),
            *(interval_text(metric.interval(same), 1e-3) for metric in (P50, P99)),
            str(sum(run.lost for run in same)),
        ]
        for contender, same in by_contender.items()
    ]
    return report.table(headings, rows, markdown=markdown)


def make_run(
    *,
    scenario: str,
    contender: str,
    repetition: int,
    parameters: Mapping[str, float | int | str],
    pair: Pair,
    alone: Phase,
    beside: Phase,
    extra: Mapping[str, float],
) -> Run:
    """The run of a pair beside something, with how much longer its slow messages took than alone."""
    found = dict(extra)
    if alone.p99_us and beside.p99_us:
        found["p99_alone_ms"] = alone.p99_us / 1000
        found["p99_to_alone"] = beside.p99_us / alone.p99_us
    return Run(
        scenario=scenario,
        contender=contender,
        repetition=repetition,
        parameters=parameters,
        rate=pair.shape.rate or 0.0,
        started_at=beside.started_at,
        duration_s=beside.duration_s,
        sent=beside.expected,
        expected=beside.expected,
        received=beside.received,
        lost=pair.tally.lost,
        repeated=pair.tally.repeated,
        disordered=pair.tally.disordered,
        is_overloaded=pair.is_overloaded,
        latency_us=beside.latency_us,
        broker_cpu_s=beside.broker_cpu_s,
        broker_rss_bytes=beside.broker_rss_bytes,
        generator_cpu_s=beside.generator_cpu_s,
        others_cpu_share=beside.others_cpu_share,
        extra=found,
    )


@contextlib.asynccontextmanager
async def helper(module: str, plan: Mapping[str, object]) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of ours beside this one, told what to do in JSON; it ends when its stdin does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, json.dumps(plan)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()


async def order(process: asyncio.subprocess.Process, word: str) -> None:
    """Tell a helper something."""
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):  # it has ended, and its last line says so
        process.stdin.write(f"{word}\n".encode())
        await process.stdin.drain()
