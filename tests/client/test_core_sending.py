"""Messages on their way out: registration, lanes, window, acknowledgements, and what a reconnect does to them."""

from __future__ import annotations

import pytest

from moq.client.messages import Request
from moq.client.pending import MAX_PACKET_ID, Exchange, PacketIds
from moq.client.session import ClientSession, SessionOptions
from moq.client.topics import TopicTable
from moq.errors import ConnectionLost, LocalProtocolError, RequestRefused
from moq.reasons import Reason
from moq.wire import (
    ConReq,
    PubAck,
    PublishExtension,
    PublishKind,
    PubReq,
    PubSyn,
    Register,
    RetentionMode,
    TopAck,
    TopReq,
)
from tests.client.scripted import Pair, message, settled
from transports.options import TransportOptions


@pytest.fixture
def pair() -> Pair:
    pair = Pair()
    pair.connect()
    return pair


def registered(pair: Pair, topic: str = "t") -> None:
    pair.core.register(topic)
    pair.answer_topics()


def failure(exchange: Exchange) -> str:
    assert exchange.is_settled
    return str(exchange.error)


# --- registration -----------------------------------------------------------------------------------------


def test_the_first_message_of_a_topic_waits_for_its_registration(pair: Pair) -> None:
    first = pair.core.publish("t", b"1")
    second = pair.core.publish("t", b"2")
    pair.deliver()
    topreq = pair.broker.next(TopReq)
    assert topreq.requests == [Register(RetentionMode.OVERRIDE, False, 1, "t")]
    assert not pair.broker.received, "one registration serves both messages, and they wait for it"
    assert not settled(first)
    pair.receive(TopAck(topreq.packet_id, b"\0"))
    assert first.is_settled
    assert second.is_settled
    assert [pair.broker.next(PubReq).payload for _ in range(2)] == [b"1", b"2"]


def test_a_refused_registration_fails_what_waits_for_it(pair: Pair) -> None:
    exchange = pair.core.publish("t", b"1", qos=1)
    pair.answer_topics(Reason.NOT_AUTHORIZED)
    assert "REGISTER 't': not authorized" in failure(exchange)
    assert isinstance(exchange.error, RequestRefused)
    again = pair.core.publish("t", b"2")
    assert len(pair.answer_topics()) == 1, "the next message asks again"
    assert again.error is None
    assert again.is_settled


def test_an_explicit_registration_sets_how_messages_are_kept(pair: Pair) -> None:
    operation = pair.core.register("t", RetentionMode.FIFO, expiry_s=60)
    (topreq,) = pair.answer_topics()
    assert topreq.requests == [Register(RetentionMode.FIFO, False, 1, "t", 60)]
    assert operation.is_settled
    assert pair.core.publish("t", b"1").is_settled


def test_a_later_registration_replaces_one_on_its_way(pair: Pair) -> None:
    pair.core.register("t", RetentionMode.FIFO)
    pair.core.register("t", RetentionMode.LIFO)
    modes = [packet.requests[0] for packet in pair.answer_topics()]
    assert modes == [Register(RetentionMode.FIFO, False, 1, "t"), Register(RetentionMode.LIFO, False, 1, "t")]
    assert pair.core.publish("t", b"1").is_settled


def test_topics_under_a_registered_wildcard_are_named_in_every_message(pair: Pair) -> None:
    pair.core.register("a/#")
    waiting = pair.core.publish("a/0", b"0")
    (topreq,) = pair.answer_topics()
    assert topreq.requests == [Register(RetentionMode.OVERRIDE, False, 0, "a/#")]
    assert waiting.is_settled
    pair.core.publish("a/1", b"1")
    pair.deliver()
    sent = [pair.broker.next(PubReq) for _ in range(2)]
    assert [(packet.alias, packet.topic) for packet in sent] == [(0, "a/0"), (0, "a/1")]


