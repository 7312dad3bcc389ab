"""`moq bench`: message rate, latency and cost of the broker over each transport, beside Mosquitto, in one run."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from moq.bench import brokers, report
from moq.bench.brokers import MOSQUITTO, WAYS, ClientEngines, Contender, Mosquitto
from moq.bench.load import Load, Shape
from moq.bench.measure import measure, median
from moq.cli import connection
from moq.cli.exits import Exit
from moq.config import QUIC_ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from moq.bench.brokers import Running
    from moq.bench.dialects import Dialect
    from moq.bench.measure import Result
    from moq.cli.connection import Commands

PRESETS: Final = {"1-1": (1, 1), "10-1": (10, 1), "1-10": (1, 10), "1-100": (1, 100)}
"""Publishers and subscribers by name."""


class Measurable(Protocol):
    """A broker, or something in its place."""

    @property
    def name(self) -> str:
        """As the tables call it."""

    def run(self, engines: ClientEngines) -> AbstractAsyncContextManager[Running]:
        """Start it, stop it at the end."""


EXAMPLES = """
  moq bench                                         every shape over TCP and QUIC, and Mosquitto
  moq bench --shape 1-10 --qos 1 --transport tcp
  moq bench --transport mqtt                        plain MQTT on both sides
  moq bench --publishers 4 --subscribers 25 --size 1000
  moq bench --shape 1-1 --rate 5000                 latency at a given rate, counted from when a message was due
  moq bench --repeat 5 --markdown                   the tables of docs/benchmarks.md
  moq bench --shape 1-1 --transport tcp --rival none --repeat 1 --profile
  moq bench run telemetry mixed --out results       latency in an open loop, beside other brokers
  moq bench matrix --out results                    the same on emulated networks
  moq bench relay --streams 1,10,100,1000           how near QUIC comes to a relay without a broker
  moq bench durable                                 what survives, beside Mosquitto's persistence
  moq bench restart                                 time to ready with a million queued messages
  moq bench neighbours                              latency beside clients that misbehave
  moq bench papers --out report                     the experiments of the three MQTT papers
  moq bench idle --connections 10000                what idle connections cost
  moq bench storm                                   how fast clients can connect, and who notices
  moq bench report results                          the page again, from results
  moq bench compare before after                    what has become worse, and how sure that is
  moq bench tracing                                 what tracing costs
  moq bench --shape 1-1 --rate 5000 --trace traces  what happens to each message, for Spark

