"""The straight road for packets of an established connection: STREAM, ACK and PADDING frames, read in place.

aioquic spends about 35 µs on a packet in Buffer objects, dataclasses and one handler per frame. Nearly all packets
of a busy connection are alike, so they take a road without those: header protection of a whole read is undone in
one call, the payload is decrypted directly, frames are parsed by position, data in order is handed on in one piece.

Whatever is out of the ordinary — a FIN, a reset, a new stream, a new key phase, another address or connection id —
leaves the road before any state has changed: the datagram goes to aioquic's own `receive_datagram`, whose answer
counts. So this module decides nothing about the protocol but which packets it need not be asked about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from aioquic.quic.connection import QuicConnectionState
from aioquic.quic.packet import QuicStreamFrame, decode_packet_number
from aioquic.quic.rangeset import RangeSet
from aioquic.quic.recovery import MAX_ACK_RANGES
from aioquic.tls import Epoch
from cryptography.exceptions import InvalidTag

from transports.quic._aioquic_connection import WindowedConnection
from transports.quic.engine import StreamData

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioquic.quic.recovery import QuicPacketSpace
    from aioquic.quic.stream import QuicStream

ONE_RTT = Epoch.ONE_RTT

PADDING, PING, ACK, STREAM, STREAM_MAX = 0x00, 0x01, 0x02, 0x08, 0x0F
FIN, LENGTH, OFFSET = 0x01, 0x02, 0x04
SAMPLE_BYTES = 16
SAMPLE_AT = 4
"""The sample for header protection starts where a four-byte packet number would end (RFC 9001 section 5.4.2)."""

Data = tuple["QuicStream", int, bytes]
Acks = tuple[RangeSet, int]


class Unusual(Exception):  # noqa: N818  # nothing went wrong: aioquic is asked instead
    """A frame that does not belong on the straight road."""


class ReceivingConnection(WindowedConnection):
    """A connection that takes ordinary packets by the straight road."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.packets_received = 0
        self._unacknowledged = 0
        """Ack-eliciting packets since the last ACK frame."""

    def receive(self, datagrams: list[bytes], address: Any, now: float) -> None:
        """Take the datagrams of one read."""
        index, total = 0, len(datagrams)
        while index < total:
            if self._is_ordinary(address):
                index = self._receive_ordinary(datagrams, index, now)
            if index < total:
                self.receive_datagram(datagrams[index], address, now)
                self.packets_received += 1
                index += 1

    def _is_ordinary(self, address: Any) -> bool:
        paths = self._network_paths
        return (
            self._handshake_confirmed
            and self._state is QuicConnectionState.CONNECTED
            and not self._close_pending
            and len(paths) == 1
            and paths[0].is_validated
            and paths[0].addr == address
            and self._quic_logger is None
            and not cast("Any", self._cryptos[ONE_RTT].recv.hp)._is_chacha20
        )

    def _receive_ordinary(self, datagrams: list[bytes], first: int, now: float) -> int:
        """Take datagrams from `first` on; returns the index of the first that is not ordinary."""
        keys: Any = self._cryptos[ONE_RTT].recv
        decrypt, iv = keys.aead._aead.decrypt, keys.aead._iv
        cid = self.host_cid
        number_at = 1 + len(cid)
        usual_byte = 0x40 | keys.key_phase << 2
        space = self._spaces[ONE_RTT]
        received = space.received_packets
        run = _Run(self, space, now)
        at = -SAMPLE_BYTES
        index = first
        masks = keys.hp._encryptor.update(b"".join(_samples(datagrams, first, number_at + SAMPLE_AT)))
        for datagram in datagrams[first:] if first else datagrams:
            at += SAMPLE_BYTES
            if at >= len(masks) or datagram[1:number_at] != cid:
                break
            first_byte = datagram[0] ^ masks[at] & 0x1F
            if first_byte & 0xDC != usual_byte:  # all but the spin bit and the packet number's length
                break
            size = (first_byte & 3) + 1
            payload_at = number_at + size
            truncated = int.from_bytes(datagram[number_at:payload_at], "big") ^ int.from_bytes(
                masks[at + 1 : at + 1 + size], "big"
            )
            number = decode_packet_number(truncated, size * 8, run.expected)
            header = bytes((first_byte,)) + cid + truncated.to_bytes(size, "big")
            try:
                payload = decrypt((iv ^ number).to_bytes(12, "big"), datagram[payload_at:], header)
            except InvalidTag:
                index += 1  # not from the peer, or damaged: as if it had been lost
                continue
            if number not in received:
                try:
                    frames, is_eliciting = self._parse(payload)
                except (Unusual, IndexError):
                    break
                run.take(number, frames, is_eliciting)
            index += 1
        run.commit()
        self.packets_received += index - first
        return index

    def _parse(self, payload: bytes) -> tuple[list[Data | Acks], bool]:
        """The frames of a payload, or Unusual (or IndexError) if one is for aioquic; changes nothing."""
        frames: list[Data | Acks] = []
        is_eliciting = False
        streams = self._streams
        credit = self._local_max_data.value - self._local_max_data.used
        at, end = 0, len(payload)
        if not end:
            raise Unusual
        while at < end:
            kind = payload[at]
            at += 1
            if STREAM <= kind <= STREAM_MAX and not kind & FIN:
                stream_id, at = pull_varint(payload, at)
                offset = 0
                if kind & OFFSET:
                    offset, at = pull_varint(payload, at)
                if kind & LENGTH:
                    size, at = pull_varint(payload, at)
                else:
                    size = end - at
                stream = streams.get(stream_id)
                credit -= size
                stop = at + size
                if (
                    stream is None
                    or stop > end
                    or credit < 0
                    or offset + size > stream.max_stream_data_local
                    or stream.receiver.is_finished
                    or stream.receiver._final_size is not None
                ):
                    raise Unusual
                frames.append((stream, offset, payload[at:stop]))
                at = stop
                is_eliciting = True
            elif kind == ACK:
                ranges, delay, at = pull_ack(payload, at)
                frames.append((ranges, delay))
            elif kind == PING:
                is_eliciting = True
            elif kind != PADDING:
                raise Unusual
        return frames, is_eliciting


