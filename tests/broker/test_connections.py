"""How connections begin, are kept alive and end, and what a session keeps between them."""

from __future__ import annotations

import pytest

from moq.broker.dialects.connection import State
from moq.config import Limits
from moq.reasons import Reason
from moq.wire import (
    Authen,
    Authentication,
    ConAck,
    ConEnd,
    ConReq,
    ConSyn,
    Packet,
    PubAck,
    PubReq,
    PubSyn,
    Register,
    Settings,
    Subscribe,
    TopAck,
    TopReq,
    TypeReq,
    encode,
)
from tests.broker.desk import LONG, PERSISTENT, Client, Desk


def refusal(client: Client) -> int:
    """The reason a client was told, which is also the one its link was closed with."""
    told = [packet.reason for packet in client.read() if isinstance(packet, ConEnd | ConAck)]
    assert told == [client.link.closed_with]
    return told[0]


# --- beginning ----------------------------------------------------------------------------------------


def test_a_client_that_names_itself_is_told_no_other_name(desk: Desk) -> None:
    assert desk.connect("alice").connack == ConAck(False, Reason.SUCCESS, None)


def test_a_client_without_a_name_is_assigned_one(desk: Desk) -> None:
    first, second = desk.connect(), desk.connect()
    assert first.connack == ConAck(False, Reason.SUCCESS, "assigned-1")
    assert second.connack == ConAck(False, Reason.SUCCESS, "assigned-2")


def test_a_client_with_an_empty_name_is_assigned_one(desk: Desk) -> None:
    assert desk.connect("").connack == ConAck(False, Reason.SUCCESS, "assigned-1")


def test_inline_topic_requests_are_answered_by_a_topack_with_id_0(desk: Desk) -> None:
    client = desk.connect(
        "alice", topics=[Subscribe(0, False, 1, "a"), Register(0, False, 2, "#/b"), Register(0, False, 3, "c")]
    )
    assert client.take(TopAck) == [TopAck(0, bytes((Reason.SUCCESS, Reason.TOPIC_FILTER_INVALID, Reason.SUCCESS)))]
    client.publish(3, b"x")
    assert not client.is_closed


def test_another_protocol_version_is_refused(desk: Desk) -> None:
    client = desk.client()
    client.send(ConReq(version=254))
    assert refusal(client) == Reason.UNSUPPORTED_PROTOCOL_VERSION


def test_an_authentication_method_is_refused(desk: Desk) -> None:
    client = desk.client()
    client.send(ConReq(authentication=Authentication(method="scram")))
    assert refusal(client) == Reason.BAD_AUTHENTICATION_METHOD


def test_a_user_name_without_a_method_is_accepted(desk: Desk) -> None:
    client = desk.client()
    client.send(ConReq(authentication=Authentication(user_name="alice", password=b"secret")))
    assert client.connection.state is State.OPEN


def test_a_session_past_the_limit_is_refused() -> None:
    desk = Desk(Limits(max_sessions=1))
    desk.connect("alice")
    client = desk.client()
    client.send(ConReq(client_id="bob"))
    assert refusal(client) == Reason.QUOTA_EXCEEDED
    desk.connect("alice")


def test_a_stranger_that_says_nothing_is_cut_off(desk: Desk) -> None:
    client = desk.client()
    desk.advance(9)
    assert not client.is_closed
    desk.advance(1)
    assert refusal(client) == Reason.KEEP_ALIVE_TIMEOUT


def test_the_connect_timeout_ends_with_the_connection(desk: Desk) -> None:
    client = desk.client()
    client.lost()
    desk.advance(20)
    assert client.link.unsent == 0


# --- keep-alive ---------------------------------------------------------------------------------------


def test_a_silent_client_is_asked_and_then_given_up(desk: Desk) -> None:
    client = desk.connect("alice", settings=Settings(keep_alive_s=60))
    desk.advance(59)
    assert client.read() == []
    desk.advance(1)
    assert client.read() == [ConSyn()]
    desk.advance(30)
    assert refusal(client) == Reason.KEEP_ALIVE_TIMEOUT


