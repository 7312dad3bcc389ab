"""Which subscriptions are of the language, and what they mean."""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from moq.broker.operators import (
    KEYWORDS,
    Comparison,
    Naming,
    Operation,
    OperatorError,
    Plan,
    Rule,
    Spatial,
    Temporal,
    parse,
)
from moq.reasons import Reason
from tests.broker.operators.language import FUNCTIONS, damaged, has_operators, is_permitted, subscriptions


def planned(text: str) -> Plan:
    plan = parse(text, FUNCTIONS)
    assert plan is not None
    return plan


def refusal(text: str) -> OperatorError:
    with pytest.raises(OperatorError) as caught:
        parse(text, FUNCTIONS)
    return caught.value


# --- exactly the permitted language -------------------------------------------------------------------


@given(subscriptions)
@settings(max_examples=400)
def test_every_permitted_subscription_is_accepted(text: str) -> None:
    assert is_permitted(text)
    assert parse(text, FUNCTIONS) is not None


@given(damaged())
@settings(max_examples=1500)
@example("$GT;1$CNTPPL/a")
@example("$RPT/a")
@example("$SUM/a;b/+")
@example("$SUM/$AVG/+")
@example("$GT;%FF/a")
@example("$GT;1E-7535/a")
def test_the_parser_accepts_what_the_recogniser_does(text: str) -> None:
    if not has_operators(text):
        assert parse(text, FUNCTIONS) is None
    elif is_permitted(text):
        assert parse(text, FUNCTIONS) is not None
    else:
        assert 0 <= refusal(text).position <= len(text)


OPERATORS = ("$MRP;5", "$RPT", "$GT;1", "$SUM", "$DAILYAVG", "$CNTPPL")


def test_of_all_orders_of_up_to_five_operators_the_permitted_ones_are_accepted() -> None:
    accepted = 0
    for size in range(1, 6):
        for chosen in product(OPERATORS, repeat=size):
            text = "".join(chosen) + "/+/temp"
            if is_permitted(text):
                accepted += 1
                assert planned(text).sources == ("+/temp",)
            else:
                refusal(text)
    assert accepted == len(REACHABLE)


REACHABLE = [
    period + pipeline
    for period in ("", "$MRP;5")
    for pipeline in [
        *([""] if period else []),
        "$GT;1",
        "$CNTPPL",
        *(rule + "$DAILYAVG" + function for rule in ("", "$GT;1") for function in ("", "$CNTPPL")),
        *(
            name + outer + "$SUM" + inner + window + function
            for name in ("", "$RPT")
            for outer in ("", "$GT;1")
            for inner in ("", "$GT;1")
            for window in ("", "$DAILYAVG")
            for function in ("", "$CNTPPL")
        ),
    ]
    if (period + pipeline).count("$") <= 5
]


@given(st.text(st.characters(codec="utf-8"), max_size=40) | st.text("$;/%+#.AVGMRP0", max_size=20))
def test_any_text_is_a_plan_a_plain_filter_or_refused(text: str) -> None:
    with suppress(OperatorError):
        parse(text, FUNCTIONS)


# --- the canonical form -------------------------------------------------------------------------------


@given(subscriptions)
@settings(max_examples=400)
def test_a_plan_is_read_back_from_its_text(text: str) -> None:
    plan = planned(text)
    assert planned(str(plan)) == plan
    assert str(planned(str(plan))) == str(plan)


@given(subscriptions, subscriptions)
def test_plans_have_equal_keys_exactly_if_they_compute_the_same(one: str, other: str) -> None:
    first, second = planned(one), planned(other)
    same = all(
        getattr(first, part) == getattr(second, part)
        for part in ("levels", "naming", "outer", "spatial", "inner", "temporal", "function")
    )
    assert (first.key == second.key) == same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("$GT;20/a", "$GT;20.0/a"),
        ("$GT;20/a", "$GT;2e1/a"),
        ("$EQ;x y/a", "$EQ;x%20y/a"),
        ("$EQ;%c3%a9/a", "$EQ;é/a"),
        ("$WIN;60s;AVG/a", "$WIN;1m;AVG/a"),
        ("$AVG/b;a/t", "$AVG/a;b;a/t"),
        ("$RPT$AVG/a;b/t", "$AVG/a;b/t"),
        ("$MRP;100$AVG/+/t", "$AVG/+/t"),
        ("$MRP;0/a", "$MRP;7/a"),
    ],
)
def test_subscriptions_that_say_the_same_share_a_key(one: str, other: str) -> None:
    assert planned(one).key == planned(other).key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("$RPT$AVG/+/t", "$AVG/+/t"),
        ("$WIN;1h;AVG/a", "$HOURLYAVG/a"),
        ("$GT;1;.x/a", "$GT;1/a"),
        ("$EQ;on/a", "$EQ;On/a"),
        ("$AVG/a%3Bb/t", "$AVG/a;b/t"),
        ("$EQ;a;.b/t", "$EQ;a%3B.b/t"),
    ],
)
def test_subscriptions_that_differ_in_what_comes_out_have_keys_of_their_own(one: str, other: str) -> None:
    assert planned(one).key != planned(other).key