def test_a_refused_wildcard_fails_what_waits_for_it_and_covers_nothing_any_more(pair: Pair) -> None:
    pair.core.register("a/#")
    covered = pair.core.publish("a/1", b"1")
    other = pair.core.publish("b", b"1")
    pair.answer_topics(Reason.NOT_AUTHORIZED)
    assert "REGISTER 'a/#'" in failure(covered)
    assert "REGISTER 'b'" in failure(other)
    pair.core.publish("a/1", b"2")
    assert pair.answer_topics()[0].requests == [Register(RetentionMode.OVERRIDE, False, 1, "a/1")]


def test_when_aliases_run_out_topics_are_published_under_a_registration_of_everything() -> None:
    pair = Pair(session=ClientSession("me", topics=TopicTable(aliases=1)))
    pair.connect()
    pair.core.publish("first", b"1")
    pair.core.publish("second", b"2")
    pair.core.publish("third", b"3")
    requests = [packet.requests[0] for packet in pair.answer_topics()]
    assert requests == [Register(0, False, 1, "first"), Register(0, False, 0, "#")]
    sent = [pair.broker.next(PubReq) for _ in range(3)]
    assert {(packet.alias, packet.topic) for packet in sent} == {(1, None), (0, "second"), (0, "third")}


# --- lanes and windows ------------------------------------------------------------------------------------


def test_each_topic_leaves_on_a_lane_of_its_own(pair: Pair) -> None:
    for topic in ("a", "b", "a"):
        registered(pair, topic)
        pair.core.publish(topic, b"")
    pair.deliver()
    lanes = pair.broker.lanes_used()
    assert lanes[0] == lanes[2]
    assert len({0, lanes[0], lanes[1]}) == 3


def test_on_a_link_without_lanes_everything_is_on_control() -> None:
    pair = Pair(has_lanes=False)
    pair.connect()
    registered(pair)
    pair.core.publish("t", b"")
    pair.deliver()
    assert pair.broker.lanes_used() == [0]


def test_a_lane_that_closed_is_opened_again(pair: Pair) -> None:
    registered(pair)
    pair.core.publish("t", b"1")
    lane = pair.session.topics.find("t").lane
    assert lane is not None
    lane.finish()
    pair.core.publish("t", b"2")
    pair.deliver()
    first, second = pair.broker.lanes_used()
    assert first != second


def test_a_congested_lane_holds_back_its_topic_and_no_other() -> None:
    pair = Pair(transport=TransportOptions(high_water_bytes=100, low_water_bytes=10))
    pair.connect()
    registered(pair, "big")
    registered(pair, "small")
    assert pair.core.publish("big", b"x" * 200).is_settled
    held = pair.core.publish("big", b"y")
    assert not settled(held)
    assert pair.core.publish("small", b"z").is_settled
    pair.deliver()
    assert held.is_settled


def test_no_more_than_the_window_is_sent_unacknowledged() -> None:
    pair = Pair(SessionOptions(window=2))
    pair.connect()
    registered(pair)
    exchanges = [pair.core.publish("t", bytes([number]), qos=1) for number in range(4)]
    pair.deliver()
    sent = [pair.broker.next(PubReq) for _ in range(2)]
    assert not pair.broker.received
    pair.receive(PubAck(0, sent[0].packet_id, Reason.SUCCESS))
    assert exchanges[0].is_settled
    assert pair.broker.next(PubReq).payload == b"\2"


def test_packet_identifiers_come_again_last() -> None:
    ids = PacketIds()
    assert [ids.take(), ids.take()] == [1, 2]
    ids.release(1)
    assert ids.take() == 3
    for _ in range(MAX_PACKET_ID - 2):
        ids.take()
    ids.release(7)
    assert ids.take() == 7
    with pytest.raises(LocalProtocolError, match="all 65535 packet identifiers"):
        ids.take()


# --- acknowledgements -------------------------------------------------------------------------------------


def test_qos_1_is_settled_by_puback(pair: Pair) -> None:
    registered(pair)
    exchange = pair.core.publish("t", b"1", qos=1, retain=True)
    pair.deliver()
    sent = pair.broker.next(PubReq)
    assert (sent.qos, sent.retain, sent.dup) == (1, True, False)
    assert not settled(exchange)
    pair.receive(PubAck(0, sent.packet_id, Reason.NO_MATCHING_SUBSCRIBERS))
    assert exchange.is_settled
    assert exchange.error is None
    assert not pair.session.outgoing


