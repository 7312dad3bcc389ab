"""Plans that remember nothing: rules, periods and processing functions."""

from __future__ import annotations

import pytest

from moq.broker.operators import Computation, WindowRecord, compute, parse

NEVER = float("inf")


def computation(text: str) -> Computation:
    plan = parse(text, ("CNTPPL",))
    assert plan is not None
    return compute(plan)


def test_what_satisfies_a_rule_is_forwarded_as_it_is() -> None:
    computed = computation("$GT;30/sens123/temp")
    assert computed.on_message("sens123/temp", b" 30.5\n", NEVER, 0.0) == [("sens123/temp", b" 30.5\n")]
    assert computed.on_message("sens123/temp", b"30", NEVER, 0.0) == []
    assert computed.on_message("sens123/temp", b"31", 5.0, 5.0) == []


def test_a_period_alone_changes_no_message() -> None:
    assert computation("$MRP;100/a").on_message("a", b"x", NEVER, 0.0) == [("a", b"x")]


def test_processed_data_is_published_under_the_name_of_its_function() -> None:
    assert computation("$CNTPPL/+/image").on_message("room1/image", b"3", NEVER, 0.0) == [("$CNTPPL/room1/image", b"3")]


@pytest.mark.parametrize("text", ["$GT;30/t", "$MRP;100/t", "$CNTPPL/t", "$SUM/+"])
def test_nothing_but_windows_waits_for_time_or_survives_a_restart(text: str) -> None:
    computed = computation(text)
    computed.on_message("t", b"31", NEVER, 0.0)
    computed.restore(WindowRecord(0, ()), 0.0)
    computed.prime("t", b"31", NEVER, 0.0)
    assert computed.next_timeout() is None
    assert computed.on_timeout(1e9) == []
    assert computed.to_record() is None
    assert len(computed) == (1 if "SUM" in text else 0)


@pytest.mark.parametrize(
    ("text", "is_filter"),
    [("$GT;3/t", True), ("$MRP;1$GT;3/t", True), ("$MRP;1/t", True), ("$CNTPPL/t", False), ("$SUM/+", False)],
)
def test_a_filter_needs_no_computation(text: str, is_filter: bool) -> None:
    assert computation(text).plan.is_filter is is_filter
