"""Statements of MQTT 5 that no well-behaved client puts to the test, said to a running broker byte by byte."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from moq.reasons import Reason
from moq.wire import mqtt
from moq.wire.mqtt import Properties, Subscription
from tests.interop.raw import Raw, publish
from tests.vectors.mqtt_malformed import connect as connect_bytes
from tests.vectors.mqtt_malformed import packet

if TYPE_CHECKING:
    from collections.abc import Callable

    Open = Callable[..., Raw]

UNKNOWN_ID = 4711
LASTING = Properties(session_expiry_interval=600)


def resume(raw: Open, client_id: str, receive_maximum: int | None = None) -> Raw:
    """A connection of a session that lasts."""
    client = raw()
    properties = Properties(session_expiry_interval=600, receive_maximum=receive_maximum)
    assert client.connect(client_id, clean=False, properties=properties).reason == 0
    return client


def connected(raw: Open, client_id: str = "") -> Raw:
    client = raw()
    assert client.connect(client_id).reason == 0
    return client


# --- CONNECT and CONNACK --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(
            connect_bytes(5, "02", payload="0001 63 0001 75"), id="[MQTT-3.1.2-16] a user name nobody announced"
        ),
        pytest.param(
            connect_bytes(5, "82", payload="0001 63 0001 75 0001 70"), id="[MQTT-3.1.2-18] a password nobody announced"
        ),
        pytest.param(connect_bytes(5, "42", payload="0001 63"), id="[MQTT-3.1.2-19] a password that is not there"),
        pytest.param(connect_bytes(5, "02", payload="0002 c328"), id="[MQTT-3.1.3-4] a client id that is not UTF-8"),
        pytest.param(connect_bytes(5, "82", payload="0001 63 0001 ff"), id="[MQTT-3.1.3-12] a user name that is not"),
    ],
)
def test_a_connect_that_is_not_as_its_flags_say_is_malformed(raw: Open, data: bytes) -> None:
    client = raw()
    client.send(data)
    assert Reason(client.expect(mqtt.ConnAck).reason) is Reason.MALFORMED_PACKET
    assert client.is_closed()


def test_connack_offers_everything(raw: Open, topic: str) -> None:
    """[MQTT-3.2.2-9], [MQTT-3.2.2-10], [MQTT-3.2.2-12], [MQTT-3.2.2-13]: QoS 2 and retained wills are served."""
    client = raw()
    connack = client.connect(will=mqtt.Will(None, topic, b"gone"), will_qos=2, will_retain=True)
    assert connack.reason == 0
    assert connack.properties is not None
    assert connack.properties.maximum_qos is None
    assert connack.properties.retain_available is not False
    assert client.subscribe(Subscription("a", 0), Subscription("b", 1), Subscription("c", 2)) == b"\0\1\2"


@pytest.mark.parametrize("asked", [None, False])
def test_response_information_is_not_given_unasked(raw: Open, asked: bool | None) -> None:
    """[MQTT-3.1.2-28]."""
    connack = raw().connect(properties=Properties(request_response_information=asked))
    assert connack.properties is None or connack.properties.response_information is None


def test_the_flags_of_connack_are_session_present_alone(raw: Open, topic: str) -> None:
    """[MQTT-3.2.2-1]."""
    connect = mqtt.encode(mqtt.Connect(5, False, properties=LASTING, client_id=topic), 5)
    for flags in (0, 1):
        client = raw()
        client.send(connect)
        packet_type, remaining, acknowledged, reason, *_ = client.socket.recv(1 << 16)
        assert (packet_type, acknowledged, reason) == (0x20, flags, 0)
        assert remaining < 0x80
        client.close()


def test_sessions_are_told_apart_by_client_identifier(raw: Open, topic: str) -> None:
    """[MQTT-3.1.3-2]."""
    first, second = resume(raw, f"{topic}/1"), resume(raw, f"{topic}/2")
    first.subscribe(Subscription(topic, 1))
    first.close()
    second.close()
    publisher = connected(raw)
    publisher.send(publish(topic, b"for the first", 1, 1))
    publisher.expect(mqtt.PubAck)
    resume(raw, f"{topic}/2").ping()
    assert resume(raw, f"{topic}/1").expect(mqtt.Publish).payload == b"for the first"


def test_an_assigned_client_identifier_is_the_clients_own(raw: Open) -> None:
    """[MQTT-3.1.3-7]: whoever uses it later takes the session over. [MQTT-3.14.2-1], [MQTT-3.14.2-2]."""
    client = raw()
    connack = client.connect()
    assert connack.properties is not None
    assigned = connack.properties.assigned_client_identifier
    assert assigned
    connected(raw, assigned)
    goodbye = client.expect(mqtt.Disconnect)
    assert Reason(goodbye.reason) is Reason.SESSION_TAKEN_OVER
    assert goodbye.properties is None or goodbye.properties.session_expiry_interval is None
    assert client.is_closed()


def test_a_second_connect_gets_no_second_connack(raw: Open, topic: str) -> None:
    """[MQTT-3.2.0-2]."""
    client = connected(raw, topic)
    client.send(mqtt.Connect(5, client_id=topic))
    assert Reason(client.expect(mqtt.Disconnect).reason) is Reason.PROTOCOL_ERROR
    assert client.is_closed()


def test_the_user_properties_of_a_will_keep_their_order(raw: Open, topic: str) -> None:
    """[MQTT-3.1.3-10]."""
    pairs = [("b", "2"), ("a", "1"), ("b", "1")]
    subscriber, device = connected(raw), raw()
    subscriber.subscribe(Subscription(topic, 0))
    device.connect(will=mqtt.Will(Properties(user_properties=pairs), topic, b"gone"))
    device.close()
    properties = subscriber.expect(mqtt.Publish).properties
    assert properties is not None
    assert properties.user_properties == pairs


# --- identifiers and reason codes of answers ------------------------------------------------------------


def test_answers_bear_the_identifier_of_what_they_answer(raw: Open, topic: str) -> None:
    """[MQTT-2.2.1-5], [MQTT-2.2.1-6], [MQTT-3.8.4-2], [MQTT-3.6.2-1], [MQTT-3.7.2-1]."""
    client = connected(raw)
    client.send(mqtt.Subscribe(77, None, [Subscription(topic, 2)]))
    assert client.expect(mqtt.SubAck).packet_id == 77
    client.send(mqtt.Unsubscribe(78, None, [f"{topic}/none"]))
    assert client.expect(mqtt.UnsubAck).packet_id == 78

    publisher = connected(raw)
    publisher.send(publish(topic, b"1", 1, 1001))
    assert publisher.expect(mqtt.PubAck).packet_id == 1001
    publisher.send(publish(topic, b"2", 2, 1002))
    assert publisher.expect(mqtt.PubRec).packet_id == 1002
    publisher.send(mqtt.PubRel(1002))
    assert publisher.expect(mqtt.PubComp) == mqtt.PubComp(1002)

    client.send(mqtt.PubAck(client.expect(mqtt.Publish).packet_id))
    message = client.expect(mqtt.Publish)
    client.send(mqtt.PubRec(message.packet_id))
    assert client.expect(mqtt.PubRel) == mqtt.PubRel(message.packet_id)


def test_reasons_come_in_the_order_of_the_filters(raw: Open, topic: str) -> None:
    """[MQTT-3.9.3-1], [MQTT-3.8.4-7], [MQTT-3.11.3-1]."""
    client = connected(raw)
    filters = [Subscription(topic, 2), Subscription("a+", 1), Subscription(f"{topic}/b", 0), Subscription("c", 1)]
    assert client.subscribe(*filters) == bytes((2, Reason.TOPIC_FILTER_INVALID, 0, 1))
    client.send(mqtt.Unsubscribe(3, None, [topic, f"{topic}/none", f"{topic}/b"]))
    assert client.expect(mqtt.UnsubAck).reasons == bytes((0, Reason.NO_SUBSCRIPTION_EXISTED, 0))


@pytest.mark.parametrize("filter_", ["", "a+", "a/+b", "+a/b", "a#", "#/a", "a/#/b"])
def test_a_filter_whose_wildcards_share_a_level_or_that_is_empty_is_refused(raw: Open, filter_: str) -> None:
    """[MQTT-4.7.1-1], [MQTT-4.7.1-2], [MQTT-4.7.3-1]."""
    assert connected(raw).subscribe(Subscription(filter_, 1)) == bytes((Reason.TOPIC_FILTER_INVALID,))


def smallest_terms(raw: Open) -> Raw:
    """A client whose maximum packet size is that of its own CONNACK, which is less than any reason in words takes."""
    measured = raw()
    size = len(mqtt.encode(measured.connect("size"), 5))
    client = raw()
    assert client.connect("size", properties=Properties(maximum_packet_size=size)).reason == 0
    client.limit = size
    return client


def fits(client: Raw, answer: mqtt.Packet) -> bool:
    """True if an answer is within the client's limit and has nothing that could have been left out."""
    properties = getattr(answer, "properties", None)
    is_bare = properties is None or (properties.reason_string is None and properties.user_properties is None)
    return is_bare and len(mqtt.encode(answer, 5)) <= client.limit