def test_qos_2_is_released_and_then_settled(pair: Pair) -> None:
    registered(pair)
    exchange = pair.core.publish("t", b"1", qos=2)
    pair.deliver()
    packet_id = pair.broker.next(PubReq).packet_id
    pair.receive(PubSyn(0, packet_id, Reason.SUCCESS))
    assert pair.broker.next(PubSyn) == PubSyn(0, packet_id, Reason.RELEASE)
    assert not settled(exchange)
    pair.receive(PubAck(0, packet_id, Reason.SUCCESS))
    assert exchange.is_settled
    assert exchange.error is None


@pytest.mark.parametrize("answer", [PubAck, PubSyn])
def test_a_refused_message_fails(pair: Pair, answer: type[PubAck | PubSyn]) -> None:
    registered(pair)
    exchange = pair.core.publish("t", b"1", qos=2)
    pair.deliver()
    pair.receive(answer(0, pair.broker.next(PubReq).packet_id, Reason.QUOTA_EXCEEDED))
    assert "PUBLISH on 't': quota exceeded" in failure(exchange)
    assert not pair.session.outgoing
    assert not pair.broker.received


def test_acknowledgements_of_unknown_messages_are_harmless(pair: Pair) -> None:
    pair.receive(PubAck(0, 9, Reason.SUCCESS))
    pair.receive(PubSyn(0, 9, Reason.QUOTA_EXCEEDED))
    assert not pair.broker.received
    pair.receive(PubSyn(0, 9, Reason.SUCCESS))
    assert pair.broker.next(PubSyn).reason == Reason.RELEASE, "the broker waits for nothing else"


def test_an_identifier_the_broker_no_longer_knows_was_delivered(pair: Pair) -> None:
    registered(pair)
    exchange = pair.core.publish("t", b"1", qos=2)
    pair.deliver()
    packet_id = pair.broker.next(PubReq).packet_id
    pair.receive(PubSyn(0, packet_id, Reason.SUCCESS))
    pair.receive(PubAck(0, packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND))
    assert exchange.is_settled
    assert exchange.error is None


# --- what the caller may not ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "complaint"),
    [("", "is empty"), ("a/+", "wildcard"), ("a/#", "wildcard"), ("ü" * 128, "256 bytes; at most 255")],
)
def test_a_topic_name_that_is_none_is_refused_at_once(pair: Pair, topic: str, complaint: str) -> None:
    with pytest.raises(LocalProtocolError, match=complaint):
        pair.core.publish(topic, b"")


def test_a_topic_name_of_255_bytes_is_not_too_long(pair: Pair) -> None:
    pair.core.publish("x" * 255, b"")
    assert len(pair.answer_topics()) == 1


def test_a_qos_that_does_not_exist_is_refused_at_once(pair: Pair) -> None:
    with pytest.raises(LocalProtocolError, match="qos is 3; expected 0, 1 or 2"):
        pair.core.publish("t", b"", qos=3)


def test_an_extension_that_cannot_be_encoded_is_refused_at_once(pair: Pair) -> None:
    with pytest.raises(LocalProtocolError, match="ttl_ms"):
        pair.core.publish("t", b"", extension=PublishExtension(ttl_ms=1 << 32))


# --- withdrawing ------------------------------------------------------------------------------------------


def test_a_message_not_sent_can_be_withdrawn_and_one_sent_cannot(pair: Pair) -> None:
    waiting = pair.core.publish("t", b"1", qos=1)
    assert pair.core.withdraw(waiting)
    pair.answer_topics()
    assert not pair.broker.received
    sent = pair.core.publish("t", b"2", qos=1)
    assert not pair.core.withdraw(sent)


# --- reconnecting -----------------------------------------------------------------------------------------


