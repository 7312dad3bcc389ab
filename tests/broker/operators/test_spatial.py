"""Spatial aggregates: the latest values of many topics, recomputed when one changes."""

from __future__ import annotations

import pickle
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moq.broker.operators import Computation, Naming, Operation, Output, Settings, compute, parse
from moq.broker.operators.members import Members
from tests.broker.operators.brute import aggregate, numeric

NEVER = float("inf")


def computation(text: str, **settings_: float) -> Computation:
    plan = parse(text, ("CNTPPL",))
    assert plan is not None
    return compute(plan, Settings(**settings_))  # type: ignore[arg-type]  # each test names settings with their types


def said(
    computed: Computation, topic: str, payload: bytes, expires_at: float = NEVER, now: float = 0.0
) -> list[Output]:
    return computed.on_message(topic, payload, expires_at, now)


# --- against brute force ------------------------------------------------------------------------------

payloads = st.one_of(
    st.decimals(-1000, 1000, places=3).map(lambda value: str(value).encode()),
    st.integers(-9, 9).map(lambda value: str(value).encode()),
    st.sampled_from([b"error", b"", b"9999999999999999.5", b"0.0000001"]),
)
histories = st.lists(
    st.tuples(st.sampled_from("abcdef"), payloads, st.none() | st.integers(1, 12), st.integers(0, 4)), max_size=60
)


class Slow:
    """What the paper says, by looking at every topic each time."""

    def __init__(self, operation: str, above: Fraction | None) -> None:
        self._operation = operation
        self._above = above
        self._last: dict[str, tuple[Fraction | None, float]] = {}

    def on_message(
        self, topic: str, payload: bytes, expires_at: float, now: float
    ) -> tuple[list[str], Fraction] | None:
        before = topic in self._taking_part(now)
        self._last[topic] = (numeric(payload), expires_at)
        taking_part = self._taking_part(now)
        if not taking_part or not (before or topic in taking_part):
            return None
        return sorted(taking_part), aggregate(self._operation, taking_part.values())

    def _taking_part(self, now: float) -> dict[str, Fraction]:
        return {
            topic: value
            for topic, (value, expires_at) in self._last.items()
            if value is not None and expires_at > now and (self._above is None or value > self._above)
        }


@pytest.mark.parametrize("operation", list(Operation))
@pytest.mark.parametrize("rule", ["", "$GT;-5"])
@settings(max_examples=60)
@given(histories)
def test_the_incremental_aggregate_equals_brute_force(
    operation: str, rule: str, history: list[tuple[str, bytes, int | None, int]]
) -> None:
    plan = parse(f"${operation}{rule}/room/+/t", naming=Naming.RPT)
    assert plan is not None
    computed = compute(plan, Settings(default_ttl_s=7))
    slow = Slow(operation, Fraction(-5) if rule else None)
    now = 0.0
    for level, payload, ttl, pause in history:
        now += pause
        expires_at = NEVER if ttl is None else now + ttl
        outputs = computed.on_message(f"room/{level}/t", payload, expires_at, now)
        expected = slow.on_message(level, payload, now + 7 if ttl is None else expires_at, now)
        if expected is None:
            assert outputs == []
        else:
            topics, value = expected
            assert outputs[0].topic == f"${operation}{rule}/room/{';'.join(topics)}/t"
            assert [Fraction(output.payload.decode()) for output in outputs] == [value]


@given(st.lists(st.tuples(st.integers(0, 30), st.decimals(-1, 1, places=20)), min_size=1, max_size=80))
def test_members_that_keep_their_order_know_it_at_any_time(changes: list[tuple[int, Decimal]]) -> None:
    members = Members(Operation.SUM, 20, keeps_order=True)
    known: dict[str, Decimal] = {}
    for number, value in changes:
        topic = str(number)
        if value < 0:
            assert members.drop(topic) is (known.pop(topic, None) is not None)
        elif members.put(topic, value, NEVER):
            known[topic] = value
        else:
            assert len(known) == 20
        assert list(members.topics) == sorted(known)


