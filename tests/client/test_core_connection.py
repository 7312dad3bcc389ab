"""The life of one connection: CONREQ, CONACK, keep-alive, violations and the end."""

from __future__ import annotations

import pytest

from moq.client.core import State
from moq.client.messages import Will
from moq.client.session import ClientSession, SessionOptions
from moq.errors import ConfigError, LocalProtocolError
from moq.reasons import Reason
from moq.wire import (
    Authentication,
    ConAck,
    ConEnd,
    ConReq,
    ConSyn,
    PubAck,
    Query,
    Register,
    Settings,
    Subscribe,
    TopAck,
    TopReq,
    encode,
)
from tests.client.scripted import Pair, message
from transports.options import TransportOptions


def started(pair: Pair) -> ConReq:
    pair.link_up()
    pair.core.start()
    pair.deliver()
    return pair.broker.next(ConReq)


def test_conreq_says_who_the_client_is_and_what_it_wants() -> None:
    options = SessionOptions(
        user_name="ada",
        password="secret",
        persistent=True,
        keep_alive_s=30,
        expiry_s=600,
        initial_will=Will("me/state", "here"),
        last_will=Will("me/state", b"gone", qos=1, retain=True, delay_s=5),
    )
    conreq = started(Pair(options))
    assert conreq.client_id == "me"
    assert conreq.authentication == Authentication("ada", b"secret")
    assert conreq.settings == Settings(True, 30, 600)
    assert conreq.initial_will is not None
    assert conreq.initial_will.payload == b"here"
    assert conreq.last_will is not None
    assert (conreq.last_will.qos, conreq.last_will.retain, conreq.last_will.delay_s) == (1, True, 5)
    assert not conreq.resume
    assert conreq.topics is None


def test_a_client_without_a_login_sends_none() -> None:
    assert started(Pair()).authentication is None


def test_a_will_that_does_not_fit_is_refused_before_connecting() -> None:
    with pytest.raises(LocalProtocolError, match="256 bytes; at most 255"):
        started(Pair(SessionOptions(last_will=Will("t", b"x" * 256))))


@pytest.mark.parametrize(
    ("name", "value"),
    [("keep_alive_s", 0), ("keep_alive_s", 65536), ("expiry_s", -1), ("window", 0), ("window", 65535)],
)
def test_settings_that_conreq_cannot_carry_are_refused(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value}"):
        SessionOptions(**{name: value})  # type: ignore[arg-type]


def test_an_assigned_identifier_is_kept_for_the_next_connection() -> None:
    pair = Pair(session=ClientSession())
    assert started(pair).client_id is None
    pair.receive(ConAck(False, Reason.SUCCESS, "assigned-1"))
    assert pair.owner.is_open
    pair.lose()
    conreq = started(pair)
    assert conreq.client_id == "assigned-1"
    assert conreq.resume


def test_requests_made_before_the_connection_ride_in_conreq() -> None:
    pair = Pair()
    pair.link_up()
    inbox = pair.core.subscribe("a/b", qos=1)
    register = pair.core.register("c/#")
    query = pair.core.query("a/b")
    pair.core.start()
    pair.deliver()
    conreq = pair.broker.next(ConReq)
    assert conreq.topics == [Subscribe(1, False, 1, "a/b"), Register(0, False, 0, "c/#")]
    pair.broker.send(ConAck(False, Reason.SUCCESS))
    pair.broker.send(TopAck(0, bytes([Reason.SUCCESS, Reason.NOT_AUTHORIZED])))
    pair.deliver()
    assert inbox.operation is not None
    assert inbox.operation.is_settled
    assert inbox.operation.error is None
    assert "REGISTER 'c/#': not authorized" in str(register.error)
    assert not query.is_settled
    assert pair.broker.next(TopReq).requests == [Query(0, "a/b")]


