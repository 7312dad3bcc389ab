"""The generator's frames: what it writes is the protocol, and what it looks for is where it says."""

from __future__ import annotations

import pytest

from moq import wire
from moq.bench.dialects import BODY, MMQP, MQTT, Dialect, topic
from moq.bench.load import Shape
from moq.errors import ConfigError, RequestRefused

DIALECTS = [MMQP(), MQTT()]


def packets(data: bytes) -> list[wire.Item]:
    return list(wire.FrameReader(1 << 20).feed(data))


@pytest.mark.parametrize("dialect", DIALECTS, ids=["mmqp", "mqtt"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [16, 100, 250, 1000, 70_000])
def test_a_frame_is_taken_apart_where_it_was_put_together(dialect: Dialect, qos: int, size: int) -> None:
    frame = dialect.frame(7, qos, size)
    data = bytearray(frame.data)
    BODY.pack_into(data, frame.body_at, 7, 42, 123_456_789)
    if frame.packet_id_at is not None:
        data[frame.packet_id_at : frame.packet_id_at + 2] = b"\x12\x34"
    head, packet_id, flow, seq, sent_ns = frame.layout.unpack(data)
    assert head == frame.head
    assert (flow, seq, sent_ns) == (7, 42, 123_456_789)
    assert packet_id == 0x1234 or qos == 0
    assert dialect.packet_end(bytes(data), 0) == len(data) == frame.layout.size


@pytest.mark.parametrize("dialect", DIALECTS, ids=["mmqp", "mqtt"])
def test_the_end_of_a_packet_is_unknown_until_its_length_is_there(dialect: Dialect) -> None:
    data = dialect.frame(0, 0, 1000).data
    assert dialect.packet_end(data[:0], 0) is None
    assert dialect.packet_end(data[:1], 0) is None
    assert dialect.packet_end(data[:2], 0) is None
    assert dialect.packet_end(data[:3], 0) == len(data)
    assert dialect.packet_end(b"x" + data[:3], 1) == len(data) + 1


def test_mmqp_frames_are_publishes_by_alias() -> None:
    (packet,) = packets(MMQP().frame(4, 1, 16).data)
    assert packet == wire.PubReq(0, False, False, 1, 1, 5, None, None, None, bytes(16))


def test_mmqp_asks_for_every_topic_by_the_alias_its_frames_have() -> None:
    (hello,) = packets(MMQP().hello("me"))
    assert isinstance(hello, wire.ConReq)
    assert hello.client_id == "me"
    (register,) = packets(MMQP().register(range(3, 5)))
    (subscribe,) = packets(MMQP().subscribe(range(3, 5), 2))
    assert isinstance(register, wire.TopReq)
    assert isinstance(subscribe, wire.TopReq)
    assert [(request.alias, request.topic) for request in register.requests] == [(4, topic(3)), (5, topic(4))]
    assert [(request.alias, request.topic) for request in subscribe.requests] == [(4, topic(3)), (5, topic(4))]


def test_mqtt_packets_are_those_of_the_standard() -> None:
    mqtt = MQTT()
    assert mqtt.hello("me") == bytes.fromhex("100e 0004 4d515454 04 02 0258 0002 6d65")
    assert mqtt.subscribe([1], 1) == bytes.fromhex("8211 0001 000c") + b"bench/000001" + b"\1"
    assert mqtt.register([1]) == b""
    assert mqtt.frame(1, 0, 16).data == bytes.fromhex("301e 000c") + b"bench/000001" + bytes(16)
    assert mqtt.frame(1, 1, 200).data[:3] == bytes.fromhex("32d801")


def test_acknowledgements_follow_each_other_to_the_end() -> None:
    mmqp, mqtt = MMQP(), MQTT()
    assert mmqp.next_answer(mmqp.first_answers(1)[0x1234]) is None
    received = mmqp.first_answers(2)[0x1234]
    release = mmqp.next_answer(received)
    assert release is not None
    assert packets(received + release) == [wire.PubSyn(0, 0x1234, 0), wire.PubSyn(0, 0x1234, 1)]
    assert mmqp.next_answer(release) == mmqp.first_answers(1)[0x1234]
    assert mqtt.next_answer(mqtt.first_answers(1)[5]) is None
    assert mqtt.first_answers(2)[5] == bytes.fromhex("50020005")
    assert mqtt.next_answer(bytes.fromhex("50020005")) == bytes.fromhex("62020005")
    assert mqtt.next_answer(bytes.fromhex("62020005")) == bytes.fromhex("70020005")
    assert mqtt.next_answer(bytes.fromhex("70020005")) is None


def test_a_refusal_ends_the_run() -> None:
    MMQP().check(wire.encode(wire.ConAck(False, 0)))
    MMQP().check(wire.encode(wire.TopAck(1, b"\0\1")))
    MQTT().check(bytes.fromhex("20020000"))
    MQTT().check(bytes.fromhex("9003000101"))
    for refusal in (wire.ConAck(False, 0x87), wire.TopAck(1, b"\0\x8f"), wire.ConEnd(0x8B)):
        with pytest.raises(RequestRefused):
            MMQP().check(wire.encode(refusal))
    for refused in ("20020005", "9003000180", "e000"):
        with pytest.raises(RequestRefused):
            MQTT().check(bytes.fromhex(refused))
    with pytest.raises(RequestRefused):
        MMQP().next_answer(wire.encode(wire.PubAck(0, 1, 0x97)))


def test_a_load_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="size is 15; a message needs 16 bytes"):
        Shape(payload_bytes=15)
    with pytest.raises(ConfigError, match="subscribers is 0; it must be greater than 0"):
        Shape(subscribers=0)
    with pytest.raises(ConfigError, match="qos is 3; it must be 0, 1 or 2"):
        Shape(qos=3)
    assert str(Shape(topics=5, rate=100)) == "1→1, 100 B, QoS 0, 5 topics, 100/s"
