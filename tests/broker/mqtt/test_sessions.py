"""Sessions and wills: what outlives a connection, and for how long."""

from __future__ import annotations

import pytest

from moq.config import Limits
from moq.reasons import Reason
from moq.wire import mqtt
from tests.broker.desk import Desk
from tests.broker.mqtt.scripted import MQTTClient, connect, lasting

WILL = mqtt.Will(None, "wills", b"gone")


def present(client: MQTTClient) -> bool:
    assert client.connack is not None
    return client.connack.session_present


# [MQTT-3.1.2-5] [MQTT-3.2.2-3] [MQTT-3.1.2-23] [MQTT-4.5.0-1]
@pytest.mark.parametrize("version", [4, 5])
def test_a_session_is_resumed_with_what_waited_for_it(desk: Desk, version: int) -> None:
    properties = lasting() if version == 5 else None
    alice = connect(desk, "alice", version, clean=False, properties=properties)
    assert not present(alice)
    alice.subscribe("a", 1)
    alice.lost()
    connect(desk, "bob").publish("a", b"x", qos=1, id=1)
    alice = connect(desk, "alice", version, clean=False, properties=properties)
    assert present(alice)
    assert alice.payloads() == [b"x"]


# [MQTT-3.1.2-4] [MQTT-3.1.4-4] [MQTT-3.2.2-2]
@pytest.mark.parametrize("version", [4, 5])
def test_a_clean_start_forgets_the_session(desk: Desk, version: int) -> None:
    properties = lasting() if version == 5 else None
    alice = connect(desk, "alice", version, clean=False, properties=properties)
    alice.subscribe("a", 1)
    alice.lost()
    alice = connect(desk, "alice", version, properties=properties)
    assert not present(alice)
    connect(desk, "bob").publish("a", b"x", qos=1, id=1)
    assert alice.payloads() == []


# [MQTT-3.1.2-6] [MQTT-4.1.0-2]
def test_a_session_ends_with_its_expiry(desk: Desk) -> None:
    connect(desk, "alice", clean=False, properties=lasting(10)).lost()
    desk.advance(9)
    assert present(connect(desk, "alice", clean=False, properties=lasting(10)))
    connect(desk, "alice", clean=False, properties=lasting(10)).disconnect()
    desk.advance(10)
    assert not present(connect(desk, "alice", clean=False))


def test_a_session_without_expiry_ends_with_its_connection(desk: Desk) -> None:
    connect(desk, "alice", clean=False).lost()
    assert not present(connect(desk, "alice", clean=False))


@pytest.mark.parametrize("version", [4, 5])
def test_a_session_without_expiry_is_not_taken_over(desk: Desk, version: int) -> None:
    first = connect(desk, "alice", version)
    first.subscribe("a")
    second = connect(desk, "alice", version, clean=False)
    assert not present(second)
    assert first.is_closed


# [MQTT-4.1.0-1]
def test_a_session_stays_while_its_connection_is_open(desk: Desk) -> None:
    connect(desk, "alice", keep_alive=600, properties=lasting(1))
    desk.advance(100)
    assert desk.broker.sessions.get("alice") is not None


def test_a_disconnect_may_change_the_expiry(desk: Desk) -> None:
    alice = connect(desk, "alice", properties=lasting(10))
    alice.disconnect(properties=mqtt.Properties(session_expiry_interval=100))
    assert alice.is_closed
    desk.advance(99)
    assert present(connect(desk, "alice", clean=False))


def test_a_disconnect_may_end_the_session(desk: Desk) -> None:
    connect(desk, "alice", properties=lasting(10)).disconnect(properties=mqtt.Properties(session_expiry_interval=0))
    assert desk.broker.sessions.get("alice") is None


def test_a_disconnect_may_not_prolong_a_session_that_ends_with_its_connection(desk: Desk) -> None:
    alice = connect(desk, "alice")
    alice.disconnect(properties=mqtt.Properties(session_expiry_interval=10))
    assert [packet.reason for packet in alice.take(mqtt.Disconnect)] == [Reason.PROTOCOL_ERROR]


