"""Confirmed publishing by plain MQTT clients: user properties ask, acknowledgements wait and tell, anybody confirms."""

from __future__ import annotations

import json

import pytest

from moq.broker.access import Action
from moq.broker.confirmations import Answer, Outcome
from moq.broker.dialects.mqtt_confirmations import told
from moq.reasons import Reason
from moq.wire import Confirmation, ConfirmSyn, PubReq, PubSyn, SubscribeExtension, mqtt
from tests.broker.desk import LONG, PERSISTENT, Client, Desk
from tests.broker.mqtt.scripted import MQTTClient, connect, lasting
from tests.broker.test_topic_requests import Denying

TOO_FEW, TIMED_OUT = int(Reason.TOO_FEW_SUBSCRIBERS), int(Reason.CONFIRMATION_TIMED_OUT)

Acknowledgement = mqtt.PubAck | mqtt.PubRec | mqtt.PubComp


def publish(
    client: MQTTClient,
    waited: int | str,
    *ids: str,
    qos: int = 1,
    id: int = 7,  # noqa: A002 - the word of the packets
    timeout_ms: int | str | None = None,
    dup: bool = False,
) -> None:
    pairs = [("mine", "kept"), ("moq-confirm", str(waited)), *(("moq-confirm-id", name) for name in ids)]
    if timeout_ms is not None:
        pairs.append(("moq-confirm-timeout-ms", str(timeout_ms)))
    client.publish("t", b"!", qos=qos, id=id, dup=dup, properties=mqtt.Properties(user_properties=pairs))


def outcome(packet: mqtt.Packet) -> tuple[int, int, list[dict[str, object]]]:
    """What an acknowledgement tells: the reason, how many, who; the times are checked and taken out."""
    assert isinstance(packet, Acknowledgement)
    assert packet.reason == Reason.SUCCESS
    assert packet.properties is not None
    pairs = packet.properties.user_properties or []
    names = [name for name, _ in pairs]
    assert names == ["moq-confirm-reason", "moq-confirmed", *["moq-confirmation"] * (len(pairs) - 2)]
    who = [json.loads(value) for _, value in pairs[2:]]
    assert all(item.pop("after_ms") >= 0 for item in who)
    return int(pairs[0][1]), int(pairs[1][1]), who


def reply(text: str) -> mqtt.Properties:
    return mqtt.Properties(user_properties=[("other", "x"), ("moq-reply", text)])


def mmqp(desk: Desk, name: str = "ours", qos: int = 3) -> Client:
    client = desk.connect(name, settings=LONG)
    client.subscribe("t", alias=1, qos=qos)
    return client


# --- asking -------------------------------------------------------------------------------------------


def test_puback_waits_for_the_subscribers_and_says_who_they_are(desk: Desk) -> None:
    client, one, two = connect(desk, "publisher"), connect(desk, "one"), connect(desk, "two", 4)
    one.subscribe("t", 1)
    two.subscribe("t", 1)
    publish(client, 2)
    (message,) = one.messages()
    assert message.qos == 1
    assert message.properties is not None
    assert message.properties.user_properties == [("mine", "kept"), ("moq-confirm", "2")]
    one.send(mqtt.PubAck(message.packet_id, 0, reply("done")))
    assert client.read() == []
    (plain,) = two.messages()
    two.send(mqtt.PubAck(plain.packet_id))
    (packet,) = client.read()
    assert isinstance(packet, mqtt.PubAck)
    assert outcome(packet) == (0, 2, [{"client_id": "one", "reply": "done"}, {"client_id": "two"}])
    publish(client, 1)
    assert len(one.messages()) == 1, "the identifier was free again"


def test_pubrec_waits_and_pubcomp_says_it_again(desk: Desk) -> None:
    client, one = connect(desk, "publisher"), connect(desk, "one", 4)
    one.subscribe("t", 2)
    publish(client, 1, qos=2)
    (message,) = one.messages()
    assert message.qos == 2
    one.send(mqtt.PubRec(message.packet_id))
    assert one.read() == [mqtt.PubRel(message.packet_id)]
    (received,) = client.read()
    assert isinstance(received, mqtt.PubRec)
    client.send(mqtt.PubRel(7))
    (completed,) = client.read()
    assert isinstance(completed, mqtt.PubComp)
    assert outcome(received) == outcome(completed) == (0, 1, [{"client_id": "one"}])


def test_the_time_is_in_milliseconds(desk: Desk) -> None:
    client, one = connect(desk, "publisher"), connect(desk, "one")
    one.subscribe("t", 1)
    publish(client, 0)
    desk.advance(1.2345)
    one.send(mqtt.PubAck(one.messages()[0].packet_id))
    (packet,) = client.read()
    assert isinstance(packet, mqtt.PubAck)
    assert packet.properties is not None
    assert packet.properties.user_properties is not None
    assert json.loads(packet.properties.user_properties[2][1]) == {"client_id": "one", "after_ms": 1234.5}


