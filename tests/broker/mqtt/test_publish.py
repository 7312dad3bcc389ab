"""PUBLISH both ways: QoS, order, windows, retained messages."""

from __future__ import annotations

import pytest

from moq.config import Limits
from moq.reasons import Reason
from moq.wire import mqtt
from tests.broker.desk import Desk
from tests.broker.mqtt.scripted import MQTTClient, connect, lasting

each_version = pytest.mark.parametrize("version", [4, 5])


def pair(desk: Desk, version: int = 5, qos: int = 0) -> tuple[MQTTClient, MQTTClient]:
    publisher, subscriber = connect(desk, "publisher", version), connect(desk, "subscriber", version)
    subscriber.subscribe("a", qos)
    return publisher, subscriber


# [MQTT-4.3.1-1] [MQTT-2.2.1-2] [MQTT-3.3.4-1]
@each_version
def test_qos_0_is_delivered_and_not_answered(desk: Desk, version: int) -> None:
    publisher, subscriber = pair(desk, version)
    publisher.publish("a", b"x")
    assert subscriber.read() == [mqtt.Publish(False, 0, False, "a", 0, None, b"x")]
    assert publisher.read() == []


@pytest.mark.parametrize(("sends", "gets"), [(4, 5), (5, 4)])
def test_both_versions_share_topics(desk: Desk, sends: int, gets: int) -> None:
    publisher, subscriber = connect(desk, "publisher", sends), connect(desk, "subscriber", gets)
    subscriber.subscribe("a")
    publisher.publish("a", b"x")
    assert subscriber.payloads() == [b"x"]


@pytest.mark.parametrize("size", [0, 1, 124, 125, 126, 16_379, 16_380, 16_381, 2_097_148, 2_097_149, 2_097_150])
@each_version
def test_payloads_of_any_size_arrive_whole(desk: Desk, version: int, size: int) -> None:
    publisher, subscriber = pair(desk, version)
    publisher.publish("a", b"p" * size)
    assert [len(payload) for payload in subscriber.payloads()] == [size]


# [MQTT-4.3.2-4] [MQTT-4.3.2-1] [MQTT-4.3.2-2]
@each_version
def test_qos_1_is_acknowledged_and_delivered(desk: Desk, version: int) -> None:
    publisher, subscriber = pair(desk, version, qos=1)
    publisher.publish("a", b"x", qos=1, id=9)
    assert publisher.read() == [mqtt.PubAck(9)]
    assert subscriber.read() == [mqtt.Publish(False, 1, False, "a", 1, None, b"x")]
    subscriber.send(mqtt.PubAck(1))


# [MQTT-4.3.2-5]
def test_an_identifier_of_qos_1_is_free_once_it_is_acknowledged(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=1)
    publisher.publish("a", b"1", qos=1, id=9)
    publisher.publish("a", b"2", qos=1, id=9)
    assert subscriber.payloads() == [b"1", b"2"]


# [MQTT-4.3.3-8] [MQTT-4.3.3-11] [MQTT-4.3.3-1] [MQTT-4.3.3-2] [MQTT-4.3.3-4]
@each_version
def test_qos_2_takes_four_packets_on_either_side(desk: Desk, version: int) -> None:
    publisher, subscriber = pair(desk, version, qos=2)
    publisher.publish("a", b"x", qos=2, id=9)
    assert publisher.read() == [mqtt.PubRec(9)]
    publisher.send(mqtt.PubRel(9))
    assert publisher.read() == [mqtt.PubComp(9)]
    assert subscriber.read() == [mqtt.Publish(False, 2, False, "a", 1, None, b"x")]
    subscriber.send(mqtt.PubRec(1))
    assert subscriber.read() == [mqtt.PubRel(1)]
    subscriber.send(mqtt.PubComp(1))
    assert desk.broker.sessions.get("subscriber").outbound.inflight == 0  # type: ignore[union-attr]