def test_a_client_that_answers_is_kept(desk: Desk) -> None:
    client = desk.connect("alice", settings=Settings(keep_alive_s=60))
    for _ in range(5):
        desk.advance(60)
        assert client.read() == [ConSyn()]
        client.send(ConSyn())
    assert client.read() == []
    assert not client.is_closed


def test_any_packet_counts_as_a_sign_of_life(desk: Desk) -> None:
    client = desk.connect("alice", settings=Settings(keep_alive_s=60))
    client.register("a", alias=1)
    for _ in range(10):
        desk.advance(50)
        client.publish(1)
    assert client.read() == []


def test_the_answer_to_the_brokers_question_is_not_answered_again(desk: Desk) -> None:
    client = desk.connect("alice", settings=Settings(keep_alive_s=60))
    desk.advance(60)
    client.take(ConSyn)
    client.send(ConSyn())
    client.send(ConSyn())
    assert client.read() == []


@pytest.mark.parametrize("asked_for", [None, 0, 50_000])
def test_keep_alive_has_an_upper_bound(desk: Desk, asked_for: int | None) -> None:
    client = desk.connect("alice", settings=Settings(keep_alive_s=asked_for))
    desk.advance(600)
    assert client.read() == [ConSyn()]


# --- ending -------------------------------------------------------------------------------------------


def test_a_goodbye_ends_a_session_that_is_not_persistent(desk: Desk) -> None:
    client = desk.connect("alice", settings=LONG)
    client.send(ConEnd(Reason.SUCCESS))
    assert client.link.closed_with == Reason.SUCCESS
    assert len(desk.broker.sessions) == 0


def test_a_goodbye_leaves_a_persistent_session(desk: Desk) -> None:
    desk.connect("alice", settings=PERSISTENT).send(ConEnd(Reason.SUCCESS))
    assert desk.connect("alice", resume=True, settings=PERSISTENT).connack == ConAck(True, Reason.SUCCESS)


def test_what_follows_a_goodbye_is_ignored(desk: Desk) -> None:
    client = desk.connect("alice")
    client.send_bytes(encode(ConEnd(Reason.SUCCESS)) + b"\xff\xff\xff")
    client.send(ConSyn())
    client.finish_lane(0)
    assert client.read() == []
    assert client.link.closed_with == Reason.SUCCESS
    assert desk.figures.protocol_errors == 0


def test_a_shutdown_is_announced_and_keeps_sessions(desk: Desk) -> None:
    client = desk.connect("alice", settings=LONG)
    stranger = desk.client()
    client.connection.shut_down(desk.now)
    client.connection.shut_down(desk.now)
    stranger.connection.shut_down(desk.now)
    assert refusal(client) == Reason.SERVER_SHUTTING_DOWN
    assert refusal(stranger) == Reason.SERVER_SHUTTING_DOWN
    assert desk.broker.sessions.get("alice") is not None


# --- sessions -----------------------------------------------------------------------------------------


def test_a_session_without_expiry_ends_with_its_connection(desk: Desk) -> None:
    desk.connect("alice").lost()
    assert desk.connect("alice", resume=True).connack == ConAck(False, Reason.SUCCESS)


def test_a_session_is_resumed_with_its_subscriptions_registrations_and_aliases(desk: Desk) -> None:
    client = desk.connect("alice", settings=LONG)
    client.subscribe("a", alias=1)
    client.subscribe("plain")
    client.register("b", alias=2)
    client.register("wild/#")
    client.lost()
    desk.advance(3599)
    client = desk.connect("alice", resume=True, settings=LONG)
    assert client.connack == ConAck(True, Reason.SUCCESS)
    other = desk.connect("bob")
    other.register("a", alias=1)
    other.publish(1, b"hello")
    client.publish(2, b"still registered")
    client.publish("wild/x", b"this too")
    assert client.payloads() == [b"hello"]
    assert not client.is_closed


def test_a_session_expires(desk: Desk) -> None:
    client = desk.connect("alice", settings=LONG)
    client.subscribe("a")
    client.lost()
    desk.advance(3600)
    assert len(desk.broker.sessions) == 0
    assert desk.broker.subscriptions.count == 0
    assert desk.connect("alice", resume=True, settings=LONG).connack == ConAck(False, Reason.SUCCESS)