Without --rate the load is closed-loop: at most --window messages are on their way, so the rate shown is what the
broker sustains without losing any, and the latencies are those of a full window. Every message is checked; the exit
code is 1 if one was lost, repeated or out of order.
"""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(commands, "bench", "measure the broker over each transport", EXAMPLES)
    parser.set_defaults(run=run)
    shape = parser.add_argument_group("load")
    shape.add_argument(
        "--shape", type=_preset_names, metavar="P-S,…", help=f"publishers-subscribers: {', '.join(PRESETS)}"
    )
    shape.add_argument("--publishers", type=int, metavar="N", help="instead of --shape")
    shape.add_argument("--subscribers", type=int, metavar="N", help="instead of --shape")
    shape.add_argument("--topics", type=int, default=1, metavar="N", help="of each publisher (default: 1)")
    shape.add_argument("--size", type=int, default=100, metavar="BYTES", help="of a payload (default: 100)")
    shape.add_argument("--qos", type=int, default=0, choices=(0, 1, 2), help="of publishers and subscribers")
    shape.add_argument("--rate", type=float, metavar="N", help="messages per second; without it as many as possible")
    add_run_options(parser)
    parser.add_argument(
        "--trace", type=Path, metavar="DIR", help="record deliveries as Parquet: brokers of ours, and what is received"
    )
    parser.add_argument("--profile", action="store_true", help="also where our broker's time goes; it is slower so")
    who = parser.add_argument_group("contenders")
    who.add_argument(
        "--transport",
        type=_transport_names,
        default=["tcp", "quic"],
        metavar="NAME,…",
        help="tcp, tls, quic, or mqtt: plain MQTT 3.1.1 over TCP (default: tcp,quic)",
    )
    who.add_argument("--rival", choices=(MOSQUITTO, "none"), default=MOSQUITTO, help="measured in the same run")
    from moq.bench import compare, durable, idle, neighbours, relay, rereport, restart, storm, tracing

    others = parser.add_subparsers(
        title="another benchmark",
        metavar="[run|matrix|rivals|relay|durable|restart|neighbours|idle|storm|tracing|papers], "
        "or [report|compare] of results",
    )
    for other in (relay, durable, restart, neighbours, idle, storm, tracing, rereport, compare):
        other.add_parser(others)
    from moq.bench.papers import cli as papers

    papers.add_parser(others)
    from moq.bench import matrix, rivals_cli
    from moq.bench import run as open_loop

    for open_loop_command in (open_loop, matrix, rivals_cli):
        open_loop_command.add_parser(others)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """What every benchmark has."""
    run = parser.add_argument_group("run")
    run.add_argument("--duration", type=float, default=3.0, metavar="S", help="counted seconds of a run (default: 3)")
    run.add_argument("--warm-up", type=float, default=1.0, metavar="S", help="seconds before that (default: 1)")
    run.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each; medians are shown (default: 3)")
    run.add_argument("--window", type=int, metavar="N", help="messages on their way (default: by size and QoS)")
    run.add_argument("--block", type=int, metavar="N", help="messages in one write (default: an eighth of the window)")
    run.add_argument("--quic-engine", choices=QUIC_ENGINES, default="aioquic", help="of the broker (default: aioquic)")
    run.add_argument("--client-engine", choices=QUIC_ENGINES, help="of the generator (default: the faster that does)")
    output = parser.add_argument_group("output").add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object with every run")
    output.add_argument("--markdown", action="store_true", help="tables as Markdown, with machine and date")


def run(args: argparse.Namespace) -> int:
    """Measure all contenders in all shapes."""
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    shapes = _shapes(args)
    with tempfile.TemporaryDirectory(prefix="moq-bench-") as directory:
        profiles = {name: Path(directory) / name if args.profile else None for name in args.transport}
        contenders: list[Measurable] = [
            Contender(f"moq {name}", name, args.quic_engine, path, _trace_options(args))
            for name, path in profiles.items()
        ]
        if args.rival != "none":
            contenders.append(Mosquitto())
        with recording(args) as make_load:
            results = await measure_all(contenders, shapes, args, make_load)
        show(results, args, against=args.rival)
        for name, path in profiles.items():
            if path is not None:
                print(f"\nmoq {name}, last run:\n\n{report.profile(path, markdown=args.markdown)}")
    return exit_code(results)


def _trace_options(args: argparse.Namespace) -> tuple[str, ...]:
    return () if args.trace is None else ("--trace", str(args.trace.absolute()))


@contextlib.contextmanager
def recording(args: argparse.Namespace) -> Iterator[Callable[[Shape, Dialect], Load]]:
    """How to make loads: such as are recorded, if that is asked for."""
    if args.trace is None:
        yield Load
        return
    from moq.bench.trace_option import BenchTrace, TracedLoad
    from moq.config import BrokerConfig

    trace = BenchTrace(args.trace, BrokerConfig().trace_max_rate)
    try:
        trace.start()
        yield partial(TracedLoad, trace)
    finally:
        trace.close()


async def measure_all(
    contenders: Sequence[Measurable],
    shapes: list[Shape],
    args: argparse.Namespace,
    make_load: Callable[[Shape, Dialect], Load] = Load,
) -> dict[Shape, dict[str, list[Result]]]:
    """Every contender in every shape, taking turns, so that a busy minute of the machine hits all of them."""
    brokers.pin_generator()
    engines = ClientEngines.choose(args.client_engine, max(shape.publishers * shape.topics for shape in shapes))
    results: dict[Shape, dict[str, list[Result]]] = {
        shape: {contender.name: [] for contender in contenders} for shape in shapes
    }
    for turn in range(args.repeat):
        for shape in shapes:
            for contender in contenders:
                print(f"{turn + 1}/{args.repeat}  {shape}  {contender.name} …", end=" ", file=sys.stderr, flush=True)
                async with contender.run(engines) as running:
                    result = await measure(running, shape, args.warm_up, args.duration, make_load)
                results[shape][contender.name].append(result)
                print(f"{result.deliveries_per_s:,.0f}/s", file=sys.stderr, flush=True)
    return results


def show(results: dict[Shape, dict[str, list[Result]]], args: argparse.Namespace, against: str) -> None:
    """Print medians as tables, or everything as JSON."""
    if args.json:
        print(json.dumps({"machine": report.machine(), "results": to_json(results)}, ensure_ascii=False))
        return
    print(f"{report.machine_line()}; medians of {args.repeat} runs of {args.duration:g} s")
    show_tables(results, args, against)


def to_json(results: dict[Shape, dict[str, list[Result]]]) -> list[dict[str, object]]:
    """Every run, and the medians."""
    return [
        {
            "shape": asdict(shape),
            "contender": name,
            "median": median(runs).to_dict(),
            "runs": [result.to_dict() for result in runs],
        }
        for shape, contenders in results.items()
        for name, runs in contenders.items()
    ]


def show_tables(results: dict[Shape, dict[str, list[Result]]], args: argparse.Namespace, against: str) -> None:
    """One table for each shape."""
    for shape, contenders in results.items():
        medians = {name: median(runs) for name, runs in contenders.items()}
        heading = f"### {shape}" if args.markdown else str(shape)
        print(f"\n{heading}\n" + ("\n" if args.markdown else ""), end="")
        ratio = f"to {against}" if against in medians else "ratio"
        headings = [ratio if text == "ratio" else text for text in report.HEADINGS]
        print(report.table(headings, report.rows(medians, against), markdown=args.markdown))
        if note := report.disturbance(list(medians.values())):
            print(("\n" if args.markdown else "") + note)


def exit_code(results: dict[Shape, dict[str, list[Result]]]) -> int:
    """Failure if any message did not arrive once and in order."""
    is_clean = all(result.is_clean for by_name in results.values() for runs in by_name.values() for result in runs)
    return Exit.OK if is_clean else Exit.FAILURE


def _shapes(args: argparse.Namespace) -> list[Shape]:
    base = Shape(
        topics=args.topics,
        payload_bytes=args.size,
        qos=args.qos,
        rate=args.rate,
        window=args.window,
        block=args.block,
    )
    if args.publishers is not None or args.subscribers is not None:
        return [replace(base, publishers=args.publishers or 1, subscribers=args.subscribers or 1)]
    names = args.shape or PRESETS
    return [replace(base, publishers=PRESETS[name][0], subscribers=PRESETS[name][1]) for name in names]


def _preset_names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - PRESETS.keys():
        raise argparse.ArgumentTypeError(f"{unknown.pop()!r} is no shape; known are {', '.join(PRESETS)}")
    return names


def _transport_names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(WAYS):
        raise argparse.ArgumentTypeError(f"{unknown.pop()!r} is no transport; known are {', '.join(WAYS)}")
    return names