# --- numerics -----------------------------------------------------------------------------------------


def test_a_sum_does_not_drift_however_often_values_come_and_go() -> None:
    computed = computation("$SUM/+")
    said(computed, "steady", b"0.1")
    for turn in range(20_000):
        said(computed, "huge", b"1e300" if turn % 2 else b"-1e300")
        said(computed, "tiny", b"1e-300")
        said(computed, "huge", b"away")
    said(computed, "tiny", b"away")
    assert said(computed, "other", b"0.2")[0].payload == b"0.3"


@pytest.mark.parametrize("operation", ["SUM", "MIN", "MAX"])
def test_all_34_digits_of_a_value_come_out_again(operation: str) -> None:
    digits = b"1234567890123456789012345678901.234"
    assert said(computation(f"${operation}/t"), "t", digits)[0].payload == digits


@pytest.mark.parametrize("operation", list(Operation))
def test_memory_grows_with_topics_and_not_with_messages(operation: Operation) -> None:
    members = Members(operation, 1_000)

    def size_after(messages: int) -> int:
        for turn in range(messages):
            members.put(str(turn % 100), Decimal(turn), float(turn))
        return len(pickle.dumps(members))

    size = size_after(100)
    assert size_after(10_000) < 3 * size


# --- the paper's examples -----------------------------------------------------------------------------


def test_the_average_of_two_sensors_follows_each_message() -> None:
    computed = computation("$AVG/room1/+/temp")
    topic = "$AVG/room1/$AGGREGATE/temp"
    assert said(computed, "room1/sens1/temp", b"20") == [(topic, b"20")]
    assert said(computed, "room1/sens2/temp", b"21") == [(topic, b"20.5")]
    assert said(computed, "room1/sens1/temp", b"24") == [(topic, b"22.5")]


def test_participating_topics_are_named_while_they_are_valid() -> None:
    computed = computation("$RPT$AVG/room1/+/temp")
    said(computed, "room1/sens2/temp", b"20", expires_at=10)
    assert said(computed, "room1/sens1/temp", b"22", now=9) == [("$AVG/room1/sens1;sens2/temp", b"21")]
    assert said(computed, "room1/sens1/temp", b"22", now=10) == [("$AVG/room1/sens1/temp", b"22")]


def test_a_list_is_answered_with_those_of_it_that_take_part() -> None:
    computed = computation("$AVG/room1/sens2;sens1/temp")
    assert said(computed, "room1/sens1/temp", b"20") == [("$AVG/room1/sens1/temp", b"20")]
    assert said(computed, "room1/sens2/temp", b"30") == [("$AVG/room1/sens1;sens2/temp", b"25")]


def test_a_value_without_an_expiry_counts_for_the_configured_time() -> None:
    computed = computation("$COUNT/+", default_ttl_s=60.0)
    said(computed, "a", b"1")
    assert said(computed, "b", b"1", now=59.9)[0].payload == b"2"
    assert said(computed, "b", b"1", now=60.0)[0].payload == b"1"


def test_a_single_topic_is_an_aggregate_of_one() -> None:
    assert said(computation("$SUM/room1/temp"), "room1/temp", b"20.50") == [("$SUM/room1/temp", b"20.5")]


def test_a_topic_whose_latest_value_is_no_number_leaves() -> None:
    computed = computation("$SUM/+")
    said(computed, "a", b"1")
    said(computed, "b", b"2")
    assert said(computed, "a", b"broken") == [("$SUM/$AGGREGATE", b"2")]
    assert said(computed, "a", b"broken") == []
    assert said(computed, "b", b"broken") == []


def test_a_message_that_has_expired_on_arrival_ends_the_part_of_its_topic() -> None:
    computed = computation("$SUM/+")
    said(computed, "a", b"1")
    said(computed, "b", b"2")
    assert said(computed, "a", b"7", expires_at=5, now=5) == [("$SUM/$AGGREGATE", b"2")]