def test_answers_never_exceed_the_maximum_packet_size_for_a_reason_in_words(raw: Open, topic: str) -> None:
    """[MQTT-3.2.2-20], [MQTT-3.4.2-3], [MQTT-3.5.2-3], [MQTT-3.9.2-1], [MQTT-3.9.2-2], [MQTT-3.11.2-1].

    Also [MQTT-3.11.2-2], [MQTT-3.6.2-2], [MQTT-3.6.2-3], [MQTT-3.7.2-2], [MQTT-3.7.2-3] and [MQTT-3.14.2-4]. That the
    reason codes are those of their packets, `Raw` checks: [MQTT-3.4.2-1], [MQTT-3.5.2-1], [MQTT-3.6.2-1],
    [MQTT-3.7.2-1], [MQTT-3.9.3-2], [MQTT-3.11.3-2].
    """
    client = smallest_terms(raw)
    client.send(publish("$no", b"", 1, 1))
    assert fits(client, client.expect(mqtt.PubAck))
    client.send(publish("$no", b"", 2, 2))
    assert fits(client, client.expect(mqtt.PubRec))
    client.send(mqtt.PubRel(UNKNOWN_ID))
    completed = client.expect(mqtt.PubComp)
    assert Reason(completed.reason) is Reason.PACKET_IDENTIFIER_NOT_FOUND
    assert fits(client, completed)
    client.send(mqtt.PubRec(UNKNOWN_ID))
    assert fits(client, client.expect(mqtt.PubRel))
    client.send(mqtt.Subscribe(3, None, [Subscription("a+", 1)]))
    assert fits(client, client.expect(mqtt.SubAck))
    client.send(mqtt.Unsubscribe(4, None, [topic]))
    assert fits(client, client.expect(mqtt.UnsubAck))
    client.send(packet(0x30, "0000 00"))
    assert fits(client, client.expect(mqtt.Disconnect))
    assert client.is_closed()


