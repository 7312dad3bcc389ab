"""`moq bench report`: make the page again from results, of several runs together if there are several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.bench.results import REPORT, Results, merge
from moq.cli import connection
from moq.cli.exits import Exit
from moq.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from moq.cli.connection import Commands

EXAMPLES: Final = """
  moq bench report results                          results/report.html again, from results/results.json
  moq bench report monday tuesday --out both        the runs of both, as results of their own
"""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(commands, "report", "make the report again from results", EXAMPLES)
    parser.set_defaults(run=run)
    parser.add_argument(
        "results", type=Path, nargs="+", metavar="DIR", help="as written by moq bench, or a results.json"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: where the only results are)")


def run(args: argparse.Namespace) -> int:
    """Read, merge, write."""
    if args.out is None and len(args.results) > 1:
        raise ConfigError("several results need a place for what they have in common: --out DIR")
    first: Path = args.results[0]
    out: Path = args.out or (first if first.is_dir() else first.parent)
    merge([Results.read(path) for path in args.results]).write(out)
    print(out / REPORT)
    return Exit.OK
