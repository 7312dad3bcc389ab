"""`moq bench tracing`: what recording each delivery costs, in throughput and in latency at four fifths of it."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from math import inf, isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.bench import brokers, report
from moq.bench.brokers import ClientEngines, Contender
from moq.bench.load import Shape
from moq.bench.measure import measure
from moq.cli import connection
from moq.cli.exits import Exit
from moq.config import QUIC_ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.bench.measure import Result
    from moq.cli.connection import Commands

SHAPES: Final = {"1-1": (1, 1), "1-10": (1, 10)}
WAYS: Final = ("tcp", "quic")

LOAD_SHARE: Final = 0.8
"""Of the time for which the busier of broker and generator is busy while latencies are compared."""
PROBES: Final = 4
"""Runs that find the rate for it."""
FIRST_PROBE: Final = 0.25
"""Of the throughput of a closed loop: its messages come in blocks, and cost less than those that are due one by one."""
ALLOWED: Final = 0.05
"""How much less throughput, and how much more latency, tracing may cost."""

OFF, ON, FULL = "off", "on", "all"
VARIANTS: Final = {OFF: None, ON: (), FULL: ("--trace-max-rate", "1e9")}
"""Without a trace, with one as `--trace` makes it, and with a record of every delivery."""
OVERHEAD_S: Final = 1.5
"""Of a run, besides what it measures: starting and stopping a broker."""

EXAMPLES = f"""
  moq bench tracing                                 1→1 and 1→10 over TCP and QUIC
  moq bench tracing --transport quic --shape 1-1 --repeat 9
  moq bench tracing --repeat 7 --markdown           for docs/benchmarks.md

Each repetition measures a broker without a trace (off), with one (on), and with one that records every delivery however
many there are (all), in changing order. First as fast as the broker goes. Then, for the 99th percentile of latencies,
at the rate at which without a trace the busier of broker and generator is busy {LOAD_SHARE:.0%} of the time. A ratio is
that of two runs of one repetition; shown are the median of all repetitions and their range. The exit code is 1 if
tracing costs more than {ALLOWED:.0%} of the one or the other.
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """How one figure compares with that of a broker without a trace."""

    ratios: tuple[float, ...]
    """Of each repetition."""

    @property
    def ratio(self) -> float:
        """The median."""
        return statistics.median(self.ratios)

    def __str__(self) -> str:
        return f"{self.ratio:.3f} ({min(self.ratios):.3f} to {max(self.ratios):.3f})"


@dataclass(frozen=True, slots=True)
class Finding:
    """One shape over one transport."""

    name: str
    rate: float
    """Messages per second at which latencies were compared."""
    throughput: dict[str, list[float]]
    """Deliveries per second, by variant and repetition."""
    cpu_us: dict[str, list[float]]
    """Of the broker's processor per delivery, meanwhile: what others do on the machine changes it least."""
    p99_us: dict[str, list[float]]
    faults: int
    """Runs without a trace or with the default one that were overloaded or in which a message was lost, repeated or out
    of order; with a record of every delivery there may be some."""

    def throughput_cost(self, variant: str) -> Cost:
        """Above one minus ALLOWED it is good."""
        return _cost(self.throughput[variant], self.throughput[OFF])

    def latency_cost(self, variant: str) -> Cost:
        """Below one plus ALLOWED it is good."""
        return _cost(self.p99_us[variant], self.p99_us[OFF])

    def cpu_cost(self, variant: str) -> Cost:
        """For orientation: no bound is set on it."""
        return _cost(self.cpu_us[variant], self.cpu_us[OFF])

    @property
    def is_good(self) -> bool:
        """Whether tracing, as it is by default, costs no more than it may."""
        return (
            self.throughput_cost(ON).ratio >= 1 - ALLOWED
            and self.latency_cost(ON).ratio <= 1 + ALLOWED
            and not self.faults
        )