def test_unacknowledged_messages_are_repeated_as_duplicates_when_the_session_is_present(pair: Pair) -> None:
    registered(pair)
    exchanges = [pair.core.publish("t", bytes([number]), qos=qos) for number, qos in enumerate((1, 2, 1))]
    pair.deliver()
    before = [pair.broker.next(PubReq) for _ in range(3)]
    pair.receive(PubAck(0, before[0].packet_id, Reason.SUCCESS))
    pair.lose()
    pair.connect(session_present=True)
    after = [pair.broker.next(PubReq) for _ in range(2)]
    assert [(packet.packet_id, packet.payload, packet.dup) for packet in after] == [
        (packet.packet_id, packet.payload, True) for packet in before[1:]
    ]
    assert [exchange.is_settled for exchange in exchanges] == [True, False, False]


def test_unacknowledged_messages_are_sent_anew_when_the_session_is_gone(pair: Pair) -> None:
    registered(pair)
    pair.core.publish("t", b"1", qos=2)
    pair.lose()
    pair.connect(session_present=False)
    again = pair.broker.next(PubReq)
    assert (again.payload, again.dup) == (b"1", False)


def test_a_message_of_a_topic_not_registered_by_hand_registers_it_again() -> None:
    pair = Pair()
    pair.connect()
    pair.core.publish("t", b"1", qos=1)
    pair.answer_topics()
    pair.lose()
    pair.link_up()
    pair.core.start()
    pair.deliver()
    assert pair.broker.next(ConReq).topics == [Register(0, False, 1, "t")]


def test_a_released_message_is_released_again(pair: Pair) -> None:
    registered(pair)
    exchange = pair.core.publish("t", b"1", qos=2)
    pair.deliver()
    packet_id = pair.broker.next(PubReq).packet_id
    pair.receive(PubSyn(0, packet_id, Reason.SUCCESS))
    pair.lose()
    pair.connect(session_present=True)
    assert pair.broker.next(PubSyn) == PubSyn(0, packet_id, Reason.RELEASE)
    pair.receive(PubAck(0, packet_id, Reason.SUCCESS))
    assert exchange.is_settled


def test_a_released_message_is_not_sent_again_to_a_broker_that_forgot_the_session(pair: Pair) -> None:
    registered(pair)
    exchange = pair.core.publish("t", b"1", qos=2)
    pair.deliver()
    pair.receive(PubSyn(0, pair.broker.next(PubReq).packet_id, Reason.SUCCESS))
    pair.lose()
    pair.connect(session_present=False)
    assert not pair.broker.received
    assert exchange.is_settled
    assert exchange.error is None


def test_what_is_published_while_the_link_is_down_waits_for_the_next_one(pair: Pair) -> None:
    registered(pair)
    pair.lose()
    exchange = pair.core.publish("t", b"late")
    new = pair.core.publish("new", b"later")
    assert not settled(exchange)
    pair.connect(session_present=True)
    assert exchange.is_settled
    assert new.is_settled
    assert {pair.broker.next(PubReq).payload for _ in range(2)} == {b"late", b"later"}


def test_an_acknowledged_message_waiting_to_be_repeated_is_not_repeated(pair: Pair) -> None:
    pair.core.publish("t", b"1", qos=1)
    pair.answer_topics()
    packet_id = pair.broker.next(PubReq).packet_id
    pair.lose()
    pair.link_up()
    pair.core.start()
    pair.deliver()
    pair.broker.next(ConReq)
    pair.core.state = type(pair.core.state).OPEN
    pair.core._sender._is_open = True
    pair.receive(PubAck(0, packet_id, Reason.SUCCESS))
    pair.core._sender._blocked[pair.session.topics.find("t")] = None
    pair.core._sender.pump()
    pair.deliver()
    assert not pair.broker.received


# --- requests ---------------------------------------------------------------------------------------------


def asked(pair: Pair, qos: int = 0) -> tuple[Exchange, PubReq]:
    exchange = pair.core.publish("ask", b"?", qos, kind=PublishKind.REQUEST)
    pair.answer_topics()
    return exchange, pair.broker.next(PubReq)


def test_a_request_registers_that_it_is_one(pair: Pair) -> None:
    pair.core.publish("ask", b"?", kind=PublishKind.REQUEST)
    (topreq,) = pair.answer_topics()
    assert topreq.requests == [Register(0, True, 1, "ask")]


