"""REQUEST and RESPONSE: to whoever answers, back to the asker alone, and a clear word when nobody will."""

from __future__ import annotations

import pytest

from moq.broker.access import Action
from moq.config import Limits
from moq.reasons import Reason
from moq.wire import ConEnd, Property, PubAck, PublishExtension, PublishKind, PubReq, PubSyn
from tests.broker.desk import LONG, Client, Desk
from tests.broker.test_topic_requests import Denying

REQUEST, RESPONSE = PublishKind.REQUEST, PublishKind.RESPONSE


def asker(desk: Desk, name: str = "asker") -> Client:
    client = desk.connect(name, settings=LONG)
    client.register("q", alias=1)
    return client


def responder(desk: Desk, name: str = "responder", *, qos: int = 2, group: str | None = None) -> Client:
    client = desk.connect(name, settings=LONG)
    client.subscribe("q", alias=1, qos=qos, requests=True, group=group)
    return client


def asked(client: Client) -> list[int]:
    """The identifiers of the requests that arrived."""
    return [message.id for message in client.messages() if message.packet.kind == REQUEST]


def failure(client: Client) -> list[PubAck]:
    return client.take(PubAck)


# --- the exchange -------------------------------------------------------------------------------------


def test_a_response_returns_to_its_requester_alone(desk: Desk) -> None:
    first, second, answering = asker(desk, "first"), asker(desk, "second"), responder(desk)
    watcher = desk.connect("watcher")
    watcher.subscribe("q", alias=1)
    first.request(1, b"one", id=7)
    second.request(1, b"two", id=7)
    one, two = answering.messages()
    assert (one.payload, two.payload) == (b"one", b"two")
    assert one.id != two.id
    answering.respond(two.id, b"2")
    answering.respond(one.id, b"1")
    (answer,) = first.messages()
    assert (answer.topic, answer.payload, answer.id, answer.packet.kind) == ("q", b"1", 7, RESPONSE)
    assert second.payloads() == [b"2"]
    assert watcher.payloads() == []


def test_plain_messages_of_the_topic_are_not_requests_and_requests_not_messages(desk: Desk) -> None:
    client, answering = asker(desk), responder(desk)
    client.publish(1, b"plain")
    client.request(1, b"request", id=1)
    assert [message.packet.kind for message in answering.messages()] == [PublishKind.PUBLISH, REQUEST]


def test_properties_travel_both_ways(desk: Desk) -> None:
    client, answering = asker(desk), responder(desk)
    extension = PublishExtension(properties=[Property("k", "v")], deadline_ms=1000)
    client.publish(1, b"?", id=1, kind=REQUEST, extension=extension)
    (request,) = answering.messages()
    assert request.packet.extension == PublishExtension(properties=[Property("k", "v")])
    answer = PublishExtension(properties=[Property("a", "b")])
    answering.send(PubReq(RESPONSE, False, False, 0, request.id, 0, None, None, answer, b"!"))
    assert client.messages()[0].packet.extension == answer


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_exchange_at_every_qos(desk: Desk, qos: int) -> None:
    client, answering = asker(desk), responder(desk)
    client.request(1, b"?", qos=qos, id=5)
    assert client.read() == taken(REQUEST, 5, qos)
    if qos == 2:
        client.pubsyn(5, Reason.RELEASE, REQUEST)
        assert client.read() == [PubAck(REQUEST, 5, 0)]
    (request,) = answering.messages()
    assert request.packet.qos == qos
    answering.respond(request.id, b"!", qos=qos)
    assert answering.read() == taken(RESPONSE, request.id, qos)
    (answer,) = client.messages()
    assert (answer.payload, answer.id, answer.packet.qos) == (b"!", 5, qos)
    finish(client, answer.id, qos, RESPONSE)
    finish(answering, request.id, qos, REQUEST)
    if qos == 2:
        answering.pubsyn(request.id, Reason.RELEASE, RESPONSE)
        assert answering.read() == [PubAck(RESPONSE, request.id, 0)]
    for name in ("asker", "responder"):
        session = desk.broker.sessions.get(name)
        assert session is not None
        assert (session.outbound.inflight, session.outbound.waiting, session.received) == (0, 0, set())
        assert session.outbound.ids._holds == {}


