"""Fuzzes the codec and the frame reader: `python -m tests.fuzz.wire --seconds 60`.

Each round makes a few packets from their declarations, damages the bytes or not, and feeds them in pieces to a reader
with bounds of its own. Whatever the bytes:

* nothing but a `ProtocolError` is raised;
* no more is held than the bounds allow;
* what was read encodes to the very bytes it was read from, for a packet has one encoding;
* the same bytes in other pieces give the same packets and the same error;
* undamaged packets come out as they went in.

Needs the standard library alone. A failure prints the seed and the round that reproduce it.
"""

import argparse
import random
import time
from collections.abc import Iterable

from moq.errors import ProtocolError
from moq.wire import (
    MAX_FIELDS_BYTES,
    PACKETS,
    FrameReader,
    Packet,
    PayloadChunk,
    PayloadEnded,
    PayloadStarted,
    PubReq,
    encode,
)
from moq.wire.fields import Bits, Field, Kind, Nested, Number, OneOf, Repeated, Rest, Sized, When, layout

MAX_PACKET_BYTES = 1 << 20
ALPHABET = "ab/+#$é漢🙂"


class Source:
    """Makes packets at random from their declarations."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def packet(self) -> Packet:
        while True:
            packet = self.struct(self.rng.choice(PACKETS))
            assert isinstance(packet, Packet)
            try:
                encode(packet)
            except ProtocolError:
                continue
            return packet

    def struct(self, struct: type) -> object:
        values: dict[str, object] = {}
        for field in layout(struct):
            values[field.name] = self.value(field.kind) if self.is_present(field, values) else None
        return struct(**values)

    def is_present(self, field: Field, values: dict[str, object]) -> bool:
        if isinstance(field.presence, When):
            return values[field.presence.field] == field.presence.value
        return field.presence is None or self.rng.random() < 0.5

    def value(self, kind: Kind) -> object:
        rng = self.rng
        match kind:
            case Number(_, _, size):
                return rng.choice((0, 1, rng.getrandbits(8 * size), (1 << 8 * size) - 1))
            case Sized(is_text=True):
                return "".join(rng.choices(ALPHABET, k=rng.choice((0, 1, 5, 60))))
            case Sized():
                return rng.randbytes(rng.choice((0, 1, 5, 255)))
            case Rest():
                return rng.randbytes(rng.choice((0, 1, 5, 250, 300, 3000)))
            case Bits(high, low, _, maximum):
                return rng.random() < 0.5 if high == low else rng.randint(0, maximum)
            case Nested(struct):
                return self.struct(struct)
            case OneOf(structs):
                return self.struct(rng.choice(structs))
            case Repeated(element):
                return [self.value(element) for _ in range(rng.randint(0, 3))]


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

    def __init__(self, stream: Iterable[bytes], chunk_bytes: int) -> None:
        self.packets: list[Packet] = []
        self.error: tuple[type[ProtocolError], str] | None = None
        self.unfinished: PubReq | None = None
        frames = FrameReader(MAX_PACKET_BYTES, chunk_bytes)
        try:
            for piece in stream:
                for item in frames.feed(piece):
                    self._add(item)
                assert frames.held <= 5 + MAX_FIELDS_BYTES + chunk_bytes, f"{frames.held} bytes are held"
        except ProtocolError as error:
            self.error = type(error), str(error)

    def _add(self, item: object) -> None:
        match item:
            case PayloadStarted(packet):
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


def check(rng: random.Random) -> None:
    """One round."""
    source = Source(rng)
    sent = [source.packet() for _ in range(rng.randint(1, 5))]
    stream = b"".join(encode(packet) for packet in sent)
    is_damaged = rng.random() < 0.8
    if is_damaged:
        stream = damaged(rng, stream)
    chunk_bytes = rng.choice((0, 10, 256, 2000, 256 * 1024))
    outcome = Outcome(pieces(rng, stream), chunk_bytes)
    whole = Outcome([stream], chunk_bytes)
    assert whole.packets == outcome.packets
    assert whole.error == outcome.error
    assert whole.unfinished == outcome.unfinished
    assert stream.startswith(b"".join(encode(packet) for packet in outcome.packets))
    if not is_damaged:
        assert outcome.packets == sent
        assert outcome.error is None


def run(seconds: float, seed: int) -> int:
    """Fuzz for so long and return the number of rounds."""
    ends_at = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < ends_at:
        try:
            check(random.Random(f"{seed}/{rounds}"))
        except BaseException:
            print(f"failed: python -m tests.fuzz.wire --seed {seed} --round {rounds}")
            raise
        rounds += 1
    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to go on (60)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="start here instead of anywhere")
    parser.add_argument("--round", type=int, help="run this round of the seed alone")
    options = parser.parse_args()
    if options.round is not None:
        check(random.Random(f"{options.seed}/{options.round}"))
    else:
        print(f"seed {options.seed}: {run(options.seconds, options.seed)} rounds, no failure")


if __name__ == "__main__":
    main()
