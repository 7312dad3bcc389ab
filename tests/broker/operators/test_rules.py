"""Rules: the typing of MQTT+ section 3.1, on payloads, on fields and on what aggregates make."""

from __future__ import annotations

import operator
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moq.broker.operators import RuleFilter, parse


def rule(text: str) -> RuleFilter:
    plan = parse(f"{text}/t")
    assert plan is not None
    assert plan.outer is not None
    return RuleFilter(plan.outer)


@pytest.mark.parametrize(
    ("text", "payload", "expected"),
    [
        ("$EQ;20", b"20.0", True),
        ("$EQ;20", b"21", False),
        ("$NEQ;20", b"21", True),
        ("$NEQ;20", b"2e1", False),
        ("$GT;20", b"20", False),
        ("$GT;20", b"20.0001", True),
        ("$GTE;20", b"20", True),
        ("$LT;20", b"-300", True),
        ("$LTE;20", b" 20\n", True),
        ("$LTE;20", b"20.5", False),
        ("$EQ;9007199254740993", b"9007199254740992", False),
        ("$EQ;0.1", b"0.10", True),
    ],
)
def test_numbers_are_compared_exactly(text: str, payload: bytes, expected: bool) -> None:
    assert rule(text).matches(payload) is expected


@pytest.mark.parametrize("comparison", ["EQ", "NEQ", "GT", "GTE", "LT", "LTE"])
@pytest.mark.parametrize("payload", [b"warm", b"", b"nan", b"inf", b"\xff\xd8", b'{"t": 20}', b"20 C"])
def test_data_that_is_no_number_never_satisfies_a_numeric_rule(comparison: str, payload: bytes) -> None:
    assert not rule(f"${comparison};20").matches(payload)


@pytest.mark.parametrize(
    ("text", "payload", "expected"),
    [
        ("$EQ;on", b"on", True),
        ("$EQ;on", b"On", False),
        ("$NEQ;on", b"off", True),
        ("$NEQ;on", b"on", False),
        ("$NEQ;on", b"5", True),
        ("$NEQ;on", b"\xff\xd8", False),
        ("$EQ;", b"", True),
        ("$NEQ;", b"", False),
        ("$EQ;007", b"7", False),
        ("$EQ;007", b"007", True),
        ("$CONTAINS;status%2Fok", b"<x>status/ok</x>", True),
        ("$CONTAINS;ok", b"not fine", False),
        ("$CONTAINS;é", "café".encode(), True),
        ("$CONTAINS;ok", b"\xff\xd8ok", True),
        ("$CONTAINS;23", b"12345", True),
    ],
)
def test_text_is_compared_as_it_is(text: str, payload: bytes, expected: bool) -> None:
    assert rule(text).matches(payload) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$GT;30;.sensor.temp", True),
        ("$GT;32;.sensor.temp", False),
        ("$EQ;31.5;.sensor.temp", True),
        ("$EQ;31.5;.label", False),
        ("$EQ;true;.on", True),
        ("$NEQ;x;.label", True),
        ("$NEQ;x;.absent", False),
        ("$CONTAINS;1.5;.label", True),
        ("$CONTAINS;1.5;.sensor.temp", True),
        ("$EQ;b;.list.1", True),
        ("$EQ;b;.list", False),
        ("$NEQ;x;.half", False),
    ],
)
def test_a_rule_may_speak_of_a_field(text: str, expected: bool) -> None:
    payload = b'{"sensor": {"temp": 31.5}, "label": "31.5", "on": true, "list": ["a", "b"], "half": "\\ud800"}'
    assert rule(text).matches(payload) is expected


numbers = st.decimals(-1000, 1000, places=2)


@given(numbers, numbers)
def test_each_comparison_is_the_one_it_is_called(value: Decimal, data: Decimal) -> None:
    named = {"EQ": operator.eq, "NEQ": operator.ne, "GT": operator.gt, "GTE": operator.ge}
    named |= {"LT": operator.lt, "LTE": operator.le}
    for name, compares in named.items():
        assert rule(f"${name};{value}").matches(str(data).encode()) is compares(data, value)
        assert rule(f"${name};{value}").accepts(data) is compares(data, value)


def test_a_rule_about_text_reads_what_an_aggregate_would_publish() -> None:
    assert rule("$CONTAINS;.5").accepts(Decimal("2.50"))
    assert not rule("$EQ;on").accepts(Decimal(1))
    assert rule("$NEQ;on").accepts(Decimal(1))
