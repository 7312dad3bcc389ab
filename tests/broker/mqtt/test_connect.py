"""CONNECT and CONNACK: who is let in, on which terms, and what those who are not are told."""

from __future__ import annotations

import pytest

from moq.config import Limits
from moq.reasons import Reason
from moq.wire import mqtt
from tests.broker.desk import Desk
from tests.broker.mqtt.scripted import NEVER, MQTTClient, connect, lasting

VERSIONS = (mqtt.VERSION_3_1_1, mqtt.VERSION_5)
each_version = pytest.mark.parametrize("version", VERSIONS)


# [MQTT-3.1.4-5] [MQTT-3.2.0-1] [MQTT-3.2.2-2]
@each_version
def test_a_client_is_welcomed_with_connack(desk: Desk, version: int) -> None:
    client = MQTTClient(desk, version)
    client.connect("alice")
    (connack,) = client.read()
    assert isinstance(connack, mqtt.ConnAck)
    assert (connack.session_present, connack.reason) == (False, 0)


# [MQTT-3.1.0-1]
@each_version
def test_a_first_packet_that_is_not_connect_ends_the_connection_in_silence(desk: Desk, version: int) -> None:
    client = MQTTClient(desk, version)
    client.publish("a", b"x")
    assert client.is_closed
    assert client.read() == []


# [MQTT-3.1.0-2] [MQTT-4.13.1-1]
def test_a_second_connect_is_a_protocol_error(desk: Desk) -> None:
    client = connect(desk, "alice")
    client.connect("alice")
    (goodbye,) = client.take(mqtt.Disconnect)
    assert goodbye.reason == Reason.PROTOCOL_ERROR
    assert client.is_closed


# [MQTT-3.1.0-2]
def test_a_second_connect_closes_a_3_1_1_connection_without_a_word(desk: Desk) -> None:
    client = connect(desk, "alice", mqtt.VERSION_3_1_1)
    client.connect("alice")
    assert client.is_closed
    assert client.read() == []


# [MQTT-3.1.2-1] [MQTT-3.1.2-2]
@pytest.mark.parametrize("start", [b"\x00\x06MQIsdp\x03", b"\x00\x04MQTT\x03", b"\x00\x04MQTT\x06"])
def test_other_versions_are_refused_in_words_every_client_knows(desk: Desk, start: bytes) -> None:
    client = MQTTClient(desk, mqtt.VERSION_3_1_1)
    fields = start + b"\x02\x00\x00\x00\x01c"
    client.send_bytes(bytes((0x10, len(fields))) + fields)
    assert client.read() == [mqtt.ConnAck(False, 1)]
    assert client.is_closed


# [MQTT-3.1.2-3] [MQTT-3.1.4-1] [MQTT-3.2.2-7]
def test_a_malformed_connect_of_mqtt_5_is_told_why(desk: Desk) -> None:
    client = MQTTClient(desk)
    client.send_bytes(bytes.fromhex("10 0e 0004 4d515454 05 03 0000 00 0001 63"))
    (refusal,) = client.take(mqtt.ConnAck)
    assert refusal.reason == Reason.MALFORMED_PACKET
    assert refusal.properties is not None
    assert client.is_closed


# [MQTT-3.1.4-1]
def test_a_malformed_connect_of_3_1_1_is_closed_without_a_word(desk: Desk) -> None:
    client = MQTTClient(desk, mqtt.VERSION_3_1_1)
    client.send_bytes(bytes.fromhex("10 0d 0004 4d515454 04 03 0000 0001 63"))
    assert client.read() == []
    assert client.is_closed


# [MQTT-3.1.3-6] [MQTT-3.2.2-16]
def test_a_client_without_an_identifier_is_assigned_one_and_told(desk: Desk) -> None:
    client = connect(desk)
    assert client.connack is not None
    assert client.connack.properties is not None
    assert client.connack.properties.assigned_client_identifier == "assigned-1"
    assert desk.broker.sessions.get("assigned-1") is not None


def test_a_3_1_1_client_without_an_identifier_is_assigned_one_for_a_clean_session(desk: Desk) -> None:
    connect(desk, "", mqtt.VERSION_3_1_1)
    assert desk.broker.sessions.get("assigned-1") is not None


# [MQTT-3.1.3-8]
def test_a_3_1_1_client_without_an_identifier_cannot_keep_its_session(desk: Desk) -> None:
    client = MQTTClient(desk, mqtt.VERSION_3_1_1)
    client.connect("", clean=False)
    assert client.read() == [mqtt.ConnAck(False, 2)]
    assert client.is_closed


# [MQTT-3.1.3-5]
@each_version
def test_identifiers_of_any_23_characters_and_more_are_accepted(desk: Desk, version: int) -> None:
    connect(desk, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[:23], version)
    connect(desk, "é" * 127, version)


# [MQTT-3.1.3-8] [MQTT-3.2.2-6]
def test_an_identifier_of_more_than_255_bytes_is_refused(desk: Desk) -> None:
    client = MQTTClient(desk)
    client.connect("é" * 128)
    (refusal,) = client.take(mqtt.ConnAck)
    assert (refusal.session_present, refusal.reason) == (False, Reason.CLIENT_IDENTIFIER_NOT_VALID)
    assert client.is_closed


