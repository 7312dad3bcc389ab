"""What a topic keeps for later subscribers: modes, expiry, bounds, clearing."""

from __future__ import annotations

import pytest

from moq.config import Limits
from moq.wire import PublishExtension, RetentionMode, Will
from tests.broker.desk import Client, Desk


def publisher_of(desk: Desk, mode: int = RetentionMode.OVERRIDE, expiry_s: int | None = None) -> Client:
    publisher = desk.connect("publisher")
    publisher.register("a", alias=1, mode=mode, expiry_s=expiry_s)
    return publisher


def keep(publisher: Client, *payloads: bytes, qos: int = 1, ttl_ms: int | None = None) -> None:
    extension = PublishExtension(ttl_ms=ttl_ms) if ttl_ms is not None else None
    for payload in payloads:
        publisher.publish(1, payload, qos=qos, id=1 if qos else 0, retain=True, extension=extension)
        publisher.read()


def seen_by_a_new_subscriber(desk: Desk, filter_: str = "a", qos: int = 1) -> list[bytes]:
    subscriber = desk.connect()
    subscriber.subscribe(filter_, qos=qos)
    return subscriber.payloads()


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (RetentionMode.OVERRIDE, [b"3"]),
        (RetentionMode.FIFO, [b"1", b"2", b"3"]),
        (RetentionMode.LIFO, [b"3", b"2", b"1"]),
    ],
)
@pytest.mark.parametrize("qos", [0, 1])
def test_a_new_subscriber_gets_what_the_mode_keeps(desk: Desk, mode: int, expected: list[bytes], qos: int) -> None:
    keep(publisher_of(desk, mode), b"1", b"2", b"3")
    assert seen_by_a_new_subscriber(desk, qos=qos) == expected


def test_retained_and_live_messages_can_be_told_apart(desk: Desk) -> None:
    publisher = publisher_of(desk)
    early, late = desk.connect("early"), desk.connect("late")
    early.subscribe("a")
    keep(publisher, b"x")
    late.subscribe("a", qos=1)
    assert [message.packet.retain for message in early.messages()] == [False]
    assert [message.packet.retain for message in late.messages()] == [True]


def test_qos_0_and_messages_without_the_flag_are_not_retained(desk: Desk) -> None:
    publisher = publisher_of(desk)
    keep(publisher, b"x", qos=0)
    publisher.publish(1, b"y", qos=1, id=1)
    assert seen_by_a_new_subscriber(desk) == []


def test_an_empty_payload_clears_the_topic(desk: Desk) -> None:
    publisher = publisher_of(desk, RetentionMode.FIFO)
    watcher = desk.connect("watcher")
    watcher.subscribe("a")
    keep(publisher, b"1", b"2", b"")
    assert watcher.payloads() == [b"1", b"2", b""]
    assert seen_by_a_new_subscriber(desk) == []
    assert (desk.broker.topics.retained_count, desk.broker.topics.retained_bytes) == (0, 0)


def test_clearing_a_topic_nobody_knows_does_not_make_it_known(desk: Desk) -> None:
    desk.connect("alice", initial_will=Will(1, True, "unknown", b""))
    assert len(desk.broker.topics) == 0


def test_retained_messages_expire_by_the_registration(desk: Desk) -> None:
    publisher = publisher_of(desk, RetentionMode.FIFO, expiry_s=60)
    keep(publisher, b"1")
    desk.advance(30)
    keep(publisher, b"2")
    desk.advance(30)
    assert seen_by_a_new_subscriber(desk) == [b"2"]


def test_the_remaining_time_is_told(desk: Desk) -> None:
    keep(publisher_of(desk, expiry_s=60), b"1")
    desk.advance(20)
    subscriber = desk.connect("late")
    subscriber.subscribe("a", qos=1)
    assert subscriber.messages()[0].packet.extension == PublishExtension(ttl_ms=40_000)


def test_the_earlier_of_two_ends_counts(desk: Desk) -> None:
    publisher = publisher_of(desk, RetentionMode.FIFO, expiry_s=60)
    keep(publisher, b"brief", ttl_ms=10_000)
    keep(publisher, b"long", ttl_ms=100_000)
    desk.advance(30)
    assert seen_by_a_new_subscriber(desk) == [b"long"]
    desk.advance(30)
    assert seen_by_a_new_subscriber(desk) == []