def test_designated_subscribers_and_a_deadline(desk: Desk) -> None:
    client, one, two = connect(desk, "publisher"), connect(desk, "one"), connect(desk, "two")
    for subscriber in (one, two):
        subscriber.subscribe("t", 1)
    publish(client, 1, "two, with a comma", "two", timeout_ms=1500)
    one.send(mqtt.PubAck(one.messages()[0].packet_id))
    desk.advance(1.4)
    assert client.read() == []
    desk.advance(0.1)
    assert outcome(client.read()[0]) == (TIMED_OUT, 0, [])


@pytest.mark.parametrize("qos", [1, 2])
def test_a_refusal_says_why_in_words(desk: Desk, qos: int) -> None:
    client, one = connect(desk, "publisher"), connect(desk, "one")
    one.subscribe("t", 1)
    publish(client, 2, qos=qos)
    (packet,) = client.read()
    assert isinstance(packet, mqtt.PubAck if qos == 1 else mqtt.PubRec)
    assert packet.reason == Reason.IMPLEMENTATION_SPECIFIC_ERROR
    assert packet.properties == mqtt.Properties(reason_string="too few subscribers (0xc5)")
    assert one.messages() == []


@pytest.mark.parametrize(
    ("waited", "timeout_ms", "ids", "reason"),
    [
        ("many", None, 0, Reason.IMPLEMENTATION_SPECIFIC_ERROR),
        ("-1", None, 0, Reason.IMPLEMENTATION_SPECIFIC_ERROR),
        ("1" * 10, None, 0, Reason.IMPLEMENTATION_SPECIFIC_ERROR),
        ("1", "soon", 0, Reason.IMPLEMENTATION_SPECIFIC_ERROR),
        ("1", None, 256, Reason.QUOTA_EXCEEDED),
        ("1001", None, 0, Reason.QUOTA_EXCEEDED),
    ],
)
def test_what_is_no_wish_is_refused(desk: Desk, waited: str, timeout_ms: str | None, ids: int, reason: Reason) -> None:
    client, one = connect(desk, "publisher"), connect(desk, "one")
    one.subscribe("t", 1)
    publish(client, waited, *map(str, range(ids)), timeout_ms=timeout_ms)
    assert client.read() == [mqtt.PubAck(7, reason)]
    assert one.messages() == []


def test_best_effort_messages_are_not_confirmed(desk: Desk) -> None:
    client, one = connect(desk, "publisher"), connect(desk, "one")
    one.subscribe("t", 1)
    publish(client, 1, qos=0, id=0)
    assert len(one.messages()) == 1
    assert not desk.broker.confirmations._open


def test_a_client_that_wants_no_words_cannot_be_told(desk: Desk) -> None:
    client = connect(desk, "publisher", properties=mqtt.Properties(request_problem_information=False))
    one = connect(desk, "one")
    one.subscribe("t", 1)
    publish(client, 1)
    assert client.read() == [mqtt.PubAck(7, Reason.IMPLEMENTATION_SPECIFIC_ERROR)]


def test_who_may_not_publish_is_refused_as_ever() -> None:
    desk = Desk(access=Denying("publisher", Action.PUBLISH, "t"))
    client = connect(desk, "publisher")
    publish(client, 1)
    assert client.read() == [mqtt.PubAck(7, Reason.NOT_AUTHORIZED)]


# --- confirming ---------------------------------------------------------------------------------------


def test_a_refused_message_is_not_confirmed(desk: Desk) -> None:
    client, one = connect(desk, "publisher"), connect(desk, "one")
    one.subscribe("t", 2)
    publish(client, 1, qos=2)
    one.send(mqtt.PubRec(one.messages()[0].packet_id, Reason.UNSPECIFIED_ERROR, reply("no")))
    assert outcome(client.read()[0]) == (TOO_FEW, 0, [])


def test_a_reply_that_is_too_long_is_left_out(desk: Desk) -> None:
    client, one = connect(desk, "publisher"), connect(desk, "one")
    one.subscribe("t", 1)
    for text in ("x" * 256, "x" * 255):
        publish(client, 1)
        one.send(mqtt.PubAck(one.messages()[0].packet_id, 0, reply(text)))
    first, second = (outcome(packet) for packet in client.read())
    assert first == (0, 1, [{"client_id": "one"}])
    assert second == (0, 1, [{"client_id": "one", "reply": "x" * 255}])


