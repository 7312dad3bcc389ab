"""Killed at any moment, or cut off from power: the broker comes back and has lost nothing it had acknowledged.

A short run of what `scripts/crash` does for long.
"""

from __future__ import annotations

import time
from dataclasses import replace

from tests.crash.conductor import Run, conduct
from tests.crash.judge import Kind, report

SHORT = Run(kills=4, groups=2, longest_life_s=1.2)


def seeded(run: Run) -> Run:
    """Other moments each time; a failure names the seed."""
    return replace(run, seed=time.time_ns() % 1_000_000)


def check(run: Run) -> None:
    outcome = conduct(run)
    assert not outcome.breaches, f"seed {run.seed}: {report(outcome.breaches)}"
    assert len(outcome.kills) >= run.kills
    assert outcome.acknowledged > 1000, f"seed {run.seed}: too little was at stake: {outcome.summary(run)}"


def test_nothing_acknowledged_is_lost_or_doubled_when_the_broker_is_killed() -> None:
    check(seeded(SHORT))


def test_nothing_acknowledged_is_lost_or_doubled_when_the_power_fails() -> None:
    check(seeded(replace(SHORT, kills=3, power_cuts=True)))


def test_a_broker_that_acknowledges_before_it_commits_is_found_out() -> None:
    run = seeded(replace(SHORT, kills=2, shortest_life_s=0.5, quiet_s=3.0, module="tests.crash.hasty_broker"))
    kinds = {breach.kind for breach in conduct(run).breaches}
    assert kinds & {Kind.LOST, Kind.TWICE}, f"seed {run.seed}: the harness noticed nothing but {kinds}"