def taken(kind: int, packet_id: int, qos: int) -> list[PubAck] | list[PubSyn]:
    """How the broker says that it has taken a message."""
    return [PubSyn(kind, packet_id, 0)] if qos == 2 else [PubAck(kind, packet_id, 0)] * qos


def finish(client: Client, packet_id: int, qos: int, kind: int) -> None:
    """Play the receiving side of an exchange to its end."""
    if qos == 2:
        client.pubsyn(packet_id, 0, kind)
        assert client.read() == [PubSyn(kind, packet_id, Reason.RELEASE)]
    if qos:
        client.puback(packet_id, 0, kind)


def test_the_first_response_wins(desk: Desk) -> None:
    client, fast, slow = asker(desk), responder(desk, "fast"), responder(desk, "slow")
    client.request(1, b"?", id=1)
    (fast_id,), (slow_id,) = asked(fast), asked(slow)
    fast.respond(fast_id, b"fast")
    slow.respond(slow_id, b"slow")
    assert client.payloads() == [b"fast"]
    assert fast.read() == []
    assert slow.read() == [PubAck(RESPONSE, slow_id, Reason.REQUEST_CLOSED)]


def test_a_late_response_at_qos_2_is_refused_and_its_exchange_over(desk: Desk) -> None:
    client, answering = asker(desk), responder(desk)
    client.request(1, b"?", id=1, deadline_ms=1000)
    (packet_id,) = asked(answering)
    desk.advance(1)
    answering.respond(packet_id, b"late", qos=2)
    assert answering.read() == [PubSyn(RESPONSE, packet_id, Reason.REQUEST_CLOSED)]
    assert client.payloads() == []


def test_a_session_that_matches_twice_is_asked_once(desk: Desk) -> None:
    client, answering = asker(desk), responder(desk)
    answering.subscribe("#", requests=True)
    client.request(1, id=1)
    assert len(asked(answering)) == 1


def test_a_request_with_a_time_to_live_and_no_deadline_has_the_brokers_deadline(desk: Desk) -> None:
    client = asker(desk)
    responder(desk)
    client.publish(1, id=1, kind=REQUEST, extension=PublishExtension(ttl_ms=1))
    desk.advance(29)
    assert client.read() == []
    desk.advance(1)
    assert failure(client) == [PubAck(REQUEST, 1, Reason.REQUEST_TIMED_OUT)]


# --- repetitions --------------------------------------------------------------------------------------


def test_a_request_repeated_on_a_new_connection_is_asked_once(desk: Desk) -> None:
    client, answering = asker(desk), responder(desk)
    client.request(1, b"?", qos=1, id=1)
    client.lost()
    client = desk.connect("asker", resume=True, settings=LONG)
    client.request(1, b"?", qos=1, id=1, dup=True)
    (packet_id,) = asked(answering)
    answering.respond(packet_id, b"!")
    assert client.payloads() == [b"!"]


def test_a_qos_2_request_and_response_repeated_count_once(desk: Desk) -> None:
    client, answering = asker(desk), responder(desk, qos=0)
    client.request(1, b"?", qos=2, id=1)
    (packet_id,) = asked(answering)
    answering.respond(packet_id, b"!", qos=2)
    for again in (False, True):
        client.request(1, b"?", qos=2, id=1, dup=again)
        answering.respond(packet_id, b"!", qos=2, dup=again)
    assert asked(answering) == []
    assert client.payloads() == [b"!"]
    assert [answer.reason for answer in answering.take(PubSyn)] == [0, 0, 0]


def test_a_response_waits_for_its_requester_at_qos_1(desk: Desk) -> None:
    client, answering = asker(desk), responder(desk)
    for number, qos in ((1, 0), (2, 1)):
        client.request(1, id=number)
        (packet_id,) = asked(answering)
        client.lost()
        answering.respond(packet_id, b"%d" % qos, qos=qos)
        client = desk.connect("asker", resume=True, settings=LONG)
    assert client.payloads() == [b"1"]


