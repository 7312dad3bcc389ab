"""What MQTT 5 adds to messages and answers: aliases, expiry, sizes, formats, properties passed on, reasons in words."""

from __future__ import annotations

import pytest

from moq.broker.access import Action, Actor, OpenAccess
from moq.broker.dialects import mqtt_outlets, mqtt_topics
from moq.reasons import Reason
from moq.wire import mqtt
from tests.broker.desk import Desk
from tests.broker.mqtt.scripted import MQTTClient, connect, lasting

EVERYTHING = mqtt.Properties(
    payload_format_indicator=1,
    content_type="text/plain",
    response_topic="back/here",
    correlation_data=b"\0\xff",
    user_properties=[("b", "2"), ("a", "1"), ("b", "2")],
)


def pair(desk: Desk, properties: mqtt.Properties | None = None, qos: int = 0) -> tuple[MQTTClient, MQTTClient]:
    publisher, subscriber = connect(desk, "publisher"), connect(desk, "subscriber", properties=properties)
    subscriber.subscribe("a/#", qos)
    return publisher, subscriber


def goodbye(client: MQTTClient) -> list[int]:
    assert client.is_closed
    return [packet.reason for packet in client.take(mqtt.Disconnect)]


# [MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20]
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_properties_are_passed_on_unchanged_and_in_order(desk: Desk, qos: int) -> None:
    publisher, subscriber = pair(desk, qos=2)
    publisher.publish("a", b"x", qos=qos, id=1 if qos else 0, properties=EVERYTHING)
    assert [message.properties for message in subscriber.messages()] == [EVERYTHING]


def test_recipients_of_the_same_properties_share_the_bytes(desk: Desk) -> None:
    publisher, first = pair(desk)
    second, old = connect(desk, "second"), connect(desk, "old", 4)
    second.subscribe("a/#")
    old.subscribe("a/#")
    publisher.publish("a", b"x", properties=EVERYTHING)
    assert [message.properties for client in (first, second) for message in client.messages()] == [EVERYTHING] * 2
    assert old.messages() == [mqtt.Publish(False, 0, False, "a", 0, None, b"x")]


# --- payload format -----------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_a_payload_that_is_not_the_text_it_claims_to_be_is_refused(desk: Desk, qos: int) -> None:
    publisher, subscriber = pair(desk, qos=2)
    text = mqtt.Properties(payload_format_indicator=1)
    publisher.publish("a", b"\xc3\x28", qos=qos, id=3, properties=text)
    (answer,) = publisher.read()
    assert isinstance(answer, mqtt.PubAck if qos == 1 else mqtt.PubRec)
    assert (answer.packet_id, answer.reason) == (3, Reason.PAYLOAD_FORMAT_INVALID)
    publisher.publish("a", "é".encode(), qos=qos, id=3, properties=text)
    assert subscriber.payloads() == ["é".encode()]


def test_at_qos_0_a_wrong_payload_format_ends_the_connection(desk: Desk) -> None:
    publisher, _ = pair(desk)
    publisher.publish("a", b"\xff", properties=mqtt.Properties(payload_format_indicator=1))
    assert goodbye(publisher) == [Reason.PAYLOAD_FORMAT_INVALID]


# --- expiry -------------------------------------------------------------------------------------------


# [MQTT-3.3.2-6]
def test_what_remains_of_the_expiry_is_told(desk: Desk) -> None:
    publisher, subscriber = pair(desk, lasting(), qos=1)
    subscriber.lost()
    publisher.publish("a", b"x", qos=1, id=1, properties=mqtt.Properties(message_expiry_interval=100))
    desk.advance(40)
    subscriber = connect(desk, "subscriber", clean=False)
    (message,) = subscriber.messages()
    assert message.properties == mqtt.Properties(message_expiry_interval=60)


# [MQTT-3.3.2-5]
def test_an_expired_message_is_not_delivered(desk: Desk) -> None:
    publisher, subscriber = pair(desk, lasting(), qos=1)
    subscriber.lost()
    publisher.publish("a", b"x", qos=1, id=1, properties=mqtt.Properties(message_expiry_interval=10))
    desk.advance(10)
    assert connect(desk, "subscriber", clean=False).messages() == []


# [MQTT-4.3.3-7]
def test_a_message_that_was_sent_does_not_expire(desk: Desk) -> None:
    publisher, subscriber = pair(desk, lasting(), qos=2)
    publisher.publish("a", b"x", qos=2, id=1, properties=mqtt.Properties(message_expiry_interval=10))
    subscriber.lost()
    desk.advance(20)
    (message,) = connect(desk, "subscriber", clean=False).messages()
    assert message.properties == mqtt.Properties(message_expiry_interval=0)


def test_a_retained_message_expires(desk: Desk) -> None:
    publisher, _ = pair(desk)
    publisher.publish("a", b"x", retain=True, properties=mqtt.Properties(message_expiry_interval=10))
    desk.advance(10)
    late = connect(desk, "late")
    late.subscribe("a")
    assert late.messages() == []


