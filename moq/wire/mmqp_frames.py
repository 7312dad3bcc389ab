"""Cuts a stream of MMQP into packets: the fixed header with RLF, and the short PUBREQ that most of them are."""

from dataclasses import dataclass

from moq.errors import PacketTooLarge, UnknownPacketType
from moq.wire._mmqp import DECODERS, SHORTEST, STREAMED, cut_shortest
from moq.wire.frames import CHUNK_BYTES, Frames, PayloadChunk, PayloadEnded
from moq.wire.header import MAX_FIELDS_BYTES, RLF, RLF_TWO_BYTES, read_header
from moq.wire.mmqp import Packet, PubReq

_BY_CONTROL_BYTE = tuple(DECODERS.get(control & ~RLF) for control in range(256))
"""The decoder for each first byte of a packet, RLF and all."""


@dataclass(slots=True)
class PayloadStarted:
    """A PUBREQ with a large payload: its fields, `payload` empty; `size` bytes follow as chunks."""

    packet: PubReq
    size: int


Item = Packet | PayloadStarted | PayloadChunk | PayloadEnded


class FrameReader(Frames[Packet | PayloadStarted, PubReq]):
    """Cuts MMQP."""

    def __init__(self, max_packet_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> None:
        """Refuse packets above `max_packet_bytes`; hand on payloads above `chunk_bytes` as they arrive."""
        super().__init__(max_packet_bytes, chunk_bytes, MAX_FIELDS_BYTES)
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
                # Two bytes: most packets above 255 bytes, so not worth a call.
                start = pos + 3
                if start > size:
                    break
                remaining = buf[pos + 1] << 8 | buf[pos + 2]
                if remaining <= 0xFF:
                    read_header(buf, pos)  # says that one byte was enough
                end = start + remaining
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

    def _decode_message(self, buf: bytes, pos: int, start: int, end: int) -> PubReq:
        control = buf[pos] & ~RLF
        packet = DECODERS[control](buf, start, end, control)
        assert isinstance(packet, PubReq)
        return packet

    def _payload_started(self, message: PubReq, size: int) -> PayloadStarted:
        return PayloadStarted(message, size)
