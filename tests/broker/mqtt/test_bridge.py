"""MQTT and MMQP on the same topics: what each becomes in the other, as docs/reference/dialects.md promises."""

from __future__ import annotations

import pytest

from moq.broker.access import Action, Actor, OpenAccess
from moq.config import Limits
from moq.reasons import Reason
from moq.wire import NEVER, Property, PubAck, PublishExtension, PublishKind, RetentionMode, Subscribe, mqtt
from tests.broker.desk import LONG, Client, Desk
from tests.broker.mqtt.scripted import MQTTClient, connect, lasting

REQUEST, RESPONSE = PublishKind.REQUEST, PublishKind.RESPONSE


def mmqp_publisher(desk: Desk, *topics: str) -> Client:
    client = desk.connect("mmqp")
    for alias, topic in enumerate(topics, 1):
        client.register(topic, alias=alias)
    return client


# --- messages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_go_both_ways_at_every_qos(desk: Desk, version: int, qos: int) -> None:
    ours, plain = mmqp_publisher(desk, "a"), connect(desk, "mqtt", version)
    ours.subscribe("b", alias=9, qos=2)
    plain.subscribe("a", 2)
    ours.publish(1, b"from mmqp", qos=qos, id=1 if qos else 0)
    plain.publish("b", b"from mqtt", qos=qos, id=1 if qos else 0)
    assert [(message.payload, message.qos) for message in plain.messages()] == [(b"from mmqp", qos)]
    assert [(message.payload, message.packet.qos) for message in ours.messages()] == [(b"from mqtt", qos)]


def test_the_same_message_reaches_every_dialect_and_version(desk: Desk) -> None:
    ours = desk.connect("ours")
    ours.subscribe("a", alias=0x30)
    new, old = connect(desk, "new"), connect(desk, "old", 4)
    for client in (new, old):
        client.subscribe("a")
    for _ in range(2):
        old.publish("a", b"x")
    assert [client.payloads() for client in (ours, new, old)] == [[b"x", b"x"]] * 3


def test_an_mqtt_publisher_need_not_register(desk: Desk) -> None:
    ours = desk.connect("ours")
    ours.subscribe("#")
    connect(desk, "mqtt", 4).publish("never/registered", b"x")
    assert [message.topic for message in ours.messages()] == ["never/registered"]


def test_mqtt_retains_at_qos_0_and_an_mmqp_subscriber_gets_it(desk: Desk) -> None:
    connect(desk, "mqtt").publish("a", b"x", retain=True)
    ours = desk.connect("ours")
    ours.subscribe("a")
    assert [(message.payload, message.packet.retain) for message in ours.messages()] == [(b"x", True)]


def test_a_topic_registered_as_fifo_greets_an_mqtt_subscriber_with_all_of_it(desk: Desk) -> None:
    ours = desk.connect("ours")
    ours.register("a", alias=1, mode=RetentionMode.FIFO, expiry_s=NEVER)
    ours.publish(1, b"1", qos=1, id=1, retain=True)
    connect(desk, "mqtt").publish("a", b"2", retain=True)
    late = connect(desk, "late")
    late.subscribe("a")
    assert [(message.payload, message.retain) for message in late.messages()] == [(b"1", True), (b"2", True)]


def test_expiry_is_told_in_the_unit_of_each_dialect(desk: Desk) -> None:
    ours, plain = mmqp_publisher(desk, "a"), connect(desk, "mqtt")
    ours.subscribe("b")
    plain.subscribe("a")
    ours.publish(1, b"x", extension=PublishExtension(ttl_ms=2400))
    plain.publish("b", b"x", properties=mqtt.Properties(message_expiry_interval=3))
    assert [message.properties for message in plain.messages()] == [mqtt.Properties(message_expiry_interval=2)]
    (message,) = ours.messages()
    assert message.packet.extension == PublishExtension(ttl_ms=3000)


def test_user_properties_pass_in_order(desk: Desk) -> None:
    ours, plain = mmqp_publisher(desk, "a"), connect(desk, "mqtt")
    ours.subscribe("b")
    plain.subscribe("a")
    ours.publish(1, b"x", extension=PublishExtension(properties=[Property("k", "2"), Property("k", "1")]))
    pairs = [("k", "2"), ("k", "1"), ("long", "x" * 256)]
    plain.publish("b", b"x", properties=mqtt.Properties(user_properties=pairs, content_type="text/plain"))
    (message,) = plain.messages()
    assert message.properties == mqtt.Properties(user_properties=[("k", "2"), ("k", "1")])
    (received,) = ours.messages()
    assert received.packet.extension is not None
    assert received.packet.extension.properties == [
        Property("k", "2"),
        Property("k", "1"),
        Property("content-type", "text/plain"),
    ]


