"""The straight road out: packets of STREAM data, acknowledgements and window updates, built in one pass.

    ready streams ──> frames ──> payloads ──> encrypt each ──> one header-protection call ──> datagrams

aioquic's builder pays for every frame and every packet in objects; here a packet is a list of byte strings that is
joined and encrypted once. Only for an established connection on its one path; for anything pending that is not an
acknowledgement, a window or stream data (handshake, probe, path or connection id frames, close) aioquic is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from aioquic._buffer import Buffer
from aioquic.quic.connection import QuicConnectionState
from aioquic.quic.packet import QuicPacketType, push_ack_frame
from aioquic.tls import Epoch

from transports.quic._aioquic_receive import ReceivingConnection

if TYPE_CHECKING:
    from aioquic.quic.recovery import QuicPacketSpace
    from aioquic.quic.stream import QuicStream

    from transports.quic._aioquic_congestion import Measured
    from transports.quic._aioquic_connection import BurstPacer
    from transports.quic._aioquic_streams import Sender

ONE_RTT = Epoch.ONE_RTT
TAG_BYTES = 16
NUMBER_BYTES = 2
MIN_PAYLOAD_BYTES = 2
"""With a two-byte packet number, what header protection needs to find its sample (RFC 9001 section 5.4.2)."""

BURST_BYTES = 256 * 1024
"""Sent by one call at most, so that other connections have their turn: 5 ms of work at 50 MB/s."""

QUANTUM_BYTES = 8 * 1024
"""What a stream sends before the next of the same priority: a few packets, so that slicing its data is worth it."""

SMALLEST_FRAGMENT = 32
"""Less room than this at the end of a packet is left empty."""

PACE_S = 0.001
"""How long to wait when the pacer's bucket is empty: what an event loop can tell apart."""

ACK_CAPACITY = 600
"""An ACK frame leaves half a packet for data, whatever the number of its ranges."""

MAX_PACKETS_PER_KEY = 1 << 22
"""Half of what RFC 9001 section 6.6 lets one AES-GCM key protect; aioquic does not count."""

PING = b"\x01"
Handler = tuple[Callable[..., None], tuple[Any, ...]]


class SentPacket:
    """What loss recovery needs to know of a packet in flight; aioquic's own class costs four times as much to make."""

    __slots__ = ("delivery_handlers", "in_flight", "is_ack_eliciting", "packet_number", "sent_bytes", "sent_time")

    epoch = ONE_RTT
    is_crypto_packet = False
    packet_type = QuicPacketType.ONE_RTT
    quic_logger_frames = ()

    def __init__(self, number: int, size: int, handlers: list[Handler], is_eliciting: bool, now: float) -> None:
        self.packet_number = number
        self.sent_bytes = size
        self.sent_time = now
        self.delivery_handlers = handlers
        self.in_flight = self.is_ack_eliciting = is_eliciting


class Payloads:
    """The payloads of the packets of one call, filled one after the other."""

    __slots__ = ("_frames", "_handlers", "_is_eliciting", "capacity", "closed", "limit", "room")

    def __init__(self, capacity: int, limit: int) -> None:
        self.capacity = capacity
        self.limit = limit
        """How many packets with anything but an ACK frame may be made."""
        self.closed: list[tuple[bytes, list[Handler], bool]] = []
        self._begin()

    def _begin(self) -> None:
        self._frames: list[bytes] = []
        self._handlers: list[Handler] = []
        self._is_eliciting = False
        self.room = self.capacity

    @property
    def is_full(self) -> bool:
        """True if no more packets may be made."""
        return len(self.closed) >= self.limit

    def add(self, frame: bytes, handler: Handler | None, *, is_eliciting: bool = True) -> None:
        """Put a frame into the current packet; `room` says whether it fits."""
        self._frames.append(frame)
        self.room -= len(frame)
        if handler is not None:
            self._handlers.append(handler)
        if is_eliciting:
            self._is_eliciting = True

    def add_small(self, frame: bytes, handler: Handler) -> None:
        """Put a frame that may not be cut into this packet or the next."""
        if len(frame) > self.room:
            self.close()
        self.add(frame, handler)

    def close(self) -> None:
        """Begin a new packet, if there is anything in this one."""
        if self._frames:
            payload = self._frames[0] if len(self._frames) == 1 else b"".join(self._frames)
            if len(payload) < MIN_PAYLOAD_BYTES:
                payload += bytes(MIN_PAYLOAD_BYTES - len(payload))
            self.closed.append((payload, self._handlers, self._is_eliciting))
            self._begin()


