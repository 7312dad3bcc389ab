"""`moq bench neighbours`: what a client that minds its own business notices of others that do not."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.bench import report
from moq.bench.brokers import broker_command, ready_line, started
from moq.bench.neighbours_measure import (
    ALLOWED_BYTES,
    CONFIDENCE,
    OPTIONS,
    STORM_CONNECTIONS,
    measure_neighbours,
    quantile,
)
from moq.cli import connection
from moq.cli.exits import Exit

if TYPE_CHECKING:
    from moq.bench.neighbours_measure import Neighbours
    from moq.cli.connection import Commands

SCHEMES: Final = ("tcp", "tls", "quic")
ALLOWED_RATIO: Final = 2.0
"""Of the 99th percentiles."""

SHARES: Final = {"p50": 0.5, "p99": 0.99}

EXAMPLES = f"""
  moq bench neighbours                              over TCP, TLS and QUIC
  moq bench neighbours --transport quic --rounds 10
  moq bench neighbours --samples 2000 --json

The bad neighbours, all at once: a subscriber that stops reading, one that reads a byte a second (over QUIC a packet a
second), and a storm of connections, {STORM_CONNECTIONS} of them under way. A load is published that both subscribe to.
Meanwhile one client sends messages to itself; its latencies are compared with those of rounds without the three, in
turns. The exit code is 1 if the 99th percentile is more than twice the quiet one, or if the broker grows by more than
{ALLOWED_BYTES >> 20} MiB.
"""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(commands, "neighbours", "latency beside misbehaving clients", EXAMPLES)
    parser.set_defaults(run=run)
    parser.add_argument(
        "--transport", type=_schemes, default=SCHEMES, metavar="NAME,…", help="of everybody (default: tcp,tls,quic)"
    )
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="with them and without (default: 5)")
    parser.add_argument("--samples", type=int, default=500, metavar="N", help="messages of a round (default: 500)")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object with every round trip")
    output.add_argument("--markdown", action="store_true", help="tables as Markdown, with machine and date")


def run(args: argparse.Namespace) -> int:
    """Measure each transport, and tell."""
    found = {scheme: asyncio.run(_measure(scheme, args)) for scheme in args.transport}
    if args.json:
        print(json.dumps({"machine": report.machine(), "results": [_to_json(*item) for item in found.items()]}))
    else:
        _show(found, args)
    return Exit.OK if all(map(is_good, found.values())) else Exit.FAILURE


async def _measure(scheme: str, args: argparse.Namespace) -> Neighbours:
    with tempfile.TemporaryDirectory(prefix="moq-bench-") as name:
        directory = Path(name)
        async with started(broker_command(directory, *OPTIONS), directory) as process:
            ready = await ready_line(process, directory)

            def say(text: str) -> None:
                print(f"{scheme}  {text}", file=sys.stderr, flush=True)

            url = f"{scheme}://localhost:{ready[scheme]}"
            return await measure_neighbours(url, directory, process.pid, args.rounds, args.samples, say)


def is_good(found: Neighbours) -> bool:
    """Whether the neighbours cost no more than they may."""
    return found.ratio(0.99) <= ALLOWED_RATIO and found.growth_bytes < ALLOWED_BYTES


def _show(found: dict[str, Neighbours], args: argparse.Namespace) -> None:
    blank = "\n" if args.markdown else ""
    print(f"{report.machine_line()}; {args.rounds} rounds of {args.samples} messages, quiet and beside in turns{blank}")
    interval = f"{CONFIDENCE:.0%} of ratios"
    headings = (
        *("transport", "p50 quiet ms", "beside", "ratio", interval),
        *("p99 quiet ms", "beside", "ratio", interval, "RSS grows by MiB", "within bounds"),
    )
    print(report.table(headings, [_row(*item) for item in found.items()], markdown=args.markdown))
    print(f"{blank}Each latency is the median of the rounds, with the lowest and the highest.")


def _row(scheme: str, found: Neighbours) -> list[str]:
    cells = [scheme]
    for share in SHARES.values():
        low, high = found.ratio_range(share)
        cells += [_spread(found.quiet, share), _spread(found.beside, share)]
        cells += [f"{found.ratio(share):.2f}", f"{low:.2f} to {high:.2f}"]
    return [*cells, f"{found.growth_bytes / 2**20:.0f}", "yes" if is_good(found) else "NO"]


def _spread(rounds: list[list[float]], share: float) -> str:
    values = sorted(quantile(values, share) * 1000 for values in rounds)
    return f"{quantile(values, 0.5):.2f} ({values[0]:.2f} to {values[-1]:.2f})"


def _to_json(scheme: str, found: Neighbours) -> dict[str, object]:
    return {
        "transport": scheme,
        **{f"{name}_ratio": found.ratio(share) for name, share in SHARES.items()},
        **{f"{name}_ratio_range": found.ratio_range(share) for name, share in SHARES.items()},
        "growth_bytes": found.growth_bytes,
        "is_good": is_good(found),
        "quiet_s": found.quiet,
        "beside_s": found.beside,
    }


def _schemes(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(SCHEMES):
        raise argparse.ArgumentTypeError(f"{unknown.pop()!r} is no transport; known are {', '.join(SCHEMES)}")
    return names