def test_connack_tells_the_limits_of_the_broker(desk: Desk) -> None:
    client = connect(desk, "alice", keep_alive=60, properties=lasting(60))
    assert client.connack is not None
    assert client.connack.properties == mqtt.Properties(
        receive_maximum=1000, maximum_packet_size=16 * 1024 * 1024, topic_alias_maximum=1000
    )


# [MQTT-3.1.2-21] [MQTT-3.2.2-22]
@pytest.mark.parametrize(("asked", "told"), [(0, 600), (601, 600), (600, None), (1, None)])
def test_a_keep_alive_that_is_too_long_is_shortened_and_told(desk: Desk, asked: int, told: int | None) -> None:
    client = connect(desk, "alice", keep_alive=asked)
    assert client.connack is not None
    assert client.connack.properties is not None
    assert client.connack.properties.server_keep_alive == told


def test_a_session_expiry_that_is_too_long_is_shortened_and_told() -> None:
    desk = Desk(Limits(max_session_expiry_s=100))
    client = connect(desk, "alice", properties=lasting(NEVER))
    assert client.connack is not None
    assert client.connack.properties is not None
    assert client.connack.properties.session_expiry_interval == 100


# [MQTT-3.1.2-22]
@each_version
def test_a_silent_client_is_given_up_after_one_and_a_half_keep_alives(desk: Desk, version: int) -> None:
    client = connect(desk, "alice", version, keep_alive=10)
    desk.advance(8)
    client.send(mqtt.PingReq())
    desk.advance(14.9)
    assert client.link.closed_with is None
    desk.advance(0.1)
    expected = [] if version == mqtt.VERSION_3_1_1 else [Reason.KEEP_ALIVE_TIMEOUT]
    assert [packet.reason for packet in client.take(mqtt.Disconnect)] == expected
    assert client.link.closed_with == Reason.KEEP_ALIVE_TIMEOUT


def test_a_3_1_1_client_without_keep_alive_may_be_silent(desk: Desk) -> None:
    client = connect(desk, "alice", mqtt.VERSION_3_1_1)
    desk.advance(100_000)
    assert not client.is_closed


# [MQTT-3.12.4-1]
@each_version
def test_a_ping_is_answered(desk: Desk, version: int) -> None:
    client = connect(desk, "alice", version)
    client.send(mqtt.PingReq())
    assert client.read() == [mqtt.PingResp()]


def test_a_connection_that_says_nothing_is_closed_without_a_word(desk: Desk) -> None:
    client = MQTTClient(desk)
    desk.advance(10)
    assert client.is_closed
    assert client.read() == []


def test_too_many_sessions_are_refused_in_both_versions() -> None:
    desk = Desk(Limits(max_sessions=1))
    connect(desk, "alice")
    new, old = MQTTClient(desk), MQTTClient(desk, mqtt.VERSION_3_1_1)
    new.connect("bob")
    old.connect("bob")
    assert [packet.reason for packet in new.take(mqtt.ConnAck)] == [Reason.QUOTA_EXCEEDED]
    assert [packet.reason for packet in old.take(mqtt.ConnAck)] == [3]


# [MQTT-3.1.4-6]
def test_what_follows_a_refused_connect_is_not_processed(desk: Desk) -> None:
    watcher = connect(desk, "watcher")
    watcher.subscribe("a")
    client = MQTTClient(desk)
    refused = mqtt.Connect(5, client_id="x" * 300)
    client.send(refused, mqtt.Publish(False, 0, False, "a", 0, None, b"x"))
    assert watcher.payloads() == []


# [MQTT-3.14.0-1]
def test_a_broker_that_stops_refuses_who_has_not_connected_yet(desk: Desk) -> None:
    silent, polite = MQTTClient(desk), connect(desk, "alice")
    silent.connection.shut_down(desk.now)
    polite.connection.shut_down(desk.now)
    assert silent.read() == []
    assert [packet.reason for packet in polite.take(mqtt.Disconnect)] == [Reason.SERVER_SHUTTING_DOWN]
    assert silent.is_closed
    assert polite.is_closed


def test_a_goodbye_that_is_too_large_for_the_client_is_sent_without_words(desk: Desk) -> None:
    # [MQTT-3.14.2-3]
    client = connect(desk, "alice", properties=mqtt.Properties(maximum_packet_size=20))
    client.connect("alice")
    assert client.take(mqtt.Disconnect) == [mqtt.Disconnect(Reason.PROTOCOL_ERROR)]


def test_a_refusal_that_is_too_large_for_the_client_is_sent_without_words(desk: Desk) -> None:
    # [MQTT-3.2.2-19]
    desk.broker.environment.authenticator = None
    client = MQTTClient(desk)
    client.connect("alice", properties=mqtt.Properties(maximum_packet_size=10, authentication_method="none"))
    assert client.take(mqtt.ConnAck) == [mqtt.ConnAck(False, Reason.BAD_AUTHENTICATION_METHOD)]


# [MQTT-3.14.4-1] [MQTT-3.14.4-2] [MQTT-3.1.4-3]
def test_who_is_taken_over_is_told_and_hears_no_more(desk: Desk) -> None:
    old = connect(desk, "alice")
    old.subscribe("a")
    new = connect(desk, "alice")
    connect(desk, "bob").publish("a", b"x")
    assert [packet.reason for packet in old.take(mqtt.Disconnect)] == [Reason.SESSION_TAKEN_OVER]
    assert old.messages() == []
    assert old.is_closed
    assert not new.is_closed
