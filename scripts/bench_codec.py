"""Cost per packet of the codec, relative to code written by hand for that packet alone, in the same run.

    python scripts/bench_codec.py [--json] [--rounds 200]

Ratios are what to look at: the two sides of each row take turns, so that a busy machine slows both. The hand-written
side builds the same objects and checks bounds, but no rule, no reserved bit and no range. `feed as a generator` is
our own reader's loop with `yield` in place of a list.
"""

import argparse
import itertools
import json
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from moq.wire import FrameReader, Item, Packet, PubAck, PublishExtension, PubReq, encode, mqtt
from moq.wire._mmqp import DECODERS, SHORTEST, decode_pubreq

PACKETS_PER_ROUND = 300
BBBHH = struct.Struct(">BBBHH")
BHBHH = struct.Struct(">BHBHH")
BBHB = struct.Struct(">BBHB")
BHH = struct.Struct(">BHH")
HB = struct.Struct(">HB")
BBH = struct.Struct(">BBH")
BBBH = struct.Struct(">BBBH")
Q = struct.Struct(">Q")


# --- by hand ------------------------------------------------------------------------------------------


def encode_by_hand(packet: PubReq) -> bytes:
    """PUBREQ with none of its optional fields."""
    flags = packet.retain << 7 | packet.dup << 6 | packet.qos << 4
    size = 5 + len(packet.payload)
    if size > 0xFF:
        return BHBHH.pack(0x74 | packet.kind, size, flags, packet.packet_id, packet.alias) + packet.payload
    return BBBHH.pack(0x70 | packet.kind, size, flags, packet.packet_id, packet.alias) + packet.payload


def encode_topic_by_hand(packet: PubReq) -> bytes:
    """PUBREQ with a topic."""
    assert packet.topic is not None
    topic = packet.topic.encode()
    flags = packet.retain << 7 | packet.dup << 6 | packet.qos << 4 | 0x08
    size = 6 + len(topic) + len(packet.payload)
    head = BBBHH.pack(0x70 | packet.kind, size, flags, packet.packet_id, packet.alias)
    return b"".join((head, bytes((len(topic),)), topic, packet.payload))


def encode_timestamp_by_hand(packet: PubReq) -> bytes:
    """PUBREQ with a timestamp."""
    assert packet.extension is not None
    size = 14 + len(packet.payload)
    head = BBBHH.pack(0x70, size, 0x04, packet.packet_id, packet.alias)
    return b"".join((head, b"\x40", Q.pack(packet.extension.timestamp_ns), packet.payload))


def encode_ack_by_hand(packet: PubAck) -> bytes:
    """PUBACK."""
    return BBHB.pack(0x90 | packet.kind, 3, packet.packet_id, packet.reason)


def read_by_hand(data: bytes) -> list[Packet]:
    """Cut and decode what the other functions write."""
    packets: list[Packet] = []
    pos, size = 0, len(data)
    while pos + 2 <= size:
        control = data[pos]
        if control & 0x0C:
            start = pos + 3
            end = start + (data[pos + 1] << 8 | data[pos + 2])
        else:
            start = pos + 2
            end = start + data[pos + 1]
        if end > size:
            break
        packets.append(decode_ack_by_hand(data, start, end) if control >> 4 == 9 else decode_by_hand(data, start, end))
        pos = end
    return packets


def decode_by_hand(data: bytes, pos: int, end: int) -> PubReq:
    """Any of these PUBREQ."""
    if pos + 5 > end:
        raise ValueError("truncated")
    flags, packet_id, alias = BHH.unpack_from(data, pos)
    pos += 5
    topic = extension = None
    if flags & 0x08:
        start = pos + 1
        pos = start + data[pos]
        topic = data[start:pos].decode()
    if flags & 0x04:
        extension = PublishExtension(None, Q.unpack_from(data, pos + 1)[0])
        pos += 9
    qos = flags >> 4 & 3
    return PubReq(0, flags & 0x80 != 0, flags & 0x40 != 0, qos, packet_id, alias, topic, None, extension, data[pos:end])


def decode_ack_by_hand(data: bytes, pos: int, end: int) -> PubAck:
    """PUBACK."""
    if pos + 3 != end:
        raise ValueError("truncated")
    packet_id, reason = HB.unpack_from(data, pos)
    return PubAck(0, packet_id, reason)


