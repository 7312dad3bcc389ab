"""`moq lab`: a command on a network that is known: real netem, calibrated, and gone afterwards."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.cli import connection
from moq.cli.exits import Exit
from moq.errors import ConfigError
from moq.lab import doctor, leftovers, netem, profiles
from moq.lab.lab import START_VARIABLE, Lab
from moq.lab.profiles import DIRECTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from moq.cli.connection import Commands
    from moq.lab.profiles import State

RUN_EXAMPLES: Final = """
  moq lab run --profile lossy -- moq bench run mixed --out results
  moq lab run --profile lte --out results -- ping -c 5 192.0.2.2
  moq lab run --profile outage --await-start --out results -- python experiment.py
  moq lab run --profile mine --profiles mine.toml -- bash

The command runs in the client's namespace. Its environment says where the other end is:
  MOQ_LAB_SERVER_NETNS   the namespace for servers: prefix their command with `ip netns exec $MOQ_LAB_SERVER_NETNS`
  MOQ_LAB_SERVER_HOST    the address of that namespace
  MOQ_LAB_PROFILE        the profile's name
  MOQ_LAB_CALIBRATION    a JSON file with the profile and what was measured
  MOQ_LAB_START          with --await-start: create this file when the steps of the profile shall begin
The exit code is that of the command.
"""
LIST_EXAMPLES: Final = """
  moq lab list
  moq lab list --json --profiles mine.toml
"""
SHOW_EXAMPLES: Final = """
  moq lab show lte
  moq lab show outage --json
"""
CALIBRATE_EXAMPLES: Final = """
  moq lab calibrate                      every profile, in one lab
  moq lab calibrate lossy bursty --out calibrations

The exit code is 1 if one of them is not within 10 % of its profile.
"""
DOCTOR_EXAMPLES: Final = """
  moq lab doctor
  moq lab doctor --backend vm --json
"""
CLEAN_EXAMPLES: Final = """
  moq lab clean
"""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parts = (RUN_EXAMPLES, CALIBRATE_EXAMPLES, LIST_EXAMPLES, SHOW_EXAMPLES, DOCTOR_EXAMPLES, CLEAN_EXAMPLES)
    examples = "".join(text.partition("\n\n")[0].strip("\n") + "\n" for text in parts)
    parser = connection.add_command(commands, "lab", "run commands on networks with delay, loss and limits", examples)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    _add_run(actions)
    _add_calibrate(actions)
    listing = connection.add_command(actions, "list", "list the profiles", LIST_EXAMPLES)
    listing.set_defaults(run=run_list)
    show = connection.add_command(actions, "show", "say what a profile does, with its tc commands", SHOW_EXAMPLES)
    show.add_argument("profile", metavar="NAME", help="of the profile")
    show.set_defaults(run=run_show)
    check = connection.add_command(
        actions, "doctor", "say what this machine lacks for a lab, and what to install", DOCTOR_EXAMPLES
    )
    check.set_defaults(run=run_doctor)
    _add_backend(check)
    clean = connection.add_command(actions, "clean", "remove what labs that were killed have left", CLEAN_EXAMPLES)
    clean.set_defaults(run=run_clean)
    for action in (listing, show):
        _add_profiles(action)
    for action in (listing, show, check):
        action.add_argument("--json", action="store_true", help="one JSON object per line")


def _add_run(actions: Commands) -> None:
    run = connection.add_command(actions, "run", "run a command on a network", RUN_EXAMPLES)
    run.add_argument("--profile", default="lossy", metavar="NAME", help="the network (default: lossy)")
    _add_profiles(run)
    _add_backend(run)
    run.add_argument("--out", type=Path, metavar="DIR", help="keep calibration and times of steps here")
    run.add_argument(
        "--await-start",
        action="store_true",
        help=f"steps begin when the command creates the file ${START_VARIABLE}, not with the command",
    )
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD", help="runs in the client's namespace")
    run.set_defaults(run=run_run)


def _add_calibrate(actions: Commands) -> None:
    calibrate = connection.add_command(actions, "calibrate", "measure what profiles really do", CALIBRATE_EXAMPLES)
    calibrate.add_argument("names", nargs="*", metavar="NAME", help="of profiles (default: all)")
    _add_profiles(calibrate)
    _add_backend(calibrate)
    calibrate.add_argument("--out", type=Path, metavar="DIR", help="keep the records here")
    calibrate.add_argument("--json", action="store_true", help="one JSON object per profile: its record")
    calibrate.set_defaults(run=run_calibrate)


def _add_profiles(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profiles", type=Path, metavar="FILE", help="profiles of your own, in TOML, besides ours")


def _add_backend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend", choices=doctor.BACKENDS, help="netem of this kernel, or of a router VM (default: what works)"
    )


def run_run(args: argparse.Namespace) -> int:
    """Open a lab, calibrate it, and run the command."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise ConfigError("no command was given; expected one after `--`: moq lab run --profile lossy -- CMD")
    profile = profiles.find(profiles.load(args.profiles), args.profile)
    with Lab.open(connection.note, args.backend, args.out) as lab:
        calibration = lab.calibrate(profile)
        connection.note(verdict(calibration))
        env = {START_VARIABLE: str(lab.directory / "start")} if args.await_start else {}
        try:
            return lab.run(command, env)
        except FileNotFoundError as error:
            raise ConfigError(f"command is {command[0]!r}; {error.strerror}") from error


