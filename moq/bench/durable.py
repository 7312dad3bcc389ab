"""`moq bench durable`: QoS 1 to persistent sessions, ours in each mode of its store beside Mosquitto's persistence."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.bench import brokers, report
from moq.bench.brokers import MOSQUITTO, ClientEngines, Contender, Mosquitto
from moq.bench.durable_measure import measure_absence, measure_point, median_absence, median_point
from moq.bench.durable_report import RIVAL_NOTE, absence_table, curve_drawing, curve_table
from moq.bench.durable_store import disk
from moq.bench.load import Shape
from moq.cli import connection
from moq.cli.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moq.bench.cli import Measurable
    from moq.bench.durable_measure import Absence, Point
    from moq.bench.measure import Result
    from moq.cli.connection import Commands

PARTS: Final = ("online", "absent", "curve")

ROOMY: Final = (
    *("--limit", f"max_queued_messages={10**9}"),
    *("--limit", f"max_queued_bytes={10**12}"),
)
"""A backlog is not to be cut: Mosquitto's is without a bound in these runs too."""

STORES: Final = {
    "full": ("--store", "sqlite", "--durability", "full"),
    "relaxed": ("--store", "sqlite", "--durability", "relaxed"),
    "memory": ("--store", "memory"),
}

KEEPING: Final = "user root\npersistence true\npersistence_location {directory}/\n"
"""`user`: started by root Mosquitto becomes somebody who may not write here; started by others it ignores the line."""

PUBLISHERS: Final = (1, 10)