def test_properties_mmqp_has_no_words_for_leave_no_trace(desk: Desk) -> None:
    ours = desk.connect("ours")
    ours.subscribe("b")
    connect(desk, "mqtt").publish("b", b"x", properties=mqtt.Properties(payload_format_indicator=1))
    assert [message.packet.extension for message in ours.messages()] == [None]


def test_fields_of_mmqp_become_user_properties(desk: Desk) -> None:
    ours, plain = mmqp_publisher(desk, "a"), connect(desk, "mqtt")
    plain.subscribe("a")
    extension = PublishExtension(
        timestamp_ns=5, group_start=True, encrypted=True, type_id=7, properties=[Property("k", "v")]
    )
    ours.publish(1, b"x", extension=extension)
    (message,) = plain.messages()
    assert message.properties == mqtt.Properties(
        user_properties=[
            ("k", "v"),
            ("moq-timestamp-ns", "5"),
            ("moq-group-start", "1"),
            ("moq-encrypted", "1"),
            ("moq-type-id", "7"),
        ]
    )


def test_a_stamp_of_mqtt_is_the_timestamp_of_mmqp_and_reaches_mqtt_as_it_was(desk: Desk) -> None:
    ours, plain = desk.connect("ours"), connect(desk, "mqtt")
    ours.subscribe("a")
    plain.subscribe("a")
    stamped = [("moq-timestamp-ns", "17"), ("k", "v")]
    connect(desk, "publisher").publish("a", b"x", properties=mqtt.Properties(user_properties=stamped))
    (message,) = ours.messages()
    assert message.packet.extension is not None
    assert message.packet.extension.timestamp_ns == 17
    (forwarded,) = plain.messages()
    assert forwarded.properties == mqtt.Properties(user_properties=stamped)


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", "٣", "18446744073709551616", "9" * 5000])
def test_what_is_no_time_is_a_user_property_like_any_other(desk: Desk, text: str) -> None:
    ours, plain = desk.connect("ours"), connect(desk, "mqtt")
    ours.subscribe("a")
    plain.subscribe("a")
    properties = mqtt.Properties(user_properties=[("moq-timestamp-ns", text)])
    connect(desk, "publisher").publish("a", b"x", properties=properties)
    (message,) = ours.messages()
    assert message.packet.extension is None or message.packet.extension.timestamp_ns is None
    (forwarded,) = plain.messages()
    assert forwarded.properties == properties


def test_a_topic_mmqp_cannot_name_reaches_mqtt_alone(desk: Desk) -> None:
    ours, plain = desk.connect("ours"), connect(desk, "mqtt")
    ours.subscribe("#", qos=1)
    plain.subscribe("#", 1)
    connect(desk, "publisher").publish("t" * 256, b"x", qos=1, id=1)
    assert plain.payloads() == [b"x"]
    assert ours.payloads() == []
    assert desk.figures.dropped_undeliverable == 1


def test_groups_have_members_of_both_dialects(desk: Desk) -> None:
    ours, plain = desk.connect("ours"), connect(desk, "mqtt")
    ours.ask(Subscribe(0, False, 0, "a", "workers", None))
    plain.subscribe("$share/workers/a")
    publisher = connect(desk, "publisher")
    for number in range(4):
        publisher.publish("a", b"%d" % number)
    assert sorted(map(len, (ours.payloads(), plain.payloads()))) == [2, 2]


def test_a_session_may_change_its_dialect(desk: Desk) -> None:
    ours = desk.connect("wanderer", settings=LONG)
    ours.subscribe("a", alias=5, qos=1)
    ours.lost()
    publisher = connect(desk, "publisher")
    publisher.publish("a", b"1", qos=1, id=1)
    plain = connect(desk, "wanderer", clean=False, properties=lasting())
    (message,) = plain.messages()
    assert (message.payload, message.properties) == (b"1", None)
    plain.send(mqtt.PubAck(message.packet_id))
    plain.subscribe("b", 1, identifier=9)
    plain.lost()
    publisher.publish("b", b"2", qos=1, id=1)
    ours = desk.connect("wanderer", resume=True, settings=LONG)
    assert [(message.topic, message.payload) for message in ours.messages()] == [("b", b"2")]