def feed_as_a_generator(data: bytes) -> Iterator[Packet]:
    """Our own loop over short PUBREQ, yielding."""
    pos, size = 0, len(data)
    last = size - 7
    while pos <= last:
        control, remaining, flags, packet_id, alias = BBBHH.unpack_from(data, pos)
        end = pos + 2 + remaining
        if control != SHORTEST or flags or packet_id or remaining < 5 or end > size:
            break
        yield PubReq(0, False, False, 0, 0, alias, None, None, None, data[pos + 7 : end])
        pos = end


def encode_mqtt_by_hand(packet: mqtt.Packet) -> bytes:
    """PUBLISH or PUBACK of MQTT 3.1.1."""
    if isinstance(packet, mqtt.PubAck):
        return BBH.pack(0x40, 2, packet.packet_id)
    assert isinstance(packet, mqtt.Publish)
    topic = packet.topic.encode()
    tail = packet.payload if not packet.qos else packet.packet_id.to_bytes(2, "big") + packet.payload
    size = 2 + len(topic) + len(tail)
    control = 0x30 | packet.dup << 3 | packet.qos << 1 | packet.retain
    if size < 0x80:
        return BBH.pack(control, size, len(topic)) + topic + tail
    return BBBH.pack(control, size & 0x7F | 0x80, size >> 7, len(topic)) + topic + tail


def read_mqtt_by_hand(data: bytes) -> list[mqtt.Packet]:
    """Cut and decode what the function above writes."""
    packets: list[mqtt.Packet] = []
    pos, size = 0, len(data)
    while pos + 4 <= size:
        control = data[pos]
        start = pos + 2
        remaining = data[pos + 1]
        if remaining >= 0x80:
            remaining = remaining & 0x7F | data[start] << 7
            start += 1
        end = start + remaining
        if end > size:
            break
        number = data[start] << 8 | data[start + 1]
        pos = end
        if control == 0x40:
            packets.append(mqtt.PubAck(number))
            continue
        topic_end = payload = start + 2 + number
        packet_id = 0
        if control & 0x06:
            packet_id = data[topic_end] << 8 | data[topic_end + 1]
            payload += 2
        topic = data[start + 2 : topic_end].decode()
        dup, qos, retain = control & 0x08 != 0, control >> 1 & 3, control & 0x01 != 0
        packets.append(mqtt.Publish(dup, qos, retain, topic, packet_id, None, data[payload:end]))
    return packets


# --- measuring ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One comparison; nanoseconds per packet, each side at its best."""

    what: str
    ours_ns: float
    by_hand_ns: float

    @property
    def ratio(self) -> float:
        """How much longer ours takes."""
        return self.ours_ns / self.by_hand_ns


