"""Acknowledged implies stored: each step that promises something waits until the store has made it safe."""

from __future__ import annotations

from moq.reasons import Reason
from moq.wire import PubAck, PubSyn
from tests.broker.desk import PERSISTENT, Client, Desk


def pair(desk: Desk, qos: int) -> tuple[Client, Client]:
    publisher = desk.connect("publisher", settings=PERSISTENT)
    subscriber = desk.connect("subscriber", settings=PERSISTENT)
    publisher.register("a", alias=1)
    subscriber.subscribe("a", alias=1, qos=qos)
    desk.hold_commits()
    return publisher, subscriber


def test_a_qos_1_acknowledgement_waits_for_the_store(desk: Desk) -> None:
    publisher, _ = pair(desk, qos=1)
    publisher.publish(1, b"x", qos=1, id=1)
    assert publisher.read() == []
    desk.commit()
    assert publisher.read() == [PubAck(0, 1, Reason.SUCCESS)]


def test_acknowledgements_leave_in_the_order_of_their_messages(desk: Desk) -> None:
    publisher, _ = pair(desk, qos=1)
    publisher.publish(1, b"x", qos=1, id=1)
    desk.store.commit()
    publisher.publish(1, b"y", qos=1, id=2)
    desk.broker.on_durable(desk.now)
    assert publisher.read() == [PubAck(0, 1, Reason.SUCCESS)]
    desk.commit()
    assert publisher.read() == [PubAck(0, 2, Reason.SUCCESS)]


def test_with_nothing_to_store_the_acknowledgement_is_sent_at_once(desk: Desk) -> None:
    publisher = desk.connect("publisher")
    publisher.register("a", alias=1)
    desk.hold_commits()
    publisher.publish(1, b"x", qos=1, id=1)
    assert publisher.read() == [PubAck(0, 1, Reason.SUCCESS)]


def test_a_qos_2_receipt_and_completion_wait_for_the_store(desk: Desk) -> None:
    publisher, _ = pair(desk, qos=0)
    publisher.publish(1, b"x", qos=2, id=1)
    assert publisher.read() == []
    desk.commit()
    assert publisher.read() == [PubSyn(0, 1, Reason.SUCCESS)]
    publisher.pubsyn(1, Reason.RELEASE)
    assert publisher.read() == []
    desk.commit()
    assert publisher.read() == [PubAck(0, 1, Reason.SUCCESS)]


def test_a_qos_2_message_leaves_only_when_its_identifier_is_safe(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=2)
    publisher.publish(1, b"x", qos=2, id=1)
    publisher.publish(1, b"y", qos=2, id=2)
    assert subscriber.read() == []
    desk.commit()
    assert subscriber.payloads() == [b"x"]
    desk.commit()
    assert subscriber.payloads() == [b"y"]


def test_a_qos_1_message_need_not_wait(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=1)
    publisher.publish(1, b"x", qos=1, id=1)
    assert subscriber.payloads() == [b"x"]


def test_a_release_to_a_subscriber_waits_for_the_store_on_every_connection(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=2)
    publisher.publish(1, b"x", qos=2, id=1)
    desk.commit()
    (message,) = subscriber.messages()
    subscriber.pubsyn(message.id)
    assert subscriber.read() == []
    subscriber.lost()
    subscriber = desk.connect("subscriber", resume=True, settings=PERSISTENT)
    assert subscriber.read() == []
    desk.commit()
    assert subscriber.read() == [PubSyn(0, message.id, Reason.RELEASE)]


def test_a_session_that_ended_is_not_disturbed_by_the_store(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=2)
    publisher.publish(1, b"x", qos=2, id=1)
    subscriber.lost()
    desk.connect("subscriber")
    desk.commit()
    assert desk.restarted().broker.sessions.get("subscriber") is None


def test_what_was_acknowledged_survives_a_crash(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=1)
    subscriber.lost()
    publisher.publish(1, b"acknowledged", qos=1, id=1)
    desk.commit()
    assert publisher.read() == [PubAck(0, 1, Reason.SUCCESS)]
    publisher.publish(1, b"not acknowledged", qos=1, id=2)
    after = desk.restarted()
    assert after.connect("subscriber", resume=True, settings=PERSISTENT).payloads() == [b"acknowledged"]