def test_a_publisher_of_mmqp_is_acknowledged_whoever_is_there(desk: Desk) -> None:
    ours = mmqp_publisher(desk, "a")
    ours.publish(1, b"x", qos=1, id=1)
    assert ours.read() == [PubAck(0, 1, Reason.SUCCESS)]


def test_a_question_about_types_is_not_for_mqtt(desk: Desk) -> None:
    plain = connect(desk, "mqtt")
    plain.connection.ask_type(1, "a")
    assert plain.read() == []


# --- an MMQP request to an MQTT 5 responder -----------------------------------------------------------


def asked(desk: Desk, qos: int = 0) -> tuple[Client, MQTTClient]:
    asker, responder = mmqp_publisher(desk, "service"), connect(desk, "responder")
    responder.subscribe("service", 2, requests=True)
    asker.request(1, b"question", qos=qos, id=31)
    return asker, responder


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_request_reaches_an_mqtt_5_subscriber_and_its_answer_the_requester(desk: Desk, qos: int) -> None:
    asker, responder = asked(desk, qos)
    (question,) = responder.messages()
    assert (question.topic, question.payload, question.qos) == ("service", b"question", qos)
    assert question.properties is not None
    topic, correlation = question.properties.response_topic, question.properties.correlation_data
    assert topic is not None
    if qos == 1:
        responder.send(mqtt.PubAck(question.packet_id))
    if qos == 2:
        responder.send(mqtt.PubRec(question.packet_id))
        assert responder.read() == [mqtt.PubRel(question.packet_id)]
        responder.send(mqtt.PubComp(question.packet_id))
    user = [("k", "v")]
    answered = mqtt.Properties(correlation_data=correlation, user_properties=user)
    responder.publish(topic, b"answer", qos=qos, id=5 if qos else 0, properties=answered)
    (answer,) = asker.messages()
    assert (answer.packet.kind, answer.id, answer.payload) == (RESPONSE, 31, b"answer")
    assert answer.packet.extension == PublishExtension(properties=[Property("k", "v")])
    if qos:
        assert responder.read() == [mqtt.PubAck(5) if qos == 1 else mqtt.PubRec(5)]
    assert desk.broker.sessions.get("responder").outbound.inflight == 0  # type: ignore[union-attr]


def test_an_answer_needs_no_properties(desk: Desk) -> None:
    asker, responder = asked(desk)
    (question,) = responder.messages()
    assert question.properties is not None
    assert question.properties.response_topic is not None
    responder.publish(question.properties.response_topic, b"answer")
    assert asker.payloads() == [b"answer"]


def test_a_request_is_not_for_mqtt_subscribers_that_did_not_ask_for_requests(desk: Desk) -> None:
    asker, plain = mmqp_publisher(desk, "service"), connect(desk, "mqtt")
    plain.subscribe("service")
    asker.request(1, b"question", id=31)
    assert plain.messages() == []
    assert asker.read() == [PubAck(REQUEST, 31, Reason.NO_RESPONDER)]


def test_a_second_answer_is_refused(desk: Desk) -> None:
    asker, responder = asked(desk)
    (question,) = responder.messages()
    assert question.properties is not None
    topic = question.properties.response_topic or ""
    responder.publish(topic, b"first")
    responder.publish(topic, b"second", qos=1, id=7)
    responder.publish(topic, b"third")
    (refusal,) = responder.take(mqtt.PubAck)
    assert (refusal.packet_id, refusal.reason) == (7, Reason.IMPLEMENTATION_SPECIFIC_ERROR)
    assert asker.payloads() == [b"first"]
    assert not responder.is_closed


def test_nobody_else_can_answer(desk: Desk) -> None:
    asker, responder = asked(desk)
    (question,) = responder.messages()
    assert question.properties is not None
    other = connect(desk, "other")
    other.publish(question.properties.response_topic or "", b"forged", qos=1, id=1)
    assert [packet.reason for packet in other.take(mqtt.PubAck)] == [Reason.IMPLEMENTATION_SPECIFIC_ERROR]
    assert asker.payloads() == []


@pytest.mark.parametrize("topic", ["$moq/response/", "$moq/response/x", "$moq/response/123456", "$moq/other"])
def test_other_topics_of_the_broker_are_no_answers(desk: Desk, topic: str) -> None:
    client = connect(desk, "mqtt")
    client.publish(topic, b"x", qos=1, id=1)
    assert [packet.reason for packet in client.take(mqtt.PubAck)] == [Reason.NOT_AUTHORIZED]


