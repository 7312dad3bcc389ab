"""A new broker with the store of an old one: persistent sessions and all that belongs to them."""

from __future__ import annotations

import pytest

from moq.config import Limits
from moq.reasons import Reason
from moq.wire import (
    ConAck,
    PubAck,
    PublishExtension,
    PubSyn,
    PubType,
    RetentionMode,
    SubscribeExtension,
    TypeFormat,
    TypeReq,
)
from tests.broker.desk import LONG, PERSISTENT, Client, Desk
from tests.broker.stores import CommitStore


def back(desk: Desk, name: str) -> Client:
    return desk.connect(name, resume=True, settings=PERSISTENT)


def test_only_persistent_sessions_survive(desk: Desk) -> None:
    desk.connect("kept", settings=PERSISTENT)
    desk.connect("lost", settings=LONG)
    after = desk.restarted()
    assert back(after, "kept").connack == ConAck(True, Reason.SUCCESS)
    assert after.connect("lost", resume=True, settings=LONG).connack == ConAck(False, Reason.SUCCESS)


def test_subscriptions_registrations_and_aliases_survive(desk: Desk) -> None:
    client = desk.connect("alice", settings=PERSISTENT)
    client.subscribe("a", alias=1, qos=1, extension=SubscribeExtension(priority=9))
    client.subscribe("b", alias=2, group="g", requests=True)
    client.register("c", alias=3)
    client.register("d/#")
    client.subscribe("gone")
    client.unsubscribe("gone")
    client.register("gone")
    client.unsubscribe("gone", registration=True)
    after = desk.restarted()
    client = back(after, "alice")
    other = after.connect("bob")
    other.register("a", alias=1)
    other.register("b", alias=2)
    other.publish(1, b"x", qos=1, id=1)
    other.request(2, b"?", id=1)
    assert {(message.topic, message.payload) for message in client.messages()} == {("a", b"x"), ("b", b"?")}
    assert 9 in {lane.priority for lane in client.link.lanes.values()}
    client.publish(3, qos=1, id=1)
    client.publish("d/x", qos=1, id=2)
    client.publish("gone", qos=1, id=3)
    assert [answer.reason for answer in client.take(PubAck)] == [0, 0, Reason.TOPIC_NOT_REGISTERED]


def test_messages_wait_across_a_restart_in_order(desk: Desk) -> None:
    publisher = desk.connect("publisher")
    publisher.register("a", alias=1)
    subscriber = desk.connect("subscriber", settings=PERSISTENT)
    subscriber.subscribe("a", alias=1, qos=2)
    publisher.publish(1, b"acknowledged", qos=1, id=1)
    publisher.publish(1, b"sent", qos=2, id=2)
    first, second = subscriber.messages()
    subscriber.puback(first.id)
    subscriber.lost()
    publisher.publish(1, b"waiting", qos=1, id=3, extension=PublishExtension(ttl_ms=60_000, type_id=3))
    publisher.publish(1, b"too old", qos=1, id=4, extension=PublishExtension(ttl_ms=1_000))
    after = desk.restarted(after_s=20)
    messages = back(after, "subscriber").messages()
    assert [message.payload for message in messages] == [b"sent", b"waiting"]
    assert (messages[0].id, messages[0].packet.dup) == (second.id, True)
    assert messages[1].id != second.id
    assert messages[1].packet.extension == PublishExtension(ttl_ms=40_000, type_id=3)


def test_a_receipt_is_remembered_across_a_restart(desk: Desk) -> None:
    publisher = desk.connect("publisher", settings=PERSISTENT)
    publisher.register("a", alias=1)
    subscriber = desk.connect("subscriber", settings=PERSISTENT)
    subscriber.subscribe("a", alias=1, qos=2)
    publisher.publish(1, b"x", qos=2, id=7)
    (message,) = subscriber.messages()
    subscriber.pubsyn(message.id)
    after = desk.restarted()
    publisher, subscriber = back(after, "publisher"), back(after, "subscriber")
    assert subscriber.read() == [PubSyn(0, message.id, Reason.RELEASE)]
    publisher.publish(1, b"x", qos=2, id=7, dup=True)
    assert publisher.read() == [PubSyn(0, 7, Reason.SUCCESS)]
    assert subscriber.read() == []
    subscriber.puback(message.id)
    publisher.pubsyn(7, Reason.RELEASE)
    again = after.broker
    session = again.sessions.get("subscriber")
    assert session is not None
    assert session.outbound.inflight == 0
    assert again.sessions.get("publisher") is not None


def test_an_absent_session_goes_on_expiring(desk: Desk) -> None:
    desk.connect("alice", settings=PERSISTENT).lost()
    desk.advance(1000)
    after = desk.restarted(after_s=1000)
    after.advance(1599)
    assert len(after.broker.sessions) == 1
    after.advance(1)
    assert len(after.broker.sessions) == 0
    assert len(after.restarted().broker.sessions) == 0