def compare(what: str, ours: Callable[[], object], by_hand: Callable[[], object], rounds: int) -> Row:
    """Time both, taking turns; each call handles `PACKETS_PER_ROUND` packets."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for side, call in enumerate((ours, by_hand)):
            started = time.perf_counter_ns()
            call()
            best[side] = min(best[side], time.perf_counter_ns() - started)
    return Row(what, best[0] / PACKETS_PER_ROUND, best[1] / PACKETS_PER_ROUND)


def publish(qos: int, size: int, topic: str | None = None, timestamp_ns: int | None = None) -> PubReq:
    """A message."""
    extension = None if timestamp_ns is None else PublishExtension(timestamp_ns=timestamp_ns)
    return PubReq(0, False, False, qos, 9 if qos else 0, 7, topic, None, extension, b"p" * size)


def repeated(call: Callable[[], object]) -> Callable[[], None]:
    """The call, once for each packet of a round."""

    def run() -> None:
        for _ in range(PACKETS_PER_ROUND):
            call()

    return run


def drained(feed: Callable[[], object]) -> Callable[[], None]:
    """The call, its result iterated over."""

    def run() -> None:
        items = feed()
        assert isinstance(items, list | Iterator)
        for _ in items:
            pass

    return run


def rows(rounds: int) -> Iterator[Row]:
    """Every comparison."""
    cases: list[tuple[str, Packet, Callable[..., bytes]]] = [
        ("PUBREQ QoS 0, 100 B", publish(0, 100), encode_by_hand),
        ("PUBREQ QoS 0, 1000 B", publish(0, 1000), encode_by_hand),
        ("PUBREQ QoS 1, 100 B", publish(1, 100), encode_by_hand),
        ("PUBREQ QoS 1, 100 B, topic", publish(1, 100, "room1/light"), encode_topic_by_hand),
        ("PUBREQ QoS 0, 100 B, timestamp", publish(0, 100, None, 1), encode_timestamp_by_hand),
        ("PUBACK", PubAck(0, 9, 0), encode_ack_by_hand),
    ]
    for name, packet, by_hand in cases:
        data = encode(packet)
        assert by_hand(packet) == data
        assert read_by_hand(data) == [packet]
        yield compare(
            f"encode {name}",
            repeated(lambda packet=packet: encode(packet)),  # type: ignore[misc]
            repeated(lambda packet=packet, by_hand=by_hand: by_hand(packet)),  # type: ignore[misc]
            rounds,
        )
    yield from decode_rows(rounds)
    for name, packet, _ in cases:
        stream = encode(packet) * PACKETS_PER_ROUND
        frames = FrameReader(1 << 30)
        yield compare(
            f"feed {name}",
            drained(lambda frames=frames, stream=stream: frames.feed(stream)),  # type: ignore[misc]
            drained(lambda stream=stream: read_by_hand(stream)),  # type: ignore[misc]
            rounds,
        )
    stream = encode(publish(0, 100)) * PACKETS_PER_ROUND
    frames = FrameReader(1 << 30)

    def as_a_list() -> list[Item]:
        items = frames.feed(stream)
        assert isinstance(items, list)
        return items

    yield compare(
        "feed PUBREQ QoS 0, 100 B, against a generator",
        drained(as_a_list),
        drained(lambda: feed_as_a_generator(stream)),
        rounds,
    )


def decode_rows(rounds: int) -> Iterator[Row]:
    """The decoder of PUBREQ without the frame reader around it."""
    for name, packet in (("PUBREQ QoS 0, 100 B", publish(0, 100)), ("PUBREQ QoS 1, 100 B", publish(1, 100))):
        data = encode(packet)
        end = len(data)
        assert DECODERS[data[0]] is decode_pubreq
        yield compare(
            f"decode {name}",
            repeated(lambda data=data, end=end: decode_pubreq(data, 2, end, 0x70)),  # type: ignore[misc]
            repeated(lambda data=data, end=end: decode_by_hand(data, 2, end)),  # type: ignore[misc]
            rounds,
        )


def mqtt_rows(rounds: int) -> Iterator[Row]:
    """MQTT 3.1.1 against code by hand, then MQTT 5 against MQTT 3.1.1: what the newer version costs."""

    def message(qos: int, size: int) -> mqtt.Publish:
        return mqtt.Publish(False, qos, False, "room1/light", 9 if qos else 0, None, b"p" * size)

    cases: list[tuple[str, mqtt.Packet]] = [
        ("PUBLISH QoS 0, 100 B", message(0, 100)),
        ("PUBLISH QoS 0, 1000 B", message(0, 1000)),
        ("PUBLISH QoS 1, 100 B", message(1, 100)),
        ("MQTT PUBACK", mqtt.PubAck(9)),
    ]
    for name, packet in cases:
        data = mqtt.encode(packet, 4)
        assert encode_mqtt_by_hand(packet) == data
        assert read_mqtt_by_hand(data) == [packet]
        yield compare(
            f"encode {name}",
            repeated(lambda packet=packet: mqtt.encode(packet, 4)),  # type: ignore[misc]
            repeated(lambda packet=packet: encode_mqtt_by_hand(packet)),  # type: ignore[misc]
            rounds,
        )
    for name, packet in cases:
        old, new = (mqtt.encode(packet, version) * PACKETS_PER_ROUND for version in (4, 5))
        read_old, read_new = (mqtt.MQTTFrameReader(1 << 30, version=version) for version in (4, 5))
        feed_old = drained(lambda frames=read_old, stream=old: frames.feed(stream))  # type: ignore[misc]
        feed_new = drained(lambda frames=read_new, stream=new: frames.feed(stream))  # type: ignore[misc]
        by_hand = drained(lambda stream=old: read_mqtt_by_hand(stream))  # type: ignore[misc]
        yield compare(f"feed {name}", feed_old, by_hand, rounds)
        yield compare(f"feed {name}, MQTT 5 against 3.1.1", feed_new, feed_old, rounds)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--rounds", type=int, default=200, help="how often each side is timed; the best counts (200)")
    options = parser.parse_args()
    if not options.json:
        print(f"{'':48} {'ours':>9} {'by hand':>9} {'ratio':>6}")
    for row in itertools.chain(rows(options.rounds), mqtt_rows(options.rounds)):
        if options.json:
            print(json.dumps({**asdict(row), "ratio": round(row.ratio, 3)}))
        else:
            print(f"{row.what:48} {row.ours_ns:6.0f} ns {row.by_hand_ns:6.0f} ns {row.ratio:6.2f}")


if __name__ == "__main__":
    main()