def test_a_client_that_is_back_no_longer_expires(desk: Desk) -> None:
    desk.connect("alice", settings=LONG).lost()
    desk.advance(3000)
    client = desk.connect("alice", resume=True, settings=LONG)
    desk.advance(599)
    client.send(ConSyn())
    desk.advance(599)
    assert desk.broker.sessions.get("alice") is not None
    assert not client.is_closed


@pytest.mark.parametrize("settings", [Settings(expiry_s=0xFFFF), Settings(persistent=True)])
def test_a_session_that_never_expires_does_so_at_the_limit(settings: Settings) -> None:
    desk = Desk(Limits(max_session_expiry_s=100_000))
    desk.connect("alice", settings=settings).lost()
    desk.advance(99_999)
    assert len(desk.broker.sessions) == 1
    desk.advance(1)
    assert len(desk.broker.sessions) == 0


def test_a_client_that_does_not_resume_starts_anew(desk: Desk) -> None:
    client = desk.connect("alice", settings=LONG)
    client.subscribe("a")
    client.lost()
    assert desk.connect("alice", settings=LONG).connack == ConAck(False, Reason.SUCCESS)
    assert desk.broker.subscriptions.count == 0


def test_a_session_is_resumed_by_its_name_alone(desk: Desk) -> None:
    """MMQP IV-C: a client resumes "by simply sending its client identifier"; its settings are those it gave before."""
    desk.connect("alice", settings=PERSISTENT).lost()
    client = desk.connect("alice", resume=True)
    assert client.connack == ConAck(True, Reason.SUCCESS)
    client.lost()
    desk.advance(3599)
    assert desk.broker.sessions.get("alice") is not None
    desk.advance(1)
    assert desk.broker.sessions.get("alice") is None


def test_a_session_that_changes_its_persistence_starts_anew(desk: Desk) -> None:
    desk.connect("alice", settings=LONG).lost()
    assert desk.connect("alice", resume=True, settings=PERSISTENT).connack == ConAck(False, Reason.SUCCESS)


def test_the_same_name_on_a_new_connection_takes_the_session_over(desk: Desk) -> None:
    first = desk.connect("alice", settings=LONG)
    first.subscribe("a")
    second = desk.connect("alice", resume=True, settings=LONG)
    assert refusal(first) == Reason.SESSION_TAKEN_OVER
    assert second.connack == ConAck(True, Reason.SUCCESS)
    first.lost()
    first.connection.closed(desk.now)
    publisher = desk.connect("bob")
    publisher.register("a", alias=1)
    publisher.publish(1, b"x")
    assert second.payloads() == [b"x"]
    assert first.read() == []


# --- violations ---------------------------------------------------------------------------------------

PUBLISH = PubReq(0, False, False, 0, 0, 1, None, None, None, b"")


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (ConReq(), Reason.PROTOCOL_ERROR),
        (ConAck(False, 0), Reason.PROTOCOL_ERROR),
        (TopAck(1, b"\0"), Reason.PROTOCOL_ERROR),
        (Authen(0, "scram", b""), Reason.BAD_AUTHENTICATION_METHOD),
        (PUBLISH, Reason.TOPIC_ALIAS_INVALID),
        (PubReq(0, False, False, 0, 0, 0, "x", None, None, b""), Reason.TOPIC_NOT_REGISTERED),
        (PubReq(0, False, False, 1, 1, 0, "a/#", None, None, b""), Reason.TOPIC_NAME_INVALID),
        (PubReq(0, False, False, 0, 0, 1, "x", None, None, b""), Reason.TOPIC_ALIAS_INVALID),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, Reason) else value.name,
)
def test_a_violation_is_told_and_closed_while_others_go_on(desk: Desk, packet: Packet, reason: Reason) -> None:
    offender, publisher, subscriber = desk.connect("mallory"), desk.connect("bob"), desk.connect("carol")
    publisher.register("a", alias=1)
    subscriber.subscribe("a")
    offender.send(packet)
    assert refusal(offender) == reason
    assert desk.figures.protocol_errors == 1
    publisher.publish(1, b"unharmed")
    assert subscriber.payloads() == [b"unharmed"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\x00", Reason.MALFORMED_PACKET),
        (b"\xd0\x00", Reason.MALFORMED_PACKET),
        (b"\x30\x01\x00", Reason.MALFORMED_PACKET),
        (b"\x3c\xff\xff\xff\xff", Reason.PACKET_TOO_LARGE),
        (b"\x34\x00\x01\x00", Reason.MALFORMED_PACKET),
        (b"\x50\x02\x00\x00", Reason.PROTOCOL_ERROR),
    ],
)
def test_bytes_that_are_no_packet_are_told_and_closed(desk: Desk, data: bytes, reason: Reason) -> None:
    client = desk.connect("mallory")
    client.send_bytes(data)
    assert refusal(client) == reason