def test_a_session_that_expired_while_the_broker_was_down_ends_at_once(desk: Desk) -> None:
    desk.connect("alice", settings=PERSISTENT).lost()
    after = desk.restarted(after_s=5000)
    after.advance(0)
    assert len(after.broker.sessions) == 0


def test_a_session_connected_when_the_broker_died_has_its_full_time(desk: Desk) -> None:
    desk.connect("alice", settings=PERSISTENT)
    after = desk.restarted(after_s=5000)
    after.advance(3599)
    assert len(after.broker.sessions) == 1
    after.advance(1)
    assert len(after.broker.sessions) == 0


def test_a_session_that_ended_leaves_nothing_in_the_store(desk: Desk) -> None:
    publisher = desk.connect("publisher", settings=PERSISTENT)
    publisher.register("a", alias=1)
    publisher.register("b/+")
    publisher.publish("b/x")
    subscriber = desk.connect("subscriber", settings=PERSISTENT)
    subscriber.subscribe("a", qos=2)
    subscriber.subscribe("a", qos=2, group="g")
    for number in (1, 2):
        publisher.publish(1, b"x", qos=2, id=number)
    subscriber.lost()
    publisher.lost()
    desk.advance(3600)
    assert [fact for table in desk.store.safe._tables.values() for fact in table] == []
    assert desk.store.safe.queues() == []
    assert len(desk.broker.topics) == 0


@pytest.mark.parametrize("mode", [RetentionMode.OVERRIDE, RetentionMode.FIFO, RetentionMode.LIFO])
def test_retained_messages_and_their_mode_survive(desk: Desk, mode: int) -> None:
    publisher = desk.connect("publisher")
    publisher.register("a", alias=1, mode=mode, expiry_s=100)
    for number in range(3):
        publisher.publish(1, b"%d" % number, qos=1, id=1, retain=True)
    publisher.publish(1, b"brief", qos=1, id=1, retain=True, extension=PublishExtension(ttl_ms=1_000))
    after = desk.restarted(after_s=50)
    publisher = after.connect("other")
    subscriber = after.connect("subscriber")
    subscriber.subscribe("a", alias=1)
    expected = {0: [], 1: [b"0", b"1", b"2"], 2: [b"2", b"1", b"0"]}[mode]
    assert subscriber.payloads() == expected
    after.advance(50)
    late = after.connect("late")
    late.subscribe("a", alias=1)
    assert late.payloads() == []
    assert (after.broker.topics.retained_count, after.broker.topics.retained_bytes) == (0, 0)


def test_a_topic_goes_on_numbering_what_it_retains(desk: Desk) -> None:
    publisher = desk.connect("publisher")
    publisher.register("a", alias=1, mode=RetentionMode.FIFO)
    publisher.publish(1, b"before", qos=1, id=1, retain=True)
    after = desk.restarted()
    publisher = after.connect("publisher")
    publisher.register("a", alias=1, mode=RetentionMode.FIFO)
    publisher.publish(1, b"after", qos=1, id=1, retain=True)
    last = after.restarted().connect("subscriber")
    last.subscribe("a", alias=1)
    assert last.payloads() == [b"before", b"after"]


def test_topics_past_the_limit_of_the_new_broker_are_not_recovered(desk: Desk) -> None:
    publisher = desk.connect("publisher")
    for alias, topic in enumerate(("a", "b"), 1):
        publisher.register(topic, alias=alias, mode=RetentionMode.FIFO)
        publisher.publish(alias, b"x", qos=1, id=1, retain=True)
    after = Desk(Limits(max_topics=1), store=CommitStore(desk.store.safe, commits_itself=True))
    assert (len(after.broker.topics), after.broker.topics.retained_count) == (1, 1)


def test_types_survive(desk: Desk) -> None:
    publisher = desk.connect("publisher")
    publisher.register("a", alias=1)
    announced = PubType(False, False, 1, 0, TypeFormat.JSON_SCHEMA, 5, "a", "application/json", b"{}")
    publisher.send(announced)
    asker = desk.restarted().connect("asker")
    asker.send(TypeReq(3, "#"))
    assert asker.take(PubType) == [PubType(False, True, 3, 0, 1, 5, "a", "application/json", b"{}")]


def test_a_topic_nobody_needs_is_forgotten_with_the_broker_that_crashed(desk: Desk) -> None:
    desk.connect("publisher").register("a", alias=1, mode=RetentionMode.FIFO)
    after = desk.restarted()
    assert len(after.broker.topics) == 0
    assert len(after.restarted().broker.topics) == 0
