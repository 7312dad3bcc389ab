"""What open-loop clients say and hear: frames of any size, cut anywhere, in each dialect."""

from __future__ import annotations

import pytest

from moq import wire
from moq.bench.dialects import BODY
from moq.bench.rivals.mqttv5 import SpeaksMQTTInFlows
from moq.bench.speech import ANSWER, PUBLISH, REPLIES, REQUEST, RESPONSE, SpeaksMMQP, SpeaksMQTT, Speech
from moq.errors import RemoteProtocolError, RequestRefused

SPEECHES = [SpeaksMMQP(), SpeaksMQTT()]


@pytest.mark.parametrize("speech", SPEECHES, ids=["mmqp", "mqtt"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [16, 100, 1000, 70_000])
def test_a_message_is_found_where_it_was_put(speech: Speech, qos: int, size: int) -> None:
    template = speech.template(7, qos, size, PUBLISH)
    data = bytearray(template.data)
    BODY.pack_into(data, template.body_at, 7, 42, 123_456_789)
    if template.packet_id_at is not None:
        data[template.packet_id_at : template.packet_id_at + 2] = b"\x12\x34"
    answer = speech.first_answer(1, 5)
    buf = data + answer + data
    first, middle, last = speech.packets(buf)
    assert first == (PUBLISH, qos, 0x1234 if qos else 0, template.body_at, len(data))
    assert (middle[0], middle[2]) == (ANSWER, 5)
    assert buf[middle[3] : middle[4]] == answer
    assert BODY.unpack_from(buf, last[3]) == (7, 42, 123_456_789)
    assert last[4] - last[3] == size
    for cut in (1, 2, 3, len(data) - 1):
        assert list(speech.packets(data[:cut])) == []


def test_confirmed_messages_wait_for_one_subscriber() -> None:
    speech = SpeaksMMQP()
    template = speech.template(0, 3, 16, PUBLISH)
    (packet,) = wire.FrameReader(1000).feed(template.data)
    assert isinstance(packet, wire.PubReq)
    assert (packet.qos, packet.waited, packet.packet_id) == (3, 1, 1)
    assert template.packet_id_at is not None
    assert template.data[template.packet_id_at : template.packet_id_at + 2] == b"\0\1"
    assert next(speech.packets(bytearray(template.data))) == (PUBLISH, 3, 1, template.body_at, len(template.data))


def test_a_confirmation_is_let_go_and_a_refusal_ends_the_run() -> None:
    speech = SpeaksMMQP()
    confirmed = wire.encode(wire.ConfirmSyn(7, 0, [wire.Confirmation("x", 5)]))
    assert speech.next_answer(confirmed) == wire.encode(wire.PubSyn(0, 7, 1))
    with pytest.raises(RequestRefused):
        speech.next_answer(wire.encode(wire.ConfirmSyn(7, 0xC6, [])))


def test_requests_are_packets_of_mmqp_and_topics_of_mqtt() -> None:
    request = SpeaksMMQP().template(0, 0, 16, REQUEST)
    assert next(SpeaksMMQP().packets(bytearray(request.data)))[:3] == (REQUEST, 0, 1)
    response = SpeaksMQTT().template(3, 0, 16, RESPONSE)
    assert f"bench/{3 + REPLIES}".encode() in response.data


def test_a_named_message_is_understood_too() -> None:
    data = wire.encode(wire.PubReq(0, False, False, 0, 0, 0x8001, "bench/000001", None, None, bytes(16)))
    assert list(SpeaksMMQP().packets(bytearray(data))) == [(PUBLISH, 0, 0, len(data) - 16, len(data))]


def test_a_message_with_a_time_is_understood_too() -> None:
    extension = wire.PublishExtension(timestamp_ns=123, ttl_ms=5)
    data = wire.encode(wire.PubReq(0, False, False, 0, 0, 1, None, None, extension, bytes(16)))
    assert list(SpeaksMMQP().packets(bytearray(data))) == [(PUBLISH, 0, 0, len(data) - 16, len(data))]
    named = wire.PublishExtension(subscribers=["somebody"])
    data = wire.encode(wire.PubReq(0, False, False, 3, 1, 1, None, 1, named, bytes(16)))
    with pytest.raises(RemoteProtocolError, match="came with extension flags 0x20"):
        list(SpeaksMMQP().packets(bytearray(data)))


def test_the_header_of_a_flow_is_skipped_wherever_it_is_cut() -> None:
    speech = SpeaksMQTTInFlows()
    message = speech.template(1, 0, 16, PUBLISH)
    stream = b"\x13\x41\x00\x80\x00\x0e\x10\x00" + message.data
    for cut in range(1, 8):
        buf = bytearray(stream[:cut])
        assert list(speech.packets(buf)) == []
        buf += stream[cut:]
        assert list(speech.packets(buf)) == [(PUBLISH, 0, 0, message.body_at, len(message.data))]