def run_calibrate(args: argparse.Namespace) -> int:
    """Measure profiles in one lab; a line for each."""
    known = profiles.load(args.profiles)
    wanted = [profiles.find(known, name) for name in args.names] or list(known.values())
    is_good = True
    with Lab.open(connection.note, args.backend, args.out) as lab:
        for profile in wanted:
            calibration = lab.calibrate(profile)
            is_good &= bool(calibration["is_within_10_percent"])
            print(json.dumps(calibration) if args.json else verdict(calibration), flush=True)
    return Exit.OK if is_good else Exit.FAILURE


def verdict(calibration: Mapping[str, object]) -> str:
    """What was measured, in one line."""
    profile, rtt, loss, rate = (calibration[name] for name in ("profile", "rtt_ms", "loss", "rate_bit_s"))
    assert isinstance(profile, dict)
    assert isinstance(rtt, dict)
    assert isinstance(loss, dict)
    assert isinstance(rate, dict)
    parts = []
    if "p50" in rtt:
        of_wanted = f" of {rtt['wanted']:g}" if rtt["wanted"] else ""
        parts.append(f"round trip {rtt['p50']:.1f} ms{of_wanted}")
    low, high = loss["interval_95"]
    parts.append(f"loss {loss['share']:.2%} ({low:.2%} to {high:.2%}) of {loss['wanted']:.2%}")
    parts += [
        f"{direction} {rate[direction]['measured'] / 1e6:.1f} Mbit/s of {rate[direction]['wanted'] / 1e6:g}"
        for direction in DIRECTIONS
        if rate[direction] is not None
    ]
    is_good = calibration["is_within_10_percent"]
    judgement = "within 10 % of the profile" if is_good else "NOT within 10 % of the profile: is the machine busy?"
    return f"{profile['name']}: {', '.join(parts)}; {judgement}"


def run_list(args: argparse.Namespace) -> int:
    """One line for each profile."""
    for profile in profiles.load(args.profiles).values():
        print(json.dumps(profile.to_dict()) if args.json else f"{profile.name:<10} {profile.description}")
    return Exit.OK


def run_show(args: argparse.Namespace) -> int:
    """The parameters, and what tc would be told."""
    profile = profiles.find(profiles.load(args.profiles), args.profile)
    if args.json:
        steps = [_commands(step.state, is_step=True) for step in profile.steps]
        print(json.dumps({**profile.to_dict(), "commands": _commands(profile.start), "step_commands": steps}))
        return Exit.OK
    print(f"{profile.name}: {profile.description}\n\nat the start\n{_in_words(profile.start)}")
    for step in profile.steps:
        print(f"\nafter {step.at_s:g} s\n{_in_words(step.state, is_step=True)}")
    return Exit.OK


def _in_words(state: State, *, is_step: bool = False) -> str:
    lines = [f"  round trip {state.rtt_ms:g} ms without queueing"]
    for direction in DIRECTIONS:
        one = state[direction]
        loss = f"{one.loss_share:.2%} of the packets are lost" if one.loss_share else "no packet is lost"
        queue = "" if one.queue_ms is None else f", a full queue takes {one.queue_ms:.0f} ms"
        lines.append(f"  {direction:<5}{loss}{queue}")
    return "\n".join([*lines, *(f"  {shlex.join(command)}" for command in _commands(state, is_step=is_step))])


def _commands(state: State, *, is_step: bool = False) -> list[list[str]]:
    """What tc is told, but for the path's own delay, which is subtracted once it has been measured."""
    commands = []
    for direction in DIRECTIONS:
        if is_step:
            commands.append(netem.change_command(direction, state[direction]))
        else:
            commands += netem.replace_commands(direction, state[direction])
    return [["tc", *command] for command in commands]


def run_doctor(args: argparse.Namespace) -> int:
    """Exit code 0 if a run would work."""
    report = doctor.examine(args.backend)
    if args.json:
        print(json.dumps(report.to_dict()))
    else:
        for finding in report.findings:
            print(f"{'ok     ' if finding.is_there else 'missing'}  {finding.name:<20} {finding.detail}")
        print(f"\na run would use: {report.backend}" if report.backend else f"\nto do: {report.remedy}")
    return Exit.OK if report.backend else Exit.FAILURE


def run_clean(args: argparse.Namespace) -> int:
    """Remove what is left of labs whose process is gone."""
    if os.geteuid() != 0:
        raise ConfigError("`moq lab clean` needs root, as the lab did; use sudo")
    for name in leftovers.remove(lambda _: None):
        print(f"removed {name}", file=sys.stdout)
    return Exit.OK
