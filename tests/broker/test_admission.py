"""Every limit on what clients may have, at its edge: as many as it says, not one more, and again once one is gone."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moq.broker.admission import BURST_S, Admission, TokenBucket, host_of
from moq.broker.dialects.refusal import refusal_words
from moq.broker.figures import Figures
from moq.broker.pressure import Pressure
from moq.config import Limits
from moq.reasons import Reason
from moq.wire import ConAck, ConEnd, ConReq, Register, Subscribe, encode, mqtt
from tests.broker.desk import Desk
from tests.broker.mqtt.scripted import MQTTClient, connect

ONE = "192.0.2.1"
OTHER = "192.0.2.2"
MQTT_VERSIONS = [mqtt.VERSION_3_1_1, mqtt.VERSION_5]


REFERENCE = (Path(__file__).parents[2] / "docs/reference/limits.md").read_text()


def admission(**limits: int) -> tuple[Admission, Figures, Pressure]:
    chosen, figures = Limits(**limits), Figures()
    pressure = Pressure(chosen)
    return Admission(chosen, figures, pressure), figures, pressure


# --- connections --------------------------------------------------------------------------------------


def test_connections_are_refused_past_their_number_until_one_is_gone() -> None:
    door, figures, _ = admission(max_connections=2)
    for host in (ONE, OTHER):
        assert door.refusal(host) is None
        door.enter(host)
    assert door.refusal("192.0.2.3") is Reason.SERVER_BUSY
    assert figures.refused_connections == 1
    door.leave(ONE)
    assert door.refusal("192.0.2.3") is None
    assert door.connections == 1


def test_one_address_has_its_share_of_the_connections() -> None:
    door, figures, _ = admission(max_connections_per_address=2)
    door.enter(ONE)
    door.enter(ONE)
    assert door.refusal(ONE) is Reason.QUOTA_EXCEEDED
    assert figures.refused_connections_per_address == 1
    assert door.refusal(OTHER) is None
    door.leave(ONE)
    assert door.refusal(ONE) is None


def test_connections_are_refused_while_the_broker_holds_too_much() -> None:
    door, figures, pressure = admission(memory_watermark_bytes=100)
    pressure.update(151, 0)
    assert door.refusal(ONE) is Reason.SERVER_BUSY
    assert figures.refused_memory == 1
    pressure.update(0, 0)
    assert door.refusal(ONE) is None


@given(st.lists(st.tuples(st.sampled_from([ONE, OTHER, "192.0.2.3"]), st.booleans()), max_size=200))
def test_no_order_of_coming_and_going_passes_a_limit_or_loses_a_place(steps: list[tuple[str, bool]]) -> None:
    door, _, _ = admission(max_connections=4, max_connections_per_address=2)
    inside: list[str] = []
    for host, comes in steps:
        if not comes and host in inside:
            inside.remove(host)
            door.leave(host)
        elif comes:
            refused = len(inside) >= 4 or inside.count(host) >= 2
            assert (door.refusal(host) is not None) is refused
            if not refused:
                door.enter(host)
                inside.append(host)
        assert door.connections == len(inside)


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("192.0.2.1:1883", "192.0.2.1"),
        ("[2001:db8:1:2:3:4:5:6]:1883", "2001:db8:1:2::"),
        ("[2001:db8:1:2::9]:7", "2001:db8:1:2::"),
        ("[::ffff:192.0.2.1]:1883", "192.0.2.1"),
        ("[fe80::1%eth0]:1883", "fe80::"),
        ("unknown", "unknown"),
    ],
)
def test_a_host_is_its_address_or_the_network_it_may_choose_from(peer: str, host: str) -> None:
    assert host_of(peer) == host


# --- what the refused are told ------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [Reason.SERVER_BUSY, Reason.QUOTA_EXCEEDED])
def test_the_refused_are_told_in_their_own_dialect(reason: Reason) -> None:
    assert refusal_words("", encode(ConReq(client_id="alice")), reason) == encode(ConAck(False, reason))
    assert refusal_words("mmqp", b"", reason) == encode(ConAck(False, reason))
    connect_5 = mqtt.encode(mqtt.Connect(mqtt.VERSION_5), mqtt.VERSION_5)
    connect_4 = mqtt.encode(mqtt.Connect(mqtt.VERSION_3_1_1), mqtt.VERSION_3_1_1)
    unavailable = 3
    for alpn in ("", "mqtt"):
        assert refusal_words(alpn, connect_5, reason) == mqtt.encode(mqtt.ConnAck(False, reason), mqtt.VERSION_5)
        assert refusal_words(alpn, connect_4, reason) == bytes((0x20, 2, 0, unavailable))


def test_a_refusal_waits_for_the_bytes_that_tell_the_dialect() -> None:
    said = mqtt.encode(mqtt.Connect(mqtt.VERSION_5, client_id="x" * 200), mqtt.VERSION_5)
    assert refusal_words("mqtt", b"", Reason.SERVER_BUSY) is None
    lengths = [size for size in range(len(said)) if refusal_words("", said[:size], Reason.SERVER_BUSY) is not None]
    assert lengths[0] == 12


def test_an_unknown_version_of_mqtt_is_refused_without_words() -> None:
    said = bytearray(mqtt.encode(mqtt.Connect(mqtt.VERSION_5), mqtt.VERSION_5))
    said[said.index(b"MQTT") + 4] = 9
    assert refusal_words("", bytes(said), Reason.SERVER_BUSY) == b""


# --- publish rate -------------------------------------------------------------------------------------


def test_a_bucket_lets_a_burst_through_and_then_its_rate() -> None:
    bucket = TokenBucket(10.0, now=5.0)
    burst = int(10 * BURST_S)
    assert [bucket.take(5.0) for _ in range(burst + 1)] == [True] * burst + [False]
    assert [bucket.take(5.25) for _ in range(3)] == [True, True, False]


@given(
    st.floats(0.1, 1000.0),
    st.lists(st.floats(0.0, 10.0), max_size=200),
)
def test_a_bucket_never_lets_more_through_than_its_burst_and_its_rate(rate: float, pauses: list[float]) -> None:
    bucket = TokenBucket(rate, now=0.0)
    now, passed = 0.0, 0
    for pause in pauses:
        now += pause
        passed += bucket.take(now)
    assert passed <= max(rate * BURST_S, 1.0) + rate * now + 1e-6


BURST = 6
RATE = Limits(max_publish_rate=BURST / BURST_S)


@pytest.mark.parametrize("qos", [0, 1])
def test_an_mmqp_client_that_publishes_too_fast_is_told_and_closed(qos: int) -> None:
    desk = Desk(RATE)
    subscriber, publisher = desk.connect("subscriber"), desk.connect("publisher", topics=[Register(0, False, 1, "a")])
    subscriber.subscribe("a")
    for number in range(BURST):
        publisher.publish(1, b"%d" % number, qos=qos, id=qos and number + 1)
    assert publisher.take(ConEnd) == []
    publisher.publish(1, b"too many", qos=qos, id=qos and 100)
    assert publisher.take(ConEnd) == [ConEnd(Reason.MESSAGE_RATE_TOO_HIGH)]
    assert publisher.is_closed
    assert subscriber.payloads() == [b"%d" % number for number in range(BURST)]
    assert desk.figures.refused_publish_rate == 1


@pytest.mark.parametrize("version", MQTT_VERSIONS)
def test_an_mqtt_client_that_publishes_too_fast_is_closed_and_told_if_it_can_be(version: int) -> None:
    desk = Desk(RATE)
    subscriber, publisher = connect(desk, "subscriber"), connect(desk, "publisher", version)
    subscriber.subscribe("a")
    one = mqtt.encode(mqtt.Publish(False, 0, False, "a", 0, None, b"x"), version)
    publisher.send_bytes(one * (BURST + 3))
    assert publisher.is_closed
    told = [packet.reason for packet in publisher.take(mqtt.Disconnect)]
    assert told == ([Reason.MESSAGE_RATE_TOO_HIGH] if version == mqtt.VERSION_5 else [])
    assert len(subscriber.payloads()) == BURST
    assert desk.figures.refused_publish_rate == 1


def test_a_client_within_its_rate_goes_on_for_ever() -> None:
    desk = Desk(RATE)
    publisher = connect(desk, "publisher", keep_alive=600)
    for _ in range(100):
        publisher.publish("a")
        desk.advance(BURST_S / BURST)
    assert not publisher.is_closed


def test_without_a_rate_nothing_is_counted() -> None:
    desk = Desk()
    publisher = connect(desk, "publisher")
    publisher.send_bytes(mqtt.encode(mqtt.Publish(False, 0, False, "a", 0, None, b"x"), mqtt.VERSION_5) * 10_000)
    assert not publisher.is_closed


# --- sessions, subscriptions, registrations -----------------------------------------------------------


def test_sessions_are_refused_past_their_number_until_one_is_gone() -> None:
    desk = Desk(Limits(max_sessions=1))
    first = desk.connect("first")
    second = desk.client()
    second.send(ConReq(client_id="second"))
    assert second.take(ConAck) == [ConAck(False, Reason.QUOTA_EXCEEDED)]
    third = MQTTClient(desk)
    third.connect("third")
    assert [packet.reason for packet in third.take(mqtt.ConnAck)] == [Reason.QUOTA_EXCEEDED]
    old = MQTTClient(desk, mqtt.VERSION_3_1_1)
    old.connect("old")
    assert [packet.reason for packet in old.take(mqtt.ConnAck)] == [3]
    assert desk.figures.refused_sessions == 3
    first.send(ConEnd(Reason.SUCCESS))
    connect(desk, "third")


def test_subscriptions_of_a_session_are_refused_past_their_number_until_one_is_gone() -> None:
    desk = Desk(Limits(max_subscriptions_per_session=1))
    mmqp, plain, old = desk.connect("mmqp"), connect(desk, "plain"), connect(desk, "old", mqtt.VERSION_3_1_1)
    mmqp.subscribe("a")
    assert mmqp.ask(Subscribe(0, False, 0, "b")) == [Reason.QUOTA_EXCEEDED]
    assert mmqp.ask(Subscribe(1, False, 0, "a")) == [Reason.SUCCESS], "the same one again is not one more"
    mmqp.unsubscribe("a")
    mmqp.subscribe("b")
    plain.subscribe("a")
    assert plain.ask(mqtt.Subscription("b", 0)) == [Reason.QUOTA_EXCEEDED]
    plain.unsubscribe("a")
    plain.subscribe("b")
    assert old.ask(mqtt.Subscription("a", 0), mqtt.Subscription("b", 0)) == [0, Reason.UNSPECIFIED_ERROR]
    assert desk.figures.refused_subscriptions == 3


def test_subscriptions_of_all_sessions_are_refused_past_their_number_until_one_is_gone() -> None:
    desk = Desk(Limits(max_subscriptions=2))
    mmqp, plain = desk.connect("mmqp"), connect(desk, "plain")
    mmqp.subscribe("a")
    plain.subscribe("a")
    assert mmqp.ask(Subscribe(0, False, 0, "b")) == [Reason.QUOTA_EXCEEDED]
    assert plain.ask(mqtt.Subscription("b", 0)) == [Reason.QUOTA_EXCEEDED]
    assert desk.figures.refused_subscriptions == 2
    mmqp.subscribe("a", qos=1)
    mmqp.lost()
    plain.subscribe("b")


def test_registrations_are_refused_past_their_number_until_one_is_gone() -> None:
    desk = Desk(Limits(max_registrations_per_session=1))
    client = desk.connect("client")
    client.register("a")
    assert client.ask(Register(0, False, 0, "b")) == [Reason.QUOTA_EXCEEDED]
    assert desk.figures.refused_registrations == 1
    client.unsubscribe("a", registration=True)
    client.register("b")


def test_topics_are_refused_past_their_number_until_one_is_gone() -> None:
    desk = Desk(Limits(max_topics=1))
    first, second = desk.connect("first"), desk.connect("second")
    first.register("a")
    assert second.ask(Register(0, False, 0, "b")) == [Reason.QUOTA_EXCEEDED]
    assert desk.figures.refused_registrations == 1
    first.lost()
    second.register("b")


# --- retained bytes, inflight -------------------------------------------------------------------------


def test_retained_bytes_end_at_their_limit_and_are_free_again() -> None:
    desk = Desk(Limits(max_retained_bytes=10))
    publisher = connect(desk, "publisher")
    publisher.publish("a", b"0123456789", retain=True)
    publisher.publish("b", b"x", retain=True)
    assert desk.broker.topics.retained_bytes == 10
    assert desk.figures.dropped_no_room_to_retain == 1
    publisher.publish("a", b"", retain=True)
    publisher.publish("b", b"x", retain=True)
    late = connect(desk, "late")
    late.subscribe("#")
    assert late.payloads() == [b"x"]


def test_a_subscriber_has_as_many_messages_in_flight_as_allowed() -> None:
    desk = Desk(Limits(max_inflight=2))
    mmqp, plain, publisher = desk.connect("mmqp"), connect(desk, "plain"), connect(desk, "publisher")
    mmqp.subscribe("a", qos=1)
    plain.subscribe("a", qos=1)
    for number in range(3):
        publisher.publish("a", b"%d" % number, qos=1, id=number + 1)
    seen, also_seen = mmqp.messages(), plain.messages()
    assert [message.payload for message in seen] == [message.payload for message in also_seen] == [b"0", b"1"]
    mmqp.puback(seen[0].id)
    plain.send(mqtt.PubAck(also_seen[0].packet_id))
    assert mmqp.payloads() == plain.payloads() == [b"2"]


def test_a_publisher_has_as_many_messages_in_flight_as_the_receive_maximum() -> None:
    desk = Desk(Limits(max_inflight=2))
    publisher = connect(desk, "publisher")
    for number in (1, 2):
        publisher.publish("a", qos=2, id=number)
    publisher.send(mqtt.PubRel(1))
    publisher.publish("a", qos=2, id=3)
    assert not publisher.is_closed
    publisher.publish("a", qos=2, id=4)
    assert [packet.reason for packet in publisher.take(mqtt.Disconnect)] == [Reason.RECEIVE_MAXIMUM_EXCEEDED]
    assert desk.figures.refused_inflight == 1


# --- the reference ------------------------------------------------------------------------------------


def test_every_limit_is_in_the_reference_with_its_default() -> None:
    rows = {name: float(value) for name, value in re.findall(r"^\| `(\w+)` \| (\S+)", REFERENCE, re.MULTILINE)}
    assert rows == {field.name: float(getattr(Limits(), field.name)) for field in fields(Limits)}


def test_every_refusal_that_is_counted_is_in_the_reference() -> None:
    named = set(re.findall(r'moq_refused_total\{limit="(\w+)"\}', REFERENCE))
    counted = {field.name for field in fields(Figures) if field.name.startswith("refused_")}
    assert {f"refused_{name}" for name in named} == counted
