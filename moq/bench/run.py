"""`moq bench run`: scenarios in an open loop, on all contenders in turn, into results that can be compared."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.bench import brokers, report
from moq.bench.brokers import ClientEngines
from moq.bench.clients import LinkClient
from moq.bench.contenders import all_contenders, choose
from moq.bench.environment import capture
from moq.bench.openloop import make_loop
from moq.bench.openloop_measure import is_clean, measure
from moq.bench.results import Results
from moq.bench.scenarios import SCENARIOS
from moq.bench.sites import Site
from moq.cli import connection
from moq.cli.exits import Exit
from moq.config import QUIC_ENGINES
from moq.errors import ConfigError, MoqError

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from moq.bench.contenders import Contender
    from moq.bench.openloop import OpenLoop
    from moq.bench.results import Run
    from moq.bench.scenarios import Case
    from moq.bench.trace_option import BenchTrace
    from moq.cli.connection import Commands

EXAMPLES = """
  moq bench run                                       every scenario on every contender that is installed
  moq bench run telemetry mixed --contenders "moq quic,moq tls,mosquitto tls" --out results
  moq bench run rates --duration 5 --repeat 3         percentiles against load
  moq bench run --list                                the scenarios
  moq bench rivals                                    which contenders are installed, and how to get the others
  moq lab run --profile lossy -- moq bench run mixed --out lossy

