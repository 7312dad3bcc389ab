"""MQTT on a link with several lanes: answers on the lane of the question, messages on that of the subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.reasons import Reason
from moq.wire import mqtt
from tests.broker.mqtt.scripted import MQTTClient, connect

if TYPE_CHECKING:
    from tests.broker.desk import Desk


def client_with_lanes(desk: Desk, properties: mqtt.Properties | None = None) -> MQTTClient:
    return connect(desk, "alice", has_lanes=True, properties=properties)


def subscribe(client: MQTTClient, topic: str, lane: int, qos: int = 0) -> None:
    client.send(mqtt.Subscribe(1, None, [mqtt.Subscription(topic, qos)]), lane=lane)
    (answer,) = client.take(mqtt.SubAck)
    assert client.lane_of(answer) == lane


def test_answers_go_to_the_lane_the_question_came_on(desk: Desk) -> None:
    client = client_with_lanes(desk)
    client.publish("a", b"x", qos=1, id=1, lane=4)
    client.publish("a", b"x", qos=2, id=2, lane=8)
    client.send(mqtt.PubRel(2), lane=8)
    client.send(mqtt.Unsubscribe(3, None, ["b"]), lane=12)
    client.send(mqtt.PingReq(), lane=16)
    client.publish("a", b"x", qos=1, id=4)
    lanes = [(type(packet), client.lane_of(packet)) for packet in client.read()]
    assert lanes == [
        (mqtt.PubAck, 0),
        (mqtt.PubAck, 4),
        (mqtt.PubRec, 8),
        (mqtt.PubComp, 8),
        (mqtt.UnsubAck, 12),
        (mqtt.PingResp, 16),
    ]


def test_messages_go_to_the_lane_of_their_subscription(desk: Desk) -> None:
    client, publisher = client_with_lanes(desk), connect(desk, "publisher")
    subscribe(client, "a", lane=4)
    subscribe(client, "b", lane=8)
    client.subscribe("c")
    for topic in ("a", "b", "c"):
        publisher.publish(topic, b"x")
    assert {message.topic: client.lane_of(message) for message in client.messages()} == {"a": 4, "b": 8, "c": 0}


def test_the_steps_of_qos_2_stay_on_the_lane(desk: Desk) -> None:
    client, publisher = client_with_lanes(desk), connect(desk, "publisher")
    subscribe(client, "a", lane=4, qos=2)
    publisher.publish("a", b"x", qos=2, id=1)
    (message,) = client.messages()
    client.send(mqtt.PubRec(message.packet_id), lane=4)
    (release,) = client.take(mqtt.PubRel)
    assert client.lane_of(release) == 4
    client.send(mqtt.PubComp(message.packet_id), lane=4)


def test_a_subscription_follows_its_last_subscribe(desk: Desk) -> None:
    client, publisher = client_with_lanes(desk), connect(desk, "publisher")
    subscribe(client, "a", lane=4)
    subscribe(client, "a", lane=0)
    publisher.publish("a", b"x")
    assert [client.lane_of(message) for message in client.messages()] == [0]


def test_a_lane_the_client_has_finished_still_brings_its_messages(desk: Desk) -> None:
    client, publisher = client_with_lanes(desk), connect(desk, "publisher")
    subscribe(client, "a", lane=4)
    client.connection.lane_finished(4, desk.now)
    publisher.publish("a", b"x")
    assert [client.lane_of(message) for message in client.messages()] == [4]


def test_a_finished_lane_without_subscriptions_is_finished_here_too(desk: Desk) -> None:
    client = client_with_lanes(desk)
    subscribe(client, "a", lane=4)
    client.send(mqtt.Unsubscribe(3, None, ["a"]), lane=4)
    client.connection.lane_finished(4, desk.now)
    assert client.link.lanes[4].is_closed


def test_messages_of_a_lane_that_has_closed_go_to_control(desk: Desk) -> None:
    client, publisher = client_with_lanes(desk), connect(desk, "publisher")
    subscribe(client, "a", lane=4, qos=1)
    client.link.lanes[4].is_closed = True
    client.connection.lane_writable(client.link.lanes[4], desk.now)
    publisher.publish("a", b"x")
    client.send(mqtt.PingReq(), lane=4)
    assert [client.lane_of(packet) for packet in client.read()] == [0, 0]


def test_aliases_belong_to_the_lane_they_were_set_on(desk: Desk) -> None:
    client = client_with_lanes(desk)
    client.subscribe("#")
    alias = mqtt.Properties(topic_alias=1)
    client.publish("a", b"x", properties=alias, lane=4)
    client.publish("b", b"x", properties=alias, lane=8)
    client.publish("", b"x", properties=alias, lane=4)
    assert [message.topic for message in client.messages()] == ["a", "b", "a"]
    client.connection.lane_finished(4, desk.now)
    client.publish("", b"x", properties=alias, lane=8)
    assert [message.topic for message in client.messages()] == ["b"]


def test_the_broker_sets_aliases_on_control_alone(desk: Desk) -> None:
    client, publisher = client_with_lanes(desk, mqtt.Properties(topic_alias_maximum=5)), connect(desk, "publisher")
    client.subscribe("a/#")
    publisher.publish("a", b"x")
    subscribe(client, "a", lane=4)
    publisher.publish("a", b"x")
    publisher.publish("a", b"x")
    assert [(message.topic, client.lane_of(message)) for message in client.messages()] == [("a", 0), ("a", 4), ("a", 4)]


def test_connections_begin_and_end_on_control(desk: Desk) -> None:
    early = MQTTClient(desk, has_lanes=True)
    early.send(mqtt.Connect(5, client_id="early"), lane=4)
    assert early.is_closed
    for packet in (mqtt.Disconnect(), mqtt.Auth()):
        client = client_with_lanes(desk)
        client.send(packet, lane=4)
        assert [goodbye.reason for goodbye in client.take(mqtt.Disconnect)] == [Reason.PROTOCOL_ERROR]


def test_a_lane_whose_answers_are_not_read_is_not_read(desk: Desk) -> None:
    client = client_with_lanes(desk)
    client.send(mqtt.PingReq(), lane=4)
    lane = client.link.lanes[4]
    lane.congested = lane.is_stalled = True
    client.send(mqtt.PingReq(), lane=4)
    client.send(mqtt.PingReq())
    assert client.link.paused == {4}
    lane.congested = lane.is_stalled = False
    client.connection.lane_writable(lane, desk.now)
    assert client.link.paused == set()


def test_a_lane_that_ends_inside_a_packet_is_malformed(desk: Desk) -> None:
    client = client_with_lanes(desk)
    client.send_bytes(b"\x30\x05\x00", lane=4)
    client.connection.lane_finished(4, desk.now)
    assert [packet.reason for packet in client.take(mqtt.Disconnect)] == [Reason.MALFORMED_PACKET]
