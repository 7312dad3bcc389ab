"""From publisher to subscriber: QoS in both directions, windows, redelivery, order, time to live."""

from __future__ import annotations

import pytest

from moq.config import Limits
from moq.reasons import Reason
from moq.wire import ConEnd, Property, PubAck, PublishExtension, PubSyn, SubscribeExtension
from tests.broker.desk import LONG, Client, Desk


def pair(desk: Desk, qos: int = 0, *, has_lanes: bool = True) -> tuple[Client, Client]:
    """A publisher of `a` (alias 1) and `b` (alias 2), and a subscriber to both under the same aliases."""
    publisher = desk.connect("publisher", settings=LONG)
    subscriber = desk.connect("subscriber", settings=LONG, has_lanes=has_lanes)
    for alias, topic in ((1, "a"), (2, "b")):
        publisher.register(topic, alias=alias)
        subscriber.subscribe(topic, alias=alias, qos=qos)
    return publisher, subscriber


def resumed(desk: Desk, name: str = "subscriber") -> Client:
    return desk.connect(name, resume=True, settings=LONG)


# --- from the publisher -------------------------------------------------------------------------------


def test_qos_0_is_not_answered(desk: Desk) -> None:
    publisher, subscriber = pair(desk)
    publisher.publish(1, b"x")
    assert subscriber.payloads() == [b"x"]
    assert publisher.read() == []


def test_qos_1_is_acknowledged(desk: Desk) -> None:
    publisher, _ = pair(desk)
    publisher.publish(1, b"x", qos=1, id=9)
    assert publisher.read() == [PubAck(0, 9, Reason.SUCCESS)]


def test_qos_2_is_received_released_and_completed(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=2)
    publisher.publish(1, b"x", qos=2, id=9)
    assert publisher.read() == [PubSyn(0, 9, Reason.SUCCESS)]
    assert subscriber.payloads() == [b"x"]
    publisher.pubsyn(9, Reason.RELEASE)
    assert publisher.read() == [PubAck(0, 9, Reason.SUCCESS)]


def test_a_repetition_at_qos_2_is_confirmed_and_not_delivered_again(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=2)
    publisher.publish(1, b"x", qos=2, id=9)
    publisher.lost()
    publisher = resumed(desk, "publisher")
    publisher.publish(1, b"x", qos=2, id=9, dup=True)
    assert publisher.read() == [PubSyn(0, 9, Reason.SUCCESS)]
    assert subscriber.payloads() == [b"x"]
    publisher.pubsyn(9, Reason.RELEASE)
    publisher.publish(1, b"y", qos=2, id=9)
    assert subscriber.payloads() == [b"y"]


def test_releasing_an_unknown_identifier_is_answered_with_that(desk: Desk) -> None:
    publisher, _ = pair(desk)
    publisher.pubsyn(9, Reason.RELEASE)
    assert publisher.read() == [PubAck(0, 9, Reason.PACKET_IDENTIFIER_NOT_FOUND)]


def test_a_publisher_that_subscribes_gets_its_own_messages(desk: Desk) -> None:
    client = desk.connect("alice")
    client.subscribe("a", alias=1)
    client.register("a", alias=1)
    client.publish(1, b"x")
    assert client.payloads() == [b"x"]


# --- to the subscriber --------------------------------------------------------------------------------


@pytest.mark.parametrize(("published", "subscribed"), [(0, 2), (1, 2), (2, 1), (2, 0), (1, 1), (2, 2)])
def test_a_message_is_delivered_at_the_lower_qos(desk: Desk, published: int, subscribed: int) -> None:
    publisher, subscriber = pair(desk, qos=subscribed)
    publisher.publish(1, b"x", qos=published, id=1 if published else 0)
    (message,) = subscriber.messages()
    assert message.packet.qos == min(published, subscribed)
    assert (message.id == 0) is (message.packet.qos == 0)
    assert not message.packet.dup


@pytest.mark.parametrize("has_lanes", [True, False])
def test_the_lane_and_the_name_of_a_topic(desk: Desk, has_lanes: bool) -> None:
    publisher = desk.connect("publisher")
    publisher.register("room/+")
    subscriber = desk.connect("subscriber", has_lanes=has_lanes)
    subscriber.subscribe("room/#")
    for name in ("room/1", "room/2", "room/1"):
        publisher.publish(name, name.encode())
    messages = subscriber.messages()
    assert sorted(message.topic for message in messages) == ["room/1", "room/1", "room/2"]
    assert {message.packet.alias for message in messages} == {0x8000, 0x8001}
    assert sum(message.packet.topic is not None for message in messages) == 2
    assert len(subscriber.link.lanes) == (2 if has_lanes else 0)


def test_a_lane_that_closed_is_opened_again_and_told_the_topic_again(desk: Desk) -> None:
    publisher = desk.connect("publisher")
    publisher.register("room/+")
    subscriber = desk.connect("subscriber")
    subscriber.subscribe("room/#")
    publisher.publish("room/1", b"x")
    subscriber.messages()
    subscriber.close_lane(0x8000)
    publisher.publish("room/1", b"y")
    (message,) = subscriber.messages()
    assert (message.packet.alias, message.packet.topic) == (0x8000, "room/1")