def test_a_reply_to_an_ordinary_message_is_ignored(desk: Desk) -> None:
    client, one = connect(desk, "publisher"), connect(desk, "one")
    one.subscribe("t", 1)
    client.publish("t", b"", qos=1, id=1)
    one.send(mqtt.PubAck(one.messages()[0].packet_id, 0, reply("?")))
    assert client.read() == [mqtt.PubAck(1)]


def test_a_shared_subscription_counts_as_one(desk: Desk) -> None:
    client = connect(desk, "publisher")
    members = [connect(desk, name) for name in ("left", "right")]
    for member in members:
        member.subscribe("$share/g/t", 1)
    publish(client, 1)
    ((member, message),) = [(member, message) for member in members for message in member.messages()]
    member.send(mqtt.PubAck(message.packet_id))
    assert outcome(client.read()[0])[:2] == (0, 1)


def test_a_subscription_with_a_period_confirms_too(desk: Desk) -> None:
    client, one = connect(desk, "publisher"), connect(desk, "one")
    assert one.ask(mqtt.Subscription("$MRP;100/t", 1)) == [1]
    publish(client, 1)
    one.send(mqtt.PubAck(one.messages()[0].packet_id))
    assert outcome(client.read()[0]) == (0, 1, [{"client_id": "one"}])


def test_a_subscription_with_an_operator_is_for_something_else(desk: Desk) -> None:
    client, one = connect(desk, "publisher"), connect(desk, "one")
    assert one.ask(mqtt.Subscription("$GT;30/t", 1)) == [1]
    publish(client, 0)
    assert isinstance(packet := client.read()[0], mqtt.PubAck)
    assert packet.reason == Reason.IMPLEMENTATION_SPECIFIC_ERROR


# --- both dialects ------------------------------------------------------------------------------------


def test_an_mmqp_publisher_is_confirmed_by_mqtt_subscribers_of_both_versions(desk: Desk) -> None:
    client, new, old = desk.connect("publisher"), connect(desk, "new"), connect(desk, "old", 4)
    client.register("t", alias=1)
    new.subscribe("t", 2)
    old.subscribe("t", 1)
    client.send(PubReq(0, False, False, 3, 7, 1, None, 2, None, b"!"))
    (message,) = new.messages()
    assert message.qos == 2
    assert message.properties == mqtt.Properties(user_properties=[("moq-confirm", "2")])
    new.send(mqtt.PubRec(message.packet_id, 0, reply("ü")))
    (plain,) = old.messages()
    old.send(mqtt.PubAck(plain.packet_id))
    told_ = [Confirmation("new", 0, "ü".encode()), Confirmation("old", 0)]
    assert client.read() == [ConfirmSyn(7, 0, told_)]


def test_an_mqtt_publisher_is_confirmed_by_mmqp_subscribers(desk: Desk) -> None:
    client, three, one = connect(desk, "publisher"), mmqp(desk, "three"), mmqp(desk, "one", 1)
    publish(client, 2, qos=2)
    (message,) = three.messages()
    assert (message.packet.qos, message.packet.waited) == (3, 2)
    three.send(ConfirmSyn(message.id, 0, [Confirmation(reply=b"\xff\0")]))
    one.puback(one.messages()[0].id)
    assert outcome(client.read()[0]) == (0, 2, [{"client_id": "three", "reply_base64": "/wA="}, {"client_id": "one"}])


def test_at_qos_1_mmqp_subscribers_confirm_with_puback(desk: Desk) -> None:
    client, ours = connect(desk, "publisher"), mmqp(desk)
    publish(client, 1)
    (message,) = ours.messages()
    assert message.packet.qos == 1
    ours.puback(message.id)
    assert outcome(client.read()[0]) == (0, 1, [{"client_id": "ours"}])


def test_a_subscriber_of_qos_3_that_comes_back_speaking_mqtt_gets_qos_2(desk: Desk) -> None:
    ours = mmqp(desk)
    client = connect(desk, "publisher")
    ours.lost()
    publish(client, 1, qos=2)
    back = connect(desk, "ours", properties=lasting(), clean=False)
    (message,) = back.messages()
    assert message.qos == 2
    back.send(mqtt.PubRec(message.packet_id))
    assert outcome(client.read()[0]) == (0, 1, [{"client_id": "ours"}])


