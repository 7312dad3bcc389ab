"""The long run by command: `scripts/crash --kills 200 --messages 1000000`; progress on stderr, figures as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import fields

from tests.crash.conductor import Run, conduct, note_on_stderr
from tests.crash.judge import report


def main() -> int:
    """Run; 0 if every promise was kept."""
    parser = argparse.ArgumentParser(prog="scripts/crash", description=__doc__)
    defaults = Run(kills=200, messages=1_000_000, groups=5, rate=6000.0, seed=time.time_ns() % 1_000_000)
    for field in fields(Run):
        value = getattr(defaults, field.name)
        option = f"--{field.name.replace('_', '-')}"
        if isinstance(value, bool):
            parser.add_argument(option, action="store_true")
        elif isinstance(value, int | float):
            parser.add_argument(option, type=type(value), default=value, help=f"(default: {value})")
    parser.add_argument(
        "--option", action="append", default=[], help="an option of moq broker, such as --durability=relaxed"
    )
    arguments = vars(parser.parse_args())
    run = Run(options=tuple(arguments.pop("option")), **arguments)
    note_on_stderr(f"seed {run.seed}")
    outcome = conduct(run, note_on_stderr)
    note_on_stderr(report(outcome.breaches))
    print(json.dumps(outcome.summary(run), indent=2))
    return 1 if outcome.breaches else 0


if __name__ == "__main__":
    sys.exit(main())
