"""SUBSCRIBE and UNSUBSCRIBE: options, identifiers, overlaps, shared subscriptions, `$` topics."""

from __future__ import annotations

import pytest

from moq.broker.message import Message
from moq.config import Limits
from moq.reasons import Reason
from moq.wire import mqtt
from tests.broker.desk import Desk
from tests.broker.mqtt.scripted import MQTTClient, connect, lasting

each_version = pytest.mark.parametrize("version", [4, 5])


def identifiers(message: mqtt.Publish) -> list[int] | None:
    return message.properties.subscription_identifiers if message.properties is not None else None


# [MQTT-3.8.4-1] [MQTT-3.8.4-5] [MQTT-3.8.4-6] [MQTT-3.9.3-2]
@each_version
def test_each_filter_gets_its_own_reason_in_order(desk: Desk, version: int) -> None:
    client = connect(desk, "alice", version)
    filters = ["a", "b/#", "c#", "+/d", "e/+x"]
    answers = client.ask(*(mqtt.Subscription(filter_, number % 3) for number, filter_ in enumerate(filters)))
    refused = Reason.TOPIC_FILTER_INVALID if version == 5 else Reason.UNSPECIFIED_ERROR
    assert answers == [0, 1, refused, 0, refused]


def test_too_many_subscriptions_are_refused() -> None:
    desk = Desk(Limits(max_subscriptions_per_session=1))
    client = connect(desk, "alice")
    assert client.ask(mqtt.Subscription("a", 0), mqtt.Subscription("b", 0)) == [0, Reason.QUOTA_EXCEEDED]


# [MQTT-3.8.4-3]
def test_a_filter_that_is_subscribed_again_is_replaced(desk: Desk) -> None:
    client = connect(desk, "alice")
    client.subscribe("a", 2, identifier=1)
    client.subscribe("a", 0, identifier=2)
    client.publish("a", b"x", qos=1, id=1)
    (message,) = client.messages()
    assert (message.qos, identifiers(message)) == (0, [2])


# [MQTT-3.3.4-2] [MQTT-3.3.4-3] [MQTT-3.3.4-4]
def test_overlapping_subscriptions_get_one_copy_with_every_identifier(desk: Desk) -> None:
    client = connect(desk, "alice")
    client.subscribe("a/b", 0, identifier=1)
    client.subscribe("a/+", 2, identifier=268_435_455)
    client.subscribe("#", 1)
    client.publish("a/b", b"x", qos=2, id=1)
    (message,) = client.messages()
    assert message.qos == 2
    assert sorted(identifiers(message) or ()) == [1, 268_435_455]


def test_recipients_with_other_identifiers_get_other_bytes(desk: Desk) -> None:
    clients = [connect(desk, name) for name in ("alice", "bob", "carol", "dave")]
    for client, identifier in zip(clients, (1, 1, 2, None), strict=True):
        client.subscribe("a", identifier=identifier)
    connect(desk, "publisher").publish("a", b"x")
    assert [identifiers(message) for client in clients for message in client.messages()] == [[1], [1], [2], None]


# [MQTT-3.8.3-3]
def test_no_local_spares_a_client_its_own_messages(desk: Desk) -> None:
    alice, bob = connect(desk, "alice"), connect(desk, "bob")
    alice.subscribe("a", no_local=True)
    alice.publish("a", b"own")
    bob.publish("a", b"other")
    assert alice.payloads() == [b"other"]


# [MQTT-4.7.2-1]
@each_version
def test_leading_wildcards_do_not_match_topics_of_the_broker(desk: Desk, version: int) -> None:
    client = connect(desk, "alice", version)
    client.subscribe("#")
    client.subscribe("+/a")
    client.subscribe("$SYS/#")
    desk.broker.route(Message("$SYS/a", b"x"), desk.now)
    assert [packet.topic for packet in client.messages()] == ["$SYS/a"]


# [MQTT-4.7.3-4] [MQTT-3.3.2-3]
def test_topics_are_compared_as_they_are(desk: Desk) -> None:
    client = connect(desk, "alice")
    client.subscribe("a/é")
    for topic in ("a/e\u0301", "A/é", "a//é", "/a/é", "a/é"):
        client.publish(topic, topic.encode())
    assert client.payloads() == ["a/é".encode()]


