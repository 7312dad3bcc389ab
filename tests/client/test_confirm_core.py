"""QoS 3 in the client's core, against a scripted broker: what is sent, when it settles, how a program confirms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from moq.client.confirming import NotConfirmed, Wish, wish_of
from moq.client.receiving import CONFIRMED
from moq.errors import ConnectionLost, LocalProtocolError, RequestRefused
from moq.reasons import Reason
from moq.wire import Confirmation, ConfirmSyn, PubAck, PublishExtension, PubReq, PubSyn, Subscribe, TopReq
from tests.client.scripted import Pair, settled

if TYPE_CHECKING:
    from moq.client.inbox import Inbox
    from moq.client.messages import Message
    from moq.client.pending import Exchange


@pytest.fixture
def pair() -> Pair:
    pair = Pair()
    pair.connect()
    return pair


def published(pair: Pair, wish: Wish) -> tuple[Exchange, PubReq]:
    exchange = pair.core.publish("t", b"x", extension=PublishExtension(deadline_ms=500), wish=wish)
    pair.answer_topics()
    return exchange, pair.broker.next(PubReq)


def subscribed(pair: Pair, *, replies: bool = True, queue: int = 10) -> Inbox:
    inbox = pair.core.subscribe("t", qos=CONFIRMED, replies=replies, queue=queue)
    pair.answer_topics()
    return inbox


def incoming(packet_id: int, payload: bytes = b"x", *, dup: bool = False, qos: int = 3) -> PubReq:
    return PubReq(0, False, dup, qos, packet_id, 0, "t", 2 if qos == 3 else None, None, payload)


def sent(pair: Pair) -> list[object]:
    """What the broker has received since it last looked."""
    pair.deliver()
    received, pair.broker.received = [item for _, item in pair.broker.received], []
    return list(received)


def take(pair: Pair, inbox: Inbox) -> Message:
    message = pair.core.take(inbox)
    assert message is not None
    return message


# --- publishing -------------------------------------------------------------------------------------------


def test_a_message_waits_for_its_confirmations_and_is_then_released(pair: Pair) -> None:
    exchange, packet = published(pair, Wish(2))
    assert (packet.qos, packet.waited, packet.dup) == (3, 2, False)
    assert not settled(exchange)
    pair.receive(ConfirmSyn(packet.packet_id, 0, [Confirmation("a", 12, b"ok"), Confirmation("b", 1500)]))
    assert settled(exchange)
    assert exchange.confirmations is not None
    assert exchange.confirmations.client_ids == ["a", "b"]
    assert [(item.after_s, item.reply) for item in exchange.confirmations] == [(0.012, b"ok"), (1.5, None)]
    assert len(exchange.confirmations) == 2
    assert exchange.confirmations[1].client_id == "b"
    assert sent(pair) == [PubSyn(0, packet.packet_id, Reason.RELEASE)]
    assert pair.session.outgoing
    pair.receive(PubAck(0, packet.packet_id, 0))
    assert not pair.session.outgoing


@pytest.mark.parametrize("reason", [Reason.CONFIRMATION_TIMED_OUT, Reason.TOO_FEW_SUBSCRIBERS])
def test_too_few_confirmations_are_an_error_that_says_who_did_and_who_is_missing(pair: Pair, reason: Reason) -> None:
    exchange, packet = published(pair, Wish(2, ("a", "b", "c")))
    pair.receive(ConfirmSyn(packet.packet_id, reason, [Confirmation("b", 1)]))
    assert isinstance(exchange.error, NotConfirmed)
    assert exchange.error.reason == reason
    assert exchange.error.missing == ["a", "c"]
    assert exchange.error.confirmations.client_ids == ["b"]
    assert str(exchange.error).startswith("PUBLISH on 't': 1 of 2 confirmed ('b'), missing 'a', 'c': ")
    assert sent(pair) == [PubSyn(0, packet.packet_id, Reason.RELEASE)], "it was taken all the same"


def test_a_refused_message_is_over_at_once(pair: Pair) -> None:
    exchange, packet = published(pair, Wish(1))
    pair.receive(PubSyn(0, packet.packet_id, Reason.TOO_FEW_SUBSCRIBERS))
    assert isinstance(exchange.error, NotConfirmed)
    assert isinstance(exchange.error, RequestRefused)
    assert str(exchange.error) == "PUBLISH on 't': 0 of 1 confirmed: too few subscribers (0xc5)"
    assert not pair.session.outgoing
    assert sent(pair) == []


def test_a_message_that_is_not_confirmed_when_the_connection_is_lost_is_repeated(pair: Pair) -> None:
    exchange, packet = published(pair, Wish(1))
    pair.lose()
    pair.connect(session_present=True)
    pair.answer_topics()
    again = pair.broker.next(PubReq)
    assert (again.packet_id, again.dup, again.waited) == (packet.packet_id, True, 1)
    pair.receive(ConfirmSyn(packet.packet_id, 0, [Confirmation("a", 1)]))
    assert exchange.confirmations is not None


def test_a_confirmed_message_is_released_again_and_not_repeated(pair: Pair) -> None:
    _, packet = published(pair, Wish(1))
    pair.receive(ConfirmSyn(packet.packet_id, 0, [Confirmation("a", 1)]))
    pair.lose()
    pair.connect(session_present=True)
    assert PubSyn(0, packet.packet_id, Reason.RELEASE) in sent(pair)
    pair.receive(PubAck(0, packet.packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND))
    assert not pair.session.outgoing


def test_confirmations_of_an_unknown_message_are_released(pair: Pair) -> None:
    pair.receive(ConfirmSyn(9, 0, [Confirmation("a", 1)]))
    assert sent(pair) == [PubSyn(0, 9, Reason.RELEASE)]


@pytest.mark.parametrize(
    ("confirm", "subscribers", "complaint"),
    [
        (-1, (), "confirm is -1"),
        (65536, (), "confirm is 65536"),
        (2, ("a", "a"), "confirm is 2, more than the 1 subscribers"),
        (1, [str(number) for number in range(256)], "256 names; at most 255"),
    ],
)
def test_a_wish_that_cannot_come_true_is_refused_at_once(confirm: int, subscribers: list[str], complaint: str) -> None:
    with pytest.raises(LocalProtocolError, match=complaint):
        wish_of(confirm, subscribers)


# --- receiving --------------------------------------------------------------------------------------------


def test_without_replies_a_message_is_confirmed_as_it_arrives(pair: Pair) -> None:
    inbox = subscribed(pair, replies=False)
    pair.receive(incoming(5))
    assert sent(pair) == [PubSyn(0, 5, 0)]
    message = take(pair, inbox)
    assert (message.qos, message.waited) == (3, 2)
    with pytest.raises(LocalProtocolError, match="replies=True"):
        message.reply(b"late")


def test_a_reply_confirms_a_message(pair: Pair) -> None:
    inbox = subscribed(pair)
    pair.receive(incoming(5))
    assert sent(pair) == []
    message = take(pair, inbox)
    pair.core.reply(message, b"done")
    assert sent(pair) == [ConfirmSyn(5, 0, [Confirmation(reply=b"done")])]
    with pytest.raises(LocalProtocolError, match="confirmed already"):
        pair.core.reply(message, b"again")
    pair.receive(PubSyn(0, 5, Reason.RELEASE))
    assert sent(pair) == [PubAck(0, 5, 0)]
    assert [*pair.session.received, *pair.session.replies, *pair.session.unanswered] == []


def test_taking_the_next_message_confirms_the_one_before(pair: Pair) -> None:
    inbox = subscribed(pair)
    for packet_id in (5, 6):
        pair.receive(incoming(packet_id))
    first = take(pair, inbox)
    assert sent(pair) == []
    take(pair, inbox)
    assert sent(pair) == [PubSyn(0, 5, 0)]
    with pytest.raises(LocalProtocolError, match="confirmed already"):
        pair.core.reply(first, b"late")
    assert pair.core.take(inbox) is None
    assert sent(pair) == [PubSyn(0, 6, 0)]


def test_messages_of_other_qos_are_acknowledged_as_ever(pair: Pair) -> None:
    inbox = subscribed(pair)
    pair.receive(incoming(5, qos=2))
    pair.receive(incoming(6, qos=1))
    assert sent(pair) == [PubSyn(0, 5, 0), PubAck(0, 6, 0)]
    take(pair, inbox)
    take(pair, inbox)
    assert sent(pair) == []


def test_closing_a_subscription_confirms_what_it_had(pair: Pair) -> None:
    inbox = subscribed(pair)
    for packet_id in (5, 6):
        pair.receive(incoming(packet_id))
    take(pair, inbox)
    pair.core.unsubscribe(inbox)
    confirmed = [item for item in sent(pair) if isinstance(item, PubSyn)]
    assert confirmed == [PubSyn(0, 5, 0), PubSyn(0, 6, 0)]


def test_a_message_for_two_is_confirmed_by_the_first_reply(pair: Pair) -> None:
    one, two = subscribed(pair), pair.core.subscribe("+", qos=3, replies=True)
    pair.answer_topics()
    pair.receive(incoming(5))
    message = take(pair, one)
    pair.core.reply(message, b"one")
    assert sent(pair) == [ConfirmSyn(5, 0, [Confirmation(reply=b"one")])]
    take(pair, two)
    assert pair.core.take(two) is None
    assert sent(pair) == []


def test_a_message_for_two_without_replies_is_confirmed_by_the_slower(pair: Pair) -> None:
    one, two = subscribed(pair), pair.core.subscribe("+", qos=3, replies=True)
    pair.answer_topics()
    pair.receive(incoming(5))
    for inbox in (one, two):
        assert sent(pair) == []
        take(pair, inbox)
        assert pair.core.take(inbox) is None
    assert sent(pair) == [PubSyn(0, 5, 0)]


def test_a_full_queue_holds_back_messages_to_reply_to(pair: Pair) -> None:
    inbox = subscribed(pair, queue=1)
    for packet_id in (5, 6):
        pair.receive(incoming(packet_id, str(packet_id).encode()))
    first = take(pair, inbox)
    pair.core.reply(first, b"5")
    second = take(pair, inbox)
    pair.core.reply(second, b"6")
    assert [packet.confirmations[0].reply for packet in sent(pair) if isinstance(packet, ConfirmSyn)] == [b"5", b"6"]


def test_a_repetition_is_answered_with_the_same_reply(pair: Pair) -> None:
    inbox = subscribed(pair)
    pair.receive(incoming(5))
    pair.core.reply(take(pair, inbox), b"said")
    sent(pair)
    pair.lose()
    pair.connect(session_present=True)
    pair.receive(incoming(5, dup=True))
    assert ConfirmSyn(5, 0, [Confirmation(reply=b"said")]) in sent(pair)
    assert pair.core.take(inbox) is None


def test_what_the_program_still_looks_at_is_confirmed_on_the_next_connection(pair: Pair) -> None:
    inbox = subscribed(pair)
    pair.receive(incoming(5))
    message = take(pair, inbox)
    pair.lose()
    pair.connect(session_present=True)
    sent(pair)
    pair.receive(incoming(5, dup=True))
    assert sent(pair) == []
    pair.core.reply(message, b"at last")
    assert sent(pair) == [ConfirmSyn(5, 0, [Confirmation(reply=b"at last")])]


def test_a_reply_before_the_broker_has_repeated_the_message_waits_for_that(pair: Pair) -> None:
    inbox = subscribed(pair)
    pair.receive(incoming(5))
    message = take(pair, inbox)
    pair.lose()
    pair.connect(session_present=True)
    pair.core.reply(message, b"early")
    assert not [packet for packet in sent(pair) if isinstance(packet, ConfirmSyn)]
    pair.receive(incoming(5, dup=True))
    assert sent(pair) == [ConfirmSyn(5, 0, [Confirmation(reply=b"early")])]
    assert pair.core.take(inbox) is None


def test_a_broker_that_forgot_the_session_waits_for_no_reply(pair: Pair) -> None:
    inbox = subscribed(pair)
    pair.receive(incoming(5))
    message = take(pair, inbox)
    pair.lose()
    pair.connect(session_present=False)
    pair.answer_topics()
    with pytest.raises(LocalProtocolError, match="confirmed already"):
        pair.core.reply(message, b"?")
    sent(pair)
    pair.receive(incoming(5, b"another"))
    other = take(pair, inbox)
    assert other.payload == b"another"
    pair.core.reply(other, b"!")
    assert sent(pair) == [ConfirmSyn(5, 0, [Confirmation(reply=b"!")])]


def test_replies_need_qos_3(pair: Pair) -> None:
    with pytest.raises(LocalProtocolError, match="qos is 2 with replies"):
        pair.core.subscribe("t", qos=2, replies=True)


def test_a_subscription_of_qos_3_is_asked_for(pair: Pair) -> None:
    pair.core.subscribe("t", qos=3)
    pair.deliver()
    request = pair.broker.next(TopReq).requests[0]
    assert isinstance(request, Subscribe)
    assert request.qos == 3


def test_the_end_of_a_client_ends_the_wait(pair: Pair) -> None:
    exchange, _ = published(pair, Wish(1))
    pair.session.end(ConnectionLost("gone"), None)
    assert isinstance(exchange.error, ConnectionLost)