# [MQTT-4.3.3-10] [MQTT-4.3.3-12]
def test_a_repetition_of_qos_2_is_not_delivered_again(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=2)
    publisher.publish("a", b"1", qos=2, id=9)
    publisher.publish("a", b"1", qos=2, id=9, dup=True)
    assert publisher.read() == [mqtt.PubRec(9), mqtt.PubRec(9)]
    publisher.send(mqtt.PubRel(9))
    publisher.publish("a", b"2", qos=2, id=9)
    assert subscriber.payloads() == [b"1", b"2"]


def test_a_pubrel_nobody_waits_for_is_answered_so(desk: Desk) -> None:
    publisher, _ = pair(desk)
    publisher.send(mqtt.PubRel(9))
    (answer,) = publisher.take(mqtt.PubComp)
    assert answer.reason == Reason.PACKET_IDENTIFIER_NOT_FOUND


def test_a_pubrel_of_3_1_1_is_always_completed(desk: Desk) -> None:
    publisher, _ = pair(desk, 4)
    publisher.send(mqtt.PubRel(9))
    assert publisher.read() == [mqtt.PubComp(9)]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publisher_of_mqtt_5_learns_that_nobody_is_there(desk: Desk, qos: int) -> None:
    publisher = connect(desk, "publisher")
    publisher.publish("nobody", b"x", qos=qos, id=1)
    kind = mqtt.PubAck if qos == 1 else mqtt.PubRec
    assert publisher.read() == [kind(1, Reason.NO_MATCHING_SUBSCRIBERS)]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publisher_of_3_1_1_is_acknowledged_whoever_is_there(desk: Desk, qos: int) -> None:
    publisher = connect(desk, "publisher", 4)
    publisher.publish("nobody", b"x", qos=qos, id=1)
    assert publisher.read() == [mqtt.PubAck(1) if qos == 1 else mqtt.PubRec(1)]


# [MQTT-3.8.4-8]
@pytest.mark.parametrize(("published", "granted", "delivered"), [(0, 2, 0), (1, 0, 0), (2, 1, 1), (2, 2, 2)])
def test_the_lower_qos_decides(desk: Desk, published: int, granted: int, delivered: int) -> None:
    publisher, subscriber = pair(desk, qos=granted)
    publisher.publish("a", b"x", qos=published, id=1 if published else 0)
    assert [message.qos for message in subscriber.messages()] == [delivered]


# [MQTT-3.3.4-9] [MQTT-4.9.0-1] [MQTT-4.9.0-2]
def test_no_more_is_under_way_than_the_client_takes(desk: Desk) -> None:
    subscriber = connect(desk, "subscriber", properties=mqtt.Properties(receive_maximum=2))
    subscriber.subscribe("a", 2)
    publisher = connect(desk, "publisher")
    for number in range(1, 5):
        publisher.publish("a", b"%d" % number, qos=number % 2 + 1, id=number)
    first, second = subscriber.messages()
    subscriber.send(mqtt.PubRec(first.packet_id))
    assert subscriber.messages() == []
    subscriber.send(mqtt.PubComp(first.packet_id))
    assert subscriber.payloads() == [b"3"]
    subscriber.send(mqtt.PubAck(second.packet_id, Reason.QUOTA_EXCEEDED))
    assert subscriber.payloads() == [b"4"]


# [MQTT-3.3.4-10] [MQTT-4.9.0-3]
def test_a_full_window_holds_up_nothing_else(desk: Desk) -> None:
    subscriber = connect(desk, "subscriber", properties=mqtt.Properties(receive_maximum=1))
    subscriber.subscribe("a", 1)
    publisher = connect(desk, "publisher")
    for number in (1, 2):
        publisher.publish("a", b"x", qos=1, id=number)
    subscriber.read()
    subscriber.send(mqtt.PingReq())
    subscriber.publish("b", qos=1, id=7)
    assert subscriber.read() == [mqtt.PingResp(), mqtt.PubAck(7, Reason.NO_MATCHING_SUBSCRIBERS)]