# [MQTT-3.10.4-1] [MQTT-3.10.4-2] [MQTT-3.10.4-4] [MQTT-3.10.4-5] [MQTT-3.10.4-6] [MQTT-3.11.3-2]
def test_unsubscribing_answers_for_each_filter(desk: Desk) -> None:
    client = connect(desk, "alice")
    for filter_ in ("a/+", "b", "$share/g/c"):
        client.subscribe(filter_)
    answers = client.unsubscribe("a/+", "a/b", "$share/g/c", "$share/g", "#/x")
    assert answers == [
        Reason.SUCCESS,
        Reason.NO_SUBSCRIPTION_EXISTED,
        Reason.SUCCESS,
        Reason.TOPIC_FILTER_INVALID,
        Reason.TOPIC_FILTER_INVALID,
    ]
    for topic in ("a/b", "b", "c"):
        client.publish(topic, topic.encode())
    assert client.payloads() == [b"b"]


def test_unsuback_of_3_1_1_has_no_reasons(desk: Desk) -> None:
    assert connect(desk, "alice", 4).unsubscribe("a") == []


# [MQTT-3.10.4-3]
def test_what_was_sent_before_unsubscribing_is_completed(desk: Desk) -> None:
    client = connect(desk, "alice")
    client.subscribe("a", 2)
    client.publish("a", b"x", qos=2, id=1)
    (message,) = client.messages()
    client.unsubscribe("a")
    client.send(mqtt.PubRec(message.packet_id))
    assert mqtt.PubRel(message.packet_id) in client.read()


# --- shared subscriptions -----------------------------------------------------------------------------


# [MQTT-4.8.2-1] [MQTT-4.8.2-2]
@pytest.mark.parametrize(
    "filter_", ["$share", "$share/", "$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/g#/a"]
)
def test_a_shared_subscription_has_a_name_and_a_filter(desk: Desk, filter_: str) -> None:
    assert connect(desk, "alice").ask(mqtt.Subscription(filter_, 0)) == [Reason.TOPIC_FILTER_INVALID]


# [MQTT-3.8.3-4]
def test_no_local_on_a_shared_subscription_is_a_protocol_error(desk: Desk) -> None:
    client = connect(desk, "alice")
    client.send(mqtt.Subscribe(1, None, [mqtt.Subscription("$share/g/a", 0, no_local=True)]))
    assert [packet.reason for packet in client.take(mqtt.Disconnect)] == [Reason.PROTOCOL_ERROR]


@pytest.mark.parametrize("version", [4, 5])
def test_members_share_messages(desk: Desk, version: int) -> None:
    members = [connect(desk, name, version) for name in ("alice", "bob")]
    for member in members:
        member.subscribe("$share/g/a/+")
    publisher = connect(desk, "publisher")
    for number in range(6):
        publisher.publish("a/b", b"%d" % number)
    shares = [member.payloads() for member in members]
    assert sorted(shares[0] + shares[1]) == [b"%d" % number for number in range(6)]
    assert [len(share) for share in shares] == [3, 3]


# [MQTT-4.8.2-3]
def test_a_member_gets_the_qos_it_was_granted(desk: Desk) -> None:
    member = connect(desk, "alice")
    member.subscribe("$share/g/a", 1, identifier=5)
    connect(desk, "publisher").publish("a", b"x", qos=2, id=1)
    (message,) = member.messages()
    assert (message.qos, identifiers(message)) == (1, [5])


# [MQTT-4.8.2-4]
def test_qos_2_to_a_member_is_completed_when_it_is_back(desk: Desk) -> None:
    members = {name: connect(desk, name, clean=False, properties=lasting()) for name in ("alice", "bob")}
    for member in members.values():
        member.subscribe("$share/g/a", 2)
    connect(desk, "publisher").publish("a", b"x", qos=2, id=1)
    (chosen,) = [name for name, member in members.items() if member.payloads()]
    members[chosen].lost()
    (other,) = [member for name, member in members.items() if name != chosen]
    assert other.messages() == []
    (again,) = connect(desk, chosen, clean=False, properties=lasting()).messages()
    assert again.dup


# [MQTT-4.8.2-6]
@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_member_refuses_is_given_to_no_other(desk: Desk, qos: int) -> None:
    members = [connect(desk, name) for name in ("alice", "bob")]
    for member in members:
        member.subscribe("$share/g/a", qos)
    connect(desk, "publisher").publish("a", b"x", qos=qos, id=1)
    for member in members:
        for message in member.messages():
            refusal = mqtt.PubAck if qos == 1 else mqtt.PubRec
            member.send(refusal(message.packet_id, Reason.QUOTA_EXCEEDED))
    assert [member.messages() for member in members] == [[], []]


def test_a_client_of_the_same_filter_in_and_out_of_a_group_gets_both(desk: Desk) -> None:
    client: MQTTClient = connect(desk, "alice")
    client.subscribe("a")
    client.subscribe("$share/g/a")
    connect(desk, "publisher").publish("a", b"x")
    assert client.payloads() == [b"x", b"x"]