def test_a_question_is_confirmed_by_whoever_gets_it_as_a_request(desk: Desk) -> None:
    client, ours = connect(desk, "publisher"), desk.connect("ours")
    ours.subscribe("t", alias=1, qos=3, requests=True)
    asked = mqtt.Properties(response_topic="answers", user_properties=[("moq-confirm", "1")])
    client.publish("t", b"?", qos=2, id=7, properties=asked)
    (request,) = ours.messages()
    assert (request.packet.kind, request.packet.qos) == (1, 2)
    ours.pubsyn(request.id, 0, 1)
    assert PubSyn(1, request.id, Reason.RELEASE) in ours.read()
    assert outcome(client.read()[0]) == (0, 1, [{"client_id": "ours"}])


def test_a_period_in_mmqp_leaves_the_newest_to_confirm(desk: Desk) -> None:
    client, ours = connect(desk, "publisher"), desk.connect("ours")
    ours.subscribe("t", alias=1, qos=3, extension=SubscribeExtension(period=100))
    for packet_id in (1, 2, 3):
        publish(client, 1, qos=2, id=packet_id)
    (superseded,) = client.read()
    assert isinstance(superseded, mqtt.PubRec)
    assert superseded.packet_id == 2
    assert outcome(superseded) == (TOO_FEW, 0, [])


# --- connections come and go --------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publisher_that_repeats_its_message_is_told_and_nobody_gets_it_twice(desk: Desk, qos: int) -> None:
    client, one = connect(desk, "publisher", properties=lasting()), connect(desk, "one")
    one.subscribe("t", 1)
    publish(client, 1, qos=qos)
    client.lost()
    one.send(mqtt.PubAck(one.messages()[0].packet_id))
    client = connect(desk, "publisher", properties=lasting(), clean=False)
    publish(client, 1, qos=qos, dup=True)
    assert outcome(client.read()[0]) == (0, 1, [{"client_id": "one"}])
    assert one.messages() == []


def test_after_a_restart_pubcomp_still_tells_the_outcome(desk: Desk) -> None:
    client, one = connect(desk, "publisher", properties=lasting()), desk.connect("one", settings=PERSISTENT)
    one.subscribe("t", alias=1, qos=1)
    publish(client, 1, qos=2)
    one.puback(one.messages()[0].id)
    desk = desk.restarted()
    client = connect(desk, "publisher", properties=lasting(), clean=False)
    client.send(mqtt.PubRel(7))
    (completed,) = client.read()
    assert outcome(completed) == (0, 1, [{"client_id": "one"}])


def test_at_qos_1_an_identifier_without_dup_is_a_new_message(desk: Desk) -> None:
    client, one = connect(desk, "publisher", properties=lasting()), connect(desk, "one")
    one.subscribe("t", 1)
    publish(client, 1)
    client.lost()
    client = connect(desk, "publisher", properties=lasting(), clean=False)
    publish(client, 1)
    old, new = one.messages()
    one.send(mqtt.PubAck(old.packet_id))
    assert client.read() == []
    one.send(mqtt.PubAck(new.packet_id))
    assert outcome(client.read()[0]) == (0, 1, [{"client_id": "one"}])


def test_a_publisher_that_comes_back_with_mqtt_3_1_1_is_told_what_its_version_can(desk: Desk) -> None:
    client, one = connect(desk, "publisher", properties=lasting()), connect(desk, "one")
    one.subscribe("t", 1)
    publish(client, 1, qos=2)
    client.lost()
    client = connect(desk, "publisher", 4, clean=False)
    client.publish("t", b"!", qos=2, id=7, dup=True)
    client.send(mqtt.PubRel(7))
    assert client.read() == [mqtt.PubRec(7), mqtt.PubComp(7)]
    assert len(one.messages()) == 1
    assert not desk.broker.confirmations._of


def test_a_small_packet_tells_how_it_ended_and_how_many() -> None:
    answers = tuple(Answer(f"client-{number}", 0.001, b"reply") for number in range(100))
    whole = told(Outcome(Reason.SUCCESS, answers), 1 << 20)
    assert len(whole) == 102
    short = told(Outcome(Reason.SUCCESS, answers), 200)
    assert short == whole[: len(short)]
    assert 2 < len(short) < 5
    assert told(Outcome(Reason.SUCCESS, answers), 0) == whole[:2]


def test_a_clients_maximum_packet_size_holds(desk: Desk) -> None:
    client = connect(desk, "publisher", properties=mqtt.Properties(maximum_packet_size=200))
    subscribers = [connect(desk, f"subscriber-{number}") for number in range(5)]
    for subscriber in subscribers:
        subscriber.subscribe("t", 1)
    publish(client, 5)
    for subscriber in subscribers:
        subscriber.send(mqtt.PubAck(subscriber.messages()[0].packet_id))
    (packet,) = client.read()
    reason, count, who = outcome(packet)
    assert (reason, count) == (0, 5)
    assert 0 < len(who) < 5
    assert len(mqtt.encode(packet, 5)) <= 200
