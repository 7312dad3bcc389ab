"""Which subscription of a client a message belongs to, where operators change its topic."""

from __future__ import annotations

import pytest

from moq.broker.operators import compute, parse
from moq.client.operators import brings
from tests.broker.operators.test_reference import EXAMPLES

SUBSCRIPTIONS = sorted({lines[0].removeprefix("subscribe ") for lines in EXAMPLES})


@pytest.mark.parametrize("lines", EXAMPLES, ids=lambda lines: lines[0])
def test_a_subscription_brings_every_topic_the_page_says(lines: list[str]) -> None:
    filter_ = lines[0].removeprefix("subscribe ")
    for line in lines[1:]:
        _, _, expected = line.strip().partition("=>")
        for text in expected.strip().split("  "):
            assert not text or brings(filter_, text.split(" ", 1)[0]), text


@pytest.mark.parametrize(
    ("filter_", "topic"),
    [
        ("$GT;20.0$SUM/+/t", "$GT;20$SUM/$AGGREGATE/t"),
        ("$MRP;5$RPT$AVG/a/+", "$AVG/a/x;y"),
        ("$WIN;60s;MAX/#", "$WIN;1m;MAX/a/b"),
        ("$SUM$CNTPPL/+/image", "$ERROR/$SUM$CNTPPL/room/image"),
        ("$GT;5/#", "$ERROR/$GT;5/a/b"),
        ("$MRP;5/a/+", "a/b"),
        ("$SYS/#", "$SYS/capabilities"),
        ("a/#", "a"),
    ],
)
def test_a_subscription_brings_what_is_its_own(filter_: str, topic: str) -> None:
    assert brings(filter_, topic)


@pytest.mark.parametrize(
    ("filter_", "topic"),
    [
        ("$AVG/+/t", "a/t"),
        ("$AVG/+/t", "$SUM/$AGGREGATE/t"),
        ("$GT;20$SUM/+/t", "$GT;30$SUM/$AGGREGATE/t"),
        ("$DAILYAVG/a/+", "$DAILYAVG/b/c"),
        ("$DAILYAVG/a/+", "$DAILYAVG/a"),
        ("$DAILYAVG/a/+", "$DAILYAVG/a/b/c"),
        ("$GT;5/a", "b"),
        ("$GT;5/a", "$ERROR/$GT;6/a"),
        ("$SYS/#", "a"),
        ("a/#", "$AVG/a"),
    ],
)
def test_a_subscription_does_not_bring_what_is_anothers(filter_: str, topic: str) -> None:
    assert not brings(filter_, topic)


@pytest.mark.parametrize("filter_", SUBSCRIPTIONS)
def test_what_is_made_of_one_message_comes_back_to_who_asked(filter_: str) -> None:
    plan = parse(filter_, ("CNTPPL",))
    assert plan is not None
    source = plan.sources[0].replace("+", "x").replace("#", "y/z")
    payload = b'{"sensor": {"temp": 31.5}, "power": 40, "state": "on", "readings": [7]}' if ";." in filter_ else b"31"
    computation = compute(plan)
    outputs = computation.on_message(source, payload, float("inf"), 0.0) + computation.on_timeout(86_400.0)
    assert all(brings(filter_, output.topic) for output in outputs)