# --- sizes --------------------------------------------------------------------------------------------


# [MQTT-3.1.2-24] [MQTT-3.1.2-25]
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [100, 10_000])
def test_a_message_too_large_for_its_subscriber_counts_as_delivered(desk: Desk, qos: int, size: int) -> None:
    publisher, subscriber = pair(desk, mqtt.Properties(maximum_packet_size=100), qos=2)
    publisher.publish("a", b"x" * size, qos=qos, id=1 if qos else 0)
    publisher.publish("a", b"x" * size, qos=qos, id=2 if qos else 0, properties=EVERYTHING)
    publisher.publish("a", b"small", qos=qos, id=3 if qos else 0)
    assert subscriber.payloads() == [b"small"]
    assert desk.figures.dropped_undeliverable == 2


def test_a_packet_too_large_for_the_broker_ends_the_connection(desk: Desk) -> None:
    publisher, _ = pair(desk)
    publisher.send_bytes(b"\x30\xff\xff\xff\x7f")
    assert goodbye(publisher) == [Reason.PACKET_TOO_LARGE]


def test_properties_and_identifiers_that_no_packet_can_hold_are_not_sent(desk: Desk) -> None:
    publisher, subscriber = pair(desk)
    for filter_ in ("#", "+/#"):
        subscriber.subscribe(filter_, identifier=268_435_455)
    nearly = mqtt.Properties(user_properties=[("k" * 65_000, "v" * 65_000)] * 4 + [("k", "v" * 4_250)])
    publisher.publish("a", b"", properties=nearly)
    assert subscriber.messages() == []
    assert not publisher.is_closed
    assert desk.figures.dropped_undeliverable == 1


# --- topic aliases ------------------------------------------------------------------------------------


def aliased(alias: int) -> mqtt.Properties:
    return mqtt.Properties(topic_alias=alias)


# [MQTT-3.3.2-12]
@pytest.mark.parametrize("alias", [1, 1000])
def test_an_alias_stands_for_the_topic_it_was_set_with(desk: Desk, alias: int) -> None:
    publisher, subscriber = pair(desk)
    publisher.publish("a/1", b"1", properties=aliased(alias))
    publisher.publish("", b"2", properties=aliased(alias))
    publisher.publish("a/2", b"3", properties=aliased(alias))
    publisher.publish("", b"4", properties=aliased(alias), qos=1, id=1)
    assert [message.topic for message in subscriber.messages()] == ["a/1", "a/1", "a/2", "a/2"]


def test_an_alias_that_was_not_set_is_a_protocol_error(desk: Desk) -> None:
    publisher, _ = pair(desk)
    publisher.publish("", b"x", properties=aliased(1))
    assert goodbye(publisher) == [Reason.PROTOCOL_ERROR]


# [MQTT-3.2.2-17]
def test_an_alias_above_the_maximum_is_invalid(desk: Desk) -> None:
    publisher, _ = pair(desk)
    publisher.publish("a", b"x", properties=aliased(1001))
    assert goodbye(publisher) == [Reason.TOPIC_ALIAS_INVALID]


# [MQTT-3.3.2-7]
def test_an_alias_ends_with_its_connection(desk: Desk) -> None:
    publisher = connect(desk, "publisher", properties=lasting())
    publisher.publish("a", b"x", properties=aliased(1))
    publisher.lost()
    publisher = connect(desk, "publisher", clean=False)
    publisher.publish("", b"x", properties=aliased(1))
    assert goodbye(publisher) == [Reason.PROTOCOL_ERROR]


# [MQTT-3.1.2-26] [MQTT-3.3.2-11]
def test_the_broker_sets_as_many_aliases_as_the_client_allows(desk: Desk) -> None:
    publisher, subscriber = pair(desk, mqtt.Properties(topic_alias_maximum=2), qos=1)
    for topic in ("a/1", "a/2", "a/3", "a/1", "a/2", "a/3"):
        publisher.publish(topic, b"x")
    publisher.publish("a/1", b"x", qos=1, id=1, properties=mqtt.Properties(content_type="t"))
    publisher.publish("a/1", b"x", qos=1, id=2)
    said = [(m.topic, m.properties.topic_alias if m.properties else None) for m in subscriber.messages()]
    assert said == [
        ("a/1", 1), ("a/2", 2), ("a/3", None), ("", 1), ("", 2), ("a/3", None), ("", 1), ("", 1),
    ]  # fmt: skip


# [MQTT-3.1.2-27]
def test_without_leave_the_broker_sets_no_alias(desk: Desk) -> None:
    publisher, subscriber = pair(desk)
    for _ in range(2):
        publisher.publish("a", b"x", properties=EVERYTHING)
    assert [(m.topic, m.properties) for m in subscriber.messages()] == [("a", EVERYTHING)] * 2