def test_a_topic_registered_for_messages_is_registered_again_for_requests(pair: Pair) -> None:
    registered(pair, "ask")
    pair.core.publish("ask", b"?", kind=PublishKind.REQUEST)
    (topreq,) = pair.answer_topics()
    assert topreq.requests == [Register(0, True, 1, "ask")]
    assert pair.broker.next(PubReq).kind == PublishKind.REQUEST


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_request_is_settled_by_its_response(pair: Pair, qos: int) -> None:
    exchange, sent = asked(pair, qos)
    assert sent.packet_id
    if qos == 1:
        pair.receive(PubAck(PublishKind.REQUEST, sent.packet_id, Reason.SUCCESS))
    if qos == 2:
        pair.receive(PubSyn(PublishKind.REQUEST, sent.packet_id, Reason.SUCCESS))
        assert pair.broker.next(PubSyn).kind == PublishKind.REQUEST
        pair.receive(PubAck(PublishKind.REQUEST, sent.packet_id, Reason.SUCCESS))
    assert not settled(exchange)
    pair.receive(message(b"!", alias=1, packet_id=sent.packet_id, kind=PublishKind.RESPONSE))
    assert exchange.response is not None
    assert exchange.response.payload == b"!"
    assert not pair.session.outgoing


def test_a_response_that_overtakes_the_receipt_is_enough_at_qos_1(pair: Pair) -> None:
    exchange, sent = asked(pair, qos=1)
    pair.receive(message(b"!", alias=1, qos=1, packet_id=sent.packet_id, kind=PublishKind.RESPONSE))
    assert exchange.is_settled
    assert pair.broker.next(PubAck) == PubAck(PublishKind.RESPONSE, sent.packet_id, Reason.SUCCESS)
    assert not pair.session.outgoing
    pair.receive(PubAck(PublishKind.REQUEST, sent.packet_id, Reason.SUCCESS))
    assert pair.owner.error is None


def test_the_identifier_of_a_request_is_in_use_until_its_qos_2_response_is_released(pair: Pair) -> None:
    _, sent = asked(pair, qos=2)
    key = sent.packet_id
    pair.receive(message(b"!", alias=1, qos=2, packet_id=key, kind=PublishKind.RESPONSE))
    assert pair.broker.next(PubSyn) == PubSyn(PublishKind.RESPONSE, key, Reason.SUCCESS)
    pair.receive(PubSyn(PublishKind.REQUEST, key, Reason.SUCCESS))
    pair.receive(PubAck(PublishKind.REQUEST, key, Reason.SUCCESS))
    assert key in pair.session.ids._used
    pair.receive(PubSyn(PublishKind.RESPONSE, key, Reason.RELEASE))
    assert key not in pair.session.ids._used


@pytest.mark.parametrize("kind", [PublishKind.REQUEST, PublishKind.RESPONSE])
def test_a_request_nobody_answers_is_refused(pair: Pair, kind: PublishKind) -> None:
    exchange, sent = asked(pair)
    pair.receive(PubAck(kind, sent.packet_id, Reason.NO_RESPONDER))
    assert "REQUEST on 'ask': no responder" in failure(exchange)


def test_a_response_nobody_waits_for_is_acknowledged_and_forgotten(pair: Pair) -> None:
    pair.receive(message(b"!", topic="ask", qos=1, packet_id=5, kind=PublishKind.RESPONSE))
    assert pair.broker.next(PubAck).packet_id == 5


def test_a_best_effort_request_is_lost_with_its_connection(pair: Pair) -> None:
    exchange, _ = asked(pair)
    pair.lose()
    assert isinstance(exchange.error, ConnectionLost)


@pytest.mark.parametrize("session_present", [True, False])
def test_an_accepted_request_waits_for_its_answer_as_long_as_the_session_lives(
    pair: Pair, session_present: bool
) -> None:
    exchange, sent = asked(pair, qos=1)
    pair.receive(PubAck(PublishKind.REQUEST, sent.packet_id, Reason.SUCCESS))
    pair.lose()
    pair.connect(session_present=session_present)
    assert not pair.broker.received
    if session_present:
        pair.receive(message(b"!", topic="ask", alias=0x8000, packet_id=sent.packet_id, kind=PublishKind.RESPONSE))
        assert exchange.error is None
    else:
        assert "before the answer to the request on 'ask'" in failure(exchange)