def test_a_request_of_qos_2_that_was_received_is_completed_on_the_next_connection(desk: Desk) -> None:
    asker, responder = mmqp_publisher(desk, "service"), connect(desk, "responder", properties=lasting())
    responder.subscribe("service", 2, requests=True)
    asker.request(1, b"question", qos=2, id=31)
    (question,) = responder.messages()
    responder.send(mqtt.PubRec(question.packet_id))
    responder.lost()
    responder = connect(desk, "responder", clean=False)
    assert responder.read() == [mqtt.PubRel(question.packet_id)]
    responder.send(mqtt.PubComp(question.packet_id))
    assert desk.broker.sessions.get("responder").outbound.inflight == 0  # type: ignore[union-attr]


def test_a_responder_may_refuse_a_request(desk: Desk) -> None:
    _, responder = asked(desk, qos=2)
    (question,) = responder.messages()
    responder.send(mqtt.PubRec(question.packet_id, Reason.QUOTA_EXCEEDED))
    assert desk.broker.sessions.get("responder").outbound.inflight == 0  # type: ignore[union-attr]


def test_a_request_too_large_for_its_only_responder_fails(desk: Desk) -> None:
    asker = mmqp_publisher(desk, "service")
    responder = connect(desk, "responder", properties=mqtt.Properties(maximum_packet_size=40))
    responder.subscribe("service", 2, requests=True)
    asker.request(1, b"q" * 100, id=31)
    assert asker.read() == [PubAck(REQUEST, 31, Reason.NO_RESPONDER)]
    assert desk.figures.dropped_undeliverable == 1


def test_what_3_1_1_cannot_express_is_dropped_and_counted(desk: Desk) -> None:
    asker = mmqp_publisher(desk, "service")
    desk.connect("wanderer", settings=LONG).subscribe("service", requests=True)
    connect(desk, "wanderer", 4, clean=False)
    asker.request(1, b"question", id=31)
    assert asker.read() == [PubAck(REQUEST, 31, Reason.NO_RESPONDER)]
    assert desk.figures.dropped_undeliverable == 1


def test_a_response_waits_in_vain_for_a_requester_that_now_speaks_mqtt(desk: Desk) -> None:
    asker = desk.connect("wanderer", settings=LONG)
    asker.register("service", alias=1)
    responder = connect(desk, "responder")
    responder.subscribe("service", 2, requests=True)
    asker.request(1, b"question", qos=1, id=31)
    (question,) = responder.messages()
    asker.lost()
    plain = connect(desk, "wanderer", clean=False)
    assert question.properties is not None
    responder.publish(question.properties.response_topic or "", b"answer", qos=1, id=1)
    assert plain.messages() == []
    assert desk.figures.dropped_undeliverable == 1


# --- an MQTT 5 question to an MMQP responder ----------------------------------------------------------

QUESTION = mqtt.Properties(response_topic="answers/7", correlation_data=b"c7", user_properties=[("k", "v")])


def questioned(desk: Desk) -> tuple[MQTTClient, Client]:
    asker, responder = connect(desk, "asker"), desk.connect("responder")
    asker.subscribe("answers/#", 2)
    responder.subscribe("service", alias=3, qos=2, requests=True)
    return asker, responder


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_with_a_response_topic_is_a_request_to_who_takes_requests(desk: Desk, qos: int) -> None:
    asker, responder = questioned(desk)
    asker.publish("service", b"question", qos=qos, id=4 if qos else 0, properties=QUESTION)
    (question,) = responder.messages()
    assert (question.packet.kind, question.topic, question.payload) == (REQUEST, "service", b"question")
    responder.respond(question.id, b"answer", qos=qos)
    (answer,) = asker.messages()
    assert (answer.topic, answer.payload, answer.qos) == ("answers/7", b"answer", qos)
    assert answer.properties == mqtt.Properties(correlation_data=b"c7")


def test_everyone_else_gets_it_as_a_message(desk: Desk) -> None:
    asker, responder = questioned(desk)
    ours, plain, willing = desk.connect("ours"), connect(desk, "plain"), connect(desk, "willing")
    ours.subscribe("service")
    plain.subscribe("service")
    willing.subscribe("service", requests=True)
    asker.publish("service", b"question", properties=QUESTION)
    assert [message.packet.kind for message in ours.messages()] == [PublishKind.PUBLISH]
    assert [message.properties for message in plain.messages()] == [QUESTION]
    assert [message.properties for message in willing.messages()] == [QUESTION]
    assert len(responder.messages()) == 1