def _cost(values: list[float], base: list[float]) -> Cost:
    """An overloaded run has no latency: without one on both sides there is nothing to compare."""
    pairs = zip(values, base, strict=True)
    return Cost(tuple(value / reference for value, reference in pairs if isfinite(reference)) or (nan,))


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(commands, "tracing", "what tracing costs", EXAMPLES)
    parser.set_defaults(run=run)
    parser.add_argument(
        "--transport", type=_names(WAYS), default=WAYS, metavar="NAME,…", help="tcp, quic (default: both)"
    )
    parser.add_argument(
        "--shape", type=_names(tuple(SHAPES)), default=tuple(SHAPES), metavar="P-S,…", help="1-1, 1-10 (default: both)"
    )
    parser.add_argument("--size", type=int, default=100, metavar="BYTES", help="of a payload (default: 100)")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="repetitions (default: 5)")
    parser.add_argument("--duration", type=float, default=4.0, metavar="S", help="counted seconds (default: 4)")
    parser.add_argument("--warm-up", type=float, default=1.0, metavar="S", help="seconds before that (default: 1)")
    parser.add_argument("--quic-engine", choices=QUIC_ENGINES, default="aioquic", help="(default: aioquic)")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object with every run")
    output.add_argument("--markdown", action="store_true", help="a table as Markdown, with machine and date")


def run(args: argparse.Namespace) -> int:
    """Measure, and tell."""
    findings = asyncio.run(_measure(args))
    if args.json:
        print(json.dumps({"machine": report.machine(), "results": [_to_json(finding) for finding in findings]}))
    else:
        _show(findings, args)
    return Exit.OK if all(finding.is_good for finding in findings) else Exit.FAILURE


async def _measure(args: argparse.Namespace) -> list[Finding]:
    brokers.pin_generator()
    cases = [(way, shape) for way in args.transport for shape in args.shape]
    runs = len(cases) * (args.repeat * len(VARIANTS) * 2 + PROBES)
    minutes = runs * (args.duration + args.warm_up + OVERHEAD_S) / 60
    print(f"{runs} runs, about {minutes:.0f} minutes", file=sys.stderr, flush=True)
    progress = _Progress(runs)
    return [await _find(way, shape, args, progress) for way, shape in cases]


