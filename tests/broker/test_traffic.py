"""What the core counts by transport, dialect and QoS, how connections end, and how long things take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from moq.broker.traffic import END_REASONS, Traffic, end_reason, reset_reason
from moq.reasons import Reason
from moq.wire import ConEnd, PublishExtension, PubReq, encode, mqtt
from tests.broker.desk import LONG, PERSISTENT, Desk
from tests.broker.mqtt import scripted

if TYPE_CHECKING:
    from moq.broker.latencies import Latencies


def kind(desk: Desk, dialect: str = "mmqp") -> Traffic:
    return desk.figures.traffic.of("memory", dialect)


def latencies(desk: Desk) -> Latencies:
    return desk.broker.environment.latencies


@pytest.fixture
def desk() -> Desk:
    return Desk(now=100.0)


def test_each_qos_is_counted_on_its_own_and_the_totals_are_their_sums(desk: Desk) -> None:
    subscriber, publisher = desk.connect("s"), desk.connect("p")
    subscriber.subscribe("a", alias=1, qos=2)
    publisher.register("a", alias=1)
    publisher.publish(1, b"x")
    publisher.publish(1, b"xx", qos=1, id=1)
    publisher.publish(1, b"xxx", qos=2, id=2)
    traffic = kind(desk)
    assert traffic.messages_in == traffic.messages_out == [1, 1, 1, 0]
    assert traffic.bytes_in == traffic.bytes_out == [1, 2, 3, 0]
    figures = desk.figures
    assert (figures.messages_received, figures.bytes_received) == (3, 6)
    assert (figures.messages_sent, figures.bytes_sent) == (3, 6)
    assert figures.connections == traffic.accepted == traffic.open == 2


def test_a_run_is_counted_at_once(desk: Desk) -> None:
    subscriber, publisher = desk.connect("s"), desk.connect("p")
    subscriber.subscribe("a", alias=1)
    publisher.register("a", alias=1)
    publisher.publish(1, b"the first announces the topic")
    subscriber.payloads()
    publisher.send_bytes(b"".join(encode(PubReq(0, False, False, 0, 0, 1, None, None, None, b"xy")) for _ in range(50)))
    assert len(subscriber.payloads()) == 50
    assert kind(desk).messages_in[0] == kind(desk).messages_out[0] == 51


def test_every_reason_has_a_label_of_the_small_set() -> None:
    assert {end_reason(reason) for reason in Reason} <= set(END_REASONS)
    assert reset_reason(Reason.PACKET_TOO_LARGE) == "packet_too_large"
    assert reset_reason(0xDEADBEEF) == "unknown"


def test_connections_are_counted_by_how_they_end(desk: Desk) -> None:
    desk.connect("goodbye").send(ConEnd(Reason.SUCCESS))
    desk.connect("lost").lost()
    desk.connect("twice", settings=LONG)
    again = desk.connect("twice", settings=LONG)
    again.send_bytes(b"\x00\x00")  # no packet
    silent = desk.connect("silent")
    desk.advance(3600)
    assert silent.is_closed
    traffic = kind(desk)
    ended = {reason: count for reason, count in traffic.closed.items() if count}
    assert ended == {"client": 1, "lost": 1, "taken_over": 1, "protocol_error": 1, "keep_alive": 1}
    assert (traffic.accepted, traffic.open) == (5, 0)


def test_who_is_not_let_in_is_counted_as_refused_once(desk: Desk) -> None:
    desk.client().send_bytes(b"\x00\x00")
    quiet = desk.client()
    quiet.lost()  # said nothing, and was told nothing
    late = desk.client()
    desk.advance(60)
    assert late.is_closed
    late.lost()
    refused = {reason: count for reason, count in kind(desk).refused.items() if count}
    assert refused == {"protocol_error": 1, "keep_alive": 1}
    assert sum(kind(desk).closed.values()) == 0


def test_mqtt_connections_are_counted_by_version(desk: Desk) -> None:
    for version in (mqtt.VERSION_3_1_1, mqtt.VERSION_5):
        scripted.connect(desk, f"client {version}", version=version)
    assert [kind(desk, name).open for name in ("mqtt3", "mqtt5", "mqtt", "mmqp")] == [1, 1, 0, 0]


def test_lanes_of_clients_are_counted_from_opened_to_ended(desk: Desk) -> None:
    publisher = desk.connect("p")
    publisher.register("a", alias=1)
    for lane in (2, 6, 10):
        publisher.publish(1, b"x", lane=lane)
    traffic = kind(desk)
    assert (traffic.lanes_opened, traffic.lanes_open) == (4, 4), "control is one of them"
    publisher.finish_lane(2)
    publisher.connection.lane_reset(6, Reason.PACKET_TOO_LARGE)
    publisher.connection.lane_reset(14, 0)  # nothing had come on it
    assert (traffic.lanes_ended, traffic.lanes_open) == ({"finished": 1, "reset": 1, "link": 0}, 2)
    assert traffic.lanes_reset == {"packet_too_large": 1}
    publisher.lost()
    assert (traffic.lanes_ended["link"], traffic.lanes_open) == (2, 0)


def test_one_byte_stream_is_no_lane(desk: Desk) -> None:
    desk.connect("p", has_lanes=False).lost()
    assert kind(desk).lanes_opened == kind(desk).lanes_ended["link"] == 0


def test_a_message_that_waited_is_seen_with_its_wait(desk: Desk) -> None:
    subscriber, publisher = desk.connect("s", settings=LONG), desk.connect("p")
    subscriber.subscribe("a", alias=1, qos=1)
    publisher.register("a", alias=1)
    subscriber.lost()
    publisher.publish(1, b"x", qos=1, id=1)
    desk.advance(30)
    desk.connect("s", settings=LONG, resume=True)
    queued = latencies(desk).queued
    assert queued.count == 1
    assert queued.sum == pytest.approx(30)
    assert latencies(desk).deferred == 1


def test_a_subscribers_acknowledgement_is_measured_from_sent_to_told(desk: Desk) -> None:
    subscriber, publisher = desk.connect("s"), desk.connect("p")
    subscriber.subscribe("a", alias=1, qos=2)
    publisher.register("a", alias=1)
    for qos in (1, 2):
        publisher.publish(1, b"x", qos=qos, id=qos)
    first, second = subscriber.messages()
    desk.advance(2)
    subscriber.puback(first.id)
    subscriber.pubsyn(second.id)
    desk.advance(3)
    subscriber.puback(second.id)
    by_qos = latencies(desk).subscriber_acknowledgement
    assert [(histogram.count, histogram.sum) for histogram in by_qos] == [(0, 0), (1, 2), (1, 2), (0, 0)]


def test_an_acknowledgement_that_waits_for_the_store_is_measured(desk: Desk) -> None:
    subscriber, publisher = desk.connect("s", settings=PERSISTENT), desk.connect("p")
    subscriber.subscribe("a", alias=1, qos=1)
    publisher.register("a", alias=1)
    desk.hold_commits()
    publisher.publish(1, b"x", qos=1, id=1)
    desk.advance(5)
    waited = latencies(desk).acknowledgement[1]
    assert waited.count == 0
    desk.commit()
    assert (waited.count, waited.sum) == (1, 5)


def test_an_acknowledgement_that_waits_for_nothing_took_no_time(desk: Desk) -> None:
    publisher = desk.connect("p")
    publisher.register("a", alias=1)
    publisher.publish(1, b"x", qos=1, id=1)
    assert (latencies(desk).acknowledgement[1].count, latencies(desk).acknowledgement[1].sum) == (1, 0)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_stamped_message_is_measured_from_its_stamp(desk: Desk, qos: int) -> None:
    subscriber, publisher = desk.connect("s"), desk.connect("p")
    subscriber.subscribe("a", alias=1, qos=qos)
    publisher.register("a", alias=1)
    wall_s = desk.now + desk.broker.environment.epoch
    for at in (wall_s - 2, wall_s + 60):
        extension = PublishExtension(timestamp_ns=int(at * 1e9))
        publisher.publish(1, b"x", qos=qos, id=qos, extension=extension)
        subscriber.messages()
    measured = latencies(desk).end_to_end
    assert measured.count == 2
    assert measured.sum == pytest.approx(2), "a clock that is ahead counts as no time"


@pytest.mark.parametrize("qos", [0, 1])
def test_what_a_new_subscriber_gets_of_the_past_has_no_latency(desk: Desk, qos: int) -> None:
    publisher = desk.connect("p")
    publisher.register("a", alias=1)
    extension = PublishExtension(timestamp_ns=1)
    publisher.publish(1, b"x", qos=1, id=1, retain=True, extension=extension)
    desk.advance(50)
    subscriber = desk.connect("s")
    subscriber.subscribe("a", qos=qos)
    assert subscriber.payloads() == [b"x"]
    seen = latencies(desk)
    assert (seen.deferred, seen.queued.count, seen.end_to_end.count) == (1, 0, 0)