class _Run:
    """Consecutive ordinary packets of one read: what they change is written back once, by `commit`."""

    __slots__ = ("_data", "_now", "_quic", "_space", "_start", "_stop", "expected", "is_urgent")

    def __init__(self, quic: ReceivingConnection, space: QuicPacketSpace, now: float) -> None:
        self.expected = max(space.expected_packet_number, space.largest_received_packet + 1)
        self.is_urgent = False
        self._quic = quic
        self._space = space
        self._now = now
        self._start = self._stop = -1
        self._data: dict[int, list[bytes]] = {}  # by stream: peers often put one stream in each packet, in turn

    def take(self, number: int, frames: list[Data | Acks], is_eliciting: bool) -> None:
        """Apply the frames of a new packet."""
        for frame in frames:
            if len(frame) == 3:
                self._take_data(*frame)
            else:
                self._take_acks(*frame)
        if is_eliciting:
            self._quic._unacknowledged += 1
            if number != self.expected:
                self.is_urgent = True  # a gap: the peer learns of the loss at once (RFC 9000 section 13.2.1)
        if number >= self.expected:
            self.expected = number + 1
        self._space.received_packets.add(number)
        if number == self._stop:
            self._stop += 1
        else:
            self._flush_numbers()
            self._start, self._stop = number, number + 1

    def _take_data(self, stream: QuicStream, offset: int, data: bytes) -> None:
        receiver = stream.receiver
        stop = offset + len(data)
        if stop > receiver.highest_offset:
            self._quic._local_max_data.used += stop - receiver.highest_offset
        if offset == receiver._buffer_start and data and not receiver._buffer:
            receiver._buffer_start = stop
            if stop > receiver.highest_offset:
                receiver.highest_offset = stop
            parts = self._data.get(cast("int", stream.stream_id))
            if parts is None:
                self._data[cast("int", stream.stream_id)] = [data]
            else:
                parts.append(data)
            return
        event = receiver.handle_frame(QuicStreamFrame(data=data, offset=offset))
        if event is not None:
            self.flush_data()
            self._quic._events.append(event)

    def _take_acks(self, ranges: RangeSet, delay: int) -> None:
        self._quic._loss.on_ack_received(
            ack_rangeset=ranges,
            ack_delay=(delay << self._quic._remote_ack_delay_exponent) / 1_000_000,
            now=self._now,
            space=self._space,
        )

    def flush_data(self) -> None:
        """Report the data of each stream in one piece."""
        for stream_id, parts in self._data.items():
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            self._quic._events.append(cast("Any", StreamData(stream_id, data, False)))
        self._data.clear()

    def _flush_numbers(self) -> None:
        space = self._space
        if self._start < 0:
            return
        if self._stop - 1 > space.largest_received_packet:
            space.largest_received_packet = self._stop - 1
            space.largest_received_time = self._now
        space.ack_queue.add(self._start, self._stop)
        while len(space.ack_queue) > MAX_ACK_RANGES:
            space.ack_queue.shift()

    def commit(self) -> None:
        """Write back what the run changed."""
        if self._start < 0:
            return
        self.flush_data()
        self._flush_numbers()
        quic, space, now = self._quic, self._space, self._now
        space.expected_packet_number = self.expected
        if quic._unacknowledged:
            if self.is_urgent or quic._unacknowledged >= quic._ack_packets:
                space.ack_at = now
            elif space.ack_at is None:
                space.ack_at = now + quic._ack_delay
        quic._close_at = now + quic._idle_timeout()
        quic._ack_eliciting_sent_since_receipt = False


def _samples(datagrams: list[bytes], first: int, at: int) -> Iterator[bytes]:
    """What header protection is keyed with, of each datagram up to the first that is too short to have any."""
    for datagram in datagrams[first:] if first else datagrams:
        sample = datagram[at : at + SAMPLE_BYTES]
        if len(sample) < SAMPLE_BYTES:
            return
        yield sample


def pull_varint(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer (RFC 9000 section 16) and where it ends; IndexError if it is cut off."""
    byte = data[at]
    if byte < 0x40:
        return byte, at + 1
    if byte < 0x80:
        return (byte & 0x3F) << 8 | data[at + 1], at + 2
    size = 4 if byte < 0xC0 else 8
    stop = at + size
    if stop > len(data):
        raise IndexError
    return int.from_bytes(data[at:stop], "big") & ((1 << 8 * size - 2) - 1), stop


def pull_ack(data: bytes, at: int) -> tuple[RangeSet, int, int]:
    """The ranges and the delay of an ACK frame, and where it ends; Unusual if a packet number is negative."""
    largest, at = pull_varint(data, at)
    delay, at = pull_varint(data, at)
    count, at = pull_varint(data, at)
    length, at = pull_varint(data, at)
    ranges = RangeSet()
    smallest = largest - length
    if smallest < 0:
        raise Unusual
    ranges.add(smallest, largest + 1)
    for _ in range(count):
        gap, at = pull_varint(data, at)
        length, at = pull_varint(data, at)
        largest = smallest - gap - 2
        smallest = largest - length
        if smallest < 0:
            raise Unusual
        ranges.add(smallest, largest + 1)
    return ranges, delay, at
