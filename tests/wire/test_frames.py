"""A byte stream is cut into packets wherever it is split, within a bound on what is held."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moq.errors import PacketTooLarge, ProtocolError, RemoteProtocolError, Truncated, UnknownPacketType
from moq.reasons import Reason
from moq.wire import (
    MAX_FIELDS_BYTES,
    ConEnd,
    ConSyn,
    FrameReader,
    Item,
    Packet,
    PayloadChunk,
    PayloadEnded,
    PayloadStarted,
    Property,
    PubAck,
    PublishExtension,
    PubReq,
    PubType,
    TopAck,
    encode,
)
from moq.wire.frames import Frames
from tests.strategies import any_packet


def publish(payload: bytes, topic: str | None = None) -> PubReq:
    return PubReq(0, False, False, 0, 0, 1, topic, None, None, payload)


def split(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def feed_all(frames: FrameReader, pieces: list[bytes]) -> list[Item]:
    return [item for piece in pieces for item in frames.feed(piece)]


def assembled(items: list[Item]) -> list[Item]:
    """The same with every payload that came in chunks put together again."""
    whole: list[Item] = []
    for item in items:
        match item:
            case PayloadStarted(packet):
                whole.append(packet)
            case PayloadChunk(data):
                assert isinstance(whole[-1], PubReq)
                whole[-1].payload += data
            case PayloadEnded():
                pass
            case _:
                whole.append(item)
    return whole


@given(st.lists(any_packet, max_size=8), st.data())
def test_packets_arrive_in_order_however_the_stream_is_split(packets: list[Packet], data: st.DataObject) -> None:
    stream = b"".join(encode(packet) for packet in packets)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    frames = FrameReader(1 << 20)
    assert feed_all(frames, pieces) == packets
    assert not frames.mid_packet


@given(st.lists(any_packet, max_size=8), st.integers(0, 64), st.integers(1, 40))
def test_small_bounds_give_the_same_packets(packets: list[Packet], chunk_bytes: int, piece_bytes: int) -> None:
    stream = b"".join(encode(packet) for packet in packets)
    frames = FrameReader(1 << 20, chunk_bytes)
    assert assembled(feed_all(frames, split(stream, piece_bytes))) == packets
    assert not frames.mid_packet


@given(st.binary(max_size=400), st.integers(0, 32), st.integers(1, 40))
def test_any_bytes_give_packets_or_a_protocol_error_and_bounded_memory(
    stream: bytes, chunk_bytes: int, piece_bytes: int
) -> None:
    frames = FrameReader(1 << 20, chunk_bytes)
    try:
        for piece in split(stream, piece_bytes):
            list(frames.feed(piece))
            assert frames.held <= 5 + MAX_FIELDS_BYTES + chunk_bytes
    except ProtocolError:
        assert frames.held == 0


@given(st.lists(any_packet, min_size=1, max_size=4), st.data())
def test_any_change_of_a_byte_gives_packets_or_a_protocol_error(packets: list[Packet], data: st.DataObject) -> None:
    stream = bytearray(b"".join(encode(packet) for packet in packets))
    stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    try:
        items = list(FrameReader(1 << 20).feed(bytes(stream)))
    except ProtocolError:
        return
    encoded = b"".join(encode(item) for item in items if isinstance(item, Packet))
    assert bytes(stream).startswith(encoded)


def test_packets_before_a_fault_are_given_first_and_what_follows_it_is_not() -> None:
    frames = FrameReader(1 << 20)
    stream = encode(ConSyn()) + encode(publish(b"on")) + b"\x00\x00" + encode(ConSyn())
    items = iter(frames.feed(stream))
    assert next(items) == ConSyn()
    assert next(items) == publish(b"on")
    with pytest.raises(UnknownPacketType):
        next(items)
    assert not frames.mid_packet


def test_a_reader_that_met_a_fault_takes_nothing_more() -> None:
    frames = FrameReader(1 << 20)
    with pytest.raises(UnknownPacketType):
        list(frames.feed(b"\x00\x00"))
    with pytest.raises(UnknownPacketType):
        frames.feed(encode(ConSyn()))


def test_feeding_nothing_gives_nothing() -> None:
    frames = FrameReader(1 << 20)
    assert list(frames.feed(b"")) == []
    assert not frames.mid_packet


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_packet_under_way_is_said_to_be(size: int) -> None:
    frames = FrameReader(1 << 20)
    data = encode(PubAck(0, 1, 0))
    assert list(frames.feed(data[:size])) == []
    assert (frames.mid_packet, frames.held) == (True, size)
    assert list(frames.feed(data[size:])) == [PubAck(0, 1, 0)]
    assert (frames.mid_packet, frames.held) == (False, 0)


@pytest.mark.parametrize("max_packet_bytes", [10, 300, 70_000])
def test_a_packet_above_the_limit_is_refused_at_its_header(max_packet_bytes: int) -> None:
    fits = encode(
        publish(b"p" * (max_packet_bytes - (7 if max_packet_bytes < 258 else 8 if max_packet_bytes < 65539 else 9)))
    )
    assert len(fits) == max_packet_bytes
    assert len(list(FrameReader(max_packet_bytes).feed(fits))) == 1
    too_large = encode(publish(b"p" * (max_packet_bytes - 6)))
    frames = FrameReader(max_packet_bytes)
    with pytest.raises(PacketTooLarge, match=f"at most {max_packet_bytes} are accepted") as raised:
        list(frames.feed(too_large[:5]))
    assert raised.value.reason is Reason.PACKET_TOO_LARGE


def test_only_a_payload_may_be_larger_than_the_bound_on_fields() -> None:
    for control in (0x18, 0x68, 0xC8):
        with pytest.raises(PacketTooLarge, match=f"at most {MAX_FIELDS_BYTES} may be"):
            list(FrameReader(1 << 30).feed(bytes((control,)) + (MAX_FIELDS_BYTES + 1).to_bytes(3, "big")))
    largest = PubType(False, False, 0, 0, 0, 0, "t", "m", b"s" * (MAX_FIELDS_BYTES - 11))
    assert list(FrameReader(1 << 30).feed(encode(largest))) == [largest]
    reasons = TopAck(1, b"\0" * 60_000)
    assert list(FrameReader(1 << 30).feed(encode(reasons))) == [reasons]


# --- payloads in chunks -------------------------------------------------------------------------------


def test_a_payload_up_to_the_chunk_size_arrives_with_its_packet() -> None:
    frames = FrameReader(1 << 20, chunk_bytes=1000)
    packet = publish(b"p" * 1000, topic="a/b")
    assert feed_all(frames, split(encode(packet), 100)) == [packet]


def test_a_larger_payload_arrives_in_chunks_as_it_is_read() -> None:
    frames = FrameReader(1 << 20, chunk_bytes=1000)
    data = encode(publish(b"p" * 1001, topic="a/b"))
    started, chunk = list(frames.feed(data[:500]))
    assert started == PayloadStarted(publish(b"", topic="a/b"), 1001)
    assert chunk == PayloadChunk(b"p" * (500 - 3 - 5 - 4))
    assert frames.mid_packet
    assert frames.held == 0
    assert list(frames.feed(data[500:900])) == [PayloadChunk(b"p" * 400)]
    assert list(frames.feed(data[900:] + encode(ConSyn()))) == [
        PayloadChunk(b"p" * (len(data) - 900)),
        PayloadEnded(),
        ConSyn(),
    ]
    assert not frames.mid_packet


def test_a_large_payload_fed_whole_is_started_and_ended_at_once() -> None:
    frames = FrameReader(1 << 20, chunk_bytes=1000)
    stream = encode(ConSyn()) + encode(publish(b"p" * 5000)) + encode(ConEnd(0))
    assert list(frames.feed(stream)) == [
        ConSyn(),
        PayloadStarted(publish(b""), 5000),
        PayloadChunk(b"p" * 5000),
        PayloadEnded(),
        ConEnd(0),
    ]


def test_bytes_of_a_payload_are_handed_on_without_a_copy() -> None:
    frames = FrameReader(1 << 30)
    list(frames.feed(bytes.fromhex("7c 10000000 00 0000 0001")))
    data = b"p" * 65536
    (chunk,) = frames.feed(data)
    assert isinstance(chunk, PayloadChunk)
    assert chunk.data is data


def test_a_payload_starts_as_soon_as_its_fields_are_in_and_may_be_four_gibibytes() -> None:
    frames = FrameReader(1 << 33)
    assert feed_all(frames, split(bytes.fromhex("7c ffffffff 00 0000 0001"), 1)) == [
        PayloadStarted(publish(b""), 0xFFFFFFFF - 5)
    ]
    assert frames.held == 0


@pytest.mark.parametrize("piece_bytes", [1, 7, 1000])
def test_large_fields_before_a_large_payload_are_put_together(piece_bytes: int) -> None:
    extension = PublishExtension(properties=[Property("n", "v" * 3000)])
    packet = PubReq(0, False, False, 1, 9, 1, "a/b", None, extension, b"p" * 5000)
    frames = FrameReader(1 << 20, chunk_bytes=1000)
    items = feed_all(frames, split(encode(packet), piece_bytes))
    assert isinstance(items[0], PayloadStarted)
    assert items[0].size == 5000
    assert assembled(items) == [packet]


@pytest.mark.parametrize("piece_bytes", [1, 7, 10_000])
def test_a_small_payload_after_large_fields_is_not_cut(piece_bytes: int) -> None:
    extension = PublishExtension(properties=[Property("n", "v" * 3000)])
    packet = PubReq(0, False, False, 0, 0, 1, "a/b", None, extension, b"p" * 900)
    frames = FrameReader(1 << 20, chunk_bytes=1000)
    assert feed_all(frames, split(encode(packet), piece_bytes)) == [packet]


def test_endless_fields_before_a_payload_are_refused_once_they_reach_their_bound() -> None:
    frames = FrameReader(1 << 30)
    frames.feed(bytes.fromhex("7c 10000000 04 0000 0001 01 ff"))
    properties = (b"\x01n\xff\xff" + b"v" * 0xFFFF) * 3
    held = []
    with pytest.raises(PacketTooLarge, match="before its payload"):  # noqa: PT012  (some of the pieces are accepted)
        for piece in split(properties, 1000):
            list(frames.feed(piece))
            held.append(frames.held)
    assert MAX_FIELDS_BYTES - 1000 <= max(held) <= MAX_FIELDS_BYTES + 5


def test_a_fault_in_the_fields_of_a_large_packet_is_found_before_its_payload() -> None:
    with pytest.raises(RemoteProtocolError, match=r"PubReq\.packet_id is 0"):
        list(FrameReader(1 << 30).feed(bytes.fromhex("7c 10000000 10 0000 0001")))


def test_large_fields_that_leave_their_packet_are_truncated() -> None:
    body = bytes.fromhex("04 0000 0001 01 02 01 6e ffff") + b"v" * 2000
    with pytest.raises(Truncated, match=r"Property\.value takes 65537 bytes"):
        list(FrameReader(1 << 20, chunk_bytes=1000).feed(b"\x74" + len(body).to_bytes(2, "big") + body))


def test_the_cost_of_single_bytes_stays_linear() -> None:
    """Looks at an incomplete packet are counted: past the first kibibyte each waits for twice as much as the last."""
    looks = 0

    class Counting(FrameReader):
        def _cut(self, buf: bytes, pos: int, items: list[Item]) -> int:
            nonlocal looks
            looks += 1
            return super()._cut(buf, pos, items)

    extension = PublishExtension(properties=[Property("n", "v" * 60_000)])
    packet = PubReq(0, False, False, 0, 0, 1, None, None, extension, b"p" * 300_000)
    frames = Counting(1 << 20)
    feed_all(frames, split(encode(packet)[:65_000], 1))
    assert looks < 1024 + 20


class NoDialect(Frames[object, PubReq]):
    """A reader that was never told how its dialect looks."""

    def streamed(self) -> object:
        return self._stream(b"", 0, 0, 0, [])

    def announced(self) -> object:
        return self._payload_started(publish(b""), 1)


def test_another_dialect_brings_its_own_way_to_cut_decode_and_announce() -> None:
    frames = NoDialect(1 << 20, 1 << 10, 1 << 10)
    for way in (lambda: frames.feed(b"\x10"), frames.streamed, frames.announced):
        with pytest.raises(NotImplementedError):
            way()