# --- responses --------------------------------------------------------------------------------------------


def question(pair: Pair, qos: int = 1) -> Request:
    inbox = pair.core.subscribe("#", qos=2, requests=True)
    pair.answer_topics()
    pair.receive(message(b"?", topic="ask", alias=0x8000, qos=qos, packet_id=31, kind=PublishKind.REQUEST))
    pair.broker.received.clear()
    request = pair.core.take(inbox)
    assert isinstance(request, Request)
    return request


def test_a_response_carries_the_identifier_and_alias_of_its_request(pair: Pair) -> None:
    exchange = pair.core.respond(question(pair), b"!", qos=0)
    pair.deliver()
    sent = pair.broker.next(PubReq)
    assert (sent.kind, sent.packet_id, sent.alias, sent.topic, sent.payload) == (2, 31, 0x8000, None, b"!")
    assert exchange.is_settled


def test_two_responses_on_one_alias_share_its_lane(pair: Pair) -> None:
    request = question(pair)
    pair.core.respond(request, b"1", qos=0)
    pair.core.respond(request, b"2", qos=0)
    pair.deliver()
    assert len(set(pair.broker.lanes_used())) == 1


def test_a_response_to_a_closed_request_is_refused(pair: Pair) -> None:
    exchange = pair.core.respond(question(pair), b"!", qos=1)
    pair.receive(PubAck(PublishKind.RESPONSE, 31, Reason.REQUEST_CLOSED))
    assert "RESPONSE on 'ask': request closed" in failure(exchange)


def test_a_request_of_an_earlier_connection_cannot_be_answered(pair: Pair) -> None:
    request = question(pair)
    pair.lose()
    assert "whoever sent the request" in failure(pair.core.respond(request, b"!", qos=1))
    pair.connect(session_present=True)
    assert "whoever sent the request" in failure(pair.core.respond(request, b"!", qos=1))
    assert not pair.broker.received


@pytest.mark.parametrize("session_present", [True, False])
def test_an_unacknowledged_response_is_repeated_while_the_session_lives(pair: Pair, session_present: bool) -> None:
    exchange = pair.core.respond(question(pair), b"!", qos=2)
    pair.deliver()
    pair.lose()
    pair.connect(session_present=session_present)
    if not session_present:
        assert "whoever sent the request" in failure(exchange)
        return
    again = pair.broker.next(PubReq)
    assert (again.kind, again.packet_id, again.alias, again.topic, again.dup) == (2, 31, 0, "ask", True)
    pair.receive(PubSyn(PublishKind.RESPONSE, 31, Reason.SUCCESS))
    pair.receive(PubAck(PublishKind.RESPONSE, 31, Reason.SUCCESS))
    assert exchange.is_settled
    assert exchange.error is None


def test_a_response_that_could_not_leave_is_lost_with_the_connection() -> None:
    pair = Pair(transport=TransportOptions(high_water_bytes=100, low_water_bytes=10))
    pair.connect()
    request = question(pair)
    assert pair.core.respond(request, b"x" * 200, qos=0).is_settled
    held = pair.core.respond(request, b"!", qos=1)
    assert not settled(held)
    pair.lose()
    assert "whoever sent the request" in failure(held)


def test_a_settled_exchange_stays_as_it_is() -> None:
    exchange = Exchange("t", b"")
    woken: list[int] = []
    exchange.when_settled(lambda: woken.append(1))
    exchange.settle()
    exchange.settle(ConnectionLost("too late"))
    assert exchange.error is None
    assert woken == [1]


def test_the_end_of_the_client_fails_what_is_unsettled(pair: Pair) -> None:
    registered(pair)
    sent = pair.core.publish("t", b"1", qos=1)
    waiting = pair.core.publish("new", b"1")
    asking = pair.core.query("t")
    inbox = pair.core.subscribe("t")
    pair.session.end(ConnectionLost("over"), None)
    for pending in (sent, waiting, asking):
        assert isinstance(pending.error, ConnectionLost)
    assert inbox.is_ended
    assert inbox.error is None