The time at which each message is due is fixed before the run, and its latency counts from then. Contenders take turns.
With --out, results.json, runs.parquet and report.html are written there; moq bench compare compares two such results.
The exit code is 1 if a message was lost, repeated or out of order.
"""

OVERHEAD_S: Final = 2.5
"""To start a broker, connect, drain and stop, about."""
ENGINE: Final = "aioquic"
"""Of the generator: the one clients have by default, so that what is measured is what they get."""
LATE_SHARE: Final = 0.1
"""Of the counted time: a message that takes longer is late."""
MAX_LATE_SHARE: Final = 0.01
"""Of the deliveries: with more of them late, a contender is at its limit."""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(commands, "run", "measure latency at given rates, beside other brokers", EXAMPLES)
    parser.set_defaults(run=run)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"(default: all) {', '.join(SCENARIOS)}")
    parser.add_argument("--list", action="store_true", help="say what the scenarios are, and stop")
    parser.add_argument("--contenders", type=names, metavar="NAME,…", help="(default: all that are installed)")
    parser.add_argument("--duration", type=connection.seconds, default=5.0, metavar="S", help="counted (default: 5)")
    parser.add_argument("--warm-up", type=connection.seconds, default=1.0, metavar="S", help="before that (default: 1)")
    parser.add_argument("--repeat", type=connection.count, default=3, metavar="N", help="runs of each (default: 3)")
    parser.add_argument("--repetition", type=int, default=0, metavar="N", help="number of the first one (default: 0)")
    parser.add_argument(
        "--quic-engine", choices=QUIC_ENGINES, default=ENGINE, help=f"of our broker (default: {ENGINE})"
    )
    parser.add_argument("--client-engine", choices=QUIC_ENGINES, default=ENGINE, help="of the generator (the same)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write results.json, runs.parquet and report.html")
    parser.add_argument("--trace", type=Path, metavar="DIR", help="record deliveries as Parquet, on both sides")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="the results as one JSON object on stdout")
    output.add_argument("--quiet", action="store_true", help="say only what goes wrong")


def names(text: str) -> list[str]:
    """A list with commas in between."""
    return [name for part in text.split(",") if (name := part.strip())]


@dataclass(frozen=True, slots=True)
class Turn:
    """One run to be made."""

    repetition: int
    scenario: str
    case: Case
    contender: Contender


@dataclass(slots=True)
class Progress:
    """Says on stderr what runs, and how long all of it will take."""

    total: int
    run_s: float
    is_quiet: bool = False
    _done: int = 0
    _began: float = 0.0

    def announce(self) -> None:
        """The estimate."""
        if not self.is_quiet:
            say(f"{self.total} runs of {self.run_s:.0f} s: about {in_minutes(self.total * self.run_s)}")

    def begin(self, what: str) -> None:
        """One more run."""
        self._done += 1
        if self.is_quiet:
            return
        now = time.monotonic()
        self._began = self._began or now
        each_s = (now - self._began) / (self._done - 1) if self._done > 1 else self.run_s
        left = in_minutes((self.total - self._done + 1) * each_s)
        print(f"{self._done}/{self.total}  {what} … ({left} left)", end=" ", file=sys.stderr, flush=True)

    def end(self, how: str) -> None:
        """It is over."""
        if not self.is_quiet:
            print(how, file=sys.stderr, flush=True)

    def fail(self, how: str) -> None:
        """It is over, and it went wrong, which is said in any case."""
        if self.is_quiet:
            say(how)
        else:
            self.end(f"FAILED: {how}")


def run(args: argparse.Namespace) -> int:
    """Measure all contenders in all scenarios."""
    if args.list:
        for name, scenario in SCENARIOS.items():
            print(f"{name:10} {scenario.meaning}: {'; '.join(map(str, scenario.cases))}")
        return Exit.OK
    scenarios = check_scenarios(args.scenarios)
    site = Site.from_environment()
    contenders, left_out = choose(args.contenders, all_contenders(args.quic_engine, args.trace))
    for contender in left_out:
        say(f"{contender.name} is not installed and left out; to install it: {contender.how_to_install}")
    turns = list(_turns(scenarios, contenders, args.repeat, args.repetition))
    engines = ClientEngines.choose(args.client_engine, 1)
    results = Results(
        command=" ".join(["moq", *sys.argv[1:]]),
        machine=report.machine(),
        environment={
            **capture(contenders, site, args.quic_engine, engines),
            "settings": f"warm-up {args.warm_up:g} s, counted {args.duration:g} s, {args.repeat} repetitions",
        },
        calibrations={site.profile: site.calibration} if site.calibration else {},
    )
    brokers.pin_generator()
    try:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(_traced(turns, site, engines, args, results))
    finally:
        # Also after Ctrl-C: what was measured so far was measured.
        if args.out is not None and results.runs:
            written = results.write(args.out)
            if not args.quiet:
                say(f"wrote {', '.join(map(str, written))}")
    if not args.quiet:
        _show(results, args)
    return Exit.OK if all(map(is_clean, results.runs)) else Exit.FAILURE


def check_scenarios(wanted: Sequence[str]) -> list[str]:
    """Those asked for, or all."""
    for name in wanted:
        if name not in SCENARIOS:
            raise ConfigError(f"scenario {name!r} is unknown; known are {', '.join(SCENARIOS)}")
    return list(dict.fromkeys(wanted)) or list(SCENARIOS)


def _turns(scenarios: list[str], contenders: list[Contender], repeat: int, first: int) -> Iterator[Turn]:
    """Repetitions outermost, contenders innermost: a busy minute of the machine hits all of them."""
    for repetition in range(first, first + repeat):
        for scenario in scenarios:
            for case in SCENARIOS[scenario].cases:
                for contender in contenders:
                    if case.qos <= contender.max_qos:
                        yield Turn(repetition, scenario, case, contender)


async def _traced(
    turns: list[Turn], site: Site, engines: ClientEngines, args: argparse.Namespace, results: Results
) -> None:
    """Measure, with a record of what subscribers receive if that is asked for."""
    if args.trace is None:
        await _measure_all(turns, site, engines, args, results, None)
        return
    from moq.bench.trace_option import BenchTrace
    from moq.config import BrokerConfig

    trace = BenchTrace(args.trace, BrokerConfig().trace_max_rate)
    try:
        trace.start()
        await _measure_all(turns, site, engines, args, results, trace)
    finally:
        trace.close()


async def _measure_all(
    turns: list[Turn],
    site: Site,
    engines: ClientEngines,
    args: argparse.Namespace,
    results: Results,
    trace: BenchTrace | None,
) -> None:
    progress = Progress(len(turns), args.warm_up + args.duration + OVERHEAD_S, args.quiet)
    progress.announce()
    saturated: set[tuple[int, str, str]] = set()
    for turn in turns:
        key = (turn.repetition, turn.scenario, turn.contender.name)
        progress.begin(f"{turn.scenario}: {turn.case}, {turn.contender.name}")
        if key in saturated:
            progress.end("skipped, it was at its limit before")
            continue
        try:
            result = await _measure(turn, site, engines, args, trace)
        except (MoqError, TimeoutError) as error:
            # One contender that fails does not take the others' results with it; it has no run, which shows.
            progress.fail(str(error) or "it took too long")
            continue
        results.add(result)
        progress.end(in_words(result))
        if SCENARIOS[turn.scenario].is_ladder and not _is_within_limit(result):
            saturated.add(key)


async def _measure(
    turn: Turn, site: Site, engines: ClientEngines, args: argparse.Namespace, trace: BenchTrace | None
) -> Run:
    async with turn.contender.run(site, engines) as server, _watched(trace) as watch:
        return await measure(
            server,
            turn.case,
            scenario=turn.scenario,
            contender=turn.contender.name,
            repetition=turn.repetition,
            site=site,
            warm_up_s=args.warm_up,
            duration_s=args.duration,
            watch=watch,
        )


@contextlib.asynccontextmanager
async def _watched(trace: BenchTrace | None) -> AsyncIterator[Callable[[OpenLoop], None] | None]:
    """Tells the trace of the subscribers of a run, and of what they get; of links only, which have a state to tell."""
    if trace is None:
        yield None
        return

    def watch(load: OpenLoop) -> None:
        clients = [client for client in load.subscribers if isinstance(client, LinkClient)]
        if load.case.is_request or not clients:
            return
        for number, client in enumerate(clients):
            trace.add_receiver(number, client.link, client.dialect_name)
        load.ledger.on_delivery = trace.on_delivery

    try:
        yield watch
    finally:
        trace.forget_receivers()


def _is_within_limit(result: Run) -> bool:
    late_us = LATE_SHARE * result.duration_s * 1e6
    late = sum(count for latency_us, count in result.latency_us.items() if latency_us > late_us)
    return is_clean(result) and late <= MAX_LATE_SHARE * result.expected


def in_words(result: Run) -> str:
    """One line about a run."""
    figures = [
        f"p{percent} {latency_us / 1000:.2f} ms"
        for percent in (50, 95, 99)
        if (latency_us := result.percentile_us(percent)) is not None
    ]
    faults = [
        f"{count:g} {name}"
        for name, count in (
            ("LOST", result.lost),
            ("REPEATED", result.repeated),
            ("OUT OF ORDER", result.disordered),
            ("VIDEO FRAMES LOST", result.extra.get("video_lost", 0.0)),
        )
        if count
    ]
    return ", ".join([*figures, *faults, *(["OVERLOADED"] if result.is_overloaded else [])])


def in_minutes(seconds: float) -> str:
    """For people."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def say(text: str) -> None:
    """To a person."""
    connection.note(text)