def test_a_packet_can_ask_for_the_names_of_participants_instead_of_the_text() -> None:
    assert parse("$AVG/+/t", naming=Naming.RPT) == planned("$RPT$AVG/+/t")
    assert parse("$DAILYAVG/+/t", naming=Naming.RPT) == planned("$DAILYAVG/+/t")


# --- what the parts are -------------------------------------------------------------------------------


def test_every_part_of_a_composite_finds_its_place() -> None:
    plan = planned("$MRP;100$RPT$GT;5$SUM$LT;9.50$DAILYAVG;.people$CNTPPL/+/image")
    assert plan == Plan(
        levels=("+", "image"),
        period=100,
        naming=Naming.RPT,
        outer=Rule(Comparison.GT, "5"),
        spatial=Spatial(Operation.SUM),
        inner=Rule(Comparison.LT, "9.5"),
        temporal=Temporal(Operation.AVG, 86_400, "DAILY", ("people",)),
        function="CNTPPL",
    )
    assert plan.key == "$RPT$GT;5$SUM$LT;9.5$DAILYAVG;.people$CNTPPL/+/image"
    assert plan.operators == "$GT;5$SUM$LT;9.5$DAILYAVG;.people$CNTPPL"
    assert plan.period_s == 1.0
    assert not plan.is_filter


def test_a_period_alone_leaves_a_plain_filter() -> None:
    plan = planned("$MRP;150/room/#")
    assert (plan.period_s, plan.key, plan.is_filter) == (1.5, "room/#", True)


def test_a_list_stands_for_the_topics_it_names() -> None:
    assert planned("$AVG/room1/sens2;sens1/temp").sources == ("room1/sens1/temp", "room1/sens2/temp")
    assert planned("$AVG/kitchen%2Ftemp;hall%2Fhum").sources == ("hall/hum", "kitchen/temp")
    assert planned("$AVG/a%3Bb;c/t").sources == ("a;b/t", "c/t")


def test_without_a_spatial_aggregate_a_semicolon_is_part_of_the_topic() -> None:
    assert planned("$GT;5/room1/a;b/100%").sources == ("room1/a;b/100%",)


def test_a_topic_may_begin_with_an_empty_level() -> None:
    assert planned("$CNTPPL//room1/image").sources == ("/room1/image",)


def test_values_are_unescaped() -> None:
    assert planned("$CONTAINS;a%2Fb%3Bc%24d%25e%2Bf%23/t").outer == Rule(Comparison.CONTAINS, "a/b;c$d%e+f#")


@pytest.mark.parametrize(
    "text", ["a/b", "", "#", "+/x", "$SYS/broker/load", "$SYS", "$share/g/a", "$", "$x/y", "$aws/z"]
)
def test_plain_filters_are_left_alone(text: str) -> None:
    assert parse(text) is None


