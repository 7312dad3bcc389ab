"""Subscriptions, types and subscribers: what the client asks, and what it does with the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from moq.client.messages import TopicType
from moq.errors import ConnectionLost, LocalProtocolError, RequestRefused
from moq.reasons import Reason
from moq.wire import (
    ConAck,
    ConReq,
    Packet,
    PubAck,
    PubType,
    QueryAck,
    Register,
    Subscribe,
    SubscribeExtension,
    TopAck,
    TopReq,
    TypeFormat,
    TypeReq,
    Unsubscribe,
)
from tests.client.scripted import Pair, message, settled

if TYPE_CHECKING:
    from moq.client.inbox import Inbox

SCHEMA = TopicType("a", b'{"type":"number"}')


@pytest.fixture
def pair() -> Pair:
    pair = Pair()
    pair.connect()
    return pair


def subscribed(pair: Pair, filter_: str, **options: object) -> Inbox:
    inbox = pair.core.subscribe(filter_, **options)  # type: ignore[arg-type]
    pair.answer_topics()
    return inbox


def requests(pair: Pair) -> list[object]:
    return [request for packet in pair.answer_topics() for request in packet.requests]


# --- subscriptions ----------------------------------------------------------------------------------------


def test_an_exact_subscription_has_an_alias_and_a_wildcard_has_none(pair: Pair) -> None:
    pair.core.subscribe("a", qos=1, group="g", extension=SubscribeExtension(priority=3))
    pair.core.subscribe("b/#", requests=True)
    assert requests(pair) == [
        Subscribe(1, False, 1, "a", "g", SubscribeExtension(priority=3)),
        Subscribe(0, True, 0, "b/#"),
    ]


def test_subscribing_and_publishing_share_the_alias_of_a_topic(pair: Pair) -> None:
    pair.core.subscribe("a")
    pair.core.publish("b", b"")
    pair.core.publish("a", b"")
    aliases = [(type(request), request.alias) for request in requests(pair)]  # type: ignore[attr-defined]
    assert aliases == [(Subscribe, 1), (Register, 2), (Register, 1)]


def test_a_refused_subscription_ends(pair: Pair) -> None:
    inbox = pair.core.subscribe("a")
    other = pair.core.subscribe("b")
    pair.answer_topics(Reason.NOT_AUTHORIZED)
    assert isinstance(inbox.error, RequestRefused)
    assert "SUBSCRIBE 'a': not authorized" in str(inbox.error)
    assert inbox.operation is not None
    assert inbox.operation.error is inbox.error
    assert other.is_ended
    assert not pair.session.filters


def test_a_refusal_ends_only_the_subscription_that_asked(pair: Pair) -> None:
    first = subscribed(pair, "a", qos=0)
    second = pair.core.subscribe("a", qos=2)
    pair.answer_topics(Reason.QUOTA_EXCEEDED)
    assert second.is_ended
    assert not first.is_ended


def test_two_subscriptions_of_one_filter_ask_for_the_strongest_of_both(pair: Pair) -> None:
    first = subscribed(pair, "a", qos=2)
    pair.core.subscribe("a", qos=0, requests=True)
    assert requests(pair) == [Subscribe(2, True, 1, "a")]
    assert pair.core.unsubscribe(first) is None, "the other still wants it"


def test_one_filter_cannot_have_two_groups(pair: Pair) -> None:
    subscribed(pair, "a", group="g")
    with pytest.raises(LocalProtocolError, match="already subscribed to with another group"):
        pair.core.subscribe("a")


def test_the_last_subscription_of_a_filter_unsubscribes(pair: Pair) -> None:
    inbox = subscribed(pair, "a/+")
    operation = pair.core.unsubscribe(inbox)
    assert operation is not None
    assert requests(pair) == [Unsubscribe(False, 0, "a/+")]
    assert operation.is_settled
    assert inbox.is_ended
    assert pair.core.unsubscribe(inbox) is None


@pytest.mark.parametrize("filter_", ["", "a/#/b", "a+", "x" * 256])
def test_a_filter_that_is_none_is_refused_at_once(pair: Pair, filter_: str) -> None:
    for ask in (pair.core.subscribe, pair.core.register, pair.core.describe):
        with pytest.raises(LocalProtocolError):
            ask(filter_)
    assert not pair.session.filters
    assert not pair.session.operations


def test_options_that_do_not_fit_leave_no_trace(pair: Pair) -> None:
    with pytest.raises(LocalProtocolError, match="period"):
        pair.core.subscribe("a", extension=SubscribeExtension(period=70_000))
    with pytest.raises(LocalProtocolError, match="qos is 7"):
        pair.core.subscribe("a", qos=7)
    with pytest.raises(LocalProtocolError, match="expiry_s"):
        pair.core.register("a", expiry_s=70_000)
    assert not pair.session.filters
    assert not pair.session.topics.all()


# --- reconnecting -----------------------------------------------------------------------------------------


def test_subscriptions_the_broker_has_kept_are_not_asked_for_again(pair: Pair) -> None:
    inbox = subscribed(pair, "a")
    pair.lose()
    pair.connect(session_present=True)
    assert requests(pair) == []
    pair.receive(message(b"1", alias=1))
    assert len(inbox.queue) == 1


def test_subscriptions_the_broker_has_forgotten_are_asked_for_again(pair: Pair) -> None:
    subscribed(pair, "a", qos=1)
    subscribed(pair, "b/#", group="g")
    pair.lose()
    pair.connect(session_present=False)
    assert requests(pair) == [Subscribe(1, False, 1, "a"), Subscribe(0, False, 0, "b/#", "g")]


def test_a_subscription_that_cannot_be_restored_ends_with_the_reason(pair: Pair) -> None:
    inbox = subscribed(pair, "a")
    pair.lose()
    pair.connect(session_present=False)
    pair.answer_topics(Reason.NOT_AUTHORIZED)
    assert isinstance(inbox.error, RequestRefused)


def test_questions_not_answered_are_asked_again_and_only_once(pair: Pair) -> None:
    inbox = pair.core.subscribe("a")
    description = pair.core.describe("a/#")
    pair.lose()
    gone = pair.core.subscribe("b")
    pair.link_up()
    pair.core.start()
    pair.deliver()
    assert pair.broker.next(ConReq).topics == [Subscribe(0, False, 1, "a"), Subscribe(0, False, 2, "b")]
    pair.broker.send(ConAck(False, Reason.SUCCESS))
    pair.broker.send(TopAck(0, b"\0\0"))
    pair.deliver()
    assert pair.broker.next(TypeReq).topic == "a/#"
    assert not pair.broker.received
    for operation in (inbox.operation, gone.operation):
        assert operation is not None
        assert operation.is_settled
    assert not settled(description)


def test_registrations_made_by_hand_are_restored_and_others_when_they_are_needed(pair: Pair) -> None:
    pair.core.register("by/hand", mode=1)
    pair.core.publish("by/message", b"")
    pair.answer_topics()
    pair.lose()
    pair.link_up()
    pair.core.start()
    pair.deliver()
    assert pair.broker.next(ConReq).topics == [Register(1, False, 1, "by/hand")]
    pair.broker.send(ConAck(False, Reason.SUCCESS))
    pair.broker.send(TopAck(0, b"\0"))
    pair.deliver()
    pair.core.publish("by/message", b"")
    assert requests(pair) == [Register(0, False, 2, "by/message")]


# --- subscribers and types --------------------------------------------------------------------------------


def test_query_gives_the_subscribers(pair: Pair) -> None:
    operation = pair.core.query("a")
    pair.deliver()
    pair.receive(QueryAck(pair.broker.next(TopReq).packet_id, Reason.SUCCESS, ["x", "y"]))
    assert operation.is_settled
    assert operation.subscribers == ["x", "y"]


def test_query_may_be_refused_and_needs_a_name(pair: Pair) -> None:
    operation = pair.core.query("a")
    pair.deliver()
    pair.receive(QueryAck(pair.broker.next(TopReq).packet_id, Reason.NOT_AUTHORIZED, []))
    assert "QUERY 'a': not authorized" in str(operation.error)
    with pytest.raises(LocalProtocolError, match="wildcard"):
        pair.core.query("a/#")


def answer(packet_id: int, topic: str, *, more: bool = False, reason: int = Reason.SUCCESS) -> PubType:
    return PubType(more, True, packet_id, reason, TypeFormat.JSON_SCHEMA, 0, topic, "application/json", b"{}")


def test_describe_collects_the_types_of_all_topics(pair: Pair) -> None:
    operation = pair.core.describe("a/#")
    pair.deliver()
    packet_id = pair.broker.next(TypeReq).packet_id
    pair.receive(answer(packet_id, "a/x", more=True))
    pair.receive(answer(packet_id, "a/y", more=True, reason=Reason.TYPE_UNKNOWN))
    assert not settled(operation)
    pair.receive(answer(packet_id, "a/z"))
    assert operation.is_settled
    assert [type_.topic for type_ in operation.types] == ["a/x", "a/z"]


@pytest.mark.parametrize(("reason", "error"), [(Reason.TYPE_UNKNOWN, None), (Reason.NOT_AUTHORIZED, RequestRefused)])
def test_nothing_known_is_an_answer_and_a_refusal_an_error(
    pair: Pair, reason: Reason, error: type[RequestRefused] | None
) -> None:
    operation = pair.core.describe("a")
    pair.deliver()
    pair.receive(answer(pair.broker.next(TypeReq).packet_id, "a", reason=reason))
    assert operation.types == []
    assert operation.error is None if error is None else isinstance(operation.error, error)


@pytest.mark.parametrize("packet", [answer(9, "a"), PubType(False, False, 1, 0, 1, 0, "a", "m")])
def test_a_type_nobody_asked_for_breaks_the_protocol(pair: Pair, packet: Packet) -> None:
    pair.core.describe("a")
    pair.receive(packet)
    assert isinstance(pair.owner.error, ConnectionLost)


def test_a_type_does_not_answer_another_question(pair: Pair) -> None:
    pair.core.query("a")
    pair.deliver()
    pair.receive(answer(pair.broker.next(TopReq).packet_id, "a"))
    assert "answers no TypeReq" in str(pair.owner.error)


def test_announcing_a_type_sends_it_and_waits_for_the_answer(pair: Pair) -> None:
    operation = pair.core.announce(SCHEMA)
    pair.deliver()
    packet = pair.broker.next(PubType)
    assert not packet.answer
    assert (packet.topic, packet.schema, packet.media_type) == ("a", SCHEMA.schema, "application/json")
    pair.receive(TopAck(packet.packet_id, bytes([Reason.TOPIC_NOT_REGISTERED])))
    assert "PUBTYPE 'a': topic not registered" in str(operation.error)


def test_the_broker_asks_what_a_topic_carries(pair: Pair) -> None:
    pair.core.announce(SCHEMA)
    pair.deliver()
    pair.broker.next(PubType)
    pair.receive(TypeReq(40, "a"))
    known = pair.broker.next(PubType)
    assert (known.answer, known.packet_id, known.reason, known.schema) == (True, 40, Reason.SUCCESS, SCHEMA.schema)
    pair.receive(TypeReq(41, "b"))
    unknown = pair.broker.next(PubType)
    assert (unknown.answer, unknown.packet_id, unknown.reason) == (True, 41, Reason.TYPE_UNKNOWN)


def test_ensuring_a_registration_asks_only_if_it_must(pair: Pair) -> None:
    first = pair.core.ensure_registered("a")
    assert requests(pair) == [Register(0, False, 1, "a")]
    assert first.is_settled
    assert pair.core.ensure_registered("a").is_settled
    assert requests(pair) == []


def test_an_answer_to_a_message_is_no_answer_to_a_question(pair: Pair) -> None:
    operation = pair.core.query("a")
    pair.receive(PubAck(0, 1, Reason.SUCCESS))
    assert not settled(operation)
