"""`moq bench matrix`: scenarios on emulated networks, all contenders in turn on each, and one report of all of it.

Each run is a `moq bench run` of its own inside the lab: the changes of a network in the middle of a run then begin with
the run, and one that fails takes no other with it.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.bench import report
from moq.bench.brokers import ClientEngines
from moq.bench.contenders import all_contenders, choose
from moq.bench.environment import capture
from moq.bench.openloop_measure import is_clean
from moq.bench.results import Results
from moq.bench.run import ENGINE, Progress, check_scenarios, in_minutes, in_words, names, say
from moq.bench.scenarios import SCENARIOS
from moq.bench.sites import START, Site, finite
from moq.cli import connection
from moq.cli.exits import Exit
from moq.config import QUIC_ENGINES
from moq.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from moq.bench.contenders import Contender
    from moq.bench.results import Run
    from moq.cli.connection import Commands
    from moq.lab import Lab, Profile

PROFILES: Final = ("lan", "wifi", "lte", "lossy", "bursty")
SCENARIO_NAMES: Final = ("telemetry", "mixed")
CONTENDERS: Final = ("moq quic", "moq quic single-stream", "moq tls", "mosquitto tls")

EXAMPLES = f"""
  moq bench matrix --out results
  moq bench matrix --profiles lossy,outage --scenarios mixed --repeat 5 --duration 20 --out results
  moq bench matrix --contenders "moq quic,zenoh quic,mqttv5 quic" --out results

By default {", ".join(CONTENDERS)} run {" and ".join(SCENARIO_NAMES)} on {", ".join(PROFILES)}.
The networks are those of `moq lab list`, calibrated before they are used; `moq lab doctor` says what they need here.
Ctrl-C writes what there is so far.
"""

OPENING_S: Final = 20.0
"""To make a lab, about."""
CALIBRATING_S: Final = 25.0
"""A network, about."""
OVERHEAD_S: Final = 5.0
"""A run besides its own time, about: to start generator and broker, connect, drain and stop."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run to be made on a network."""

    repetition: int
    scenario: str
    contender: Contender


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(commands, "matrix", "measure contenders on emulated networks", EXAMPLES)
    parser.set_defaults(run=run)
    parser.add_argument("--profiles", type=names, default=list(PROFILES), metavar="NAME,…", help="networks")
    parser.add_argument("--scenarios", type=names, default=list(SCENARIO_NAMES), metavar="NAME,…", help="loads")
    parser.add_argument("--contenders", type=names, metavar="NAME,…", help="brokers")
    parser.add_argument("--profiles-file", type=Path, metavar="FILE", help="networks of your own, in TOML")
    parser.add_argument("--backend", choices=("native", "vm"), help="how packets are delayed (default: what works)")
    parser.add_argument("--duration", type=connection.seconds, default=10.0, metavar="S", help="counted (default: 10)")
    parser.add_argument("--warm-up", type=connection.seconds, default=2.0, metavar="S", help="before that (default: 2)")
    parser.add_argument("--repeat", type=connection.count, default=3, metavar="N", help="runs of each (default: 3)")
    parser.add_argument(
        "--quic-engine", choices=QUIC_ENGINES, default=ENGINE, help=f"of our broker (default: {ENGINE})"
    )
    parser.add_argument("--client-engine", choices=QUIC_ENGINES, default=ENGINE, help="of the generator (the same)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the results go")


def run(args: argparse.Namespace) -> int:
    """Measure everything on every network."""
    from moq.lab import Lab, profiles

    known = profiles.load(args.profiles_file)
    networks = [profiles.find(known, name) for name in args.profiles]
    scenarios = check_scenarios(args.scenarios)
    contenders = _contenders(args)
    cells = list(_cells(scenarios, contenders, args.repeat))
    results = Results(
        command=shlex.join(["moq", *sys.argv[1:]]), machine=report.machine(), environment=_environment(contenders, args)
    )
    progress = Progress(len(cells) * len(networks), args.warm_up + args.duration + OVERHEAD_S)
    progress.announce()
    say(f"and about {in_minutes(OPENING_S + CALIBRATING_S * len(networks))} to make and calibrate the networks")
    try:
        with Lab.open(say, args.backend) as lab, tempfile.TemporaryDirectory(prefix="moq-matrix-") as directory:
            for network in networks:
                _measure_network(lab, network, cells, Path(directory), progress, results, args)
    finally:
        # Also after Ctrl-C, or where a network cannot be made: what was measured so far was measured.
        if results.runs:
            for path in results.write(args.out):
                say(f"wrote {path}")
    is_complete = len(results.runs) == sum(_cases(cell) for cell in cells) * len(networks)
    return Exit.OK if is_complete and all(map(is_clean, results.runs)) else Exit.FAILURE


def _contenders(args: argparse.Namespace) -> list[Contender]:
    """Those asked for, which must be there, or of the usual ones those that are."""
    known = all_contenders(args.quic_engine)
    if args.contenders is not None:
        return choose(args.contenders, known)[0]
    there, left_out = choose(None, {name: known[name] for name in CONTENDERS})
    for contender in left_out:
        say(f"{contender.name} is not installed and left out; to install it: {contender.how_to_install}")
    return there


def _cells(scenarios: list[str], contenders: list[Contender], repeat: int) -> Iterator[Cell]:
    """Repetitions outermost, contenders innermost."""
    for repetition in range(repeat):
        for scenario in scenarios:
            for contender in contenders:
                yield Cell(repetition, scenario, contender)


def _cases(cell: Cell) -> int:
    return sum(case.qos <= cell.contender.max_qos for case in SCENARIOS[cell.scenario].cases)


def _environment(contenders: list[Contender], args: argparse.Namespace) -> Mapping[str, object]:
    engines = ClientEngines.choose(args.client_engine, 1)
    facts = capture(contenders, Site(), args.quic_engine, engines)
    del facts["host"]
    settings = f"warm-up {args.warm_up:g} s, counted {args.duration:g} s, {args.repeat} repetitions"
    return {**facts, "settings": settings}


def _measure_network(
    lab: Lab,
    network: Profile,
    cells: list[Cell],
    directory: Path,
    progress: Progress,
    results: Results,
    args: argparse.Namespace,
) -> None:
    say(f"{network.name}: calibrating")
    calibration = lab.calibrate(network)
    results.calibrations = {**results.calibrations, network.name: finite(calibration)}
    if not calibration["is_within_10_percent"]:
        say(f"{network.name}: the calibration is NOT within 10 % of the profile; the results say so, too")
    for cell in cells:
        progress.begin(f"{network.name}: {cell.scenario}, {cell.contender.name}")
        made = _measure_cell(lab, cell, directory, args)
        results.runs += made
        progress.end("; ".join(map(in_words, made)) or "FAILED")


def _measure_cell(lab: Lab, cell: Cell, directory: Path, args: argparse.Namespace) -> list[Run]:
    out = directory / "run"
    command = [sys.executable, "-m", "moq.cli", "bench", "run", cell.scenario, "--contenders", cell.contender.name]
    command += ["--duration", str(args.duration), "--warm-up", str(args.warm_up), "--repeat", "1"]
    command += ["--repetition", str(cell.repetition), "--out", str(out), "--quiet"]
    command += ["--quic-engine", args.quic_engine, "--client-engine", args.client_engine]
    with contextlib.suppress(FileNotFoundError):
        (out / "results.json").unlink()
    lab.run(command, env={START: str(directory / "start")})
    try:
        return Results.read(out).runs
    except ConfigError:
        return []
