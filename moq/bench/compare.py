"""`moq bench compare`: what has become worse from one result to another, and how sure that is."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.bench.comparing import TOLERANCE, Verdict, compare_results
from moq.bench.quantiles import CONFIDENCE
from moq.bench.report import table
from moq.bench.report_words import NOTHING, interval_text, ratio_text
from moq.bench.results import Results
from moq.bench.summary import LATENCIES
from moq.cli import connection
from moq.cli.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moq.bench.comparing import Compared, Key, Row
    from moq.bench.quantiles import Comparison, Interval
    from moq.cli.connection import Commands

ENOUGH: Final = 5
"""Repetitions from which intervals are of use."""

PERCENTILES: Final = frozenset(metric.name for metric in LATENCIES)

EXAMPLES: Final = """
  moq bench compare before after                    two directories that moq bench has written
  moq bench compare before/results.json after/results.json --json
  moq bench compare before after --tolerance 10 --confidence 99
  moq bench compare before after --changed          only what is worse or better

Each figure is the median of the repetitions; brackets are its interval. The exit code is 1 if a figure is worse by more
than the tolerance, as surely as --confidence asks, all figures judged together; 0 if none is; 2 if a file cannot be
used. Take both results on the same machine, and repeat each run five times or more.
"""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(commands, "compare", "say what has become worse between two results", EXAMPLES)
    parser.set_defaults(run=run)
    parser.add_argument("before", type=Path, metavar="A", help="a results.json, or the directory that has it")
    parser.add_argument("after", type=Path, metavar="B", help="the same, later")
    parser.add_argument(
        "--tolerance",
        type=_percent,
        default=TOLERANCE,
        metavar="PERCENT",
        help=f"how much worse is still good (default: {TOLERANCE * 100:g})",
    )
    parser.add_argument(
        "--confidence",
        type=_confidence,
        default=CONFIDENCE,
        metavar="PERCENT",
        help=f"how sure an alarm has to be (default: {CONFIDENCE * 100:g})",
    )
    parser.add_argument("--changed", action="store_true", help="only what is worse or better")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object with every figure")
    output.add_argument("--markdown", action="store_true", help="the table as Markdown")


def run(args: argparse.Namespace) -> int:
    """Compare, and tell."""
    before, after = Results.read(args.before), Results.read(args.after)
    found = compare_results(before, after, args.tolerance, args.confidence)
    if args.json:
        print(json.dumps(to_json(found), ensure_ascii=False))
    else:
        _show(found, is_changed_only=args.changed, markdown=args.markdown)
        for line in (*notes(found), *_machines(before, after)):
            print(line)
    return Exit.FAILURE if found.of(Verdict.WORSE) else Exit.OK


def notes(found: Compared) -> list[str]:
    """What the table adds up to, and what it cannot show."""
    counts = ", ".join(f"{len(found.of(verdict))} {verdict}" for verdict in Verdict if found.of(verdict))
    lines = [f"{len(found.rows)} figures: {counts or NOTHING}; tolerance {found.tolerance:.0%}"]
    if found.of(Verdict.UNKNOWN):
        lines.append("A single run says nothing about how much runs differ: repeat each, --repeat 5 or more.")
    repetitions = [min(row.comparison.repetitions) for row in found.rows if row.comparison is not None]
    visible = found.visible_ratio
    if visible is not None and repetitions:
        hint = f"; {ENOUGH} or more repetitions would show smaller ones" if min(repetitions) < ENOUGH else ""
        lines.append(f"With these repetitions differences above about {visible - 1:.0%} can be seen{hint}.")
    if not found.rows:
        lines.append("Nothing was measured in both: scenario, contender, profile, parameters and rate have to agree.")
    names = found.varied
    lines += _only("A", found.only_before, names) + _only("B", found.only_after, names)
    return lines


def _only(which: str, keys: Sequence[Key], names: frozenset[str]) -> list[str]:
    return [f"only in {which}: {key.text(names)}, {key.contender}" for key in keys]


def _machines(before: Results, after: Results) -> list[str]:
    facts = ("processor", "system")
    differ = [name for name in facts if before.machine.get(name) != after.machine.get(name)]
    return [f"A and B are from different machines: {name} differs" for name in differ]


def _show(found: Compared, *, is_changed_only: bool, markdown: bool) -> None:
    shown = [row for row in found.rows if not is_changed_only or row.verdict in (Verdict.WORSE, Verdict.BETTER)]
    if shown:
        worse = f"sure to be {found.tolerance:.0%} worse"
        headings = ("scenario", "contender", "figure", "A", "B", "B to A", worse, "verdict")
        names = found.varied
        print(table(headings, [_cells(row, names) for row in shown], markdown=markdown) + "\n")


def _cells(row: Row, names: frozenset[str]) -> list[str]:
    # Percentiles of the latency are kept in microseconds and told in milliseconds.
    scale, unit = (1e-3, " ms") if row.metric in PERCENTILES else (1.0, "")
    return [
        row.key.text(names),
        row.key.contender,
        row.metric.replace("_", " ") + unit,
        interval_text(row.before, scale),
        interval_text(row.after, scale),
        ratio_text(row.comparison),
        NOTHING if row.probability_worse is None else f"{row.probability_worse:.1%}",
        row.verdict.upper() if row.verdict is Verdict.WORSE else str(row.verdict),
    ]


def to_json(found: Compared) -> dict[str, object]:
    """Every figure; latencies in microseconds."""
    return {
        "tolerance": found.tolerance,
        "confidence": found.confidence,
        "has_regression": bool(found.of(Verdict.WORSE)),
        "figures": [_row_json(row) for row in found.rows],
        "only_in_a": [_key_json(key) for key in found.only_before],
        "only_in_b": [_key_json(key) for key in found.only_after],
    }


def _key_json(key: Key) -> dict[str, object]:
    return {
        "profile": key.profile,
        "scenario": key.scenario,
        "contender": key.contender,
        "rate": key.rate,
        "parameters": dict(key.parameters),
    }


def _row_json(row: Row) -> dict[str, object]:
    return {
        **_key_json(row.key),
        "figure": row.metric,
        "a": _interval_json(row.before),
        "b": _interval_json(row.after),
        "ratio": _ratio_json(row.comparison),
        "probability_worse": row.probability_worse,
        "probability_better": row.probability_better,
        "verdict": str(row.verdict),
    }


def _interval_json(found: Interval | None) -> dict[str, object] | None:
    if found is None:
        return None
    return {"estimate": found.estimate, "low": found.low, "high": found.high, "repetitions": found.repetitions}


def _ratio_json(found: Comparison | None) -> dict[str, object] | None:
    return None if found is None else {"estimate": found.ratio, "low": found.low, "high": found.high}


def _percent(text: str) -> float:
    value = float(text.removesuffix("%"))
    if not 0 <= value < 1000:
        raise argparse.ArgumentTypeError(f"{text} is no percentage from 0 to 1000")
    return value / 100


def _confidence(text: str) -> float:
    value = _percent(text)
    if not 0.5 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no percentage from 50 to less than 100")
    return value
