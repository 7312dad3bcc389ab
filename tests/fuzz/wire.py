"""Fuzzes the codecs and the frame readers: `python -m tests.fuzz.wire --dialect mqtt --seconds 60`.

Each round makes a few packets from their declarations, damages the bytes or not, and feeds them in pieces to a reader
with bounds of its own. Whatever the bytes:

* nothing but a `ProtocolError` is raised;
* no more is held than the bounds allow;
* what was read encodes to bytes that are read as the same; in MMQP, where a packet has one encoding, to the very bytes
  it was read from;
* the same bytes in other pieces give the same packets and the same error;
* undamaged packets come out as they went in.

Needs the standard library alone. A failure prints the seed and the round that reproduce it.
"""

import argparse
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from moq import wire
from moq.errors import ProtocolError
from moq.wire import FrameReader, PayloadChunk, PayloadEnded, PubReq, mqtt
from moq.wire.fields import (
    Bits,
    Field,
    IfMore,
    Kind,
    Nested,
    Number,
    OneOf,
    PropertyList,
    Repeated,
    Rest,
    Sized,
    Unless,
    When,
    layout,
)
from moq.wire.mqtt.properties import DECLARED, Declared

MAX_PACKET_BYTES = 1 << 20
ALPHABET = "ab/+#$é漢🙂"

Packet = wire.Packet | mqtt.Packet
Message = PubReq | mqtt.Publish
Reader = FrameReader | mqtt.MQTTFrameReader


@dataclass(frozen=True)
class Dialect:
    """What is fuzzed: one version of a dialect."""

    packets: Sequence[type[Packet]]
    encode: Callable[..., bytes]
    reader: Callable[[int], Reader]
    max_fields_bytes: int
    version: int | None = None

    def encoded(self, packet: Packet, version: int | None) -> bytes:
        return self.encode(packet) if version is None else self.encode(packet, version)


def _mqtt(version: int) -> Dialect:
    return Dialect(
        [packet for packet in mqtt.PACKETS if getattr(packet, "SINCE", 0) <= version],
        mqtt.encode,
        lambda chunk_bytes: mqtt.MQTTFrameReader(MAX_PACKET_BYTES, chunk_bytes, version),
        mqtt.MAX_FIELDS_BYTES,
        version,
    )


DIALECTS = {
    "mmqp": [
        Dialect(
            wire.PACKETS,
            wire.encode,
            lambda chunk_bytes: FrameReader(MAX_PACKET_BYTES, chunk_bytes),
            wire.MAX_FIELDS_BYTES,
        )
    ],
    "mqtt": [_mqtt(mqtt.VERSION_3_1_1), _mqtt(mqtt.VERSION_5)],
}