def test_topics_past_the_last_alias_are_named_every_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moq.broker.dialects.mmqp_outlets.LAST_ALIAS", 0x8000)
    publisher = desk.connect("publisher")
    publisher.register("room/+")
    subscriber = desk.connect("subscriber")
    subscriber.subscribe("room/#")
    for name in ("room/1", "room/2", "room/2"):
        publisher.publish(name)
    assert [(message.packet.alias, message.packet.topic) for message in subscriber.messages()] == [
        (0x8000, "room/1"),
        (0, "room/2"),
        (0, "room/2"),
    ]


def test_the_priority_of_a_subscription_is_its_lanes(desk: Desk) -> None:
    publisher, _ = pair(desk)
    subscriber = desk.connect("other")
    subscriber.subscribe("a", alias=1, extension=SubscribeExtension(priority=3))
    publisher.publish(1)
    assert subscriber.link.lanes[1].priority == 3


@pytest.mark.parametrize("size", [0, 250, 251, 65_530, 65_531, 8191, 8192, 0xFFFFFA, 0xFFFFFB])
def test_payloads_of_every_header_size_arrive_whole(size: int) -> None:
    desk = Desk(Limits(max_packet_bytes=1 << 25, max_queued_bytes=1 << 25))
    publisher, subscriber = pair(desk)
    payload = bytes(size)
    publisher.publish(1, payload)
    assert subscriber.payloads() == [payload]


def test_qos_1_is_over_with_the_acknowledgement(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=1)
    publisher.publish(1, b"x", qos=1, id=1)
    (message,) = subscriber.messages()
    session = desk.broker.sessions.get("subscriber")
    assert session is not None
    assert session.outbound.inflight == 1
    subscriber.puback(message.id)
    subscriber.puback(message.id)
    assert session.outbound.inflight == 0


def test_qos_2_to_a_subscriber_is_received_released_and_completed(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=2)
    publisher.publish(1, b"x", qos=2, id=1)
    (message,) = subscriber.messages()
    subscriber.pubsyn(message.id)
    assert subscriber.read() == [PubSyn(0, message.id, Reason.RELEASE)]
    subscriber.puback(message.id)
    session = desk.broker.sessions.get("subscriber")
    assert session is not None
    assert session.outbound.inflight == 0


def test_completing_qos_2_before_receiving_is_a_violation(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=2)
    publisher.publish(1, b"x", qos=2, id=1)
    (message,) = subscriber.messages()
    subscriber.puback(message.id)
    assert subscriber.take(ConEnd) == [ConEnd(Reason.PROTOCOL_ERROR)]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_refusal_ends_the_exchange_wherever_it_stands(desk: Desk, qos: int) -> None:
    publisher, subscriber = pair(desk, qos=qos)
    publisher.publish(1, b"x", qos=qos, id=1)
    publisher.publish(1, b"y", qos=qos, id=2)
    first, second = subscriber.messages()
    subscriber.puback(first.id, Reason.QUOTA_EXCEEDED)
    subscriber.pubsyn(second.id, Reason.QUOTA_EXCEEDED)
    session = desk.broker.sessions.get("subscriber")
    assert session is not None
    assert session.outbound.inflight == 0
    assert subscriber.read() == []


def test_an_unknown_receipt_is_released_and_an_unknown_refusal_is_not_answered(desk: Desk) -> None:
    """Two sides that know nothing of an identifier must not go on telling each other so."""
    _, subscriber = pair(desk)
    subscriber.pubsyn(77)
    assert subscriber.read() == [PubSyn(0, 77, Reason.RELEASE)]
    subscriber.puback(77, Reason.PACKET_IDENTIFIER_NOT_FOUND)
    subscriber.pubsyn(77, Reason.PACKET_IDENTIFIER_NOT_FOUND)
    assert subscriber.read() == []


def test_an_identifier_is_not_reused_before_its_exchange_is_over() -> None:
    desk = Desk(Limits(max_inflight=100_000, max_queued_messages=100_000))
    publisher, subscriber = pair(desk, qos=2)
    for _ in range(65_540):
        publisher.publish(1, qos=1, id=1)
    messages = subscriber.messages()
    assert sorted(message.id for message in messages) == list(range(1, 65_536))
    subscriber.puback(30_000)
    subscriber.puback(40_000)
    assert [message.id for message in subscriber.messages()] == [30_000, 40_000]


def test_the_window_bounds_what_is_in_flight() -> None:
    desk = Desk(Limits(max_inflight=3))
    publisher, subscriber = pair(desk, qos=1)
    for number in range(10):
        publisher.publish(1 + number % 2, b"%d" % number, qos=1, id=1)
    received = subscriber.messages()
    assert len(received) == 3
    while received:
        message = received.pop(0)
        subscriber.puback(message.id)
        fresh = subscriber.messages()
        assert len(fresh) <= 1
        received += fresh
    session = desk.broker.sessions.get("subscriber")
    assert session is not None
    assert (session.outbound.waiting, session.outbound.inflight) == (0, 0)


