"""Wills: the initial one when a client arrives, the last one when it is lost, and when they are not."""

from __future__ import annotations

from moq.broker.access import Action
from moq.reasons import Reason
from moq.wire import ConAck, ConEnd, ConReq, PublishExtension, Settings, Will
from tests.broker.desk import LONG, PERSISTENT, Client, Desk
from tests.broker.test_topic_requests import Denying

LAST = Will(1, False, "status", b"gone")
DELAYED = Will(1, False, "status", b"gone", delay_s=60)


def watcher(desk: Desk) -> Client:
    client = desk.connect("watcher")
    client.subscribe("status", alias=1, qos=1)
    return client


def test_the_initial_will_is_published_on_arrival(desk: Desk) -> None:
    watching = watcher(desk)
    desk.connect("alice", initial_will=Will(2, False, "status", b"online"))
    (message,) = watching.messages()
    assert (message.payload, message.packet.qos) == (b"online", 1)


def test_the_initial_will_waits_for_its_delay(desk: Desk) -> None:
    watching = watcher(desk)
    desk.connect("alice", initial_will=Will(0, False, "status", b"online", delay_s=10))
    desk.advance(9)
    assert watching.payloads() == []
    desk.advance(1)
    assert watching.payloads() == [b"online"]


def test_the_last_will_is_published_when_the_client_is_lost(desk: Desk) -> None:
    watching = watcher(desk)
    desk.connect("alice", last_will=LAST).lost()
    assert watching.payloads() == [b"gone"]
    desk.advance(100)
    assert watching.payloads() == []


def test_the_last_will_is_published_once_also_when_the_session_lives_on(desk: Desk) -> None:
    watching = watcher(desk)
    desk.connect("alice", last_will=LAST, settings=LONG).lost()
    assert watching.payloads() == [b"gone"]
    desk.advance(3600)
    assert watching.payloads() == []


def test_a_goodbye_drops_the_last_will_and_a_troubled_one_does_not(desk: Desk) -> None:
    watching = watcher(desk)
    desk.connect("alice", last_will=LAST).send(ConEnd(Reason.SUCCESS))
    assert watching.payloads() == []
    desk.connect("alice", last_will=LAST).send(ConEnd(Reason.DISCONNECT_WITH_WILL))
    assert watching.payloads() == [b"gone"]


def test_a_violation_a_silence_and_a_truncated_lane_are_losses(desk: Desk) -> None:
    watching = watcher(desk)
    desk.connect("alice", last_will=LAST).send_bytes(b"\x00\x00")
    assert watching.payloads() == [b"gone"]
    desk.connect("alice", last_will=LAST, settings=Settings(keep_alive_s=10))
    desk.advance(15)
    assert watching.payloads() == [b"gone"]
    client = desk.connect("alice", last_will=LAST)
    client.send_bytes(b"\x70\x05", lane=2)
    client.finish_lane(2)
    assert watching.payloads() == [b"gone"]


def test_the_brokers_shutdown_is_no_loss(desk: Desk) -> None:
    watching = watcher(desk)
    desk.connect("alice", last_will=LAST, settings=LONG).connection.shut_down(desk.now)
    desk.advance(3600)
    assert watching.payloads() == []


def test_a_delayed_will_is_published_when_its_time_comes(desk: Desk) -> None:
    watching = watcher(desk)
    desk.connect("alice", last_will=DELAYED, settings=LONG).lost()
    desk.advance(59)
    assert watching.payloads() == []
    desk.advance(1)
    assert watching.payloads() == [b"gone"]


def test_a_client_that_is_back_in_time_is_not_mourned(desk: Desk) -> None:
    watching = watcher(desk)
    desk.connect("alice", last_will=DELAYED, settings=LONG).lost()
    desk.advance(59)
    desk.connect("alice", resume=True, settings=LONG)
    desk.advance(100)
    assert watching.payloads() == []


def test_a_client_that_takes_over_in_time_is_not_mourned(desk: Desk) -> None:
    watching = watcher(desk)
    first = desk.connect("alice", last_will=DELAYED, settings=LONG)
    desk.connect("alice", resume=True, settings=LONG)
    first.lost()
    desk.advance(100)
    assert watching.payloads() == []


def test_a_client_that_starts_anew_leaves_the_will_of_its_old_session(desk: Desk) -> None:
    watching = watcher(desk)
    desk.connect("alice", last_will=DELAYED, settings=LONG).lost()
    desk.connect("alice", settings=LONG)
    assert watching.payloads() == [b"gone"]


