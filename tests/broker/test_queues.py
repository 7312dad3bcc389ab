"""What waits for a persistent session: in the store, bounded, in order, read as its client takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from moq.broker.backlog import Backlog
from moq.broker.delivery import Delivery
from moq.broker.environment import Environment
from moq.broker.message import Message
from moq.config import Limits
from moq.reasons import Reason
from moq.wire import PubAck, PublishExtension, PubSyn, Register, Subscribe, TopAck, TopReq, mqtt
from tests.broker.desk import PERSISTENT, Client, Desk
from tests.broker.mqtt.scripted import connect, lasting
from tests.broker.stores import CommitStore

if TYPE_CHECKING:
    from moq.broker.outbound import Outbound

SMALL = Limits(max_queued_messages=3)
TINY = Limits(max_inflight=2, max_queued_in_memory=4)


def absent(desk: Desk, *, qos: int = 1, group: str | None = None, name: str = "subscriber") -> None:
    """A subscriber to `a` that was here and will be back."""
    subscriber = desk.connect(name, settings=PERSISTENT)
    subscriber.subscribe("a", alias=1, qos=qos, group=group)
    subscriber.lost()


def publisher_of(desk: Desk) -> Client:
    publisher = desk.connect("publisher")
    publisher.register("a", alias=1)
    return publisher


def publish(publisher: Client, *payloads: bytes, qos: int = 1, first_id: int = 1) -> None:
    for id_, payload in enumerate(payloads, first_id):
        publisher.publish(1, payload, qos=qos, id=id_)


def back(desk: Desk, name: str = "subscriber") -> Client:
    return desk.connect(name, resume=True, settings=PERSISTENT)


def outbound(desk: Desk, name: str = "subscriber") -> Outbound:
    session = desk.broker.sessions.get(name)
    assert session is not None
    return session.outbound


def answer_all(client: Client) -> list[bytes]:
    """Acknowledge every message as it comes; what came, in order."""
    payloads: list[bytes] = []
    while messages := client.messages():
        for message in messages:
            payloads.append(message.payload)
            client.puback(message.id)
    return payloads


def numbers(count: int) -> list[bytes]:
    return [b"%03d" % number for number in range(count)]


def test_nothing_is_in_memory_for_an_absent_client() -> None:
    desk = Desk()
    absent(desk)
    publish(publisher_of(desk), *numbers(50))
    assert (outbound(desk).waiting, outbound(desk).waiting_bytes) == (50, 150)
    assert (outbound(desk).held_messages, outbound(desk).held_bytes) == (0, 0)


def test_a_backlog_is_read_as_its_client_takes_it() -> None:
    desk = Desk(TINY)
    absent(desk)
    publish(publisher_of(desk), *numbers(600))
    client = back(desk)
    most, payloads = 0, []
    while messages := client.messages():
        for message in messages:
            payloads.append(message.payload)
            client.puback(message.id)
            most = max(most, outbound(desk).held_messages)
    assert payloads == numbers(600)
    assert most <= 256 + 4 + 2, "a page, what may wait and what is in flight"
    assert desk.store.queues() == []


def test_a_slow_client_leaves_the_rest_in_the_store_and_order_holds() -> None:
    desk = Desk(TINY)
    subscriber = desk.connect("subscriber", settings=PERSISTENT)
    subscriber.subscribe("a", alias=1, qos=1)
    publisher = publisher_of(desk)
    publish(publisher, *numbers(20))
    assert outbound(desk).held_messages == 2 + 4
    assert answer_all(subscriber) == numbers(20)


def test_messages_that_come_while_the_backlog_is_read_stay_behind_it() -> None:
    desk = Desk(TINY)
    absent(desk)
    publisher = publisher_of(desk)
    publish(publisher, *numbers(10))
    desk.hold_commits()
    client = back(desk)
    publish(publisher, *numbers(20)[10:], first_id=11)
    assert client.messages() == [], "the store has not answered yet"
    payloads: list[bytes] = []
    for _ in range(20):
        desk.commit()
        payloads += answer_all(client)
    assert payloads == numbers(20)


def test_what_was_in_flight_is_repeated_under_its_identifier_after_a_crash_too() -> None:
    desk = Desk()
    subscriber = desk.connect("subscriber", settings=PERSISTENT)
    subscriber.subscribe("a", alias=1, qos=1)
    publish(publisher_of(desk), b"x", b"y")
    sent = [(message.id, message.payload) for message in subscriber.messages()]
    subscriber.lost()
    again = back(desk.restarted()).messages()
    assert [(message.id, message.payload) for message in again] == sent
    assert all(message.packet.dup for message in again)


# --- policies -----------------------------------------------------------------------------------------


def test_a_full_queue_drops_its_oldest() -> None:
    desk = Desk(SMALL)
    absent(desk)
    publish(publisher_of(desk), *numbers(5))
    assert desk.figures.dropped_queue_full == 2
    assert answer_all(back(desk)) == numbers(5)[2:]


def test_a_full_queue_drops_its_newest_if_told_to() -> None:
    desk = Desk(SMALL, queue_policy="drop-newest")
    absent(desk)
    publisher = publisher_of(desk)
    publish(publisher, *numbers(5))
    assert [answer.reason for answer in publisher.take(PubAck)] == [Reason.SUCCESS] * 5
    assert desk.figures.dropped_queue_full == 2
    assert answer_all(back(desk)) == numbers(3)


def test_a_full_queue_refuses_its_publisher_if_told_to_and_nobody_gets_the_message() -> None:
    desk = Desk(SMALL, queue_policy="refuse")
    absent(desk, qos=2)
    other = desk.connect("other")
    other.subscribe("a", alias=1, qos=1)
    publisher = publisher_of(desk)
    publish(publisher, *numbers(3))
    assert [answer.reason for answer in publisher.take(PubAck)] == [Reason.SUCCESS] * 3
    publisher.publish(1, b"refused", qos=1, id=4)
    publisher.publish(1, b"refused", qos=2, id=5)
    assert publisher.read() == [PubAck(0, 4, Reason.QUOTA_EXCEEDED), PubSyn(0, 5, Reason.QUOTA_EXCEEDED)]
    assert other.payloads() == numbers(3)
    assert desk.figures.refused_queue_full == 2
    client = back(desk)
    assert answer_all(client) == numbers(3)
    publisher.publish(1, b"taken", qos=2, id=5)
    assert publisher.read() == [PubSyn(0, 5, Reason.SUCCESS)]


def test_a_group_refuses_only_when_every_member_is_full() -> None:
    desk = Desk(SMALL, queue_policy="refuse")
    absent(desk, group="g")
    absent(desk, group="g", name="second")
    publisher = publisher_of(desk)
    publish(publisher, *numbers(7))
    assert [answer.reason for answer in publisher.take(PubAck)] == [Reason.SUCCESS] * 6 + [Reason.QUOTA_EXCEEDED]


def test_mqtt_5_hears_the_refusal_and_3_1_1_is_closed_without_an_acknowledgement() -> None:
    desk = Desk(SMALL, queue_policy="refuse")
    absent(desk)
    new, old = connect(desk, "new"), connect(desk, "old", version=4)
    for id_, payload in enumerate(numbers(4), 1):
        new.publish("a", payload, qos=1, id=id_)
    assert [answer.reason for answer in new.take(mqtt.PubAck)] == [Reason.SUCCESS] * 3 + [Reason.QUOTA_EXCEEDED]
    old.publish("a", b"x", qos=1, id=1)
    assert (old.read(), old.is_closed) == ([], True)


def test_bytes_are_bounded_as_messages_are() -> None:
    desk = Desk(Limits(max_queued_bytes=10))
    absent(desk)
    publish(publisher_of(desk), b"aaaa", b"bbbb", b"cccccc", b"d" * 11)
    assert answer_all(back(desk)) == [b"bbbb", b"cccccc"]
    assert desk.figures.dropped_queue_full == 2


# --- expiry -------------------------------------------------------------------------------------------


def test_what_expires_while_its_client_is_away_makes_room() -> None:
    desk = Desk(SMALL, queue_policy="refuse")
    absent(desk)
    publisher = publisher_of(desk)
    for id_, payload in enumerate(numbers(3), 1):
        publisher.publish(1, payload, qos=1, id=id_, extension=PublishExtension(ttl_ms=5000))
    desk.advance(11)
    assert (outbound(desk).waiting, desk.figures.dropped_expired) == (0, 3)
    publish(publisher, b"new", first_id=9)
    assert publisher.take(PubAck)[-1].reason == Reason.SUCCESS
    assert answer_all(back(desk)) == [b"new"]


def test_expired_messages_of_an_earlier_broker_are_swept() -> None:
    desk = Desk()
    absent(desk)
    publisher = publisher_of(desk)
    publisher.publish(1, b"short", qos=1, id=1, extension=PublishExtension(ttl_ms=5000))
    publisher.publish(1, b"long", qos=1, id=2, extension=PublishExtension(ttl_ms=50_000))
    after = desk.restarted(after_s=6)
    assert outbound(after).waiting == 1
    after.advance(60)
    assert outbound(after).waiting == 0
    assert after.store.queues() == []


# --- groups -------------------------------------------------------------------------------------------


def test_a_stored_share_moves_on_to_a_member_that_is_there() -> None:
    desk = Desk()
    leaving = desk.connect("leaving", settings=PERSISTENT)
    leaving.subscribe("a", alias=1, qos=1, group="g")
    publisher = publisher_of(desk)
    publish(publisher, *numbers(4))
    staying = desk.connect("staying")
    staying.subscribe("a", alias=1, qos=1, group="g")
    leaving.lost()
    assert sorted(answer_all(staying)) == numbers(4)
    assert outbound(desk, "leaving").waiting == 0
    assert desk.store.queues() == []


def test_the_share_of_an_ended_session_goes_to_a_member_that_is_away_and_survives_crashes() -> None:
    desk = Desk()
    absent(desk, group="g", name="ending")
    publish(publisher_of(desk), *numbers(4))
    absent(desk, group="g", name="heir")
    desk.hold_commits()
    desk.connect("ending", settings=PERSISTENT)  # anew: the old session is over
    desk.commit()  # its queue is an estate now, and the broker dies before it is given away
    after = desk.restarted()
    assert outbound(after, "heir").waiting == 4
    assert sorted(answer_all(back(after, "heir"))) == numbers(4)
    assert after.store.queues() == []


def test_what_one_member_may_have_got_at_qos_2_is_not_given_to_another() -> None:
    desk = Desk()
    leaving = desk.connect("leaving", settings=PERSISTENT)
    leaving.subscribe("a", alias=1, qos=2, group="g")
    publish(publisher_of(desk), b"x", qos=2)
    staying = desk.connect("staying")
    staying.subscribe("a", alias=1, qos=2, group="g")
    leaving.lost()
    assert staying.messages() == []
    assert [message.payload for message in back(desk, "leaving").messages()] == [b"x"]


# --- a store that does not keep up --------------------------------------------------------------------


def test_topic_requests_of_a_persistent_session_are_answered_once_they_are_safe() -> None:
    desk = Desk()
    lasting_, passing = desk.connect("lasting", settings=PERSISTENT), desk.connect("passing")
    desk.hold_commits()
    for client in (lasting_, passing):
        client.send(TopReq(1, [Subscribe(0, False, 1, "a"), Register(0, False, 2, "b")]))
    assert lasting_.read() == []
    assert passing.read() == [TopAck(1, bytes(2))]
    desk.commit()
    assert lasting_.read() == [TopAck(1, bytes(2))]


def test_mqtt_subscriptions_of_a_lasting_session_are_answered_once_they_are_safe() -> None:
    desk = Desk()
    publisher = publisher_of(desk)
    publisher.publish(1, b"kept", qos=1, id=1, retain=True)
    client = connect(desk, "plain", properties=lasting())
    desk.hold_commits()
    client.send(mqtt.Subscribe(1, None, [mqtt.Subscription("a", 1)]))
    assert client.read() == []
    desk.commit()
    answer, message = client.read()
    assert isinstance(answer, mqtt.SubAck)
    assert isinstance(message, mqtt.Publish)
    client.send(mqtt.Unsubscribe(2, None, ["a"]))
    assert client.read() == []
    desk.commit()
    assert isinstance(client.read()[0], mqtt.UnsubAck)


@pytest.mark.parametrize("qos", [1, 2])
def test_while_the_store_fails_nothing_that_must_be_kept_is_taken(qos: int) -> None:
    desk = Desk()
    subscriber = desk.connect("subscriber", settings=PERSISTENT)
    subscriber.subscribe("a", alias=1, qos=2)
    publisher = publisher_of(desk)
    desk.store.failure = "no space left"
    publisher.publish(1, b"kept", qos=qos, id=1)
    publisher.publish(1, b"not kept")
    (answer,) = publisher.read()
    assert isinstance(answer, PubAck | PubSyn)
    assert answer.reason == Reason.QUOTA_EXCEEDED
    assert subscriber.payloads() == [b"not kept"]
    assert subscriber.ask(Subscribe(1, False, 0, "b"), Register(0, False, 0, "c")) == [Reason.QUOTA_EXCEEDED] * 2
    assert desk.figures.refused_store == 3
    desk.store.failure = None
    publisher.publish(1, b"kept", qos=qos, id=1)
    assert subscriber.payloads() == [b"kept"]


def test_what_a_trim_reckons_is_never_more_than_there_is() -> None:
    backlog = Backlog("subscriber", Environment(store=CommitStore(commits_itself=True)))
    delivery = Delivery(Message("a", bytes(17), 1), None, 1)
    backlog.save(delivery)
    backlog.leave(delivery)
    assert backlog.trim(messages=0, size=18)
    assert (backlog.messages, backlog.size) == (0, 0)


def test_a_message_goes_out_when_room_was_made_of_all_that_was_before_it() -> None:
    desk = Desk(Limits(max_queued_messages=2, max_queued_in_memory=1))
    subscriber = desk.connect("subscriber", settings=PERSISTENT)
    subscriber.subscribe("a", alias=1, qos=1)
    subscriber.subscribe("b", alias=2, qos=1)
    publisher = publisher_of(desk)
    publisher.register("b", alias=2)
    subscriber.stall(1)
    publish(publisher, b"in memory", b"in the store")
    publisher.publish(2, b"next", qos=1, id=3)
    assert [message.payload for message in subscriber.messages()] == [b"next"]
    assert desk.broker.figures.dropped_queue_full == 1