def test_the_window_bounds_the_bytes_in_flight() -> None:
    desk = Desk(Limits(max_queued_bytes=100))
    publisher, subscriber = pair(desk, qos=1)
    for _ in range(4):
        publisher.publish(1, bytes(60), qos=1, id=1)
    messages = subscriber.messages()
    assert len(messages) == 2
    subscriber.puback(messages[0].id)
    assert len(subscriber.messages()) == 1


def test_order_holds_per_topic_across_the_window() -> None:
    desk = Desk(Limits(max_inflight=2))
    publisher, subscriber = pair(desk, qos=1)
    for number in range(20):
        publisher.publish(1 + number % 2, b"%d" % number, qos=1, id=1)
    seen: dict[str, list[int]] = {"a": [], "b": []}
    while messages := subscriber.messages():
        for message in messages:
            seen[message.topic].append(int(message.payload))
            subscriber.puback(message.id)
    assert seen == {"a": list(range(0, 20, 2)), "b": list(range(1, 20, 2))}


# --- redelivery ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_not_acknowledged_is_repeated_with_dup_on_a_new_connection_only(desk: Desk, qos: int) -> None:
    publisher, subscriber = pair(desk, qos=qos)
    publisher.publish(1, b"first", qos=2, id=1)
    publisher.publish(1, b"second", qos=2, id=2)
    before = subscriber.messages()
    desk.advance(300)
    assert subscriber.messages() == []
    subscriber.lost()
    publisher.publish(1, b"third", qos=2, id=3)
    after = resumed(desk).messages()
    assert [message.payload for message in after] == [b"first", b"second", b"third"]
    assert [message.packet.dup for message in after] == [True, True, False]
    assert [message.id for message in after[:2]] == [message.id for message in before]
    assert after[2].id not in {message.id for message in before}


def test_a_message_already_received_is_released_again_and_not_repeated(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=2)
    publisher.publish(1, b"x", qos=2, id=1)
    (message,) = subscriber.messages()
    subscriber.pubsyn(message.id)
    subscriber.lost()
    subscriber = resumed(desk)
    assert subscriber.read() == [PubSyn(0, message.id, Reason.RELEASE)]
    subscriber.puback(message.id)
    subscriber.lost()
    assert resumed(desk).read() == []


def test_messages_wait_for_an_absent_subscriber_at_qos_1_and_2_only(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=2)
    subscriber.lost()
    for qos in (0, 1, 2):
        publisher.publish(1, b"%d" % qos, qos=qos, id=qos)
    assert resumed(desk).payloads() == [b"1", b"2"]


def test_a_session_taken_over_goes_on_where_it_was(desk: Desk) -> None:
    publisher, _ = pair(desk, qos=1)
    publisher.publish(1, b"x", qos=1, id=1)
    assert resumed(desk).payloads() == [b"x"]


# --- time to live -------------------------------------------------------------------------------------


def test_the_time_to_live_is_forwarded_as_what_remains(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=1)
    subscriber.lost()
    publisher.publish(1, b"x", qos=1, id=1, extension=PublishExtension(ttl_ms=10_000))
    desk.advance(4)
    (message,) = resumed(desk).messages()
    assert message.packet.extension == PublishExtension(ttl_ms=6_000)


def test_an_expired_message_is_not_sent(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=1)
    subscriber.lost()
    publisher.publish(1, b"old", qos=1, id=1, extension=PublishExtension(ttl_ms=10_000))
    publisher.publish(1, b"new", qos=1, id=2)
    desk.advance(10)
    assert resumed(desk).payloads() == [b"new"]
    assert desk.figures.dropped_expired == 1


def test_a_message_sent_before_it_expired_is_repeated_all_the_same(desk: Desk) -> None:
    """Its receiver may have it and wait for the end of the exchange."""
    publisher, subscriber = pair(desk, qos=2)
    publisher.publish(1, b"x", qos=2, id=1, extension=PublishExtension(ttl_ms=10_000))
    subscriber.lost()
    desk.advance(60)
    (message,) = resumed(desk).messages()
    assert message.packet.dup
    assert message.packet.extension == PublishExtension(ttl_ms=1)


def test_properties_are_passed_on(desk: Desk) -> None:
    publisher, subscriber = pair(desk)
    extension = PublishExtension(
        timestamp_ns=5, group_start=True, encrypted=True, type_id=4, properties=[Property("k", "v")]
    )
    publisher.publish(1, b"x", extension=extension)
    publisher.publish(1, b"y", extension=PublishExtension())
    first, second = subscriber.messages()
    assert first.packet.extension == extension
    assert second.packet.extension is None


def test_properties_and_time_to_live_travel_together(desk: Desk) -> None:
    publisher, subscriber = pair(desk)
    publisher.publish(1, b"x", extension=PublishExtension(ttl_ms=100, type_id=4))
    assert subscriber.messages()[0].packet.extension == PublishExtension(ttl_ms=100, type_id=4)