EXAMPLES = """
  moq bench durable                                 all parts
  moq bench durable --part absent --messages 100000
  moq bench durable --part curve --rates 100,1000,10000 --plot curve.svg
  moq bench durable --part online,absent --rival none --json

Parts: online, a persistent subscriber that keeps up (1→1, 10→1); absent, one that is away, and the return that takes
its backlog; curve, messages per transaction and the time to a PUBACK against the load offered for an absent one.
Every message is checked; the exit code is 1 if one was lost, repeated or out of order.

Data directories are made under $TMPDIR: put it on the disk that matters. The output says what a sync costs there.
"""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    from moq.bench.cli import add_run_options

    parser = connection.add_command(
        commands, "durable", "QoS 1 that survives, beside Mosquitto's persistence", EXAMPLES
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "--part", type=_parts, default=PARTS, metavar="NAME,…", help=f"{', '.join(PARTS)} (default: all)"
    )
    parser.add_argument("--size", type=int, default=100, metavar="BYTES", help="of a payload (default: 100)")
    parser.add_argument(
        "--messages", type=int, default=50_000, metavar="N", help="for an absent subscriber (default: 50000)"
    )
    parser.add_argument(
        "--rates",
        type=_rates,
        default=[10.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0, 20_000.0],
        metavar="N,…",
        help="of the curve, messages per second (default: 10 to 20000)",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the curve there, as SVG")
    parser.add_argument("--rival", choices=(MOSQUITTO, "none"), default=MOSQUITTO, help="measured in the same run")
    add_run_options(parser)


def run(args: argparse.Namespace) -> int:
    """Measure the parts asked for, and tell."""
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    from moq.bench.cli import measure_all

    online: dict[Shape, dict[str, list[Result]]] = {}
    absent: dict[Shape, dict[str, list[Absence]]] = {}
    curve: dict[str, dict[float, list[Point]]] = {}
    if "online" in args.part:
        online = await measure_all(_contenders(args), [_shape(args, count) for count in PUBLISHERS], args)
    if "absent" in args.part:
        absent = await _measure_absences(args)
    if "curve" in args.part:
        curve = await _measure_curve(args)
    if args.json:
        print(json.dumps(_to_json(online, absent, curve), ensure_ascii=False))
    else:
        _show(args, online, absent, curve)
    medians = {name: [median_point(runs) for runs in points.values()] for name, points in curve.items()}
    if args.plot and medians:
        machine = report.machine()
        caption = f"{max(PUBLISHERS)} publishers, one absent subscriber; {machine['date']}, {machine['processor']}"
        args.plot.write_text(curve_drawing(medians, caption))
    return _exit_code(online, absent)


def _shape(args: argparse.Namespace, publishers: int, rate: float | None = None) -> Shape:
    return Shape(
        publishers=publishers,
        payload_bytes=args.size,
        qos=1,
        rate=rate,
        window=args.window,
        block=args.block,
        is_persistent=True,
    )


def _contenders(args: argparse.Namespace) -> list[Measurable]:
    ours: list[Measurable] = [
        Contender(f"moq mqtt {name}", "mqtt", options=(*options, *ROOMY)) for name, options in STORES.items()
    ]
    ours.append(Contender("moq tcp full", "tcp", options=(*STORES["full"], *ROOMY)))
    if args.rival == "none":
        return ours
    return [*ours, Mosquitto(settings=KEEPING), Mosquitto("mosquitto, saved each s", KEEPING + "autosave_interval 1\n")]


async def _measure_absences(args: argparse.Namespace) -> dict[Shape, dict[str, list[Absence]]]:
    brokers.pin_generator()
    engines = ClientEngines.choose(args.client_engine, max(PUBLISHERS))
    shapes, contenders = [_shape(args, count) for count in PUBLISHERS], _contenders(args)
    results: dict[Shape, dict[str, list[Absence]]] = {
        shape: {contender.name: [] for contender in contenders} for shape in shapes
    }
    for turn in range(args.repeat):
        for shape in shapes:
            for contender in contenders:
                _say(f"{turn + 1}/{args.repeat}  {shape}, absent  {contender.name} …", end=" ")
                async with contender.run(engines) as running:
                    result = await measure_absence(running, shape, args.messages)
                results[shape][contender.name].append(result)
                _say(f"{result.published_per_s:,.0f}/s kept, {result.taken_per_s:,.0f}/s taken")
    return results


async def _measure_curve(args: argparse.Namespace) -> dict[str, dict[float, list[Point]]]:
    brokers.pin_generator()
    engines = ClientEngines.choose(args.client_engine, max(PUBLISHERS))
    names = ("full", "relaxed")
    results: dict[str, dict[float, list[Point]]] = {name: {rate: [] for rate in args.rates} for name in names}
    for turn in range(args.repeat):
        for rate in args.rates:
            for name in names:
                _say(f"{turn + 1}/{args.repeat}  {rate:,.0f}/s  {name} …", end=" ")
                async with Contender(name, "mqtt", options=(*STORES[name], *ROOMY)).run(engines) as running:
                    shape = _shape(args, max(PUBLISHERS), rate)
                    point = await measure_point(running, shape, args.warm_up, args.duration)
                results[name][rate].append(point)
                _say(f"{point.messages_per_commit:,.1f} messages/commit, p99 {point.answered_p99_us / 1000:.1f} ms")
    return results


def _show(
    args: argparse.Namespace,
    online: dict[Shape, dict[str, list[Result]]],
    absent: dict[Shape, dict[str, list[Absence]]],
    curve: dict[str, dict[float, list[Point]]],
) -> None:
    from moq.bench.cli import show_tables

    blank = "\n" if args.markdown else ""
    where = disk()
    print(f"{report.machine_line()}; data on {where['file_system']}, a sync of 4 KiB takes {where['sync_ms']} ms")
    print(f"{blank}medians of {args.repeat} runs of {args.duration:g} s, or of {args.messages:,} messages{blank}")
    if args.rival != "none":
        print(RIVAL_NOTE)
    show_tables(online, args, against=MOSQUITTO)
    for shape, contenders in absent.items():
        _heading(f"{shape}, absent subscriber", args)
        medians = {name: median_absence(runs) for name, runs in contenders.items()}
        print(absence_table(medians, MOSQUITTO, markdown=args.markdown))
    for name, points in curve.items():
        _heading(f"batching, {name}", args)
        print(curve_table([median_point(runs) for runs in points.values()], markdown=args.markdown))


def _heading(text: str, args: argparse.Namespace) -> None:
    print(f"\n#### {text}\n" if args.markdown else f"\n{text}")


def _to_json(
    online: dict[Shape, dict[str, list[Result]]],
    absent: dict[Shape, dict[str, list[Absence]]],
    curve: dict[str, dict[float, list[Point]]],
) -> dict[str, object]:
    from moq.bench.cli import to_json

    return {
        "machine": {**report.machine(), **disk()},
        "online": to_json(online),
        "absent": [
            {
                "shape": asdict(shape),
                "contender": name,
                "median": asdict(median_absence(runs)),
                "runs": [asdict(result) for result in runs],
            }
            for shape, contenders in absent.items()
            for name, runs in contenders.items()
        ],
        "curve": [
            {"store": name, "median": asdict(median_point(runs)), "runs": [asdict(point) for point in runs]}
            for name, points in curve.items()
            for runs in points.values()
        ],
    }


def _exit_code(online: dict[Shape, dict[str, list[Result]]], absent: dict[Shape, dict[str, list[Absence]]]) -> int:
    from moq.bench.cli import exit_code

    is_clean = all(result.is_clean for by_name in absent.values() for runs in by_name.values() for result in runs)
    return Exit.OK if is_clean and exit_code(online) == Exit.OK else Exit.FAILURE


def _parts(text: str) -> Sequence[str]:
    names = text.split(",")
    if unknown := set(names) - set(PARTS):
        raise argparse.ArgumentTypeError(f"{unknown.pop()!r} is no part; known are {', '.join(PARTS)}")
    return names


def _rates(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)
