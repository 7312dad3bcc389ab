"""Large payloads on their way in: assembled per lane, bounded per connection."""

from __future__ import annotations

import pytest

from moq.config import Limits
from moq.reasons import Reason
from moq.wire import ConEnd, PubReq, encode
from tests.broker.desk import Client, Desk

BIG = 300 * 1024
"""More than a reader holds: such a payload comes in chunks."""


def pair(desk: Desk) -> tuple[Client, Client]:
    publisher, subscriber = desk.connect("publisher"), desk.connect("subscriber")
    publisher.register("a", alias=1)
    subscriber.subscribe("a", alias=1)
    return publisher, subscriber


def packet(payload: bytes, alias: int = 1) -> bytes:
    return encode(PubReq(0, False, False, 0, 0, alias, None, None, None, payload))


def test_a_large_payload_is_put_together(desk: Desk) -> None:
    publisher, subscriber = pair(desk)
    payload = bytes(range(256)) * (BIG // 256)
    data = packet(payload) + packet(b"after it")
    for start in range(0, len(data), 50_000):
        publisher.send_bytes(data[start : start + 50_000], lane=2)
    assert subscriber.payloads() == [payload, b"after it"]


def test_lanes_assemble_side_by_side(desk: Desk) -> None:
    publisher, subscriber = pair(desk)
    first, second = packet(b"1" * BIG), packet(b"2" * BIG)
    publisher.send_bytes(first[:-1], lane=2)
    publisher.send_bytes(second[:-1], lane=3)
    publisher.send_bytes(second[-1:], lane=3)
    publisher.send_bytes(first[-1:], lane=2)
    assert [payload[:1] for payload in subscriber.payloads()] == [b"2", b"1"]


def test_all_lanes_together_hold_one_largest_packet() -> None:
    desk = Desk(Limits(max_packet_bytes=2 * BIG))
    publisher, subscriber = pair(desk)
    data = packet(bytes(BIG + BIG // 2))
    for lane in (2, 3, 4):
        publisher.send_bytes(data[:100], lane=lane)
    assert publisher.link.paused == {3, 4}
    publisher.send_bytes(data[100:], lane=2)
    assert publisher.link.paused == {4}
    publisher.send_bytes(data[100:], lane=3)
    assert publisher.link.paused == set()
    publisher.send_bytes(data[100:], lane=4)
    assert len(subscriber.payloads()) == 3


def test_a_lane_that_waited_goes_on_when_another_is_abandoned() -> None:
    desk = Desk(Limits(max_packet_bytes=2 * BIG))
    publisher, subscriber = pair(desk)
    data = packet(bytes(BIG + BIG // 2))
    for lane in (2, 3):
        publisher.send_bytes(data[:100], lane=lane)
    publisher.connection.lane_reset(2)
    assert publisher.link.paused == set()
    publisher.send_bytes(data[100:], lane=3)
    assert len(subscriber.payloads()) == 1


def test_a_lane_with_two_reasons_to_wait_waits_for_both() -> None:
    desk = Desk(Limits(max_packet_bytes=2 * BIG))
    publisher, _ = pair(desk)
    data = packet(bytes(BIG + BIG // 2))
    publisher.send_bytes(data[:100], lane=2)
    publisher.stall()
    publisher.send_bytes(data[:100], lane=3)
    publisher.drain()
    assert publisher.link.paused == {3}
    publisher.stall()
    publisher.send_bytes(data[100:200], lane=3)
    publisher.connection.lane_reset(2)
    assert publisher.link.paused == {3}
    publisher.drain()
    assert publisher.link.paused == set()


def test_a_payload_above_the_limit_is_refused_at_its_header(desk: Desk) -> None:
    publisher, _ = pair(desk)
    publisher.send_bytes(b"\x7c\xff\xff\xff\xff", lane=2)
    assert publisher.take(ConEnd) == [ConEnd(Reason.PACKET_TOO_LARGE)]


def test_a_large_payload_before_the_connection_is_open_is_refused(desk: Desk) -> None:
    client = desk.client()
    client.send_bytes(packet(bytes(BIG))[:1000])
    assert client.link.closed_with == Reason.PROTOCOL_ERROR


@pytest.mark.parametrize("ended", [True, False])
def test_a_lane_that_ends_inside_a_large_payload_is_a_violation_or_never_was(desk: Desk, ended: bool) -> None:
    publisher, subscriber = pair(desk)
    publisher.send_bytes(packet(bytes(BIG))[:1000], lane=2)
    if ended:
        publisher.finish_lane(2)
        assert publisher.take(ConEnd) == [ConEnd(Reason.MALFORMED_PACKET)]
        publisher.connection.lane_reset(3)
    else:
        publisher.connection.lane_reset(2)
        publisher.publish(1, b"still here", lane=4)
        assert subscriber.payloads() == [b"still here"]