def test_a_will_waits_no_longer_than_its_session(desk: Desk) -> None:
    watching = watcher(desk)
    desk.connect("alice", last_will=DELAYED, settings=Settings(expiry_s=10)).lost()
    desk.advance(9)
    assert watching.payloads() == []
    desk.advance(1)
    assert watching.payloads() == [b"gone"]
    desk.connect("bob", last_will=DELAYED).lost()
    assert watching.payloads() == [b"gone"]


def test_a_will_expires_like_a_message(desk: Desk) -> None:
    watching = watcher(desk)
    desk.connect("alice", last_will=Will(0, False, "status", b"gone", expiry_s=60)).lost()
    desk.connect("alice", last_will=Will(0, False, "status", b"gone", expiry_s=0xFFFF)).lost()
    assert [message.packet.extension for message in watching.messages()] == [PublishExtension(ttl_ms=60_000), None]


def test_the_time_left_is_counted_from_the_event_that_published_it(desk: Desk) -> None:
    watching = watcher(desk)
    client = desk.connect("alice", last_will=Will(0, False, "status", b"gone", expiry_s=60))
    client.send_bytes(b"\x70\x05", lane=2)
    desk.now += 50
    client.finish_lane(2)
    assert watching.messages()[0].packet.extension == PublishExtension(ttl_ms=60_000)


def test_a_will_is_retained_at_qos_1_only(desk: Desk) -> None:
    desk.connect("alice", last_will=Will(1, True, "status", b"kept")).lost()
    desk.connect("bob", last_will=Will(0, True, "status", b"not kept")).lost()
    (message,) = watcher(desk).messages()
    assert (message.payload, message.packet.retain) == (b"kept", True)


def test_a_will_that_cannot_be_published_is_refused(desk: Desk) -> None:
    for will, reason in (
        (Will(0, False, "a/#", b""), Reason.TOPIC_NAME_INVALID),
        (Will(0, False, "$SYS/x", b""), Reason.NOT_AUTHORIZED),
    ):
        for request in (ConReq(initial_will=will), ConReq(last_will=will)):
            client = desk.client()
            client.send(request)
            assert client.take(ConAck) == [ConAck(False, reason)]
            assert client.link.closed_with == reason
    assert len(desk.broker.sessions) == 0


def test_a_refused_will_does_not_touch_the_session_there_is() -> None:
    desk = Desk(access=Denying("alice", Action.PUBLISH, "secret"))
    client = desk.connect("alice", settings=LONG)
    intruder = desk.client()
    intruder.send(ConReq(client_id="alice", last_will=Will(0, False, "secret", b"")))
    assert not client.is_closed


def test_a_will_survives_the_broker(desk: Desk) -> None:
    desk.connect("alice", last_will=DELAYED, settings=PERSISTENT)
    after = desk.restarted()
    watching = watcher(after)
    after.advance(60)
    assert watching.payloads() == [b"gone"]
    assert watcher(after.restarted(after_s=5000)).payloads() == []


def test_a_will_without_delay_is_published_when_the_broker_is_back(desk: Desk) -> None:
    subscriber = desk.connect("watcher", settings=PERSISTENT)
    subscriber.subscribe("status", alias=1, qos=1)
    desk.connect("alice", last_will=LAST, settings=PERSISTENT)
    after = desk.restarted()
    assert after.connect("watcher", resume=True, settings=PERSISTENT).payloads() == [b"gone"]


def test_a_will_is_published_at_the_latest_when_the_session_ends_after_a_restart(desk: Desk) -> None:
    desk.connect("alice", last_will=DELAYED, settings=Settings(persistent=True, expiry_s=10))
    after = desk.restarted()
    watching = watcher(after)
    after.advance(10)
    assert watching.payloads() == [b"gone"]


def test_a_client_back_after_a_restart_is_not_mourned(desk: Desk) -> None:
    desk.connect("alice", last_will=DELAYED, settings=PERSISTENT)
    after = desk.restarted()
    watching = watcher(after)
    after.connect("alice", resume=True, settings=PERSISTENT)
    after.advance(60)
    assert watching.payloads() == []


def test_a_session_keeps_its_wills_for_connections_that_resume_without_saying_them(desk: Desk) -> None:
    online = Will(1, False, "status", b"online")
    desk.connect("alice", settings=PERSISTENT, initial_will=online, last_will=LAST).lost()
    after = desk.restarted()
    watching = watcher(after)
    for _ in range(2):
        after.connect("alice", resume=True).lost()
        assert watching.payloads() == [b"online", b"gone"]


def test_starting_anew_drops_the_wills(desk: Desk) -> None:
    watching = watcher(desk)
    desk.connect("alice", settings=LONG, last_will=LAST).lost()
    desk.connect("alice", settings=LONG).lost()
    assert watching.payloads() == [b"gone"]