def test_a_session_survives_a_restart_of_the_broker(desk: Desk) -> None:
    alice = connect(desk, "alice", clean=False, properties=lasting())
    alice.subscribe("a/#", 2, identifier=7, no_local=True)
    alice.lost()
    connect(desk, "bob").publish("a/b", b"x", qos=2, id=1)
    desk = desk.restarted()
    alice = connect(desk, "alice", clean=False, properties=lasting())
    assert present(alice)
    (message,) = alice.messages()
    assert (message.payload, message.qos) == (b"x", 2)
    assert message.properties is not None
    assert message.properties.subscription_identifiers == [7]
    alice.publish("a/b", b"own")
    assert alice.messages() == []


def test_a_member_of_a_group_gets_after_a_restart_what_waited_for_it(desk: Desk) -> None:
    alice = connect(desk, "alice", clean=False, properties=lasting())
    alice.subscribe("$share/g/a", 1)
    alice.lost()
    connect(desk, "bob").publish("a", b"x", qos=1, id=1)
    desk = desk.restarted()
    assert connect(desk, "alice", clean=False, properties=lasting()).payloads() == [b"x"]


# [MQTT-4.4.0-1] [MQTT-3.3.1-1]
def test_what_is_not_acknowledged_is_sent_again_under_the_same_identifier(desk: Desk) -> None:
    alice = connect(desk, "alice", clean=False, properties=lasting())
    alice.subscribe("a", 1)
    bob = connect(desk, "bob")
    bob.publish("a", b"1", qos=1, id=1)
    (first,) = alice.messages()
    assert not first.dup
    alice.lost()
    alice = connect(desk, "alice", clean=False, properties=lasting())
    (again,) = alice.messages()
    assert (again.dup, again.packet_id, again.payload) == (True, first.packet_id, b"1")


# [MQTT-4.4.0-1] [MQTT-4.3.3-5] [MQTT-4.3.3-6]
def test_a_pubrel_is_sent_again_and_its_publish_is_not(desk: Desk) -> None:
    alice = connect(desk, "alice", clean=False, properties=lasting())
    alice.subscribe("a", 2)
    connect(desk, "bob").publish("a", b"1", qos=2, id=1)
    (message,) = alice.messages()
    alice.send(mqtt.PubRec(message.packet_id))
    assert alice.read() == [mqtt.PubRel(message.packet_id)]
    alice.lost()
    alice = connect(desk, "alice", clean=False, properties=lasting())
    assert alice.read() == [mqtt.PubRel(message.packet_id)]


# --- wills --------------------------------------------------------------------------------------------


@pytest.fixture
def watcher(desk: Desk) -> MQTTClient:
    watcher = connect(desk, "watcher")
    watcher.subscribe("wills", 2, retain_as_published=True)
    return watcher


# [MQTT-3.1.2-7] [MQTT-3.1.2-8] [MQTT-3.1.2-14]
@pytest.mark.parametrize("version", [4, 5])
def test_a_will_is_published_when_its_client_is_lost(desk: Desk, watcher: MQTTClient, version: int) -> None:
    connect(desk, "alice", version, will=WILL, will_qos=1).lost()
    (message,) = watcher.messages()
    assert (message.topic, message.payload, message.qos, message.retain) == ("wills", b"gone", 1, False)


# [MQTT-3.1.2-15]
def test_a_will_is_retained_if_it_is_to_be(desk: Desk, watcher: MQTTClient) -> None:
    connect(desk, "alice", will=WILL, will_retain=True).lost()
    (message,) = watcher.messages()
    assert message.retain
    late = connect(desk, "late")
    late.subscribe("wills")
    assert late.payloads() == [b"gone"]


# [MQTT-3.1.2-10] [MQTT-3.14.4-3]
@pytest.mark.parametrize("version", [4, 5])
def test_a_goodbye_discards_the_will(desk: Desk, watcher: MQTTClient, version: int) -> None:
    connect(desk, "alice", version, will=WILL).disconnect()
    assert watcher.messages() == []