def test_an_expiry_of_never_never_comes(desk: Desk) -> None:
    keep(publisher_of(desk, expiry_s=0xFFFF), b"x")
    desk.advance(0x10000)
    assert seen_by_a_new_subscriber(desk) == [b"x"]


def test_a_topic_whose_last_message_expired_is_forgotten(desk: Desk) -> None:
    publisher = publisher_of(desk, expiry_s=60)
    keep(publisher, b"x")
    publisher.lost()
    assert len(desk.broker.topics) == 1
    desk.advance(60)
    assert len(desk.broker.topics) == 0


def test_what_has_expired_takes_no_room_also_when_nobody_subscribes(desk: Desk) -> None:
    publisher = publisher_of(desk, RetentionMode.FIFO)
    keep(publisher, b"short", ttl_ms=1000)
    keep(publisher, b"long", ttl_ms=60_000)
    keep(publisher, b"for ever")
    desk.advance(1)
    assert desk.broker.topics.retained_bytes == len(b"longfor ever")
    desk.advance(59)
    assert (desk.broker.topics.retained_count, desk.broker.topics.retained_bytes) == (1, len(b"for ever"))


def test_the_latest_registration_decides_the_mode(desk: Desk) -> None:
    publisher = publisher_of(desk, RetentionMode.FIFO)
    keep(publisher, b"1", b"2")
    publisher.register("a", alias=1, mode=RetentionMode.LIFO)
    assert seen_by_a_new_subscriber(desk) == [b"2", b"1"]
    publisher.register("a", alias=1, mode=RetentionMode.OVERRIDE)
    assert seen_by_a_new_subscriber(desk) == [b"2"]


def test_a_topic_keeps_at_most_so_many() -> None:
    desk = Desk(Limits(max_retained_per_topic=2))
    keep(publisher_of(desk, RetentionMode.FIFO), b"1", b"2", b"3")
    assert seen_by_a_new_subscriber(desk) == [b"2", b"3"]


def test_all_topics_keep_at_most_so_many_bytes() -> None:
    desk = Desk(Limits(max_retained_bytes=10))
    publisher = publisher_of(desk, RetentionMode.FIFO)
    watcher = desk.connect("watcher")
    watcher.subscribe("a")
    keep(publisher, b"12345", b"67890", b"x")
    assert watcher.payloads() == [b"12345", b"67890", b"x"]
    assert seen_by_a_new_subscriber(desk) == [b"12345", b"67890"]
    assert desk.figures.dropped_no_room_to_retain == 1


def test_a_message_too_large_to_retain_leaves_no_stale_one_and_no_topic() -> None:
    desk = Desk(Limits(max_retained_bytes=10))
    for payload in (b"old", bytes(11)):
        desk.connect("alice", initial_will=Will(1, True, "status", payload))
    assert seen_by_a_new_subscriber(desk, "status") == []
    assert len(desk.broker.topics) == 0


def test_a_topic_past_the_limit_is_delivered_and_not_retained() -> None:
    desk = Desk(Limits(max_topics=1))
    publisher_of(desk)
    watcher = desk.connect("watcher")
    watcher.subscribe("status")
    desk.connect("alice", initial_will=Will(1, True, "status", b"x"))
    assert watcher.payloads() == [b"x"]
    assert desk.figures.dropped_no_room_to_retain == 1


def test_a_wildcard_finds_every_retained_topic_it_matches(desk: Desk) -> None:
    publisher = desk.connect("publisher")
    publisher.register("#")
    for name in ("a", "a/b", "a/b/c", "b", "a/d"):
        publisher.publish(name, name.encode(), qos=1, id=1, retain=True)
    assert sorted(seen_by_a_new_subscriber(desk, "a/#")) == [b"a", b"a/b", b"a/b/c", b"a/d"]
    assert sorted(seen_by_a_new_subscriber(desk, "a/+")) == [b"a/b", b"a/d"]
    assert seen_by_a_new_subscriber(desk, "+/b/c") == [b"a/b/c"]


def test_a_group_gets_no_retained_messages(desk: Desk) -> None:
    keep(publisher_of(desk), b"x")
    subscriber = desk.connect("subscriber")
    subscriber.subscribe("a", group="g", qos=1)
    assert subscriber.payloads() == []


def test_subscribing_again_sends_them_again(desk: Desk) -> None:
    keep(publisher_of(desk), b"x")
    subscriber = desk.connect("subscriber")
    subscriber.subscribe("a", alias=1)
    subscriber.subscribe(None, alias=1, qos=1)
    assert subscriber.payloads() == [b"x", b"x"]
