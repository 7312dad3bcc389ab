"""Packets no client may send: the right reason, a closed connection, and nobody else notices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from moq.reasons import Reason
from moq.wire import mqtt
from tests.broker.mqtt.scripted import MQTTClient, connect
from tests.vectors.mqtt_malformed import MALFORMED_PACKETS, Malformed

if TYPE_CHECKING:
    from tests.broker.desk import Desk


# [MQTT-4.13.1-1] [MQTT-3.14.1-1] [MQTT-3.8.3-5] [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1] [MQTT-3.15.1-1]
@pytest.mark.parametrize("case", MALFORMED_PACKETS, ids=str)
def test_a_packet_no_client_may_send_ends_its_connection_alone(desk: Desk, case: Malformed) -> None:
    watcher = connect(desk, "watcher")
    watcher.subscribe("a")
    client = MQTTClient(desk, case.version) if case.is_connect else connect(desk, "c", case.version)
    client.send_bytes(case.data)
    assert client.is_closed
    assert client.link.closed_with == case.reason
    if case.reason == Reason.UNSUPPORTED_PROTOCOL_VERSION:
        client.version = 4  # whose CONNACK the oldest clients know
    answers = client.read()
    if case.version == 5 and not case.is_connect:
        assert [type(answer) for answer in answers] == [mqtt.Disconnect]
        assert isinstance(answers[0], mqtt.Disconnect)
        assert answers[0].reason == case.reason
    elif case.version == 5 and case.reason != Reason.UNSUPPORTED_PROTOCOL_VERSION:
        for answer in answers:
            assert isinstance(answer, mqtt.ConnAck)
            assert answer.reason == case.reason
    connect(desk, "publisher").publish("a", b"x")
    assert watcher.payloads() == [b"x"]


def goodbye(client: MQTTClient) -> list[int]:
    assert client.is_closed
    return [packet.reason for packet in client.take(mqtt.Disconnect)]


# [MQTT-3.3.2-2] [MQTT-4.7.1-1]
@pytest.mark.parametrize("topic", ["a/+", "#", "a+b", "/".join("x" * 65)])
@pytest.mark.parametrize("properties", [None, mqtt.Properties(content_type="t")])
def test_what_is_no_topic_name_ends_the_connection(desk: Desk, topic: str, properties: mqtt.Properties | None) -> None:
    client = connect(desk, "alice")
    client.publish(topic, b"x", properties=properties)
    assert goodbye(client) == [Reason.TOPIC_NAME_INVALID]


def test_in_3_1_1_a_wildcard_in_a_topic_name_closes_without_a_word(desk: Desk) -> None:
    client = connect(desk, "alice", 4)
    client.publish("a/#", b"x")
    assert client.is_closed
    assert client.read() == []


# [MQTT-3.3.4-6]
def test_a_client_sends_no_subscription_identifiers(desk: Desk) -> None:
    client = connect(desk, "alice")
    client.publish("a", b"x", properties=mqtt.Properties(subscription_identifiers=[1]))
    assert goodbye(client) == [Reason.PROTOCOL_ERROR]


# [MQTT-3.3.2-14]
@pytest.mark.parametrize("topic", ["a/+", "#", ""])
def test_a_response_topic_is_a_topic_name(desk: Desk, topic: str) -> None:
    client = connect(desk, "alice")
    client.publish("a", b"x", properties=mqtt.Properties(response_topic=topic))
    assert goodbye(client) == [Reason.PROTOCOL_ERROR]


@pytest.mark.parametrize(
    "packet",
    [
        mqtt.ConnAck(False, 0),
        mqtt.SubAck(1, None, b"\0"),
        mqtt.UnsubAck(1, None, b"\0"),
        mqtt.PingResp(),
        mqtt.Auth(),
        mqtt.Auth(Reason.REAUTHENTICATE, mqtt.Properties(authentication_method="SCRAM-SHA-256")),
    ],
    ids=lambda packet: type(packet).__name__,
)
def test_packets_of_the_server_are_not_for_a_client_to_send(desk: Desk, packet: mqtt.Packet) -> None:
    # [MQTT-4.12.0-7]
    client = connect(desk, "alice")
    client.send(packet)
    assert goodbye(client) == [Reason.PROTOCOL_ERROR]


@pytest.mark.parametrize("version", [4, 5])
def test_an_acknowledgement_nobody_waits_for_is_no_error(desk: Desk, version: int) -> None:
    client = connect(desk, "alice", version)
    client.send(mqtt.PubAck(1), mqtt.PubComp(2), mqtt.PubRec(3))
    assert client.read() == [mqtt.PubRel(3)]
    assert not client.is_closed


def test_a_large_message_that_breaks_off_is_never_delivered(desk: Desk) -> None:
    watcher, client = connect(desk, "watcher"), connect(desk, "alice")
    watcher.subscribe("a")
    client.send_bytes(mqtt.encode(mqtt.Publish(False, 0, False, "a", 0, None, b"x" * 1_000_000), 5)[:-1])
    client.lost()
    assert watcher.messages() == []


def test_packets_after_a_goodbye_in_the_same_read_have_no_effect(desk: Desk) -> None:
    watcher, client = connect(desk, "watcher"), connect(desk, "alice")
    watcher.subscribe("a")
    late = mqtt.Publish(False, 0, False, "a", 0, None, b"late")
    client.send(mqtt.Disconnect(), mqtt.PingReq(), late)
    assert watcher.messages() == []
    assert client.read() == []