def test_a_goodbye_with_will_publishes_it(desk: Desk, watcher: MQTTClient) -> None:
    connect(desk, "alice", will=WILL).disconnect(Reason.DISCONNECT_WITH_WILL)
    assert watcher.payloads() == [b"gone"]


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_that_breaks_the_protocol_leaves_its_will(desk: Desk, watcher: MQTTClient, version: int) -> None:
    connect(desk, "alice", version, will=WILL).send_bytes(b"\xf1\x00")
    assert watcher.payloads() == [b"gone"]


def test_who_is_taken_over_leaves_its_will(desk: Desk, watcher: MQTTClient) -> None:
    connect(desk, "alice", will=WILL)
    connect(desk, "alice")
    assert watcher.payloads() == [b"gone"]


def test_a_broker_that_stops_publishes_the_wills_of_its_clients(desk: Desk, watcher: MQTTClient) -> None:
    connect(desk, "alice", will=WILL).connection.shut_down(desk.now)
    assert watcher.payloads() == [b"gone"]


# [MQTT-3.1.2-8]
def test_a_will_waits_for_its_delay(desk: Desk, watcher: MQTTClient) -> None:
    will = mqtt.Will(mqtt.Properties(will_delay_interval=5), "wills", b"gone")
    connect(desk, "alice", will=will, properties=lasting(10)).lost()
    desk.advance(4.9)
    assert watcher.payloads() == []
    desk.advance(0.1)
    assert watcher.payloads() == [b"gone"]


# [MQTT-3.1.2-8]
def test_a_will_waits_no_longer_than_its_session(desk: Desk, watcher: MQTTClient) -> None:
    will = mqtt.Will(mqtt.Properties(will_delay_interval=50), "wills", b"gone")
    connect(desk, "alice", will=will, properties=lasting(10)).lost()
    desk.advance(10)
    assert watcher.payloads() == [b"gone"]


# [MQTT-3.1.3-9]
def test_a_client_that_is_back_in_time_leaves_no_will(desk: Desk, watcher: MQTTClient) -> None:
    will = mqtt.Will(mqtt.Properties(will_delay_interval=5), "wills", b"gone")
    connect(desk, "alice", will=will, properties=lasting(10)).lost()
    desk.advance(4)
    connect(desk, "alice", clean=False, properties=lasting(10))
    desk.advance(10)
    assert watcher.payloads() == []


def test_a_will_brings_its_properties(desk: Desk, watcher: MQTTClient) -> None:
    given = mqtt.Properties(
        payload_format_indicator=1,
        message_expiry_interval=60,
        content_type="text/plain",
        response_topic="back",
        correlation_data=b"7",
        user_properties=[("b", "2"), ("a", "1")],
    )
    connect(desk, "alice", will=mqtt.Will(given, "wills", b"gone")).lost()
    (message,) = watcher.messages()
    assert message.properties == given


def test_a_will_whose_payload_is_not_the_text_it_claims_to_be_is_refused(desk: Desk) -> None:
    client = MQTTClient(desk)
    client.connect("alice", will=mqtt.Will(mqtt.Properties(payload_format_indicator=1), "wills", b"\xff"))
    assert [packet.reason for packet in client.take(mqtt.ConnAck)] == [Reason.PAYLOAD_FORMAT_INVALID]


@pytest.mark.parametrize(("topic", "reason"), [("a/#", Reason.TOPIC_NAME_INVALID), ("$SYS/a", Reason.NOT_AUTHORIZED)])
def test_a_will_that_could_not_be_published_is_refused(desk: Desk, topic: str, reason: Reason) -> None:
    client = MQTTClient(desk)
    client.connect("alice", will=mqtt.Will(None, topic, b""))
    assert [packet.reason for packet in client.take(mqtt.ConnAck)] == [reason]
    old = MQTTClient(desk, 4)
    old.connect("alice", will=mqtt.Will(None, topic, b""))
    assert old.is_closed
    assert [packet.reason for packet in old.take(mqtt.ConnAck)] == ([5] if reason is Reason.NOT_AUTHORIZED else [])


def test_a_session_has_the_limits_of_the_broker() -> None:
    desk = Desk(Limits(max_session_expiry_s=10))
    connect(desk, "alice", 4, clean=False).disconnect()
    desk.advance(10)
    assert desk.broker.sessions.get("alice") is None
