"""`moq bench papers`: run the studies, write the report."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.bench import brokers, report
from moq.cli import connection
from moq.cli.exits import Exit

if TYPE_CHECKING:
    import argparse

    from moq.bench.papers.progress import Plan
    from moq.bench.papers.results import Study
    from moq.cli.connection import Commands

STUDIES: Final = ("emqtt", "rfc", "mqttplus")
REPORT: Final = "papers.html"
FIGURES: Final = "papers.json"


EXAMPLES: Final = """
  moq bench papers                                 all three, about 17 minutes, into papers/papers.html
  moq bench papers --study emqtt --out /tmp/emqtt
  moq bench papers --quick                         a minute, to see that it works

A full run says of each bound of the papers whether it was met and ends with exit code 1 if one was not. It wants a
quiet machine.
"""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(commands, "papers", "the experiments of the three MQTT papers", EXAMPLES)
    parser.set_defaults(run=run)
    parser.add_argument("--study", action="append", choices=STUDIES, help="one of them; may be repeated (default: all)")
    parser.add_argument("--quick", action="store_true", help="a few of each, to see that it works; no bound counts")
    parser.add_argument(
        "--out", type=Path, default=Path("papers"), metavar="DIR", help=f"for {REPORT} and {FIGURES} (default: papers)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the studies; failure if a bound is not met, unless the run was a quick one."""
    args.out.mkdir(parents=True, exist_ok=True)
    chosen = [name for name in STUDIES if args.study is None or name in args.study]
    studies = asyncio.run(_run(chosen, is_quick=args.quick))
    _write(args.out, studies, _command(chosen, is_quick=args.quick))
    verdicts = [verdict for study in studies for verdict in study.verdicts]
    for verdict in verdicts:
        print(f"{'met' if verdict.is_met else 'NOT MET':8}{verdict}")
    print(args.out / REPORT)
    return Exit.OK if args.quick or all(verdict.is_met for verdict in verdicts) else Exit.FAILURE


async def _run(chosen: list[str], *, is_quick: bool) -> list[Study]:
    # They bring half the broker with them, which those who only ask for help need not wait for.
    from moq.bench.papers import emqtt, emqtt_report, mqttplus, mqttplus_report, rfc, rfc_report
    from moq.bench.papers.progress import Progress

    brokers.pin_generator()
    confirmed = emqtt.QUICK if is_quick else emqtt.Plan()
    paced = rfc.QUICK if is_quick else rfc.Plan()
    computed = mqttplus.QUICK if is_quick else mqttplus.Plan()
    work: dict[str, Plan] = {"emqtt": confirmed, "rfc": paced, "mqttplus": computed}
    progress = Progress(sum(work[name].steps for name in chosen), sum(work[name].estimate_s for name in chosen))
    studies: list[Study] = []
    if "emqtt" in chosen:
        studies.append(emqtt_report.study(confirmed, await emqtt.run(confirmed, progress)))
    if "rfc" in chosen:
        studies.append(rfc_report.study(paced, await rfc.run(paced, progress)))
    if "mqttplus" in chosen:
        studies.append(mqttplus_report.study(computed, *await mqttplus.run(computed, progress)))
    progress.finish()
    return studies


def _command(chosen: list[str], *, is_quick: bool) -> str:
    names = [] if len(chosen) == len(STUDIES) else [f"--study {name}" for name in chosen]
    return " ".join(["moq bench papers", *names, *(["--quick"] if is_quick else [])])


def _write(directory: Path, studies: list[Study], command: str) -> None:
    from moq.bench.papers import page

    machine = report.machine()
    figures = {"machine": machine, "command": command, "studies": [study.to_dict() for study in studies]}
    (directory / FIGURES).write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    (directory / REPORT).write_text(page.render(studies, machine, command))