# [MQTT-3.3.4-7]
def test_more_than_the_receive_maximum_ends_the_connection() -> None:
    desk = Desk(Limits(max_inflight=2))
    publisher = connect(desk, "publisher")
    for number in (1, 2, 3):
        publisher.publish("a", b"x", qos=2, id=number)
    assert [packet.reason for packet in publisher.take(mqtt.Disconnect)] == [Reason.RECEIVE_MAXIMUM_EXCEEDED]


def test_the_receive_maximum_counts_what_is_not_complete() -> None:
    desk = Desk(Limits(max_inflight=2))
    publisher = connect(desk, "publisher")
    for number in range(1, 9):
        publisher.publish("a", b"x", qos=2, id=number)
        publisher.send(mqtt.PubRel(number))
    assert not publisher.is_closed


def test_an_acknowledgement_waits_until_the_message_is_safe(desk: Desk) -> None:
    subscriber = connect(desk, "subscriber", properties=lasting())
    subscriber.subscribe("a", 1)
    publisher = connect(desk, "publisher")
    desk.hold_commits()
    publisher.publish("a", b"x", qos=1, id=1)
    assert publisher.read() == []
    desk.commit()
    assert publisher.read() == [mqtt.PubAck(1)]


# [MQTT-4.6.0-5] [MQTT-4.6.0-6] [MQTT-2.2.1-4]
def test_messages_of_a_topic_arrive_in_order_under_identifiers_of_their_own(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=1)
    for number in range(1, 50):
        publisher.publish("a", b"%d" % number, qos=1, id=number)
    messages = subscriber.messages()
    assert [message.payload for message in messages] == [b"%d" % number for number in range(1, 50)]
    assert len({message.packet_id for message in messages}) == 49


def test_a_puback_for_qos_2_is_a_protocol_error(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=2)
    publisher.publish("a", b"x", qos=2, id=1)
    subscriber.send(mqtt.PubAck(subscriber.messages()[0].packet_id))
    assert [packet.reason for packet in subscriber.take(mqtt.Disconnect)] == [Reason.PROTOCOL_ERROR]


def test_a_pubrec_for_qos_1_is_a_protocol_error(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=1)
    publisher.publish("a", b"x", qos=1, id=1)
    subscriber.send(mqtt.PubRec(subscriber.messages()[0].packet_id))
    assert [packet.reason for packet in subscriber.take(mqtt.Disconnect)] == [Reason.PROTOCOL_ERROR]


def test_a_refusal_by_pubrec_ends_the_exchange(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=2)
    publisher.publish("a", b"x", qos=2, id=1)
    subscriber.send(mqtt.PubRec(subscriber.messages()[0].packet_id, Reason.QUOTA_EXCEEDED))
    assert subscriber.read() == []
    assert desk.broker.sessions.get("subscriber").outbound.inflight == 0  # type: ignore[union-attr]


def test_a_slow_reader_loses_what_is_best_effort_and_keeps_the_rest(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=1)
    subscriber.stall()
    publisher.publish("a", b"lost")
    publisher.publish("a", b"kept", qos=1, id=1)
    subscriber.drain()
    assert subscriber.payloads() == [b"kept"]
    assert desk.figures.dropped_congested == 1


def test_a_client_that_does_not_read_its_answers_is_not_read(desk: Desk) -> None:
    client = connect(desk, "alice")
    client.stall()
    client.send(mqtt.PingReq())
    assert client.link.paused == {0}
    client.drain()
    assert client.link.paused == set()
    assert client.read() == [mqtt.PingResp()]


# --- retained messages --------------------------------------------------------------------------------