def test_an_alias_is_not_set_with_a_message_that_was_too_large(desk: Desk) -> None:
    limits = mqtt.Properties(topic_alias_maximum=5, maximum_packet_size=50)
    publisher, subscriber = pair(desk, limits)
    publisher.publish("a", b"x" * 100)
    publisher.publish("a", b"1")
    publisher.publish("a", b"2")
    assert [message.topic for message in subscriber.messages()] == ["a", ""]


def test_topics_a_connection_remembers_are_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_outlets, "MAX_KNOWN_TOPICS", 2)
    monkeypatch.setattr(mqtt_topics, "MAX_KNOWN_NAMES", 2)
    publisher, subscriber = pair(desk)
    for number in range(5):
        publisher.publish(f"a/{number}", b"x")
    assert [message.topic for message in subscriber.messages()] == [f"a/{number}" for number in range(5)]


# --- reasons ------------------------------------------------------------------------------------------


class Picky(OpenAccess):
    def allows(self, actor: Actor, action: Action, topic: str) -> bool:
        return topic != "secret"


@pytest.fixture
def picky() -> Desk:
    return Desk(access=Picky())


# [MQTT-3.4.2-1] [MQTT-3.5.2-1]
@pytest.mark.parametrize("qos", [1, 2])
def test_who_may_not_publish_is_told_so(picky: Desk, qos: int) -> None:
    client = connect(picky, "alice")
    client.publish("secret", b"x", qos=qos, id=1)
    kind = mqtt.PubAck if qos == 1 else mqtt.PubRec
    assert client.read() == [kind(1, Reason.NOT_AUTHORIZED)]


CLOSED = "$moq/response/9"
"""A request nobody asked: MQTT has no code for that."""


# [MQTT-3.4.2-1] [MQTT-3.5.2-1]
@pytest.mark.parametrize("qos", [1, 2])
def test_a_reason_that_mqtt_has_no_code_for_is_told_in_words(desk: Desk, qos: int) -> None:
    client = connect(desk, "alice")
    client.publish(CLOSED, b"x", qos=qos, id=1)
    kind = mqtt.PubAck if qos == 1 else mqtt.PubRec
    words = mqtt.Properties(reason_string="request closed (0xc3)")
    assert client.read() == [kind(1, Reason.IMPLEMENTATION_SPECIFIC_ERROR, words)]


# [MQTT-3.1.2-29]
def test_who_wants_no_reasons_gets_the_code_alone(desk: Desk) -> None:
    client = connect(desk, "alice", properties=mqtt.Properties(request_problem_information=False))
    client.publish(CLOSED, b"x", qos=1, id=1)
    assert client.read() == [mqtt.PubAck(1, Reason.IMPLEMENTATION_SPECIFIC_ERROR)]


# [MQTT-3.4.2-2] [MQTT-3.5.2-2]
@pytest.mark.parametrize("qos", [1, 2])
def test_words_that_are_too_large_for_the_client_are_left_out(desk: Desk, qos: int) -> None:
    client = connect(desk, "alice", properties=mqtt.Properties(maximum_packet_size=25))
    client.publish(CLOSED, b"x", qos=qos, id=1)
    kind = mqtt.PubAck if qos == 1 else mqtt.PubRec
    assert client.read() == [kind(1, Reason.IMPLEMENTATION_SPECIFIC_ERROR)]


# [MQTT-4.3.3-9]
def test_an_identifier_that_was_refused_is_free(picky: Desk) -> None:
    client = connect(picky, "alice")
    client.subscribe("a", 2)
    client.publish("secret", b"x", qos=2, id=1)
    client.publish("a", b"y", qos=2, id=1)
    assert client.payloads() == [b"y"]


@pytest.mark.parametrize("version", [4, 5])
def test_at_qos_0_what_may_not_be_published_is_dropped_and_counted(picky: Desk, version: int) -> None:
    client = connect(picky, "alice", version)
    client.publish("secret", b"x")
    if version == 5:
        client.publish("secret", b"x", properties=EVERYTHING)
    assert not client.is_closed
    assert picky.figures.dropped_not_authorized == (2 if version == 5 else 1)


@pytest.mark.parametrize("qos", [1, 2])
def test_3_1_1_has_no_refusals_so_the_message_is_acknowledged_and_dropped(picky: Desk, qos: int) -> None:
    client = connect(picky, "alice", 4)
    client.publish("secret", b"x", qos=qos, id=1)
    assert client.read() == [mqtt.PubAck(1) if qos == 1 else mqtt.PubRec(1)]
    assert picky.figures.dropped_not_authorized == 1
    if qos == 2:
        client.send(mqtt.PubRel(1))
        assert client.read() == [mqtt.PubComp(1)]


def test_who_may_not_subscribe_is_told_so(picky: Desk) -> None:
    assert connect(picky, "alice").ask(mqtt.Subscription("secret", 0)) == [Reason.NOT_AUTHORIZED]
    assert connect(picky, "bob", 4).ask(mqtt.Subscription("secret", 0)) == [0x80]
