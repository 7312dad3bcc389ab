"""A subscriber that does not keep up: what is dropped, what waits, and that nobody else notices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.broker.message import Message
from moq.broker.outbound import ABSENT_LOAD
from moq.config import Limits
from moq.wire import PublishExtension, RetentionMode
from tests.broker.desk import LONG, Client, Desk
from tests.broker.test_publishing import pair, resumed

if TYPE_CHECKING:
    from moq.broker.session import Session


def session_of(desk: Desk, name: str = "subscriber") -> Session:
    session = desk.broker.sessions.get(name)
    assert session is not None
    return session


def test_best_effort_messages_to_a_congested_lane_are_dropped_and_counted(desk: Desk) -> None:
    publisher, subscriber = pair(desk)
    subscriber.stall(1)
    for number in range(3):
        publisher.publish(1, b"%d" % number)
    publisher.publish(2, b"another lane")
    assert subscriber.payloads() == [b"another lane"]
    assert desk.figures.dropped_congested == 3
    subscriber.drain(1)
    publisher.publish(1, b"newest")
    assert subscriber.payloads() == [b"newest"]


def test_reliable_messages_wait_for_the_lane_and_go_on_in_order(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=1)
    subscriber.stall(1)
    for number in range(5):
        publisher.publish(1, b"%d" % number, qos=1, id=1)
        publisher.publish(2, b"other %d" % number, qos=2, id=number + 1)
    assert subscriber.payloads() == [b"other %d" % number for number in range(5)]
    assert session_of(desk).outbound.waiting == 5
    subscriber.drain(1)
    assert subscriber.payloads() == [b"%d" % number for number in range(5)]
    assert desk.figures.dropped_congested == 0


def test_on_one_byte_stream_all_topics_share_its_congestion(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=1, has_lanes=False)
    subscriber.stall()
    publisher.publish(1, b"1", qos=1, id=1)
    publisher.publish(2, b"2", qos=1, id=1)
    assert subscriber.read() == []
    subscriber.drain()
    assert sorted(subscriber.payloads()) == [b"1", b"2"]


def test_other_subscribers_do_not_notice(desk: Desk) -> None:
    publisher, slow = pair(desk, qos=1)
    fast = desk.connect("fast")
    fast.subscribe("a", alias=1, qos=1)
    slow.stall(1)
    for number in range(5):
        publisher.publish(1, b"%d" % number, qos=1, id=1)
    assert len(fast.payloads()) == 5


def test_a_full_queue_loses_the_oldest_of_its_topic() -> None:
    desk = Desk(Limits(max_queued_messages=3))
    publisher, subscriber = pair(desk, qos=1)
    subscriber.lost()
    for number in range(6):
        publisher.publish(1, b"%d" % number, qos=1, id=1)
    assert session_of(desk).outbound.waiting == 3
    assert desk.figures.dropped_queue_full == 3
    assert resumed(desk).payloads() == [b"3", b"4", b"5"]


def test_a_topic_with_nothing_waiting_takes_the_place_of_the_topic_that_waits_longest() -> None:
    desk = Desk(Limits(max_queued_messages=2))
    publisher, subscriber = pair(desk, qos=1)
    subscriber.lost()
    publisher.publish(1, b"1", qos=1, id=1)
    publisher.publish(1, b"2", qos=1, id=1)
    publisher.publish(2, b"3", qos=1, id=1)
    assert sorted(resumed(desk).payloads()) == [b"2", b"3"]


def test_a_topic_whose_last_message_was_pushed_out_is_gone_from_the_queues() -> None:
    desk = Desk(Limits(max_queued_messages=1))
    publisher, subscriber = pair(desk, qos=1)
    subscriber.lost()
    publisher.publish(1, b"1", qos=1, id=1)
    publisher.publish(2, b"2", qos=1, id=1)
    assert resumed(desk).payloads() == [b"2"]


def test_a_full_queue_is_bounded_in_bytes_too() -> None:
    desk = Desk(Limits(max_queued_bytes=100))
    publisher, subscriber = pair(desk, qos=1)
    subscriber.lost()
    for number in range(5):
        publisher.publish(1, bytes([number]) * 40, qos=1, id=1)
    publisher.publish(1, bytes(101), qos=1, id=1)
    assert desk.figures.dropped_queue_full >= 3
    assert all(len(payload) == 40 for payload in resumed(desk).payloads())


def test_a_message_that_expired_in_the_queue_is_counted_as_expired() -> None:
    desk = Desk(Limits(max_queued_messages=1))
    publisher, subscriber = pair(desk, qos=1)
    subscriber.lost()
    publisher.publish(1, b"1", qos=1, id=1, extension=PublishExtension(ttl_ms=1000))
    desk.advance(2)
    publisher.publish(1, b"2", qos=1, id=1)
    assert (desk.figures.dropped_expired, desk.figures.dropped_queue_full) == (1, 0)


def test_what_was_sent_before_is_never_pushed_out() -> None:
    desk = Desk(Limits(max_queued_messages=1))
    publisher, subscriber = pair(desk, qos=1)
    publisher.publish(1, b"sent", qos=1, id=1)
    subscriber.messages()
    subscriber.lost()
    publisher.publish(1, b"too many", qos=1, id=1)
    publisher.publish(2, b"too many", qos=1, id=1)
    assert resumed(desk).payloads() == [b"sent"]
    assert desk.figures.dropped_queue_full == 2


def test_a_message_is_described_without_its_payload() -> None:
    assert repr(Message("a", b"secret", 1)) == "Message('a', 6 bytes, qos=1, kind=0)"


def test_an_absent_session_counts_as_more_loaded_than_any_other(desk: Desk) -> None:
    publisher, subscriber = pair(desk, qos=1)
    publisher.publish(1, qos=1, id=1)
    assert session_of(desk).outbound.load == 1
    subscriber.lost()
    assert session_of(desk).outbound.load == ABSENT_LOAD + 1


# --- replay of what is retained -----------------------------------------------------------------------


def filled(desk: Desk, count: int, size: int, mode: int = RetentionMode.FIFO) -> Client:
    publisher = desk.connect("publisher")
    publisher.register("a", alias=1, mode=mode)
    for number in range(count):
        publisher.publish(1, b"%d" % number + bytes(size), qos=1, id=1, retain=True)
    publisher.read()
    return publisher


def test_a_replay_never_bursts_past_a_congested_lane(desk: Desk) -> None:
    filled(desk, count=200, size=1000)
    for qos in (0, 1):
        subscriber = desk.connect(f"subscriber {qos}", high_water=3000)
        subscriber.subscribe("a", alias=1, qos=qos)
        assert [int(payload.rstrip(b"\0")) for payload in subscriber.payloads()] == list(range(200))
        assert 3000 < subscriber.link.lanes[1].most_unsent < 3000 + 1100


def test_a_replay_waits_for_the_window() -> None:
    desk = Desk(Limits(max_inflight=2))
    filled(desk, count=5, size=0)
    subscriber = desk.connect("subscriber")
    subscriber.subscribe("a", alias=1, qos=1)
    seen: list[bytes] = []
    while messages := subscriber.messages():
        assert len(messages) <= 2
        seen += [message.payload for message in messages]
        for message in messages:
            subscriber.puback(message.id)
    assert seen == [b"0", b"1", b"2", b"3", b"4"]


def test_a_replay_goes_on_after_a_lost_connection(desk: Desk) -> None:
    filled(desk, count=3, size=0)
    subscriber = desk.connect("subscriber", settings=LONG)
    subscriber.stall(1)
    subscriber.subscribe("a", alias=1, qos=0)
    subscriber.lost()
    assert resumed(desk).payloads() == [b"0", b"1", b"2"]


def test_subscribing_again_and_again_keeps_one_replay(desk: Desk) -> None:
    filled(desk, count=2, size=0)
    subscriber = desk.connect("subscriber")
    subscriber.stall(1)
    for _ in range(10):
        subscriber.subscribe("a", alias=1)
    subscriber.drain(1)
    assert subscriber.payloads() == [b"0", b"1"]


def test_unsubscribing_ends_the_replay(desk: Desk) -> None:
    filled(desk, count=2, size=0)
    subscriber = desk.connect("subscriber")
    subscriber.stall(1)
    subscriber.subscribe("a", alias=1)
    subscriber.unsubscribe("a")
    subscriber.drain(1)
    assert subscriber.payloads() == []


def test_a_retained_message_that_expires_before_its_turn_is_left_out(desk: Desk) -> None:
    publisher = filled(desk, count=1, size=0)
    publisher.publish(1, b"brief", qos=1, id=1, retain=True, extension=PublishExtension(ttl_ms=1000))
    subscriber = desk.connect("subscriber")
    subscriber.stall(1)
    subscriber.subscribe("a", alias=1)
    desk.advance(1)
    subscriber.drain(1)
    assert subscriber.payloads() == [b"0"]