def test_every_responder_may_answer_once(desk: Desk) -> None:
    asker, first = questioned(desk)
    second = desk.connect("second")
    second.subscribe("+", requests=True)
    asker.publish("service", b"question", properties=QUESTION)
    for responder in (first, second):
        (question,) = responder.messages()
        responder.respond(question.id, b"answer")
        responder.respond(question.id, b"again")
        assert responder.read() == [PubAck(RESPONSE, question.id, Reason.REQUEST_CLOSED)]
    assert asker.payloads() == [b"answer", b"answer"]


def test_a_group_of_responders_is_asked_once(desk: Desk) -> None:
    asker = connect(desk, "asker")
    asker.subscribe("answers/#")
    members = [desk.connect(name) for name in ("one", "two")]
    for member in members:
        member.ask(Subscribe(0, True, 0, "service", "workers", None))
    plain = connect(desk, "plain")
    plain.subscribe("$share/others/service")
    asker.publish("service", b"question", properties=QUESTION)
    questions = [(member, message) for member in members for message in member.messages()]
    assert len(questions) == 1
    member, message = questions[0]
    member.respond(message.id, b"answer")
    assert asker.payloads() == [b"answer"]
    assert [message.properties for message in plain.messages()] == [QUESTION]


def test_a_question_moves_on_to_a_member_that_answers_by_itself(desk: Desk) -> None:
    asker, ours = connect(desk, "asker"), desk.connect("ours")
    ours.ask(Subscribe(0, True, 0, "service", "workers", None))
    asker.publish("service", b"question", properties=QUESTION)
    assert len(ours.messages()) == 1
    willing = connect(desk, "willing")
    willing.subscribe("$share/workers/service", requests=True)
    ours.lost()
    (question,) = willing.messages()
    assert question.properties is not None
    assert (question.properties.response_topic, question.properties.correlation_data) == ("answers/7", b"c7")


def test_a_question_nobody_answers_is_forgotten_at_its_deadline(desk: Desk) -> None:
    asker, responder = questioned(desk)
    asker.publish("service", b"question", properties=QUESTION)
    (question,) = responder.messages()
    desk.advance(30)
    responder.respond(question.id, b"late")
    assert responder.read() == [PubAck(RESPONSE, question.id, Reason.REQUEST_CLOSED)]
    assert asker.read() == []
    assert desk.figures.requests_failed == 1


def test_a_publisher_with_too_many_open_questions_sends_messages(desk: Desk) -> None:
    desk = Desk(Limits(max_requests_per_session=1))
    asker, responder = questioned(desk)
    for _ in range(2):
        asker.publish("service", b"question", properties=QUESTION)
    assert [message.packet.kind for message in responder.messages()] == [REQUEST, PublishKind.PUBLISH]


def test_a_question_waits_for_an_absent_responder_as_a_message(desk: Desk) -> None:
    asker, responder = connect(desk, "asker"), desk.connect("responder", settings=LONG)
    responder.subscribe("service", alias=3, qos=1, requests=True)
    responder.lost()
    asker.publish("service", b"question", qos=1, id=1, properties=QUESTION)
    responder = desk.connect("responder", resume=True, settings=LONG)
    assert [message.packet.kind for message in responder.messages()] == [PublishKind.PUBLISH]


def test_a_retained_question_is_a_message(desk: Desk) -> None:
    asker, responder = questioned(desk)
    asker.publish("service", b"question", retain=True, properties=QUESTION)
    assert [message.packet.kind for message in responder.messages()] == [PublishKind.PUBLISH]


class NoAnswers(OpenAccess):
    def allows(self, actor: Actor, action: Action, topic: str) -> bool:
        return not (actor.client_id == "responder" and action is Action.PUBLISH)


def test_a_question_cannot_make_a_responder_publish_where_it_may_not(desk: Desk) -> None:
    desk = Desk(access=NoAnswers())
    asker, responder = questioned(desk)
    asker.publish("service", b"question", properties=QUESTION)
    (question,) = responder.messages()
    responder.respond(question.id, b"answer", qos=1)
    assert responder.read() == [PubAck(RESPONSE, question.id, Reason.NOT_AUTHORIZED)]
    assert asker.payloads() == []