class StraightConnection(ReceivingConnection):
    """A connection that sends ordinary packets by the straight road."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._key_used_from = 0
        self._pacer = cast("BurstPacer", self._loss._pacer)

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Any]]:
        """What may leave now."""
        datagrams = self._plain_datagrams(now) if self._is_plain() else self._other_datagrams(now)
        if datagrams:
            cast("Measured", self._loss._cc).on_burst_sent(self._packet_number - 1)
        return datagrams

    def _other_datagrams(self, now: float) -> list[tuple[bytes, Any]]:
        datagrams = super().datagrams_to_send(now)
        space = self._spaces.get(ONE_RTT)
        if space is not None and space.ack_at is None:
            self._unacknowledged = 0
        return datagrams

    def _plain_datagrams(self, now: float) -> list[tuple[bytes, Any]]:
        self._discard_finished()
        space = self._spaces[ONE_RTT]
        capacity = self._max_datagram_size - 1 - len(self._peer_cid.cid) - NUMBER_BYTES - TAG_BYTES
        payloads = Payloads(capacity, self._allowance(now))
        self._write_ack(payloads, space, now)
        if payloads.limit:
            self._write_windows(payloads)
            self._write_streams(payloads)
        payloads.close()
        datagrams = self._protect(payloads, space, now) if payloads.closed else []
        self._pacing_at = self._resume_at(now)
        return datagrams

    def _is_plain(self) -> bool:
        """True if nothing is pending but acknowledgements, windows and stream data."""
        if not self._handshake_confirmed or self._state is not QuicConnectionState.CONNECTED:
            return False
        keys = self._cryptos[ONE_RTT]
        if self._packet_number - self._key_used_from > MAX_PACKETS_PER_KEY:
            self._key_used_from = self._packet_number
            self.request_key_update()
        path = self._network_paths[0]
        return not (
            self._close_pending
            or self._probe_pending
            or self._ping_pending
            or self._datagrams_pending
            or self._retire_connection_ids
            or self._streams_blocked_pending
            or self._handshake_done_pending
            or len(self._network_paths) != 1
            or not path.is_validated
            or path.remote_challenges
            or not self._crypto_streams[ONE_RTT].sender.buffer_is_empty
            or keys._update_key_requested
            or self._remote_preferred_address is not None
            or self._quic_logger is not None
            or cast("Any", keys.send.hp)._is_chacha20
            or not all(cid.was_sent for cid in self._host_cids)
        )

    def _allowance(self, now: float) -> int:
        """How many full packets congestion window, pacing and our own turn allow."""
        room = min(self._loss.congestion_window - self._loss.bytes_in_flight, BURST_BYTES)
        packets = max(0, room // self._max_datagram_size)
        paced = self._pacer.packets_allowed(now)
        return packets if paced is None else min(packets, paced)

    def _resume_at(self, now: float) -> float | None:
        """When to go on, if it was not the congestion window that left data behind."""
        room = self._loss.congestion_window - self._loss.bytes_in_flight
        if room < self._max_datagram_size or self._ready.first() is None:
            return None
        paced = self._pacer.packets_allowed(now)
        return now + PACE_S if paced == 0 else now

    # Frames

    def _write_ack(self, payloads: Payloads, space: QuicPacketSpace, now: float) -> None:
        if space.ack_at is None:
            return
        is_due = space.ack_at <= now
        # An acknowledgement that is not due rides along only if a packet leaves anyway.
        if not is_due and not (payloads.limit and (self._ready.first() or self._table.to_announce)):
            return
        received_at = now if space.largest_received_time is None else space.largest_received_time
        delay = int((now - received_at) * 1_000_000) >> self._local_ack_delay_exponent
        buf = Buffer(capacity=ACK_CAPACITY)
        buf.push_uint_var(2)
        ranges = push_ack_frame(buf, space.ack_queue, delay, ACK_CAPACITY - 1)
        handler: Handler = (self._on_ack_delivery, (space, space.largest_received_packet))
        payloads.add(buf.data, handler, is_eliciting=False)
        space.ack_at = None
        self._unacknowledged = 0
        if ranges > 1 and self._packet_number % 8 == 0 and payloads.limit:
            # A peer that only sends data never acknowledges our ACK frames, and their ranges would only add up.
            payloads.add(PING, (self._on_ping_delivery, ((),)))

    def _write_windows(self, payloads: Payloads) -> None:
        for limit in self._limits_to_announce():
            frame = bytes((limit.frame_type,)) + varint(limit.value)
            payloads.add_small(frame, (self._on_connection_limit_delivery, (limit,)))
            limit.sent = limit.value
        announce = self._table.to_announce
        while announce and not payloads.is_full:
            stream_id, stream = announce.popitem()
            self.streams_visited += 1
            if not stream.receiver.is_finished:
                frame = b"\x11" + varint(stream_id) + varint(stream.max_stream_data_local)
                payloads.add_small(frame, (self._on_max_stream_data_delivery, (stream,)))
                stream.max_stream_data_local_sent = stream.max_stream_data_local

    def _write_streams(self, payloads: Payloads) -> None:
        """Serve the ready streams in turn until they are empty or no more packets may be made."""
        ready = self._ready
        while not payloads.is_full:
            stream = ready.first()
            if stream is None:
                return
            self.streams_visited += 1
            sender = cast("Sender", stream.sender)
            if sender.reset_pending or stream.receiver.stop_pending:
                self._write_ends(payloads, stream)
            elif not self._write_data(payloads, stream, sender):
                ready.remove(stream, sender.priority)
                continue
            if sender.has_pending:
                ready.rotate(stream, sender.priority)
            else:
                self._settle(stream)

    def _write_ends(self, payloads: Payloads, stream: QuicStream) -> None:
        if stream.receiver.stop_pending:
            stop = stream.receiver.get_stop_frame()
            frame = b"\x05" + varint(stop.stream_id) + varint(stop.error_code)
            payloads.add_small(frame, (stream.receiver.on_stop_sending_delivery, ()))
        if stream.sender.reset_pending:
            reset = stream.sender.get_reset_frame()
            frame = b"\x04" + varint(reset.stream_id) + varint(reset.error_code) + varint(reset.final_size)
            payloads.add_small(frame, (stream.sender.on_reset_delivery, ()))

    def _write_data(self, payloads: Payloads, stream: QuicStream, sender: Sender) -> bool:
        """Write the next data of a stream; False if the peer's windows let none of it go."""
        stream_id = cast("int", stream.stream_id)
        pending = sender._pending
        if not len(pending):
            if sender._pending_eof:
                self._write_fin(payloads, stream_id, sender)
            return sender._buffer_fin is not None
        start, stop = pending[0].start, pending[0].stop
        credit = sender.highest_offset + self._remote_max_data - self._remote_max_data_used
        stop = min(stop, start + QUANTUM_BYTES, stream.max_stream_data_remote, credit)
        if stop <= start:
            if credit <= start:
                self._starved[stream_id] = stream
            return False
        base = sender._buffer_start
        data = bytes(memoryview(sender._buffer)[start - base : stop - base])
        encoded_id, deliver, offset = varint(stream_id), sender.on_data_delivery, start
        while offset < stop and not payloads.is_full:
            encoded_offset = varint(offset) if offset else b""
            room = payloads.room - 3 - len(encoded_id) - len(encoded_offset)
            if room < SMALLEST_FRAGMENT:
                payloads.close()
                continue
            end = min(stop, offset + room)
            is_last = end == sender._buffer_fin
            kind = 0x0A | (0x04 if offset else 0) | is_last
            header = bytes((kind,)) + encoded_id + encoded_offset + (end - offset | 0x4000).to_bytes(2, "big")
            payloads.add(header + data[offset - start : end - start], (deliver, (offset, end, is_last)))
            if is_last:
                sender._pending_eof = False
            offset = end
        if offset > start:
            pending.subtract(start, offset)
            if offset > sender.highest_offset:
                self._remote_max_data_used += offset - sender.highest_offset
                sender.highest_offset = offset
        return True

    def _write_fin(self, payloads: Payloads, stream_id: int, sender: Sender) -> None:
        end = cast("int", sender._buffer_fin)
        frame = b"\x0f" + varint(stream_id) + varint(end) + b"\x00"
        payloads.add_small(frame, (sender.on_data_delivery, (end, end, True)))
        sender._pending_eof = False

    # Protection

    def _protect(self, payloads: Payloads, space: QuicPacketSpace, now: float) -> list[tuple[bytes, Any]]:
        """Encrypt the payloads and register the packets with loss recovery."""
        keys: Any = self._cryptos[ONE_RTT].send
        encrypt, iv = keys.aead._aead.encrypt, keys.aead._iv
        first_byte = 0x40 | self._spin_bit << 5 | keys.key_phase << 2 | NUMBER_BYTES - 1
        cid = self._peer_cid.cid
        prefix = bytes((first_byte,)) + cid
        number = first = self._packet_number
        ciphertexts = []
        for payload, _, _ in payloads.closed:
            header = prefix + (number & 0xFFFF).to_bytes(2, "big")
            ciphertexts.append(encrypt((iv ^ number).to_bytes(12, "big"), payload, header))
            number += 1
        self._packet_number = number
        masks = keys.hp._encryptor.update(b"".join([text[2:18] for text in ciphertexts]))
        address = self._network_paths[0].addr
        datagrams = []
        has_eliciting = False
        at = 0
        number = first
        overhead = len(prefix) + NUMBER_BYTES
        sent = self._loss.on_packet_sent
        for text, (_, handlers, is_eliciting) in zip(ciphertexts, payloads.closed, strict=True):
            protected = (number & 0xFFFF ^ int.from_bytes(masks[at + 1 : at + 3], "big")).to_bytes(2, "big")
            datagrams.append((bytes((first_byte ^ masks[at] & 0x1F,)) + cid + protected + text, address))
            packet = SentPacket(number, overhead + len(text), handlers, is_eliciting, now)
            sent(packet=cast("Any", packet), space=space)
            has_eliciting |= is_eliciting
            number += 1
            at += 16
        if has_eliciting:
            self._pacer.on_packets_sent(len(datagrams))
            if not self._ack_eliciting_sent_since_receipt:
                self._close_at = now + self._idle_timeout()
                self._ack_eliciting_sent_since_receipt = True
        return datagrams


def varint(value: int) -> bytes:
    """Encode a variable-length integer (RFC 9000 section 16)."""
    if value < 0x40:
        return bytes((value,))
    if value < 0x4000:
        return (value | 0x4000).to_bytes(2, "big")
    if value < 0x40000000:
        return (value | 0x80000000).to_bytes(4, "big")
    return (value | 0xC000000000000000).to_bytes(8, "big")