def retained_for(desk: Desk, topic: str = "a") -> list[bytes]:
    late = connect(desk, "late")
    late.subscribe(topic)
    messages = late.messages()
    assert all(message.retain for message in messages)
    late.disconnect()
    return [message.payload for message in messages]


# [MQTT-3.3.1-5] [MQTT-3.3.1-9] [MQTT-3.3.1-8]
@each_version
def test_the_last_message_to_be_retained_greets_new_subscribers(desk: Desk, version: int) -> None:
    publisher = connect(desk, "publisher", version)
    publisher.publish("a", b"1", retain=True)
    publisher.publish("a", b"2", retain=True, qos=1, id=1)
    publisher.publish("a", b"3")
    assert retained_for(desk) == [b"2"]


# [MQTT-3.3.1-6] [MQTT-3.3.1-7]
def test_an_empty_message_clears_what_is_retained_and_is_delivered(desk: Desk) -> None:
    publisher, subscriber = pair(desk)
    publisher.publish("a", b"1", retain=True)
    publisher.publish("a", b"", retain=True)
    assert subscriber.payloads() == [b"1", b""]
    assert retained_for(desk) == []


# [MQTT-3.3.1-12] [MQTT-3.3.1-13]
@pytest.mark.parametrize("as_published", [False, True])
def test_a_live_message_keeps_its_retain_flag_if_asked_to(desk: Desk, as_published: bool) -> None:
    subscriber, publisher = connect(desk, "subscriber"), connect(desk, "publisher")
    subscriber.subscribe("a", 1, retain_as_published=as_published)
    publisher.publish("a", b"1", retain=True)
    publisher.publish("a", b"2")
    assert [message.retain for message in subscriber.messages()] == [as_published, False]


@pytest.mark.parametrize("as_published", [False, True])
def test_a_member_of_a_group_gets_the_retain_flag_if_asked_to(desk: Desk, as_published: bool) -> None:
    subscriber, publisher = connect(desk, "subscriber"), connect(desk, "publisher")
    subscriber.subscribe("$share/g/a", 1, retain_as_published=as_published)
    publisher.publish("a", b"1", retain=True)
    assert [message.retain for message in subscriber.messages()] == [as_published]


# [MQTT-3.3.1-10] [MQTT-3.3.1-11]
@pytest.mark.parametrize(("handling", "first", "second"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
def test_retained_messages_are_sent_as_the_subscription_asks(
    desk: Desk, handling: int, first: int, second: int
) -> None:
    connect(desk, "publisher").publish("a", b"1", retain=True)
    subscriber = connect(desk, "subscriber")
    for expected in (first, second):
        subscriber.subscribe("a", retain_handling=handling)
        assert len(subscriber.messages()) == expected


def test_suback_comes_before_the_retained_messages(desk: Desk) -> None:
    connect(desk, "publisher").publish("a", b"1", retain=True)
    subscriber = connect(desk, "subscriber")
    subscriber.send(mqtt.Subscribe(1, None, [mqtt.Subscription("a", 0)]))
    assert [type(packet) for packet in subscriber.read()] == [mqtt.SubAck, mqtt.Publish]


def test_a_shared_subscription_is_not_greeted(desk: Desk) -> None:
    connect(desk, "publisher").publish("a", b"1", retain=True)
    assert retained_for(desk, "$share/g/a") == []


def test_who_wants_nothing_of_its_own_is_not_greeted_with_it(desk: Desk) -> None:
    client = connect(desk, "alice")
    client.publish("a", b"own", retain=True)
    client.subscribe("a", no_local=True)
    assert client.messages() == []


def test_a_retained_message_keeps_its_properties(desk: Desk) -> None:
    given = mqtt.Properties(content_type="text/plain", user_properties=[("k", "v")])
    connect(desk, "publisher").publish("a", b"1", retain=True, properties=given)
    subscriber = connect(desk, "subscriber")
    subscriber.subscribe("a")
    assert [message.properties for message in subscriber.messages()] == [given]