def _show(results: Results, args: argparse.Namespace) -> None:
    if args.json:
        from moq.bench import results_json

        print(json.dumps(json.loads(results_json.encode(results)), ensure_ascii=False))
        return
    headings = ("scenario", "contender", "p50 ms", "p95 ms", "p99 ms", "max ms", "CPU s", "RSS MB", "checked")
    rows = [_row(runs) for runs in _grouped(results.runs)]
    print(f"{report.machine_line()}; medians of {args.repeat} runs of {args.duration:g} s, open loop")
    print(report.table(headings, rows, markdown=False))


def _grouped(runs: Sequence[Run]) -> list[list[Run]]:
    """Repetitions of the same."""
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for each in runs:
        groups.setdefault((each.scenario, json.dumps(dict(each.parameters)), each.contender), []).append(each)
    return list(groups.values())


def _row(runs: Sequence[Run]) -> list[str]:
    from statistics import median

    def middle(percent: float) -> str:
        found = [latency_us for each in runs if (latency_us := each.percentile_us(percent)) is not None]
        return f"{median(found) / 1000:.2f}" if found else ""

    first = runs[0]
    facts = first.parameters
    case = (
        f"{facts['publishers']}→{facts['subscribers']} {facts['payload_bytes']} B QoS {facts['qos']} {first.rate:g}/s"
    )
    unclean = sum(not is_clean(each) for each in runs)
    return [
        f"{first.scenario} {case}",
        first.contender,
        *map(middle, (50, 95, 99, 100)),
        f"{median(each.broker_cpu_s for each in runs):.2f}",
        f"{median(each.broker_rss_bytes for each in runs) / 1e6:.0f}",
        f"FAULTS in {unclean} of {len(runs)}" if unclean else "all arrived",
    ]