def test_packets_before_the_fault_take_effect(desk: Desk) -> None:
    client, watcher = desk.connect("mallory"), desk.connect("bob")
    watcher.subscribe("a")
    client.register("a", alias=1)
    client.send_bytes(encode(PubReq(0, False, False, 0, 0, 1, None, None, None, b"first")) + b"\x00\x00")
    assert watcher.payloads() == [b"first"]
    assert refusal(client) == Reason.MALFORMED_PACKET


def test_the_first_packet_must_be_conreq(desk: Desk) -> None:
    client = desk.client()
    client.send(ConSyn())
    assert client.read() == [ConAck(False, Reason.PROTOCOL_ERROR)]
    assert client.link.closed_with == Reason.PROTOCOL_ERROR


def test_the_first_packet_must_be_on_the_control_lane(desk: Desk) -> None:
    client = desk.client()
    client.send(ConReq(), lane=2)
    assert client.link.closed_with == Reason.PROTOCOL_ERROR


@pytest.mark.parametrize(
    "packet", [TopReq(1, [Subscribe(0, False, 0, "a")]), PubAck(0, 1, 0), PubSyn(0, 1, 0), ConSyn(), TypeReq(1, "a")]
)
def test_only_messages_may_leave_the_control_lane(desk: Desk, packet: Packet) -> None:
    client = desk.connect("mallory")
    client.send(packet, lane=2)
    assert refusal(client) == Reason.PROTOCOL_ERROR


def test_a_lane_may_end_between_packets_and_not_inside_one(desk: Desk) -> None:
    client = desk.connect("alice")
    client.register("a", alias=1)
    client.publish(1, b"whole", lane=2)
    client.finish_lane(2)
    client.finish_lane(7)
    assert not client.is_closed
    client.send_bytes(encode(PUBLISH)[:-1], lane=3)
    client.send_bytes(encode(PUBLISH)[:-1], lane=4)
    client.finish_lane(3)
    client.finish_lane(4)
    assert refusal(client) == Reason.MALFORMED_PACKET


def test_an_abandoned_lane_never_was(desk: Desk) -> None:
    client = desk.connect("alice")
    client.register("a", alias=1)
    client.send_bytes(encode(PUBLISH)[:-1], lane=2)
    client.connection.lane_reset(2)
    client.publish(1, b"anew", lane=2)
    assert not client.is_closed


# --- backpressure -------------------------------------------------------------------------------------


def test_a_client_that_does_not_read_its_answers_is_not_read(desk: Desk) -> None:
    client = desk.connect("alice")
    client.stall()
    client.send(TypeReq(1, "a"))
    client.send(TypeReq(2, "a"), lane=0)
    assert client.link.paused == {0}
    client.drain(1)
    assert client.link.paused == {0}
    client.drain()
    assert client.link.paused == set()
    assert len(client.read()) == 2


def test_a_lane_that_drains_after_the_end_changes_nothing(desk: Desk) -> None:
    client = desk.connect("alice")
    client.send(ConEnd(Reason.SUCCESS))
    client.drain(1)
    client.connection.close(Reason.SERVER_SHUTTING_DOWN)
    assert client.read() == []


def test_packets_after_a_goodbye_in_the_same_read_have_no_effect(desk: Desk) -> None:
    client, watcher = desk.connect("alice"), desk.connect("bob")
    watcher.subscribe("a")
    client.register("a", alias=1)
    client.send(ConEnd(Reason.SUCCESS), ConSyn(), PubReq(0, False, False, 0, 0, 1, None, None, None, b"late"))
    assert watcher.payloads() == []
