"""Messages of QoS 0 that come one after the other in one read: the same messages, delivered at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from moq.reasons import Reason
from moq.wire import PublishExtension, PubReq, encode
from tests.broker.mqtt.scripted import connect as connect_mqtt

if TYPE_CHECKING:
    from tests.broker.desk import Client, Desk


def plain(alias: int, payload: bytes) -> PubReq:
    return PubReq(0, False, False, 0, 0, alias, None, None, None, payload)


def publisher_of(desk: Desk, *topics: str) -> Client:
    publisher = desk.connect("publisher")
    for alias, topic in enumerate(topics, 1):
        publisher.register(topic, alias=alias)
    return publisher


@pytest.mark.parametrize("filter_", ["a", "#"])
def test_a_run_arrives_whole_and_in_order(desk: Desk, filter_: str) -> None:
    publisher, subscriber = publisher_of(desk, "a"), desk.connect("subscriber")
    subscriber.subscribe(filter_, alias=0 if filter_ == "#" else 1)
    sizes = [0, 1, 100, 100, 300, 70_000, 3]
    payloads = [bytes([number]) * size for number, size in enumerate(sizes)]
    publisher.send(*(plain(1, payload) for payload in payloads))
    publisher.send(*(plain(1, payload) for payload in payloads))
    assert subscriber.payloads() == payloads * 2
    assert desk.figures.messages_received == desk.figures.messages_sent == 2 * len(payloads)
    assert desk.figures.bytes_received == desk.figures.bytes_sent == 2 * sum(sizes)


def test_order_holds_across_topics_and_whatever_ends_a_run(desk: Desk) -> None:
    publisher, subscriber = publisher_of(desk, "a", "b"), desk.connect("subscriber", has_lanes=False)
    subscriber.subscribe("#", qos=1)
    publisher.send(
        plain(1, b"1"),
        plain(1, b"2"),
        PubReq(0, False, False, 1, 9, 1, None, None, None, b"3"),
        plain(2, b"4"),
        plain(1, b"5"),
        PubReq(0, False, False, 0, 0, 1, None, None, PublishExtension(timestamp_ns=1), b"6"),
        plain(1, b"7"),
    )
    assert subscriber.payloads() == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]


def test_subscribers_that_know_the_topic_by_other_aliases_get_the_same(desk: Desk) -> None:
    publisher = publisher_of(desk, "a")
    subscribers = [desk.connect(name) for name in ("one", "two", "three")]
    for alias, subscriber in zip((1, 2, 1), subscribers, strict=True):
        subscriber.subscribe("a", alias=alias)
    publisher.send(plain(1, b"x"), plain(1, b"y"))
    assert [subscriber.payloads() for subscriber in subscribers] == [[b"x", b"y"]] * 3


def test_a_congested_lane_drops_a_run_and_counts_each_message(desk: Desk) -> None:
    publisher, slow, other = publisher_of(desk, "a"), desk.connect("slow"), desk.connect("other")
    slow.subscribe("a", alias=1)
    other.subscribe("a", alias=1)
    publisher.send(plain(1, b"x"))
    assert (slow.payloads(), other.payloads()) == ([b"x"], [b"x"])
    slow.stall(1)
    publisher.send(plain(1, b"y"), plain(1, b"z"))
    assert desk.figures.dropped_congested == 2
    slow.drain(1)
    assert (slow.payloads(), other.payloads()) == ([], [b"y", b"z"])


def test_a_group_shares_a_run(desk: Desk) -> None:
    publisher, members = publisher_of(desk, "a"), [desk.connect("one"), desk.connect("two")]
    for member in members:
        member.subscribe("a", group="g")
    publisher.send(*(plain(1, bytes([number])) for number in range(10)))
    shares = [member.payloads() for member in members]
    assert sorted(shares[0] + shares[1]) == [bytes([number]) for number in range(10)]
    assert len(shares[0]) == len(shares[1])


def test_mqtt_subscribers_get_a_run_message_by_message(desk: Desk) -> None:
    publisher, subscriber = publisher_of(desk, "a"), connect_mqtt(desk, "subscriber")
    subscriber.subscribe("a")
    publisher.send(plain(1, b"x"), plain(1, b"y"))
    assert [message.payload for message in subscriber.messages()] == [b"x", b"y"]


def test_what_came_before_a_fault_in_the_same_read_is_delivered(desk: Desk) -> None:
    publisher, subscriber = publisher_of(desk, "a"), desk.connect("subscriber")
    subscriber.subscribe("a")
    publisher.send_bytes(encode(plain(1, b"x")) + encode(plain(1, b"y")) + b"\x00\x00")
    assert subscriber.payloads() == [b"x", b"y"]
    assert publisher.link.closed_with == Reason.MALFORMED_PACKET