def test_more_requests_than_conreq_can_count_follow_in_topreqs() -> None:
    pair = Pair()
    pair.link_up()
    for number in range(300):
        pair.core.subscribe(f"t/{number}")
    pair.core.start()
    pair.deliver()
    conreq = pair.broker.next(ConReq)
    assert conreq.topics is not None
    assert len(conreq.topics) == 255
    pair.broker.send(ConAck(False, Reason.SUCCESS))
    pair.broker.send(TopAck(0, bytes(255)))
    assert len(pair.answer_topics()) == 45
    assert all(entry.inboxes[0].operation.is_settled for entry in pair.session.filters.values())  # type: ignore[union-attr]


def test_a_refused_connection_says_why() -> None:
    pair = Pair()
    started(pair)
    pair.receive(ConAck(False, Reason.BAD_USER_NAME_OR_PASSWORD))
    assert pair.owner.error is not None
    assert pair.owner.error.reason == Reason.BAD_USER_NAME_OR_PASSWORD
    assert not pair.owner.is_open
    assert pair.owner.is_gone


def test_consyn_is_answered_at_once() -> None:
    pair = Pair()
    pair.connect()
    pair.receive(ConSyn())
    pair.broker.next(ConSyn)


def test_a_broker_silent_for_two_intervals_is_given_up() -> None:
    pair = Pair(SessionOptions(keep_alive_s=10))
    pair.connect()
    pair.now += 19.9
    pair.core.handle_timeout(pair.now)
    assert pair.core.state is State.OPEN
    pair.receive(ConSyn())
    assert pair.core.next_timeout() == pair.now + 20
    pair.now += 20
    pair.core.handle_timeout(pair.now)
    pair.deliver()
    assert pair.owner.error is not None
    assert "silent for 20 s" in str(pair.owner.error)
    assert pair.owner.error.reason is None


def test_whoever_sends_may_hear_nothing_for_longer() -> None:
    pair = Pair(SessionOptions(keep_alive_s=10))
    pair.connect()
    pair.core.publish("t", b"1")
    pair.answer_topics()
    pair.now += 20
    pair.core.handle_timeout(pair.now)
    assert pair.owner.error is None
    pair.now += 20
    pair.core.handle_timeout(pair.now)
    pair.core.handle_timeout(pair.now)
    assert "silent" in str(pair.owner.error)


def test_conend_ends_the_connection_with_its_reason() -> None:
    pair = Pair()
    pair.connect()
    pair.broker.send(ConEnd(Reason.SESSION_TAKEN_OVER))
    pair.broker.send(ConSyn())
    pair.deliver()
    assert pair.owner.error is not None
    assert pair.owner.error.reason == Reason.SESSION_TAKEN_OVER
    assert not pair.broker.received, "nothing after CONEND is answered"


def test_closing_says_goodbye_once() -> None:
    pair = Pair()
    pair.connect()
    pair.core.close()
    pair.core.close()
    pair.deliver()
    assert pair.broker.next(ConEnd).reason == Reason.SUCCESS
    assert pair.broker.end is not None
    assert pair.owner.error is not None


def test_a_link_that_is_not_used_is_closed_without_a_word() -> None:
    pair = Pair()
    pair.link_up()
    pair.core.close()
    pair.deliver()
    assert not pair.broker.received
    assert pair.session.connections == 0


@pytest.mark.parametrize(
    ("reason", "text", "expected"),
    [(None, "reset by peer", "reset by peer"), (0x8B, "", "server shutting down"), (None, "", "no reason was given")],
)
def test_a_lost_link_is_reported_with_what_is_known(reason: int | None, text: str, expected: str) -> None:
    pair = Pair()
    pair.connect()
    pair.core.closed(reason, text)
    assert pair.owner.error is not None
    assert expected in str(pair.owner.error)
    assert pair.owner.error.reason == reason


@pytest.mark.parametrize(
    ("packet", "complaint"),
    [
        (ConAck(False, 0), "ConAck comes once"),
        (ConReq(), "ConReq is not for clients"),
        (TopAck(0, b"\0"), "1 reasons; 0 requests"),
        (TopAck(77, b"\0"), "TopAck 77 answers no request"),
        (message(alias=0x8001, qos=0), "0x8001, which names no topic on lane 0"),
        (message(alias=7, qos=0), "0x0007, which names no topic on lane 0"),
    ],
)
def test_a_broker_that_breaks_the_protocol_is_told_and_left(packet: ConAck, complaint: str) -> None:
    pair = Pair()
    pair.connect()
    pair.receive(packet)
    assert pair.owner.error is not None
    assert complaint in str(pair.owner.error)
    assert pair.broker.next(ConEnd).reason >= 0x80


