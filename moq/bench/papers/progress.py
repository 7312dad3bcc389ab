"""What a long run says on stderr: how long it will take, then each step as it begins and what came of it."""

from __future__ import annotations

import sys
import time
from typing import Protocol


class Plan(Protocol):
    """How much of a study is to be run."""

    @property
    def steps(self) -> int:
        """Runs."""

    @property
    def estimate_s(self) -> float:
        """About how long they take."""


class Progress:
    """Counts the steps of all studies together."""

    def __init__(self, steps: int, estimate_s: float) -> None:
        self._steps = steps
        self._done = 0
        self._started = time.monotonic()
        print(f"{steps} runs, about {minutes(estimate_s)}", file=sys.stderr, flush=True)

    def begin(self, what: str) -> None:
        """A step begins."""
        self._done += 1
        print(f"{self._done}/{self._steps}  {what} …", end=" ", file=sys.stderr, flush=True)

    def end(self, outcome: str) -> None:
        """It is over."""
        print(outcome, file=sys.stderr, flush=True)

    def finish(self) -> None:
        """All are."""
        print(f"took {minutes(time.monotonic() - self._started)}", file=sys.stderr, flush=True)


def minutes(seconds: float) -> str:
    """How long something takes, in words."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