class Source:
    """Makes packets at random from their declarations."""

    def __init__(self, rng: random.Random, dialect: Dialect) -> None:
        self.rng = rng
        self.dialect = dialect

    def packet(self) -> Packet:
        while True:
            packet = self.struct(self.rng.choice(self.dialect.packets))
            assert isinstance(packet, Packet)
            if isinstance(packet, mqtt.Connect):
                assert self.dialect.version is not None
                packet.version = self.dialect.version
            try:
                self.dialect.encoded(packet, self.dialect.version)
            except ProtocolError:
                continue
            return packet

    def struct(self, struct: type) -> object:
        there = layout(struct, self.dialect.version)
        values: dict[str, object] = {}
        for field in layout(struct):
            if field in there:
                values[field.name] = self.field(field, values)
            else:
                assert field.since is not None
                values[field.name] = field.since.absent
        return struct(**values)

    def field(self, field: Field, values: dict[str, object]) -> object:
        match field.presence:
            case When(other, value):
                return self.value(field.kind) if values[other] == value else None
            case Unless(other, value, absent):
                return self.value(field.kind) if values[other] != value else absent
            case IfMore(absent):
                return self.value(field.kind) if self.rng.random() < 0.5 else absent
            case None:
                return self.value(field.kind)
        return self.value(field.kind) if self.rng.random() < 0.5 else None

    def value(self, kind: Kind) -> object:
        rng = self.rng
        match kind:
            case Number(_, _, size):
                return rng.choice((0, 1, rng.getrandbits(8 * size), (1 << 8 * size) - 1))
            case Sized(is_text=True):
                return self.text()
            case Sized():
                return rng.randbytes(rng.choice((0, 1, 5, 255)))
            case Rest():
                return rng.randbytes(rng.choice((0, 1, 5, 250, 300, 3000)))
            case Bits(high, low, _, maximum):
                return rng.random() < 0.5 if high == low else rng.randint(0, maximum)
            case PropertyList(scope):
                return self.properties(scope)
            case Nested(struct):
                return self.struct(struct)
            case OneOf(structs):
                return self.struct(rng.choice(structs))
            case Repeated(element):
                return [self.value(element) for _ in range(rng.randint(0, 3))]

    def text(self) -> str:
        return "".join(self.rng.choices(ALPHABET, k=self.rng.choice((0, 1, 5, 60))))

    def properties(self, scope: str) -> mqtt.Properties | None:
        allowed = [declared for declared in DECLARED if scope in declared.property.scopes.split()]
        chosen = self.rng.sample(allowed, min(len(allowed), self.rng.choice((0, 0, 1, 4))))
        values = {declared.name: self.property_value(declared, scope) for declared in chosen}
        return mqtt.Properties(**values) if values else None  # type: ignore[arg-type]

    def property_value(self, declared: Declared, scope: str) -> object:
        count = self.rng.randint(1, 3) if scope in declared.property.repeats_in.split() else 1
        values = [self.property_item(declared) for _ in range(count)]
        return values if declared.is_list else values[0]

    def property_item(self, declared: Declared) -> object:
        least, most = declared.property.least, declared.property.most
        match declared.form:
            case "flag":
                return self.rng.random() < 0.5
            case "long string":
                return self.text()
            case "long binary":
                return self.rng.randbytes(self.rng.choice((0, 1, 5, 255)))
            case "string pair":
                return self.text(), self.text()
        bits = {"u8": 8, "u16": 16, "u32": 32, "variable byte integer": 28}[declared.form]
        return self.rng.randint(least, (1 << bits) - 1 if most is None else most)


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The bytes with one to four changes."""
    stream = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(stream))
        match rng.randrange(6):
            case 0 if at < len(stream):
                stream[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(stream):
                stream[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                stream[at:at] = rng.randbytes(rng.randint(1, 8))
            case 3:
                del stream[at : at + rng.randint(1, 8)]
            case 4:
                start = rng.randint(0, len(stream))
                stream[at:at] = stream[start : start + rng.randint(1, 40)]
            case _:
                del stream[at:]
    return bytes(stream)


def pieces(rng: random.Random, data: bytes) -> list[bytes]:
    """The bytes split at random: not at all, often, or everywhere."""
    count = rng.choice((0, 1, 5, len(data)))
    cuts = sorted(rng.randint(0, len(data)) for _ in range(count))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


class Outcome:
    """What a reader made of a stream: its packets, payloads put together again, and the error that ended it."""

    def __init__(self, dialect: Dialect, stream: Iterable[bytes], chunk_bytes: int) -> None:
        self.packets: list[Packet] = []
        self.error: tuple[type[ProtocolError], str] | None = None
        self.unfinished: Message | None = None
        frames = dialect.reader(chunk_bytes)
        try:
            for piece in stream:
                for item in frames.feed(piece):
                    self._add(item)
                assert frames.held <= 5 + dialect.max_fields_bytes + chunk_bytes, f"{frames.held} bytes are held"
        except ProtocolError as error:
            self.error = type(error), str(error)

    def _add(self, item: object) -> None:
        match item:
            case wire.PayloadStarted(packet) | mqtt.PayloadStarted(packet):
                self.unfinished = packet
            case PayloadChunk(data):
                assert self.unfinished is not None
                self.unfinished.payload += data
            case PayloadEnded():
                assert self.unfinished is not None
                self.packets.append(self.unfinished)
                self.unfinished = None
            case _:
                assert isinstance(item, Packet)
                self.packets.append(item)


def check(rng: random.Random, dialect: Dialect) -> None:
    """One round."""
    source = Source(rng, dialect)
    sent = [source.packet() for _ in range(rng.randint(1, 5))]
    stream = b"".join(dialect.encoded(packet, dialect.version) for packet in sent)
    is_damaged = rng.random() < 0.8
    if is_damaged:
        stream = damaged(rng, stream)
    chunk_bytes = rng.choice((0, 10, 256, 2000, 256 * 1024))
    outcome = Outcome(dialect, pieces(rng, stream), chunk_bytes)
    whole = Outcome(dialect, [stream], chunk_bytes)
    assert whole.packets == outcome.packets
    assert whole.error == outcome.error
    assert whole.unfinished == outcome.unfinished
    again = encoded_again(dialect, outcome.packets)
    if dialect.version is None:
        assert stream.startswith(again)
    assert Outcome(dialect, [again], chunk_bytes).packets == outcome.packets
    if not is_damaged:
        assert outcome.packets == sent
        assert outcome.error is None


def encoded_again(dialect: Dialect, packets: Iterable[Packet]) -> bytes:
    """The bytes of the packets, in the version that the last CONNECT before each asked for."""
    version = dialect.version
    data = b""
    for packet in packets:
        version = packet.version if isinstance(packet, mqtt.Connect) else version
        data += dialect.encoded(packet, version)
    return data


def fuzz_round(name: str, seed: int, number: int) -> None:
    """The round of this number."""
    rng = random.Random(f"{seed}/{number}")
    check(rng, rng.choice(DIALECTS[name]))


def run(seconds: float, seed: int, dialect: str = "mmqp") -> int:
    """Fuzz for so long and return the number of rounds."""
    ends_at = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < ends_at:
        try:
            fuzz_round(dialect, seed, rounds)
        except BaseException:
            print(f"failed: python -m tests.fuzz.wire --dialect {dialect} --seed {seed} --round {rounds}")
            raise
        rounds += 1
    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dialect", choices=DIALECTS, default="mmqp", help="what to fuzz (mmqp)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to go on (60)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="start here instead of anywhere")
    parser.add_argument("--round", type=int, help="run this round of the seed alone")
    options = parser.parse_args()
    if options.round is not None:
        fuzz_round(options.dialect, options.seed, options.round)
    else:
        rounds = run(options.seconds, options.seed, options.dialect)
        print(f"seed {options.seed}: {rounds} rounds of {options.dialect}, no failure")


if __name__ == "__main__":
    main()