# --- nobody answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_request_nobody_can_answer_fails_at_once(desk: Desk, qos: int) -> None:
    client = asker(desk)
    desk.connect("no responder").subscribe("q")
    responder(desk).lost()
    client.request(1, qos=qos, id=3)
    answer = PubSyn(REQUEST, 3, Reason.NO_RESPONDER) if qos == 2 else PubAck(REQUEST, 3, Reason.NO_RESPONDER)
    assert client.read() == [answer]
    assert desk.figures.requests_failed == 1


def test_a_request_nobody_answers_fails_at_its_deadline(desk: Desk) -> None:
    client, answering = asker(desk), responder(desk)
    client.request(1, id=1, deadline_ms=1500)
    client.request(1, id=2)
    desk.advance(1.5)
    assert failure(client) == [PubAck(REQUEST, 1, Reason.REQUEST_TIMED_OUT)]
    desk.advance(28.5)
    assert failure(client) == [PubAck(REQUEST, 2, Reason.REQUEST_TIMED_OUT)]
    session = desk.broker.sessions.get("responder")
    assert session is not None
    assert session.outbound.ids._holds == {}
    assert len(asked(answering)) == 2


def test_a_request_that_failed_unreleased_leaves_its_identifier_free(desk: Desk) -> None:
    client, answering = asker(desk), responder(desk)
    client.request(1, qos=2, id=1, deadline_ms=1000)
    assert client.read() == [PubSyn(REQUEST, 1, Reason.SUCCESS)]
    desk.advance(1)
    assert failure(client) == [PubAck(REQUEST, 1, Reason.REQUEST_TIMED_OUT)]
    client.request(1, b"another", qos=2, id=1)
    assert answering.payloads()[-1] == b"another"


def test_a_requester_that_is_away_at_the_deadline_is_not_told(desk: Desk) -> None:
    client = asker(desk)
    responder(desk)
    client.request(1, id=1)
    client.lost()
    desk.advance(30)
    assert desk.figures.requests_failed == 1
    assert desk.connect("asker", resume=True, settings=LONG).read() == []


def test_the_requester_learns_at_once_that_its_responder_is_gone(desk: Desk) -> None:
    client, answering = asker(desk), responder(desk)
    client.request(1, qos=1, id=1)
    client.request(1, id=2)
    client.take(PubAck)
    answering.lost()
    assert failure(client) == [PubAck(REQUEST, 1, Reason.NO_RESPONDER), PubAck(REQUEST, 2, Reason.NO_RESPONDER)]
    again = desk.connect("responder", resume=True, settings=LONG)
    assert again.messages() == []


def test_while_another_responder_is_there_the_request_goes_on(desk: Desk) -> None:
    client, leaving, staying = asker(desk), responder(desk, "leaving"), responder(desk, "staying")
    client.request(1, id=1)
    leaving.lost()
    assert client.read() == []
    (packet_id,) = asked(staying)
    staying.respond(packet_id, b"!")
    assert client.payloads() == [b"!"]


def test_an_answer_to_nothing_is_refused(desk: Desk) -> None:
    answering = responder(desk)
    answering.respond(99, b"!", qos=1)
    assert answering.read() == [PubAck(RESPONSE, 99, Reason.REQUEST_CLOSED)]


def test_requests_die_with_the_session_that_asked(desk: Desk) -> None:
    client, answering = asker(desk), responder(desk)
    client.request(1, id=1)
    (packet_id,) = asked(answering)
    client.send(ConEnd(Reason.SUCCESS))
    answering.respond(packet_id, b"!")
    assert answering.read() == [PubAck(RESPONSE, packet_id, Reason.REQUEST_CLOSED)]


def test_requests_of_one_session_are_bounded() -> None:
    desk = Desk(Limits(max_requests_per_session=1))
    client = asker(desk)
    responder(desk)
    client.request(1, id=1)
    client.request(1, id=2)
    assert failure(client) == [PubAck(REQUEST, 2, Reason.QUOTA_EXCEEDED)]