def test_bytes_that_are_no_packet_end_the_connection() -> None:
    pair = Pair()
    pair.connect()
    pair.broker.link.control.write(b"\x00\x00")
    pair.deliver()
    assert pair.broker.next(ConEnd).reason == Reason.MALFORMED_PACKET


def test_a_packet_other_than_conack_comes_too_early() -> None:
    pair = Pair()
    started(pair)
    pair.receive(PubAck(0, 1, 0))
    assert "PubAck before ConAck" in str(pair.owner.error)


def test_only_messages_travel_on_topic_lanes() -> None:
    pair = Pair()
    pair.connect()
    pair.receive(ConSyn(), lane=5)
    assert "only PubReq leaves the control lane" in str(pair.owner.error)


def test_messages_that_overtake_conack_wait_for_it() -> None:
    pair = Pair()
    pair.link_up()
    inbox = pair.core.subscribe("t", qos=1)
    pair.core.start()
    pair.deliver()
    pair.broker.next(ConReq)
    pair.receive(message(b"early", alias=1, qos=1, packet_id=9), lane=5)
    assert not inbox.queue
    assert not pair.broker.received
    pair.broker.send(ConAck(False, Reason.SUCCESS))
    pair.broker.send(TopAck(0, b"\0"))
    pair.deliver()
    assert [item.payload for item in inbox.queue] == [b"early"]
    assert pair.broker.next(PubAck).packet_id == 9
    pair.receive(message(b"later", alias=1, qos=0), lane=5)
    assert [item.payload for item in inbox.queue] == [b"early", b"later"], "the lane is read again"


def test_a_lane_that_ends_inside_a_packet_breaks_the_protocol() -> None:
    pair = Pair()
    pair.connect()
    lane = pair.broker.link.lane(5)
    lane.write(encode(message(b"cut", topic="t", alias=0x8000))[:-1])
    lane.finish()
    pair.deliver()
    assert "ended inside a packet" in str(pair.owner.error)


def test_a_lane_may_end_between_packets_or_be_abandoned() -> None:
    pair = Pair()
    pair.connect()
    inbox = pair.core.subscribe("#")
    pair.answer_topics()
    for key, end in ((5, "finish"), (6, "reset")):
        lane = pair.broker.link.lane(key)
        lane.write(encode(message(b"whole", topic="t", alias=0x8000)))
        pair.deliver()
        if end == "finish":
            lane.finish()
        else:
            lane.write(b"\x70")
            lane.reset(0)
    pair.deliver()
    pair.core.lane_finished(99)
    assert pair.core.state is State.OPEN
    assert len(inbox.queue) == 2


def test_aliases_end_with_their_lane() -> None:
    pair = Pair()
    pair.connect()
    pair.core.subscribe("#")
    pair.answer_topics()
    lane = pair.broker.link.lane(5)
    lane.write(encode(message(b"1", topic="t", alias=0x8000)))
    lane.finish()
    pair.deliver()
    pair.receive(message(b"2", alias=0x8000), lane=5)
    assert "names no topic" in str(pair.owner.error)


def test_a_drained_lane_of_a_closed_connection_changes_nothing() -> None:
    pair = Pair(transport=TransportOptions(high_water_bytes=100, low_water_bytes=50))
    pair.connect()
    pair.lose()
    pair.core.lane_writable(pair.link.control)
    assert pair.core.state is State.CLOSED


def test_a_core_works_without_an_owner() -> None:
    pair = Pair()
    pair.link_up()
    pair.core._owner = None
    pair.core.start()
    pair.deliver()
    pair.receive(ConAck(False, Reason.SUCCESS))
    pair.lose()
    assert pair.core.state is State.CLOSED
