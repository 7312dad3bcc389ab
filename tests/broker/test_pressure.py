"""The levels of the memory watermark, and what a broker above it does to those who publish."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moq.broker.link import CONTROL
from moq.broker.pressure import (
    ANSWERS_PER_TURN,
    EASES,
    PUBLISHERS_EVERY_TURNS,
    PUBLISHERS_PER_TURN,
    RISES,
    Level,
    Pressure,
    next_level,
)
from moq.config import Limits
from moq.wire import PubReq, Register, encode, mqtt
from tests.broker.desk import PERSISTENT, Desk
from tests.broker.mqtt.scripted import connect

levels = st.sampled_from(Level)
ratios = st.floats(0.0, 3.0)
LIMITS = Limits()
WATERMARK = LIMITS.memory_watermark_bytes


def press(desk: Desk, ratio: float) -> Pressure:
    """The broker holds so much of its watermark."""
    pressure = desk.broker.environment.pressure
    pressure.update(int(ratio * WATERMARK), 0)
    return pressure


# --- levels -------------------------------------------------------------------------------------------


@given(levels, ratios)
def test_a_level_is_never_below_what_is_held_asks_for(level: Level, ratio: float) -> None:
    assert next_level(level, ratio) >= sum(ratio > mark for mark in RISES)


@given(levels, ratios)
def test_a_level_is_never_kept_well_below_where_it_began(level: Level, ratio: float) -> None:
    after = next_level(level, ratio)
    assert after == Level.CALM or ratio > RISES[after - 1] * EASES


@given(levels, ratios)
def test_a_level_settles_at_once(level: Level, ratio: float) -> None:
    after = next_level(level, ratio)
    assert next_level(after, ratio) == after


@given(levels, ratios, ratios)
def test_more_held_is_never_a_lower_level(level: Level, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert next_level(level, low) <= next_level(level, high)


@given(st.sampled_from(RISES), st.lists(st.booleans(), max_size=50))
def test_a_level_does_not_flutter_at_its_edge(mark: float, steps: list[bool]) -> None:
    level = next_level(Level.CALM, mark + 0.001)
    assert all(next_level(level, mark + (0.001 if step else -0.001)) == level for step in steps)


def test_the_watermark_slows_then_drops_then_refuses_and_recovers() -> None:
    pressure = Pressure(Limits(memory_watermark_bytes=1000))
    seen = []
    for held in (1000, 1001, 1251, 1501, 1400, 1300, 1100, 950, 899):
        pressure.update(held, 0)
        seen.append((pressure.slows, pressure.drops, pressure.refuses))
    slow, drop, refuse = (True, False, False), (True, True, False), (True, True, True)
    assert seen == [(False,) * 3, slow, drop, refuse, refuse, drop, slow, slow, (False,) * 3]


def test_a_store_that_is_behind_slows_those_who_use_it_and_no_more() -> None:
    pressure = Pressure(Limits(max_unstored_changes=10))
    assert not pressure.update(0, 10)
    assert pressure.update(0, 11)
    assert not pressure.update(0, 1000)
    assert (pressure.slows_storing, pressure.slows, pressure.drops) == (True, False, False)
    assert not pressure.update(0, 10)
    assert pressure.update(0, 9)
    assert not pressure.slows_storing


def test_a_store_that_is_far_behind_lets_no_publisher_have_a_turn() -> None:
    pressure = Pressure(Limits(max_unstored_changes=10))
    pressure.update(0, 21)
    publishers, debtors = slowed(pressure, 3), slowed(pressure, 3, awaited=True)
    for turn in range(100):
        pressure.turn(turn)
    assert [lane.reads for lane in publishers] == [0] * 3
    assert all(lane.reads for lane in debtors)
    pressure.update(0, 9)
    pressure.turn(101)
    assert [lane.reads for lane in publishers] == [1] * 3


@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 30)), max_size=50))
def test_an_update_says_whether_it_changed_the_level(samples: list[tuple[int, int]]) -> None:
    pressure = Pressure(Limits(memory_watermark_bytes=1000, max_unstored_changes=10))
    for held, unstored in samples:
        before = pressure.level
        assert pressure.update(held, unstored) is (pressure.level is not before)
        assert pressure.slows_storing is (pressure.level >= Level.SLOWING)
        assert pressure.slows <= pressure.slows_storing


# --- turns --------------------------------------------------------------------------------------------


class Lane:
    """A connection with one lane."""

    def __init__(self, *, awaited: bool = False) -> None:
        self.awaited = awaited
        self.reads = 0

    def is_awaited(self, lane_id: int) -> bool:
        return self.awaited

    def read_on(self, lane_id: int, now: float) -> None:
        self.reads += 1


def slowed(pressure: Pressure, count: int, *, awaited: bool = False) -> list[Lane]:
    lanes = [Lane(awaited=awaited) for _ in range(count)]
    for lane in lanes:
        pressure.slow(lane, CONTROL)
    return lanes


def at(ratio: float) -> Pressure:
    pressure = Pressure(LIMITS)
    pressure.update(int(ratio * WATERMARK), 0)
    return pressure


def test_slowed_publishers_are_read_in_turn() -> None:
    pressure = at(1.1)
    lanes = slowed(pressure, 3)
    for turn in range(1, 4):
        pressure.turn(0.0)
        assert [lane.reads for lane in lanes] == [1] * turn + [0] * (3 - turn)
    assert pressure.slowed == 0


def test_those_who_owe_acknowledgements_are_read_before_the_rest() -> None:
    pressure = at(1.1)
    publishers = slowed(pressure, 50)
    debtors = slowed(pressure, ANSWERS_PER_TURN, awaited=True)
    pressure.turn(0.0)
    assert all(lane.reads for lane in debtors)
    assert sum(lane.reads for lane in publishers) == PUBLISHERS_PER_TURN


def test_while_connections_are_refused_publishers_are_read_rarely_and_debtors_as_before() -> None:
    pressure = at(1.6)
    (publisher,), (debtor,) = slowed(pressure, 1), slowed(pressure, 1, awaited=True)
    pressure.turn(0.0)
    assert (publisher.reads, debtor.reads) == (0, 1)
    for _ in range(PUBLISHERS_EVERY_TURNS):
        pressure.turn(0.0)
    assert publisher.reads == 1


def test_all_are_read_again_once_the_level_is_calm() -> None:
    pressure = at(1.6)
    lanes = slowed(pressure, 1000)
    pressure.update(0, 0)
    pressure.turn(0.0)
    assert all(lane.reads == 1 for lane in lanes)
    assert pressure.slowed == 0


def test_a_lane_that_is_gone_has_no_turn() -> None:
    pressure = at(1.1)
    (lane,) = slowed(pressure, 1)
    pressure.forget(lane, CONTROL)
    pressure.turn(0.0)
    assert lane.reads == 0


# --- what clients notice ------------------------------------------------------------------------------


def test_a_publisher_is_not_read_after_each_read_that_brought_messages() -> None:
    desk = Desk()
    publisher = connect(desk, "publisher")
    pressure = press(desk, 1.1)
    publisher.publish("a")
    assert publisher.link.paused == {CONTROL}
    pressure.turn(desk.now)
    assert publisher.link.paused == set()
    publisher.publish("a")
    assert publisher.link.paused == {CONTROL}
    press(desk, 0.0).turn(desk.now)
    publisher.publish("a")
    assert publisher.link.paused == set()


def test_a_subscriber_is_read_whatever_is_held() -> None:
    desk = Desk()
    subscriber, publisher = connect(desk, "subscriber"), connect(desk, "publisher")
    subscriber.subscribe("a", 1)
    publisher.publish("a", qos=1, id=1)
    press(desk, 2.0)
    (message,) = subscriber.messages()
    subscriber.send(mqtt.PubAck(message.packet_id), mqtt.PingReq())
    assert subscriber.take(mqtt.PingResp)
    assert subscriber.link.paused == set()


def test_while_the_store_is_behind_only_those_who_use_it_wait() -> None:
    desk = Desk(Limits(max_unstored_changes=1))
    desk.connect("keeper", settings=PERSISTENT).subscribe("kept", qos=1)
    storing, passing = desk.connect("storing"), desk.connect("passing")
    storing.register("kept", alias=1)
    passing.register("not kept", alias=1)
    desk.broker.environment.pressure.update(0, 2)
    storing.publish(1, b"x", qos=1, id=1)
    passing.publish(1, b"x", qos=1, id=1)
    assert (storing.link.paused, passing.link.paused) == ({CONTROL}, set())


def test_only_the_lane_that_brought_messages_waits_and_control_goes_on() -> None:
    desk = Desk()
    publisher = desk.connect("publisher")
    publisher.register("a", alias=1)
    press(desk, 1.1)
    publisher.publish(1, lane=2)
    assert publisher.link.paused == {2}
    publisher.register("b")
    assert publisher.link.paused == {2}
    publisher.finish_lane(2)
    assert desk.broker.environment.pressure.slowed == 0


def test_a_payload_under_way_waits_too() -> None:
    desk = Desk()
    publisher = desk.connect("publisher", topics=[Register(0, False, 1, "a")])
    press(desk, 1.1)
    large = encode(PubReq(0, False, False, 1, 1, 1, None, None, None, bytes(1_000_000)))
    publisher.send_bytes(large[:500_000], lane=2)
    assert publisher.link.paused == {2}
    assert 400_000 < publisher.connection.assembling_bytes <= 500_000


@pytest.mark.parametrize("version", [mqtt.VERSION_3_1_1, mqtt.VERSION_5])
def test_nobody_is_silent_while_the_broker_does_not_listen(version: int) -> None:
    desk = Desk()
    publisher = connect(desk, "publisher", version, keep_alive=10)
    pressure = press(desk, 1.1)
    publisher.publish("a")
    desk.advance(60)
    assert not publisher.is_closed
    pressure.turn(desk.now)
    desk.advance(14)
    assert not publisher.is_closed
    desk.advance(2)
    assert publisher.is_closed


def test_best_effort_messages_are_dropped_and_counted_and_others_are_not() -> None:
    desk = Desk()
    mmqp = desk.connect("mmqp", topics=[Register(0, False, 1, "a")])
    subscriber, plain = connect(desk, "subscriber"), connect(desk, "plain")
    subscriber.subscribe("a", 1)
    press(desk, 1.3)
    mmqp.publish(1, b"best effort")
    plain.publish("a", b"best effort")
    assert desk.figures.dropped_memory == 2
    mmqp.publish(1, b"kept", qos=1, id=1)
    plain.publish("a", b"kept", qos=1, id=1)
    assert subscriber.payloads() == [b"kept"] * 2
    press(desk, 0.5)
    plain.publish("a", b"best effort again")
    assert subscriber.payloads() == [b"best effort again"]


def test_a_large_best_effort_message_is_dropped_once_it_is_complete() -> None:
    desk = Desk()
    publisher, subscriber = connect(desk, "publisher"), connect(desk, "subscriber")
    subscriber.subscribe("a")
    press(desk, 1.3)
    large = mqtt.encode(mqtt.Publish(False, 0, False, "a", 0, None, bytes(500_000)), mqtt.VERSION_5)
    for start in range(0, len(large), 100_000):
        publisher.send_bytes(large[start : start + 100_000])
    assert desk.figures.dropped_memory == 1
    assert subscriber.payloads() == []
    assert publisher.connection.assembling_bytes == 0


def test_a_dropped_message_takes_no_alias_with_it() -> None:
    desk = Desk()
    publisher, subscriber = connect(desk, "publisher"), connect(desk, "subscriber")
    subscriber.subscribe("a")
    press(desk, 1.3)
    publisher.publish("a", b"names the alias", properties=mqtt.Properties(topic_alias=1))
    press(desk, 0.0)
    publisher.publish("", b"by its alias", properties=mqtt.Properties(topic_alias=1))
    assert subscriber.payloads()[-1] == b"by its alias"


def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind() -> None:
    desk = Desk()
    publisher = connect(desk, "publisher")
    pressure = press(desk, 1.1)
    publisher.publish("a")
    assert pressure.slowed == 1
    publisher.lost()
    assert pressure.slowed == 0
