"""An ordered byte stream cut into packets; large payloads pass through in chunks.

    bytes fed ──► [kept tail + new bytes] ──► packets, in order
                                         └──► PayloadStarted, PayloadChunk ..., PayloadEnded

A reader belongs to one lane. It keeps only the incomplete packet at the end of what it was fed, and never more than
`chunk_bytes` and the largest fields of a packet, whatever a header announces: a PUBREQ with a longer payload is
handed on as it arrives. `Frames` knows nothing of a dialect's header: that is its subclass's `_cut`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from moq.errors import PacketTooLarge, ProtocolError, Truncated, UnknownPacketType
from moq.wire._mmqp import DECODERS, SHORTEST, STREAMED, cut_shortest
from moq.wire.header import MAX_FIELDS_BYTES, RLF, RLF_TWO_BYTES, read_header
from moq.wire.mmqp import Packet, PubReq

CHUNK_BYTES = 256 * 1024

_EAGER_BYTES = 1024
"""Up to here every read is a look at whether the fields of a large PUBREQ are complete, so that its payload starts at
once; past it each look waits for twice as much, lest a header that trickles in costs the square of its size."""


@dataclass(slots=True)
class PayloadStarted:
    """A PUBREQ with a large payload: its fields, `payload` empty; `size` bytes follow as chunks."""

    packet: PubReq
    size: int


@dataclass(slots=True)
class PayloadChunk:
    """The next bytes of the payload under way."""

    data: bytes


@dataclass(slots=True)
class PayloadEnded:
    """The payload under way is complete."""


_BY_CONTROL_BYTE = tuple(DECODERS.get(control & ~RLF) for control in range(256))
"""The decoder for each first byte of a packet, RLF and all."""

Item = Packet | PayloadStarted | PayloadChunk | PayloadEnded


class Frames:
    """What readers of every dialect share: the kept tail, the payload under way, the fault that ends it all."""

    def __init__(self, max_packet_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> None:
        """Refuse packets above `max_packet_bytes`; hand on payloads above `chunk_bytes` as they arrive."""
        self._max_packet_bytes = max_packet_bytes
        self._chunk_bytes = chunk_bytes
        self._tail = bytearray()
        self._wanted = 0  # bytes the tail must have before it is worth another look
        self._payload_left = 0
        self._fault: ProtocolError | None = None

    @property
    def mid_packet(self) -> bool:
        """True while a packet has begun that is not complete."""
        return bool(self._tail) or self._payload_left > 0

    @property
    def held(self) -> int:
        """Bytes kept until more arrive."""
        return len(self._tail)

    def feed(self, data: bytes) -> Iterable[Item]:
        """Take bytes and give what they complete, in order.

        The packets are decoded when this returns, and a packet that breaks the protocol raises when the iteration
        reaches it: those before it are still given. Feeding on after that raises the same error.
        """
        if self._fault is not None:
            raise self._fault
        # A list costs what a generator does (scripts/bench_codec.py) and, being complete when this returns, leaves
        # the reader in a known state when its caller stops half-way.
        items: list[Item] = []
        try:
            self._take(data, items)
        except ProtocolError as fault:
            self._fault = fault
            self._tail.clear()
            return _then_raise(items, fault)
        return items

    def _take(self, data: bytes, items: list[Item]) -> None:
        pos = 0
        if self._payload_left:
            pos = self._pass_payload(data, 0, items)
        elif self._tail:
            self._tail += data
            if len(self._tail) < self._wanted:
                return
            data = bytes(self._tail)
            self._tail.clear()
        pos = self._cut(data, pos, items)
        if pos < len(data):
            self._tail += data[pos:] if pos else data

    def _cut(self, buf: bytes, pos: int, items: list[Item]) -> int:
        """Decode every complete packet from `pos` on and return where the first incomplete one begins.

        Sets `_wanted` when that one is worth waiting for.
        """
        raise NotImplementedError

    def _start_payload(self, packet: PubReq, size: int, items: list[Item]) -> None:
        """Begin to hand on a payload; its bytes go through `_pass_payload`."""
        items.append(PayloadStarted(packet, size))
        self._payload_left = size

    def _pass_payload(self, buf: bytes, pos: int, items: list[Item]) -> int:
        """Hand on what is there of the payload under way and return where it ends in `buf`."""
        chunk = buf[pos : pos + self._payload_left]
        if chunk:
            items.append(PayloadChunk(chunk))
            self._payload_left -= len(chunk)
            if not self._payload_left:
                items.append(PayloadEnded())
        return pos + len(chunk)


class FrameReader(Frames):
    """Cuts MMQP."""

    def __init__(self, max_packet_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> None:
        """Refuse packets above `max_packet_bytes`; hand on payloads above `chunk_bytes` as they arrive."""
        super().__init__(max_packet_bytes, chunk_bytes)
        # The bits of a control byte that ask for a check of the announced length. A packet with a one-byte length has
        # at most 257 bytes, one with two at most 65,538: where both bounds are above that, they need none.
        self._checked = 0xFF
        if max_packet_bytes >= 0x101 and chunk_bytes >= 0xFF:
            self._checked = RLF
        if max_packet_bytes >= 0x10002 and chunk_bytes >= 0xFFFF:
            self._checked = RLF & ~RLF_TWO_BYTES
        self._stream_above = min(chunk_bytes, MAX_FIELDS_BYTES)

    def _cut(self, buf: bytes, pos: int, items: list[Item]) -> int:
        size = len(buf)
        last = size - 1
        decoders = _BY_CONTROL_BYTE
        checked = self._checked
        append = items.append
        self._wanted = 0
        while pos < last:
            control = buf[pos]
            decode = decoders[control]
            if decode is None:
                raise UnknownPacketType(
                    f"a packet has type {control >> 4} and flags {control & 3:02b}; no packet has both"
                )
            if control & checked:
                header = self._checked_header(buf, pos)
                if header is None:
                    break
                start, end = header
                if end - start > self._stream_above and control & ~RLF in STREAMED:
                    passed = self._stream(buf, pos, start, end, items)
                    if passed is None:
                        break
                    pos = passed
                    continue
            elif control & RLF:
                header = read_header(buf, pos)
                if header is None:
                    break
                start, end = header
            else:
                start = pos + 2
                end = start + buf[pos + 1]
                # Reading the header and fields of such packets at once takes 0.75 of the time.
                if control == SHORTEST and start < end <= size and not buf[start]:
                    after = cut_shortest(buf, pos, append)
                    if after > pos:
                        pos = after
                        continue
            if end > size:
                self._wanted = end - pos
                break
            append(decode(buf, start, end, control))
            pos = end
        return pos

    def _checked_header(self, buf: bytes, pos: int) -> tuple[int, int] | None:
        """Where the fields start and end, once the header is complete and announces something acceptable."""
        control = buf[pos] & ~RLF
        header = read_header(buf, pos)
        if header is None:
            return None
        start, end = header
        if end - pos > self._max_packet_bytes:
            raise PacketTooLarge(
                f"a packet of type {control >> 4} has {end - pos} bytes; at most {self._max_packet_bytes} are accepted"
            )
        if end - start > MAX_FIELDS_BYTES and control not in STREAMED:
            raise PacketTooLarge(
                f"a packet of type {control >> 4} has {end - start} bytes of fields; at most {MAX_FIELDS_BYTES} may be"
            )
        return header

    def _stream(self, buf: bytes, pos: int, start: int, end: int, items: list[Item]) -> int | None:
        """Begin a PUBREQ whose payload may be too large to hold; None while its fields are incomplete.

        The fields are decoded from what is there, as if the packet ended with it: the payload is what is left.
        """
        there = min(end, len(buf), start + MAX_FIELDS_BYTES)
        control = buf[pos] & ~RLF
        try:
            packet = DECODERS[control](buf, start, there, control)
        except Truncated:
            if there == end:
                raise
            if there == start + MAX_FIELDS_BYTES:
                raise PacketTooLarge(
                    f"PubReq has more than {MAX_FIELDS_BYTES} bytes before its payload, which is the most allowed"
                ) from None
            have = there - pos
            self._wanted = 2 * have if have > _EAGER_BYTES else 0
            self._wanted = min(self._wanted, end - pos, start - pos + MAX_FIELDS_BYTES)
            return None
        assert isinstance(packet, PubReq)
        payload = there - len(packet.payload)
        if end - payload > self._chunk_bytes:
            packet.payload = b""
            self._start_payload(packet, end - payload, items)
            return self._pass_payload(buf, payload, items)
        if end > len(buf):
            self._wanted = end - pos
            return None
        packet.payload = buf[payload:end]
        items.append(packet)
        return end


def _then_raise(items: list[Item], fault: ProtocolError) -> Iterator[Item]:
    yield from items
    raise fault