# --- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem", "position"),
    [
        ("$DAILYAVG$SUM/+/temp", "a spatial aggregate is not permitted after a temporal one", 9),
        ("$SUM$DAILYAVG$GT;5/+/temp", "a rule is not permitted after a temporal aggregate", 13),
        ("$DAILYAVG$HOURLYMAX/t", "a second temporal aggregate", 9),
        ("$SUM$AVG/+", "a second spatial aggregate", 4),
        ("$SUM$GT;5$AVG/+", "a second spatial aggregate", 9),
        ("$GT;5$LT;9/t", "two rules in a row", 5),
        ("$SUM$GT;5$LT;9/+", "two rules in a row", 9),
        ("$GT;5$CNTPPL/image", "a rule on processed data needs an aggregate", 5),
        ("$CNTPPL$GT;5/image", "nothing is permitted after a processing function", 7),
        ("$GT;5$MRP;100/t", "$MRP is permitted only as the first operator", 5),
        ("$AVG$RPT/+", "$RPT is permitted only before what computes", 4),
        ("$RPT$DAILYAVG/+", "$RPT names the values of a spatial aggregate; there is none", 0),
        ("$AVGG/+/t", "there is no operator $AVGG", 0),
        ("$gt;5/t", "there is no operator $gt", 0),
        ("$GT;5$/t", "there is no operator $", 5),
        ("$GT/t", "$GT takes a value", 0),
        ("$GT;5;.a;.b/t", "$GT takes a value", 0),
        ("$GT;warm/t", "$GT compares numbers; 'warm' is none", 4),
        ("$LTE;nan/t", "$LTE compares numbers; 'nan' is none", 5),
        ("$GT;1e999/t", "$GT compares numbers; '1e999' is none", 4),
        ("$CONTAINS;/t", "$CONTAINS needs a text", 10),
        ("$EQ;100%/t", "'%' is no escape", 4),
        ("$EQ;%FF/t", "are not UTF-8", 4),
        ("$EQ;a+b/t", "'+' in a value is written %2B", 5),
        ("$GT;5;temp/t", "a path is written .name.name", 6),
        ("$GT;5;.a..b/t", "a path is written .name.name", 6),
        (f"$GT;5;{'.a' * 17}/t", "a path has at most 16 steps, not 17", 6),
        ("$GT;5;.x$SUM/+", "$GT reads the numbers of $SUM, which have no fields", 6),
        ("$SUM;.x$DAILYAVG/+", "$SUM reads the numbers of $DAILYAVG", 5),
        ("$MRP;65536/t", "a period is a whole number from 0 to 65535", 5),
        ("$MRP;01/t", "a period is a whole number", 5),
        ("$MRP/t", "$MRP takes one argument", 0),
        ("$WIN;30;AVG/t", "a window is a whole number of s, m, h or d", 5),
        ("$WIN;32d;AVG/t", "a window is a whole number of s, m, h or d", 5),
        ("$WIN;30s;MEAN/t", "a window is aggregated by COUNT, SUM, AVG, MIN, MAX", 9),
        ("$WIN;30s/t", "$WIN takes a window, an operation", 0),
        ("$DAILYAVG;.a;.b/t", "$DAILYAVG takes at most a path", 0),
        ("$CNTPPL;.a/t", "$CNTPPL takes no argument", 0),
        ("$AVG", "not followed by '/' and a topic filter", 4),
        ("$AVG/", "topic filter is empty", 5),
        ("$AVG/a/#/b", "has levels after '#'", 5),
        ("$AVG/$GT;5/t", "operators follow each other without '/'", 5),
        ("$AVG/a;b/c;d", "one level can be a list", 5),
        ("$AVG/a;b/+", "a list and a wildcard cannot be combined", 5),
        ("$AVG/x/a;;b", "has an empty item", 9),
        ("$AVG/a;+/x", "has a wildcard in it", 7),
        ("$AVG/a%2Fb/+", "no topic level is 'a/b'", 5),
        ("$AVG/x/%2B", "no topic level is '+'", 7),
        (f"$EQ;{'x' * 1025}/t", "a value has at most 1024 characters", 4),
        (f"$AVG/{';'.join(map(str, range(1001)))}", "a list has at most 1000 items, not 1001", 5),
    ],
)
def test_a_refusal_says_what_and_where(text: str, problem: str, position: int) -> None:
    error = refusal(text)
    assert problem in error.problem
    assert error.position == position
    assert error.problem in str(error)
    assert error.reason is Reason.TOPIC_FILTER_INVALID


def test_a_refusal_stays_short_however_long_the_filter() -> None:
    assert len(str(refusal(f"$AVG/{'x' * 60_000};"))) < 300


def test_built_in_operators_are_not_names_for_functions() -> None:
    assert {"GT", "AVG", "DAILYAVG", "QUARTERHOURLYCOUNT", "WIN", "MRP", "RPT", "SYS", "AGGREGATE"} <= KEYWORDS