def test_who_may_not_receive_is_not_asked() -> None:
    desk = Desk(access=Denying("responder", Action.RECEIVE, "q"))
    client = asker(desk)
    responder(desk)
    client.request(1, id=1)
    assert failure(client) == [PubAck(REQUEST, 1, Reason.NO_RESPONDER)]


# --- congestion ---------------------------------------------------------------------------------------


def test_a_responder_that_does_not_keep_up_is_no_responder_at_qos_0(desk: Desk) -> None:
    client, answering = asker(desk), responder(desk)
    answering.stall(1)
    client.request(1, id=1)
    assert failure(client) == [PubAck(REQUEST, 1, Reason.NO_RESPONDER)]
    assert desk.figures.dropped_congested == 1


def test_a_response_to_a_requester_that_does_not_keep_up_is_dropped_at_qos_0(desk: Desk) -> None:
    client, answering = asker(desk), responder(desk)
    client.request(1, id=1)
    client.stall(1)
    (packet_id,) = asked(answering)
    answering.respond(packet_id, b"!")
    assert desk.figures.dropped_congested == 1


def test_a_request_that_waited_too_long_is_not_sent(desk: Desk) -> None:
    client, answering = asker(desk), responder(desk)
    answering.stall(1)
    client.request(1, qos=1, id=1, deadline_ms=1000)
    desk.advance(1)
    answering.drain(1)
    assert asked(answering) == []


@pytest.mark.parametrize("group", [None, "g"])
def test_a_request_that_waits_for_a_lane_does_not_outlive_the_connection(desk: Desk, group: str | None) -> None:
    client, answering = asker(desk), responder(desk, group=group)
    answering.stall(1)
    client.request(1, qos=1, id=1)
    client.take(PubAck)
    other = responder(desk, "other", group=group) if group else None
    answering.lost()
    if other is None:
        assert failure(client) == [PubAck(REQUEST, 1, Reason.NO_RESPONDER)]
    else:
        (packet_id,) = asked(other)
        other.respond(packet_id, b"!")
        assert client.payloads() == [b"!"]
    assert desk.connect("responder", resume=True, settings=LONG).messages() == []


def test_a_responder_out_of_identifiers_is_not_asked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moq.broker.delivery.MAX_PACKET_ID", 1)
    client, answering = asker(desk), responder(desk)
    client.request(1, id=1)
    client.request(1, id=2)
    assert failure(client) == [PubAck(REQUEST, 2, Reason.NO_RESPONDER)]
    assert len(asked(answering)) == 1


# --- groups -------------------------------------------------------------------------------------------


def test_one_member_of_a_group_is_asked(desk: Desk) -> None:
    client = asker(desk)
    members = [responder(desk, name, group="g") for name in ("x", "y")]
    for number in range(4):
        client.request(1, qos=1, id=number + 1)
    assert [len(asked(member)) for member in members] == [2, 2]


def test_a_member_that_does_not_accept_requests_is_not_asked(desk: Desk) -> None:
    client, answering = asker(desk), responder(desk, group="g")
    silent = desk.connect("silent")
    silent.subscribe("q", alias=1, group="g")
    for number in range(4):
        client.request(1, id=number + 1)
    assert (len(asked(answering)), silent.messages()) == (4, [])
    answering.lost()
    assert len(failure(client)) == 4


def test_another_member_takes_a_lost_members_place(desk: Desk) -> None:
    client = asker(desk)
    first, second = responder(desk, "first", group="g"), responder(desk, "second", group="g")
    client.request(1, b"?", id=1)
    assert len(asked(first)) == 1
    first.lost()
    (packet_id,) = asked(second)
    second.respond(packet_id, b"!")
    assert client.payloads() == [b"!"]
    client.request(1, b"?", id=2)
    second.lost()
    assert failure(client) == [PubAck(REQUEST, 2, Reason.NO_RESPONDER)]