def test_a_rule_in_front_holds_values_back() -> None:
    computed = computation("$GT;5$SUM/+")
    assert said(computed, "a", b"5") == []
    assert said(computed, "b", b"0.1") == [("$GT;5$SUM/$AGGREGATE", b"5.1")]


def test_a_rule_behind_decides_who_takes_part() -> None:
    computed = computation("$SUM$GT;5/+")
    said(computed, "a", b"6")
    assert said(computed, "b", b"7") == [("$SUM$GT;5/$AGGREGATE", b"13")]
    assert said(computed, "a", b"5") == [("$SUM$GT;5/$AGGREGATE", b"7")]
    assert said(computed, "a", b"4") == []


def test_fields_are_chosen_and_aggregated_independently() -> None:
    computed = computation("$SUM;.power$EQ;on;.state/+")
    said(computed, "a", b'{"state": "on", "power": 40}')
    said(computed, "b", b'{"state": "off", "power": 500}')
    assert said(computed, "c", b'{"state": "on", "power": 2.5}')[0].payload == b"42.5"


def test_processed_values_are_aggregated_under_the_name_of_the_function() -> None:
    computed = computation("$SUM$CNTPPL/+/image")
    said(computed, "hall/image", b"3")
    assert said(computed, "yard/image", b"4") == [("$SUM$CNTPPL/$AGGREGATE/image", b"7")]


def test_retained_values_take_part_without_being_news() -> None:
    computed = computation("$SUM/+")
    computed.prime("a", b"1", NEVER, 0.0)
    assert said(computed, "b", b"2")[0].payload == b"3"


def test_topics_past_the_bound_are_left_out_until_there_is_room() -> None:
    computed = computation("$SUM/+", max_topics=2)
    said(computed, "a", b"1")
    said(computed, "b", b"2", expires_at=10)
    assert said(computed, "c", b"4") == []
    assert (computed.left_out, len(computed)) == (1, 2)
    assert said(computed, "a", b"8")[0].payload == b"10"
    assert said(computed, "c", b"4", now=10)[0].payload == b"12"


# --- names --------------------------------------------------------------------------------------------


def test_every_wildcard_gives_way_to_the_keyword() -> None:
    assert said(computation("$MAX/+/x/+/#"), "a/x/b/c/d", b"1")[0].topic == "$MAX/$AGGREGATE/x/$AGGREGATE/$AGGREGATE"


def test_lists_of_several_wildcards_run_in_step() -> None:
    computed = computation("$RPT$SUM/+/x/#")
    said(computed, "a/x/1/2", b"1")
    said(computed, "b/x", b"1")
    assert said(computed, "a/x/3;4%", b"1")[0].topic == "$SUM/a;a;b/x/1%2F2;3%3B4%25;"


def test_a_list_of_participants_too_long_for_a_topic_gives_way_to_the_keyword() -> None:
    computed = computation("$RPT$COUNT/+", max_name_bytes=len("$COUNT/aaaa;bbbb"))
    said(computed, "aaaa", b"1")
    assert said(computed, "bbbb", b"1")[0].topic == "$COUNT/aaaa;bbbb"
    assert said(computed, "cccc", b"1")[0].topic == "$COUNT/$AGGREGATE"


names = st.text("abé;% $.", min_size=1, max_size=4)


@given(st.sets(names, min_size=2, max_size=5), st.sampled_from(["+", "#"]))
def test_the_name_of_participants_is_itself_a_subscription_to_them(levels: set[str], wildcard: str) -> None:
    computed = computation(f"$RPT$SUM/room/{wildcard}")
    for level in levels:
        outputs = said(computed, f"room/{level}", b"1")
    plan = parse(outputs[0].topic)
    assert plan is not None
    assert set(plan.sources) == {f"room/{level}" for level in levels}