# --- PUBLISH --------------------------------------------------------------------------------------------


def test_dup_is_not_passed_on(raw: Open, topic: str) -> None:
    """[MQTT-3.3.1-3]."""
    subscriber, publisher = connected(raw), connected(raw)
    subscriber.subscribe(Subscription(topic, 1))
    publisher.send(publish(topic, b"again", 1, 9, dup=True))
    assert not subscriber.expect(mqtt.Publish).dup


def test_overlapping_subscriptions_get_one_copy(raw: Open, topic: str) -> None:
    """[MQTT-3.3.4-5]: there are never several copies; the one bears both identifiers."""
    subscriber, publisher = connected(raw), connected(raw)
    for number, filter_ in enumerate((topic, f"{topic}/#"), start=1):
        subscriber.subscribe(Subscription(filter_, 0), properties=Properties(subscription_identifiers=[number]))
    publisher.send(publish(topic, b"x"))
    message = subscriber.expect(mqtt.Publish)
    assert message.properties is not None
    assert sorted(message.properties.subscription_identifiers or ()) == [1, 2]
    publisher.ping()
    subscriber.ping()


def test_what_is_not_acknowledged_is_sent_again_on_reconnecting_and_what_is_refused_is_not(
    raw: Open, topic: str
) -> None:
    """[MQTT-4.3.2-3], [MQTT-4.3.3-3], [MQTT-4.4.0-2]."""
    subscriber, publisher = resume(raw, topic), connected(raw)
    subscriber.subscribe(Subscription(topic, 2))
    for number, qos in enumerate((1, 2, 1, 2), start=1):
        publisher.send(publish(topic, str(number).encode(), qos, number))
        publisher.expect(mqtt.PubAck if qos == 1 else mqtt.PubRec)
    first = [subscriber.expect(mqtt.Publish) for _ in range(4)]
    subscriber.send(mqtt.PubAck(first[2].packet_id, Reason.UNSPECIFIED_ERROR))
    subscriber.send(mqtt.PubRec(first[3].packet_id, Reason.UNSPECIFIED_ERROR))
    subscriber.ping()
    subscriber.close()
    again = resume(raw, topic)
    repeated = [again.expect(mqtt.Publish) for _ in range(2)]
    assert [(m.packet_id, m.payload, m.dup) for m in repeated] == [(m.packet_id, m.payload, True) for m in first[:2]]
    again.ping()


