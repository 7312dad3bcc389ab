"""A stream of MQTT is cut into packets wherever it is split, within a bound on what is held."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moq.errors import MalformedPacket, NotShortest, PacketTooLarge, ProtocolError, RemoteProtocolError, Truncated
from moq.reasons import Reason
from moq.wire import ConReq, encode, mqtt
from moq.wire.mqtt import (
    MAX_FIELDS_BYTES,
    Item,
    MQTTFrameReader,
    Packet,
    PayloadChunk,
    PayloadEnded,
    PayloadStarted,
    starts_like_mqtt,
)
from moq.wire.mqtt.publish import MAX_TOPIC_BYTES, MAX_TOPICS, cut_publishes
from tests.strategies import any_mqtt_packet

VERSIONS = (mqtt.VERSION_3_1_1, mqtt.VERSION_5)
each_version = pytest.mark.parametrize("version", VERSIONS)
a_version = st.sampled_from(VERSIONS)


def publish(payload: bytes, topic: str = "a/b", properties: mqtt.Properties | None = None) -> mqtt.Publish:
    return mqtt.Publish(False, 0, False, topic, 0, properties, payload)


def split(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def feed_all(frames: MQTTFrameReader, pieces: list[bytes]) -> list[Item]:
    return [item for piece in pieces for item in frames.feed(piece)]


def assembled(items: list[Item]) -> list[Item]:
    """The same with every payload that came in chunks put together again."""
    whole: list[Item] = []
    for item in items:
        match item:
            case PayloadStarted(packet):
                whole.append(packet)
            case PayloadChunk(data):
                assert isinstance(whole[-1], mqtt.Publish)
                whole[-1].payload += data
            case PayloadEnded():
                pass
            case _:
                whole.append(item)
    return whole


some_packets = a_version.flatmap(
    lambda version: st.tuples(st.just(version), st.lists(any_mqtt_packet[version], max_size=6))
)


@given(some_packets, st.data())
def test_packets_arrive_in_order_however_the_stream_is_split(
    drawn: tuple[int, list[Packet]], data: st.DataObject
) -> None:
    version, packets = drawn
    stream = b"".join(mqtt.encode(packet, version) for packet in packets)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    frames = MQTTFrameReader(1 << 20, version=version)
    assert feed_all(frames, pieces) == packets
    assert not frames.mid_packet


@given(some_packets, st.integers(0, 64), st.integers(1, 40))
def test_small_bounds_give_the_same_packets(
    drawn: tuple[int, list[Packet]], chunk_bytes: int, piece_bytes: int
) -> None:
    version, packets = drawn
    stream = b"".join(mqtt.encode(packet, version) for packet in packets)
    frames = MQTTFrameReader(1 << 20, chunk_bytes, version)
    assert assembled(feed_all(frames, split(stream, piece_bytes))) == packets
    assert not frames.mid_packet


@given(st.binary(max_size=400), st.sampled_from((0, *VERSIONS)), st.integers(0, 32), st.integers(1, 40))
def test_any_bytes_give_packets_or_a_protocol_error_and_bounded_memory(
    stream: bytes, version: int, chunk_bytes: int, piece_bytes: int
) -> None:
    frames = MQTTFrameReader(1 << 20, chunk_bytes, version)
    try:
        for piece in split(stream, piece_bytes):
            list(frames.feed(piece))
            assert frames.held <= 5 + MAX_FIELDS_BYTES + chunk_bytes
    except ProtocolError:
        assert frames.held == 0


@given(some_packets.filter(lambda drawn: len(drawn[1]) > 0), st.data())
def test_any_change_of_a_byte_gives_packets_or_a_protocol_error(
    drawn: tuple[int, list[Packet]], data: st.DataObject
) -> None:
    version, packets = drawn
    stream = bytearray(b"".join(mqtt.encode(packet, version) for packet in packets))
    stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    frames = MQTTFrameReader(1 << 20, version=version)
    try:
        items = list(frames.feed(bytes(stream)))
    except RemoteProtocolError:
        return
    assert all(isinstance(item, Packet) for item in items)


# --- which version it is ------------------------------------------------------------------------------


@each_version
def test_the_first_connect_says_which_version_is_spoken(version: int) -> None:
    frames = MQTTFrameReader(1 << 20)
    assert frames.version == 0
    packets: list[Packet] = [mqtt.Connect(version), publish(b"on"), mqtt.PubAck(7), mqtt.Disconnect()]
    assert list(frames.feed(b"".join(mqtt.encode(packet, version) for packet in packets))) == packets
    assert frames.version == version


def test_the_user_may_say_it_instead() -> None:
    frames = MQTTFrameReader(1 << 20)
    frames.version = mqtt.VERSION_5
    assert list(frames.feed(bytes.fromhex("20 03 00 00 00"))) == [mqtt.ConnAck(False, 0)]


@pytest.mark.parametrize("control", ["20 02 00 00", "30 05 0003 612f62", "c0 00", "f0 00"])
def test_nothing_but_connect_may_come_first(control: str) -> None:
    with pytest.raises(RemoteProtocolError, match=r"must be CONNECT \[MQTT-3\.1\.0-1\]") as raised:
        list(MQTTFrameReader(1 << 20).feed(bytes.fromhex(control)))
    assert raised.value.reason is Reason.PROTOCOL_ERROR


def test_what_is_no_packet_may_not_come_first_either() -> None:
    with pytest.raises(MalformedPacket, match="type 1 and flags 0010"):
        list(MQTTFrameReader(1 << 20).feed(b"\x12\x00"))


def test_a_padded_length_is_taken_from_an_old_client_and_refused_from_a_new_one() -> None:
    old = bytes.fromhex("10 8d00 0004 4d515454 04 02 003c 0001 63") + bytes.fromhex("30 8500 0003 612f62")
    assert list(MQTTFrameReader(1 << 20).feed(old)) == [mqtt.Connect(4, keep_alive=60, client_id="c"), publish(b"")]
    new = bytes.fromhex("10 8e00 0004 4d515454 05 02 003c 00 0001 63")
    with pytest.raises(NotShortest):
        list(MQTTFrameReader(1 << 20).feed(new))
    with pytest.raises(NotShortest):
        list(MQTTFrameReader(1 << 20, version=5).feed(bytes.fromhex("30 8600 0003 612f62 00")))


# --- telling the dialects apart -----------------------------------------------------------------------


@each_version
@pytest.mark.parametrize("user_name", ["u", "u" * 200, "u" * 20_000])
def test_a_connect_starts_like_mqtt_as_soon_as_its_name_begins(version: int, user_name: str) -> None:
    data = mqtt.encode(mqtt.Connect(version, user_name=user_name), version)
    answers = [starts_like_mqtt(data[:size]) for size in range(len(data) + 1)]
    known = answers.index(True)
    assert known <= 5
    assert answers[:known] == [None] * known
    assert all(answers[known:])


def test_the_oldest_mqtt_starts_like_mqtt_too() -> None:
    assert starts_like_mqtt(b"\x10\x0e\x00\x06MQIsdp\x03\x02\x00\x3c\x00\x00")


@pytest.mark.parametrize("size", [1, 120, 127, 128, 135, 200, 250, 255])
@pytest.mark.parametrize("resume", [False, True])
def test_a_conreq_of_any_size_does_not(size: int, resume: bool) -> None:
    data = encode(ConReq(resume, client_id="i" * size))
    answers = [starts_like_mqtt(data[:end]) for end in range(len(data) + 1)]
    assert answers[0] is None
    assert answers[-1] is False
    assert True not in answers
    assert answers.index(False) <= 4


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01", b"GET / HTTP/1.1", b"\x10\x00", b"\x10\xff\xff\xff\xff\x01", b"\x30"]
)
def test_neither_does_anything_else(data: bytes) -> None:
    assert starts_like_mqtt(data) is False


# --- bounds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_packet_bytes", [10, 100, 300, 20_000, 70_000])
def test_a_packet_above_the_limit_is_refused_at_its_header(max_packet_bytes: int) -> None:
    sizes = {len(mqtt.encode(publish(b"p" * size), 4)): size for size in range(max_packet_bytes + 2)}
    fits, above = sizes[max_packet_bytes], sizes[max_packet_bytes] + 1
    data = mqtt.encode(publish(b"p" * fits), 4)
    assert list(MQTTFrameReader(max_packet_bytes, version=4).feed(data)) == [publish(b"p" * fits)]
    frames = MQTTFrameReader(max_packet_bytes, version=4)
    with pytest.raises(PacketTooLarge, match=f"at most {max_packet_bytes} are accepted") as raised:
        list(frames.feed(mqtt.encode(publish(b"p" * above), 4)[:4]))
    assert raised.value.reason is Reason.PACKET_TOO_LARGE


def test_only_a_payload_may_be_larger_than_the_bound_on_fields() -> None:
    for control in (0x10, 0x82, 0xA2):
        with pytest.raises(PacketTooLarge, match=f"at most {MAX_FIELDS_BYTES} may be"):
            list(MQTTFrameReader(1 << 30, version=5).feed(bytes((control,)) + bytes.fromhex("ffff7f")))
    filters = mqtt.Unsubscribe(1, None, ["f" * 0xFFFF] * 7)
    assert list(MQTTFrameReader(1 << 30, version=5).feed(mqtt.encode(filters, 5))) == [filters]


def test_topics_are_remembered_within_a_bound() -> None:
    topics: dict[bytes, str] = {}
    seen: list[mqtt.Publish] = []
    sent = [publish(b"", f"t/{number}") for number in range(3 * MAX_TOPICS)]
    sent.append(publish(b"", "l" * (MAX_TOPIC_BYTES + 1)))
    stream = b"".join(mqtt.encode(packet, 4) for packet in sent)
    assert cut_publishes(stream, 0, seen.append, topics, 0x3FFF, 0) == len(stream)
    assert seen == sent
    assert 0 < len(topics) <= MAX_TOPICS
    assert max(map(len, topics)) <= MAX_TOPIC_BYTES


@each_version
def test_the_same_topic_is_the_same_string(version: int) -> None:
    first, second = MQTTFrameReader(1 << 20, version=version).feed(2 * mqtt.encode(publish(b""), version))
    assert isinstance(first, mqtt.Publish)
    assert isinstance(second, mqtt.Publish)
    assert first.topic is second.topic


# --- payloads in chunks -------------------------------------------------------------------------------


@each_version
def test_a_payload_up_to_the_chunk_size_arrives_with_its_packet(version: int) -> None:
    frames = MQTTFrameReader(1 << 20, 1000, version)
    packet = publish(b"p" * 1000)
    assert feed_all(frames, split(mqtt.encode(packet, version), 100)) == [packet]


@each_version
def test_a_larger_payload_arrives_in_chunks_as_it_is_read(version: int) -> None:
    frames = MQTTFrameReader(1 << 20, 1000, version)
    data = mqtt.encode(publish(b"p" * 1001), version)
    started, chunk = list(frames.feed(data[:500]))
    assert started == PayloadStarted(publish(b""), 1001)
    assert chunk == PayloadChunk(b"p" * (1001 - (len(data) - 500)))
    assert frames.mid_packet
    assert frames.held == 0
    assert list(frames.feed(data[500:] + mqtt.encode(mqtt.PingReq(), version))) == [
        PayloadChunk(b"p" * (len(data) - 500)),
        PayloadEnded(),
        mqtt.PingReq(),
    ]
    assert not frames.mid_packet


def test_a_payload_starts_as_soon_as_its_fields_are_in_and_may_be_a_quarter_gibibyte() -> None:
    frames = MQTTFrameReader(1 << 30, version=5)
    assert feed_all(frames, split(bytes.fromhex("34 ffffff7f 0003 612f62 0009 00"), 1)) == [
        PayloadStarted(mqtt.Publish(False, 2, False, "a/b", 9, None, b""), mqtt.MAX_REMAINING - 8)
    ]
    assert frames.held == 0


@pytest.mark.parametrize("piece_bytes", [1, 7, 1000])
@pytest.mark.parametrize("payload_bytes", [900, 5000])
def test_large_properties_before_a_payload_are_put_together(piece_bytes: int, payload_bytes: int) -> None:
    packet = publish(b"p" * payload_bytes, properties=mqtt.Properties(user_properties=[("n", "v" * 3000)]))
    items = feed_all(MQTTFrameReader(1 << 20, 1000, 5), split(mqtt.encode(packet, 5), piece_bytes))
    assert isinstance(items[0], PayloadStarted) is (payload_bytes > 1000)
    assert assembled(items) == [packet]


def test_endless_properties_before_a_payload_are_refused_once_they_reach_their_bound() -> None:
    frames = MQTTFrameReader(1 << 30, version=5)
    frames.feed(bytes.fromhex("30 ffffff7f 0003 612f62 ffff7f"))
    held = []
    with pytest.raises(PacketTooLarge, match="before its payload"):  # noqa: PT012  (some of the pieces are accepted)
        for piece in split(b"\x26\x00\x01n\xff\xff" * 200_000, 1000):
            list(frames.feed(piece))
            held.append(frames.held)
    assert MAX_FIELDS_BYTES - 1000 <= max(held) <= MAX_FIELDS_BYTES + 5


def test_a_fault_in_the_fields_of_a_large_packet_is_found_before_its_payload() -> None:
    with pytest.raises(RemoteProtocolError, match=r"Publish\.packet_id is 0"):
        list(MQTTFrameReader(1 << 30, version=5).feed(bytes.fromhex("32 ffffff7f 0003 612f62 0000 00")))
    with pytest.raises(MalformedPacket, match="the property length of PUBLISH is 2"):
        list(MQTTFrameReader(1 << 30, version=5).feed(bytes.fromhex("30 ffffff7f 0003 612f62 02 02 00")))


def test_large_fields_that_leave_their_packet_are_truncated() -> None:
    body = bytes.fromhex("ffff") + b"t" * 2000
    with pytest.raises(Truncated, match=r"Publish\.topic takes 65537 bytes"):
        list(MQTTFrameReader(1 << 20, 1000, 4).feed(b"\x30\xd2\x0f" + body))