class _Progress:
    """Says which run is under way, and how long the rest will take."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._done = 0
        self._began = time.monotonic()

    def done(self, what: str, result: Result) -> None:
        self._done += 1
        left_s = (time.monotonic() - self._began) / self._done * (self._runs - self._done)
        p99_ms = result.latency_us.get("p99", 0.0) / 1000
        print(
            f"{self._done}/{self._runs}  {what}  {result.deliveries_per_s:,.0f}/s  p99 {p99_ms:.2f} ms"
            f"  {left_s / 60:.0f} min left",
            file=sys.stderr,
            flush=True,
        )


async def _find(way: str, name: str, args: argparse.Namespace, progress: _Progress) -> Finding:
    publishers, subscribers = SHAPES[name]
    shape = Shape(publishers=publishers, subscribers=subscribers, payload_bytes=args.size)
    closed = await _all_variants(way, shape, args, progress)
    messages_per_s = statistics.median(result.messages_per_s for result in closed[OFF])
    rate = await _rate_at_load(way, replace(shape, rate=max(1.0, messages_per_s * FIRST_PROBE)), args, progress)
    opened = await _all_variants(way, replace(shape, rate=rate), args, progress)
    every = [result for found in (closed, opened) for variant in (OFF, ON) for result in found[variant]]
    return Finding(
        f"{way} {shape}",
        rate,
        {variant: [result.deliveries_per_s for result in results] for variant, results in closed.items()},
        {variant: [_cpu_us(result) for result in results] for variant, results in closed.items()},
        {variant: [result.latency_us.get("p99", inf) for result in results] for variant, results in opened.items()},
        sum(not result.is_clean for result in every),
    )


def _cpu_us(result: Result) -> float:
    deliveries = result.deliveries_per_s * result.duration_s
    return result.broker_cpu_s / deliveries * 1e6 if deliveries else inf


async def _rate_at_load(way: str, shape: Shape, args: argparse.Namespace, progress: _Progress) -> float:
    """The rate at which the busier of broker and generator is busy LOAD_SHARE of the time, approached from below."""
    rate = shape.rate
    assert rate is not None
    for _ in range(PROBES):
        probed = replace(shape, rate=rate)
        result = await _one(way, probed, OFF, args)
        progress.done(f"{way} {probed}  looking for the rate", result)
        busy = max(result.broker_cpu_share, result.generator_cpu_share)
        rate = float(max(1, round(rate * (0.5 if result.is_overloaded else min(2.0, LOAD_SHARE / busy)))))
    return rate


async def _one(way: str, shape: Shape, variant: str, args: argparse.Namespace) -> Result:
    with tempfile.TemporaryDirectory(prefix="moq-bench-trace-") as directory:
        more = VARIANTS[variant]
        options = () if more is None else ("--trace", str(Path(directory) / "trace"), *more)
        contender = Contender(f"moq {way}", way, args.quic_engine, options=options)
        async with contender.run(ClientEngines.choose(None, 1)) as running:
            return await measure(running, shape, args.warm_up, args.duration)


async def _all_variants(
    way: str, shape: Shape, args: argparse.Namespace, progress: _Progress
) -> dict[str, list[Result]]:
    """Every variant in every repetition; who comes first changes, for a machine is not the same all the time."""
    results: dict[str, list[Result]] = {variant: [] for variant in VARIANTS}
    names = list(VARIANTS)
    for turn in range(args.repeat):
        shift = turn % len(names)
        for variant in names[shift:] + names[:shift]:
            result = await _one(way, shape, variant, args)
            results[variant].append(result)
            progress.done(f"{way} {shape}  trace {variant}", result)
    return results


def _show(findings: list[Finding], args: argparse.Namespace) -> None:
    blank = "\n" if args.markdown else ""
    print(f"{report.machine_line()}; {args.repeat} repetitions of {args.duration:g} s{blank}")
    headings = (
        *("load", "deliveries/s off", "on : off", "all : off", "CPU on : off"),
        *("p99 ms off at 80 %", "on : off", "all : off", f"at most {ALLOWED:.0%}"),
    )
    print(report.table(headings, [_row(finding) for finding in findings], markdown=args.markdown))
    print(f"{blank}Ratios are medians of the repetitions, with the lowest and the highest.")
    if faults := sum(finding.faults for finding in findings):
        print(f"{faults} runs, off or on, lost, repeated or reordered messages, or were overloaded.")


def _row(finding: Finding) -> list[str]:
    return [
        finding.name,
        f"{statistics.median(finding.throughput[OFF]):,.0f}",
        str(finding.throughput_cost(ON)),
        str(finding.throughput_cost(FULL)),
        str(finding.cpu_cost(ON)),
        f"{statistics.median(finding.p99_us[OFF]) / 1000:.2f} ({finding.rate:,.0f}/s)",
        str(finding.latency_cost(ON)),
        str(finding.latency_cost(FULL)),
        "yes" if finding.is_good else "NO",
    ]


def _to_json(finding: Finding) -> dict[str, object]:
    return {
        "load": finding.name,
        "rate": finding.rate,
        "deliveries_per_s": finding.throughput,
        "p99_us": {variant: [_finite(value) for value in values] for variant, values in finding.p99_us.items()},
        "cpu_us_per_delivery": {
            variant: [_finite(value) for value in values] for variant, values in finding.cpu_us.items()
        },
        "throughput_ratio": {variant: _finite(finding.throughput_cost(variant).ratio) for variant in (ON, FULL)},
        "p99_ratio": {variant: _finite(finding.latency_cost(variant).ratio) for variant in (ON, FULL)},
        "runs_with_faults": finding.faults,
        "is_good": finding.is_good,
    }


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _names(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        found = text.split(",")
        if unknown := set(found) - set(known):
            raise argparse.ArgumentTypeError(f"{unknown.pop()!r} is not known; known are {', '.join(known)}")
        return found

    return names