def test_an_exchange_of_qos_2_is_completed_after_its_message_has_expired(raw: Open, topic: str) -> None:
    """[MQTT-4.3.3-13]."""
    publisher = connected(raw)
    publisher.send(publish(topic, b"short-lived", 2, 5, properties=Properties(message_expiry_interval=1)))
    publisher.expect(mqtt.PubRec)
    time.sleep(1.1)  # until it has expired
    publisher.send(mqtt.PubRel(5))
    assert publisher.expect(mqtt.PubComp) == mqtt.PubComp(5)


def test_replacing_a_subscription_repeats_retained_messages_and_loses_none(raw: Open, topic: str) -> None:
    """[MQTT-3.8.4-4]."""
    subscriber, publisher = connected(raw), connected(raw)
    publisher.send(publish(topic, b"kept", 1, 1, retain=True))
    publisher.expect(mqtt.PubAck)
    received: list[bytes] = []
    for number in range(20):
        subscriber.send(mqtt.Subscribe(1 + number, None, [Subscription(topic, 0)]))
        publisher.send(publish(topic, str(number).encode()))
    publisher.ping()
    subscriber.send(mqtt.PingReq())
    while not isinstance(item := subscriber.receive(), mqtt.PingResp):
        assert item is not None
        if isinstance(item, mqtt.Publish):
            received.append(bytes(item.payload))
    assert received.count(b"kept") == 20
    live = [int(payload) for payload in received if payload != b"kept"]
    assert live == list(range(live[0], 20))


# --- topics ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a/+", "#", "a/#/b"])
def test_a_topic_name_with_a_wildcard_ends_the_connection(raw: Open, name: str) -> None:
    """[MQTT-4.7.0-1]."""
    client = connected(raw)
    client.send(publish(name, b"x"))
    assert Reason(client.expect(mqtt.Disconnect).reason) is Reason.TOPIC_NAME_INVALID
    assert client.is_closed()


@pytest.mark.parametrize(
    "data",
    [packet(0x30, "0003 610062 00"), packet(0x82, "0001 00 0003 610062 00"), packet(0xA2, "0001 00 0003 610062")],
    ids=["PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE"],
)
def test_a_topic_with_u_0000_is_malformed(raw: Open, data: bytes) -> None:
    """[MQTT-4.7.3-2]."""
    client = connected(raw)
    client.send(data)
    assert Reason(client.expect(mqtt.Disconnect).reason) is Reason.MALFORMED_PACKET
    assert client.is_closed()


def test_the_longest_topic_is_served(raw: Open) -> None:
    """[MQTT-4.7.3-3]: longer ones cannot be written. [MQTT-4.2-1]: its bytes arrive in order, over many segments."""
    topic = "ü" * 32767 + "x"
    assert len(topic.encode()) == 65535
    client = connected(raw)
    assert client.subscribe(Subscription(topic, 0)) == b"\0"
    client.send(publish(topic, b"x"))
    assert client.expect(mqtt.Publish).topic == topic


def test_a_byte_order_mark_is_part_of_a_topic(raw: Open, topic: str) -> None:
    """[MQTT-1.5.4-3]."""
    client = connected(raw)
    client.subscribe(Subscription(f"\ufeff{topic}", 0), Subscription(topic, 0))
    client.send(publish(f"\ufeff{topic}", b"x"))
    assert client.expect(mqtt.Publish).topic == f"\ufeff{topic}"
    client.ping()


# --- shared subscriptions -------------------------------------------------------------------------------


def test_a_qos_2_message_goes_to_nobody_else_when_its_session_ends(raw: Open, topic: str) -> None:
    """[MQTT-4.8.2-5]."""
    first, second, publisher = connected(raw), connected(raw), connected(raw)
    first.subscribe(Subscription(f"$share/group/{topic}", 2))
    publisher.send(publish(topic, b"once", 2, 1))
    publisher.expect(mqtt.PubRec)
    second.subscribe(Subscription(f"$share/group/{topic}", 2))
    first.send(mqtt.PubRec(first.expect(mqtt.Publish).packet_id))
    first.expect(mqtt.PubRel)
    first.send(mqtt.Disconnect())
    assert first.is_closed()
    second.ping()
