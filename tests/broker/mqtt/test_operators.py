"""Operators and reception periods as MQTT clients see them: SUBACK with words, options of subscriptions, sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from moq.reasons import Reason
from moq.wire import mqtt
from tests.broker.desk import Desk
from tests.broker.mqtt.scripted import MQTTClient, connect, lasting

if TYPE_CHECKING:
    from moq.wire.mqtt import SubAck


def suback(client: MQTTClient, *filters: str) -> SubAck:
    client.send(mqtt.Subscribe(1, None, [mqtt.Subscription(filter_, 0) for filter_ in filters]))
    (answer,) = client.take(mqtt.SubAck)
    return answer


def test_a_refusal_says_what_is_wrong_and_where(desk: Desk) -> None:
    answer = suback(connect(desk, "alice"), "$GT;1/a", "$GT;warm/a", "$EQ;a+b/c", "$share/g/$AVGG/d")
    assert answer.reasons == bytes((0, *[Reason.TOPIC_FILTER_INVALID] * 3))
    assert answer.properties is not None
    words = answer.properties.reason_string
    assert words is not None
    assert "$GT compares numbers; 'warm' is none (at character 4: 'warm/a')" in words
    assert "'+' in a value is written %2B" in words
    assert "there is no operator $AVGG" in words


def test_a_client_that_wants_no_words_gets_none(desk: Desk) -> None:
    client = connect(desk, "alice", properties=mqtt.Properties(request_problem_information=False))
    assert suback(client, "$AVGG/a") == mqtt.SubAck(1, None, bytes([Reason.TOPIC_FILTER_INVALID]))


def test_words_are_left_out_where_they_are_too_much_for_the_client(desk: Desk) -> None:
    client = connect(desk, "alice", properties=mqtt.Properties(maximum_packet_size=40))
    assert suback(client, "$AVGG/a").properties is None


def test_an_older_client_hears_that_it_failed(desk: Desk) -> None:
    client = connect(desk, "alice", version=mqtt.VERSION_3_1_1)
    assert client.ask(mqtt.Subscription("$AVGG/a", 0)) == [Reason.UNSPECIFIED_ERROR]


def test_thousands_of_refusals_have_words_of_bounded_length(desk: Desk) -> None:
    answer = suback(connect(desk, "alice"), *(f"$AVGG/{number}" for number in range(1_000)))
    assert answer.properties is not None
    assert len(answer.properties.reason_string or "") == 2_000


def test_no_local_holds_for_rules(desk: Desk) -> None:
    alice, bob = connect(desk, "alice"), connect(desk, "bob")
    alice.ask(mqtt.Subscription("$GT;0/a", 0, no_local=True))
    alice.publish("a", b"1")
    bob.publish("a", b"2")
    assert alice.payloads() == [b"2"]


def test_messages_that_pass_a_rule_keep_their_mark_if_asked_for(desk: Desk) -> None:
    alice, bob = connect(desk, "alice"), connect(desk, "bob")
    alice.ask(mqtt.Subscription("$GT;0/a", 1, retain_as_published=True))
    bob.ask(mqtt.Subscription("$GT;0/a", 1))
    bob.publish("a", b"1", qos=1, id=1, retain=True)
    assert [message.retain for client in (alice, bob) for message in client.messages()] == [True, False]


def test_a_publisher_can_mark_what_it_has_encrypted(desk: Desk) -> None:
    alice, bob = connect(desk, "alice"), connect(desk, "bob")
    alice.subscribe("$GT;0/a")
    bob.subscribe("a")
    marks = [("before", "1"), ("moq-encrypted", "1"), ("after", "2")]
    bob.publish("a", b"1", properties=mqtt.Properties(user_properties=marks))
    assert [message.topic for message in alice.messages()] == ["$ERROR/$GT;0/a"]
    (message,) = bob.messages()
    assert message.properties is not None
    assert message.properties.user_properties == marks


@pytest.mark.parametrize("filter_", ["$GT;0/a", "$SUM/+"])
def test_unsubscribing_before_the_subscription_is_safe_is_no_harm(filter_: str) -> None:
    desk = Desk()
    alice = connect(desk, "alice", properties=lasting())
    alice.publish("a", b"1", qos=1, id=1, retain=True)
    desk.hold_commits()
    alice.send(mqtt.Subscribe(1, None, [mqtt.Subscription(filter_, 0)]), mqtt.Unsubscribe(2, None, [filter_]))
    desk.commit()
    alice.publish("a", b"2")
    assert (alice.payloads(), len(desk.broker.stages)) == ([], 0)


def test_an_operator_subscription_is_resumed_with_its_identifier(desk: Desk) -> None:
    alice = connect(desk, "alice", properties=lasting())
    alice.subscribe("$SUM/+", 1, identifier=5)
    alice.lost()
    restarted = desk.restarted()
    connect(restarted, "publisher").publish("a", b"1")
    back = connect(restarted, "alice", clean=False, properties=lasting())
    (message,) = back.messages()
    assert (message.topic, message.payload) == ("$SUM/$AGGREGATE", b"1")
    assert message.properties is not None
    assert message.properties.subscription_identifiers == [5]


def test_the_second_copy_of_a_group_with_a_period_is_another_subscription(desk: Desk) -> None:
    alice, bob = connect(desk, "alice"), connect(desk, "bob")
    alice.subscribe("$share/g/$MRP;100/a")
    bob.subscribe("$share/g/a")
    for payload in (b"1", b"2"):
        bob.publish("a", payload)
    assert (alice.payloads(), bob.payloads()) == ([b"1"], [b"1", b"2"])
    desk.advance(1)
    assert alice.payloads() == [b"2"]
