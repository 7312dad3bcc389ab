"""Temporal aggregates: windows of the calendar, one result each, through restarts."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from moq.broker.operators import Calendar, Computation, Operation, Output, Settings, compute, parse
from tests.broker.operators.brute import aggregate, numeric

NEVER = float("inf")
DAY = 86_400


def computation(text: str, calendar: Calendar | None = None, max_topics: int = 10_000) -> Computation:
    plan = parse(text, ("CNTPPL",))
    assert plan is not None
    return compute(plan, Settings(calendar=calendar or Calendar(), max_topics=max_topics))


def said(computed: Computation, topic: str, payload: bytes, now: float) -> list[Output]:
    return computed.on_message(topic, payload, NEVER, now)


# --- against brute force ------------------------------------------------------------------------------

payloads = st.decimals(-100, 100, places=2).map(lambda value: str(value).encode()) | st.just(b"error")
histories = st.lists(
    st.tuples(st.sampled_from("abc"), payloads, st.floats(0, 25), st.sampled_from(["", "timer", "restart"])),
    max_size=50,
)


@pytest.mark.parametrize("operation", list(Operation))
@settings(max_examples=60)
@given(histories, st.integers(0, 16 * 10**9).map(lambda number: number / 8), st.integers(-14, 14))
def test_windows_equal_brute_force_whatever_the_timers_and_restarts(
    operation: str, history: list[tuple[str, bytes, float, str]], epoch: float, offset: int
) -> None:
    calendar = Calendar(epoch, offset * 900)
    text = f"$WIN;10s;{operation}/room/+"
    computed = computation(text, calendar)
    outputs: list[Output] = []
    by_window: dict[tuple[int, str], list[Fraction]] = {}
    now = 0.0
    for level, payload, pause, event in history:
        now += pause
        if event == "timer":
            outputs += computed.on_timeout(now)
        elif event == "restart" and (record := computed.to_record()) is not None:
            computed = computation(text, calendar)
            computed.restore(pickle.loads(pickle.dumps(record)), now)
        outputs += computed.on_message(f"room/{level}", payload, NEVER, now)
        if (value := numeric(payload)) is not None:
            by_window.setdefault((calendar.window_at(now, 10), level), []).append(value)
    outputs += computed.on_timeout(now + 10)
    assert [(output.topic, Fraction(output.payload.decode())) for output in outputs] == [
        (f"{text.partition('/')[0]}/room/{level}", aggregate(operation, values))
        for (_, level), values in sorted(by_window.items())
    ]
    assert computed.next_timeout() is None


@pytest.mark.parametrize("operation", list(Operation))
@settings(max_examples=40)
@given(histories)
def test_a_spatial_aggregate_of_windows_equals_brute_force(
    operation: str, history: list[tuple[str, bytes, float, str]]
) -> None:
    computed = computation(f"${operation}$GT;0$WIN;10s;MAX/+")
    outputs: list[Output] = []
    by_window: dict[int, dict[str, Fraction]] = {}
    now = 0.0
    for topic, payload, pause, _ in history:
        now += pause
        outputs += said(computed, topic, payload, now)
        if (value := numeric(payload)) is not None:
            window = by_window.setdefault(int(now // 10), {})
            window[topic] = max(value, window.get(topic, value))
    outputs += computed.on_timeout(now + 10)
    above = [[value for value in window.values() if value > 0] for _, window in sorted(by_window.items())]
    assert [Fraction(output.payload.decode()) for output in outputs] == [
        aggregate(operation, values) for values in above if values
    ]


# --- the calendar -------------------------------------------------------------------------------------


def test_a_window_ends_on_the_clock_and_the_next_begins_there() -> None:
    computed = computation("$WIN;30s;COUNT/t", Calendar(epoch=1_000_000_005.0))
    assert computed.next_timeout() is None
    said(computed, "t", b"1", 0.0)
    assert computed.next_timeout() == 15.0
    assert computed.on_timeout(14.999) == []
    assert said(computed, "t", b"1", 15.0) == [("$WIN;30s;COUNT/t", b"1")]
    assert computed.on_timeout(45.0) == [("$WIN;30s;COUNT/t", b"1")]


def test_empty_windows_say_nothing_and_set_no_timer() -> None:
    computed = computation("$HOURLYSUM/t")
    said(computed, "t", b"not a number", 10.0)
    assert computed.next_timeout() is None
    said(computed, "t", b"1", 10.0)
    computed.on_timeout(3600.0)
    assert computed.next_timeout() is None
    assert computed.on_timeout(10 * 3600.0) == []


@pytest.mark.parametrize(
    ("keyword", "period"),
    [("DAILY", timedelta(days=1)), ("HOURLY", timedelta(hours=1)), ("QUARTERHOURLY", timedelta(minutes=15))],
)
@given(
    st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)),
    st.integers(-14 * 4, 14 * 4),
)
def test_windows_are_those_of_the_wall_clock(keyword: str, period: timedelta, when: datetime, quarters: int) -> None:
    zone = timezone(timedelta(minutes=15 * quarters))
    local = when.replace(microsecond=0, tzinfo=zone)
    started = datetime(1999, 12, 31, tzinfo=UTC)
    computed = computation(f"${keyword}SUM/t", Calendar(started.timestamp(), 900 * quarters))
    said(computed, "t", b"1", (local - started).total_seconds())
    midnight = local.replace(hour=0, minute=0, second=0)
    end = midnight + ((local - midnight) // period + 1) * period
    assert computed.next_timeout() == (end - started).total_seconds()


@given(st.floats(0, 2e9), st.sampled_from([0, -3600, 19_800]), st.floats(0, 1e7), st.sampled_from([1, 7, 900, DAY]))
@example(49.54, -3600, 199_027.0, DAY)  # rounding puts this window's end into the window itself
def test_the_deadline_of_a_window_closes_it_and_begins_the_next(
    epoch: float, offset: int, now: float, window_s: int
) -> None:
    computed = computation(f"$WIN;{window_s}s;COUNT/t", Calendar(epoch, offset))
    for _ in range(3):
        said(computed, "t", b"1", now)
        deadline = computed.next_timeout()
        assert deadline is not None
        assert now <= deadline <= now + 2 * window_s
        assert computed.on_timeout(deadline) == [(f"{computed.plan.operators}/t", b"1")]
        now = deadline


# --- what comes out -----------------------------------------------------------------------------------


def test_the_daily_average_is_published_on_the_topic_subscribed_to() -> None:
    computed = computation("$DAILYAVG/sens123/currcons")
    for hour, payload in enumerate([b"1", b"2", b"4"]):
        said(computed, "sens123/currcons", payload, hour * 3600.0)
    assert computed.on_timeout(DAY) == [("$DAILYAVG/sens123/currcons", b"2.3333333333333333")]


def test_each_topic_of_a_wildcard_has_its_own_value() -> None:
    computed = computation("$GT;1$HOURLYMAX/+/temp")
    said(computed, "b/temp", b"7", 0.0)
    said(computed, "a/temp", b"5", 0.0)
    said(computed, "c/temp", b"1", 0.0)
    assert computed.on_timeout(3600.0) == [("$GT;1$HOURLYMAX/a/temp", b"5"), ("$GT;1$HOURLYMAX/b/temp", b"7")]


def test_daily_averages_are_summed_when_the_day_is_over() -> None:
    computed = computation("$GT;3$SUM$GT;2$DAILYAVG/+/temp")
    for topic, payload in [("a/temp", b"2"), ("a/temp", b"4"), ("b/temp", b"2"), ("c/temp", b"2.5")]:
        assert said(computed, topic, payload, 100.0) == []
    assert computed.on_timeout(DAY) == [("$GT;3$SUM$GT;2$DAILYAVG/$AGGREGATE/temp", b"5.5")]


def test_participants_of_a_window_are_those_that_passed_the_rule() -> None:
    computed = computation("$RPT$COUNT$GT;2$DAILYAVG/+/temp")
    for topic, payload in [("c/temp", b"3"), ("a/temp", b"4"), ("b/temp", b"2")]:
        said(computed, topic, payload, 100.0)
    assert computed.on_timeout(DAY) == [("$COUNT$GT;2$DAILYAVG/a;c/temp", b"2")]


def test_an_outer_rule_can_hold_back_a_whole_window() -> None:
    computed = computation("$GT;100$SUM$DAILYAVG/+/temp")
    said(computed, "a/temp", b"1", 0.0)
    assert computed.on_timeout(DAY) == []


def test_a_spatial_aggregate_of_one_topic_equals_the_window_alone() -> None:
    alone, aggregated = computation("$DAILYAVG/t"), computation("$SUM$DAILYAVG/t")
    for payload in (b"1", b"2"):
        said(alone, "t", payload, 0.0)
        said(aggregated, "t", payload, 0.0)
    assert alone.on_timeout(DAY)[0].payload == aggregated.on_timeout(DAY)[0].payload == b"1.5"


def test_people_counted_in_images_are_averaged_by_the_day() -> None:
    computed = computation("$SUM$DAILYAVG$CNTPPL/+/image")
    for topic, payload in [("1/image", b"12"), ("1/image", b"8"), ("2/image", b"3")]:
        said(computed, topic, payload, 0.0)
    assert computed.on_timeout(DAY) == [("$SUM$DAILYAVG$CNTPPL/$AGGREGATE/image", b"13")]


def test_a_message_that_has_expired_is_not_counted_and_retained_ones_are_no_samples() -> None:
    computed = computation("$HOURLYCOUNT/t")
    computed.on_message("t", b"1", 5.0, 5.0)
    computed.prime("t", b"1", NEVER, 5.0)
    assert len(computed) == 0


def test_topics_past_the_bound_are_left_out_of_the_window() -> None:
    computed = computation("$HOURLYSUM/+", max_topics=1)
    said(computed, "a", b"1", 0.0)
    said(computed, "b", b"2", 0.0)
    said(computed, "a", b"4", 0.0)
    assert (computed.left_out, len(computed)) == (1, 1)
    assert computed.on_timeout(3600.0) == [("$HOURLYSUM/a", b"5")]


def test_sums_are_exact_and_take_constant_memory() -> None:
    computed = computation("$HOURLYSUM/t")
    for payload in (b"1e300", b"0.1", b"-1e300", b"1e-300", b"0.2", b"-1e-300") * 200:
        said(computed, "t", payload, 0.0)
    record = computed.to_record()
    assert record is not None
    assert len(pickle.dumps(record)) < 1_500
    assert computed.on_timeout(3600.0)[0].payload == b"60"


# --- restarts -----------------------------------------------------------------------------------------


def test_a_window_that_ended_while_the_broker_was_away_is_published_when_it_is_back() -> None:
    before = computation("$HOURLYSUM/t", Calendar(epoch=7200.0))
    said(before, "t", b"5", 10.0)
    record = before.to_record()
    assert record is not None
    after = computation("$HOURLYSUM/t", Calendar(epoch=36_000.0))
    after.restore(record, 3.0)
    deadline = after.next_timeout()
    assert deadline is not None
    assert deadline < 3.0
    assert said(after, "t", b"1", 3.0) == [("$HOURLYSUM/t", b"5")]
    assert after.next_timeout() == 3600.0


def test_a_window_of_a_clock_that_was_set_back_counts_in_the_current_one() -> None:
    before = computation("$HOURLYSUM/t", Calendar(epoch=1e9))
    said(before, "t", b"5", 0.0)
    record = before.to_record()
    assert record is not None
    after = computation("$HOURLYSUM/t")
    after.restore(record, 0.0)
    said(after, "t", b"1", 10.0)
    assert after.on_timeout(3600.0) == [("$HOURLYSUM/t", b"6")]


def test_the_version_tells_when_there_is_something_new_to_keep() -> None:
    computed = computation("$HOURLYSUM/t")
    assert computed.to_record() is None
    versions = [computed.version]
    said(computed, "t", b"1", 0.0)
    versions.append(computed.version)
    said(computed, "t", b"no number", 0.0)
    assert computed.version == versions[-1]
    computed.on_timeout(3600.0)
    versions.append(computed.version)
    assert len(set(versions)) == 3
    assert computed.to_record() is None
