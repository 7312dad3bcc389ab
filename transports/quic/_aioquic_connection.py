"""aioquic's connection with windows opened by consumption and streams that need no looking at.

Two changes to `QuicConnection`, by overriding what it calls:

* Receive windows. aioquic doubles a window when half of it has *arrived*, so a reader that stops does not stop the
  peer. Here a window ends a fixed distance after what was *consumed*, for each stream and for the connection.
* Streams to serve. aioquic walks all streams for every packet. Here the halves of a stream ring (see
  `_aioquic_streams`) and only streams in the `ReadyQueue` are looked at.

Everything else stays aioquic's: handshake, keys, loss recovery, congestion control, migration, closing. The names
with an underscore that are used here are those of one version of aioquic, which `aioquic_engine` checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from aioquic.quic.connection import (
    CONNECTION_LIMIT_FRAME_CAPACITY,
    MAX_STREAM_DATA_FRAME_CAPACITY,
    QuicConnection,
    stream_is_client_initiated,
)
from aioquic.quic.packet import QuicFrameType
from aioquic.quic.packet_builder import QuicDeliveryState
from aioquic.quic.recovery import QuicPacketPacer

from transports.quic._aioquic_streams import Receiver, Sender, StreamTable
from transports.quic.engine import CONTROL_PRIORITY
from transports.quic.ready import ReadyQueue

if TYPE_CHECKING:
    from aioquic._buffer import Buffer
    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.connection import Limit, QuicReceiveContext
    from aioquic.quic.packet_builder import QuicPacketBuilder
    from aioquic.quic.recovery import QuicPacketSpace
    from aioquic.quic.stream import QuicStream

CONTROL_STREAM = 0
INCOMING_PRIORITY = 128
"""Of streams the peer opened: limits, STOP_SENDING and, on bidirectional ones, answers."""

MIN_BURST_PACKETS = 16
MIN_BURST_S = 0.004
"""A burst may last this long at the paced rate: an event loop is no finer clock, so less only wastes bandwidth."""


class BurstPacer(QuicPacketPacer):
    """aioquic's pacer with a bucket of at least some milliseconds, so that short paths are not slowed by the clock."""

    def update_rate(self, congestion_window: int, smoothed_rtt: float) -> None:
        """Follow the congestion window and the round trip."""
        super().update_rate(congestion_window, smoothed_rtt)
        if self.packet_time is not None:
            self.bucket_max = max(MIN_BURST_PACKETS * self.packet_time, MIN_BURST_S)

    def packets_allowed(self, now: float) -> int | None:
        """How many packets may leave now; None if the path is not measured yet."""
        if self.packet_time is None:
            return None
        self.update_bucket(now=now)
        return int(self.bucket_time / self.packet_time)

    def on_packets_sent(self, count: int) -> None:
        """Take them from the bucket."""
        if self.packet_time is not None:
            self.bucket_time = max(0.0, self.bucket_time - count * self.packet_time)


class WindowedConnection(QuicConnection):
    """A `QuicConnection` whose windows follow its reader and whose packets cost the same with many streams."""

    def __init__(
        self,
        *,
        configuration: QuicConfiguration,
        max_incoming_streams: int,
        max_bidirectional_streams: int,
        ack_packets: int,
        **callbacks: Any,
    ) -> None:
        super().__init__(configuration=configuration, **callbacks)
        self.streams_visited = 0
        self.frames_lost = 0
        self.drained: list[int] = []
        self._ack_packets = ack_packets
        self._consumed = 0
        self._window = configuration.max_data
        self._stream_window = configuration.max_stream_data
        self._local_max_streams_uni.value = self._local_max_streams_uni.sent = max_incoming_streams
        self._local_max_streams_bidi.value = self._local_max_streams_bidi.sent = max_bidirectional_streams
        self._loss._pacer = BurstPacer(max_datagram_size=self._max_datagram_size)
        self._table = StreamTable()
        self._streams = self._table
        self._ready: ReadyQueue[QuicStream] = ReadyQueue()
        self._starved: dict[int, QuicStream] = {}
        """Streams whose new data waits for the connection's window, not their own."""
        self._done: list[QuicStream] = []

    # Streams

    def open_uni_stream(self, priority: int) -> int:
        """Open the next unidirectional stream."""
        stream_id = self.get_next_available_stream_id(is_unidirectional=True)
        stream = self._get_or_create_stream_for_send(stream_id)
        cast("Sender", stream.sender).priority = priority
        return stream_id

    def uni_streams_left(self) -> int:
        """How many more the peer lets us open."""
        return max(0, self._remote_max_streams_uni - self._local_next_stream_id_uni // 4)

    def sender(self, stream_id: int) -> Sender | None:
        """The sending half of a stream, or None if the stream is gone."""
        stream = self._streams.get(stream_id)
        return None if stream is None else cast("Sender", stream.sender)

    def _get_or_create_stream(self, frame_type: int, stream_id: int) -> QuicStream:
        stream = super()._get_or_create_stream(frame_type, stream_id)
        self._adopt_new_streams()
        return stream

    def _get_or_create_stream_for_send(self, stream_id: int) -> QuicStream:
        stream = super()._get_or_create_stream_for_send(stream_id)
        self._adopt_new_streams()
        return stream

    def _adopt_new_streams(self) -> None:
        """Give streams aioquic just made our halves; it lists them in the queue it would serve them from."""
        for stream in self._streams_queue:
            priority = CONTROL_PRIORITY if stream.stream_id == CONTROL_STREAM else INCOMING_PRIORITY
            stream.sender = Sender(stream, priority, self)
            stream.receiver = Receiver(stream, self)
        self._streams_queue.clear()

    def wake(self, stream: QuicStream) -> None:
        """A half of this stream rang."""
        if stream.is_finished:
            self._done.append(stream)
            return
        sender = cast("Sender", stream.sender)
        if sender.has_pending or stream.receiver.stop_pending:
            self._ready.add(stream, sender.priority)

    def _settle(self, stream: QuicStream) -> None:
        """A stream was served: let it go if it has nothing more to send."""
        sender = cast("Sender", stream.sender)
        if not sender.has_pending and not stream.receiver.stop_pending:
            self._ready.remove(stream, sender.priority)
        self._report_drained(sender)

    def _report_drained(self, sender: Sender) -> None:
        if sender.is_watched and sender.unsent == 0:
            sender.is_watched = False
            assert sender._stream_id is not None
            self.drained.append(sender._stream_id)

    def _discard_finished(self) -> None:
        """Forget streams both sides are done with, and let the peer open as many new ones (RFC 9000 section 4.6)."""
        for stream in self._done:
            stream_id = stream.stream_id
            assert stream_id is not None
            if self._streams.pop(stream_id, None) is None:
                continue
            sender = cast("Sender", stream.sender)
            self._ready.remove(stream, sender.priority)
            self._starved.pop(stream_id, None)
            self._table.to_announce.pop(stream_id, None)
            if sender.is_watched:
                self.drained.append(stream_id)
            if stream_is_client_initiated(stream_id) != self._is_client:
                self._stream_limit(stream_id).value += 1
        self._done.clear()

    def _unblock_streams(self, is_unidirectional: bool) -> None:
        blocked = list(self._streams_blocked_uni if is_unidirectional else self._streams_blocked_bidi)
        super()._unblock_streams(is_unidirectional)
        for stream in blocked:
            self.wake(stream)

    # Sending by aioquic, with only the ready streams in its queue

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Any]]:
        """What may leave now."""
        self._discard_finished()
        served = self._ready.snapshot()
        self.streams_visited += len(served)
        self._streams_queue = list(served)
        datagrams = super().datagrams_to_send(now)
        self._streams_queue = []
        for stream in served:
            self._settle(stream)
        return datagrams

    # Receive windows

    def consume(self, stream_id: int, size: int) -> None:
        """Let the peer send `size` more bytes; announced once that is half a window."""
        self._consume_connection(size)
        stream = self._streams.get(stream_id)
        if stream is None or stream.receiver.is_finished:
            return
        receiver = cast("Receiver", stream.receiver)
        receiver.consumed += size
        limit = receiver.consumed + self._stream_window
        if limit - stream.max_stream_data_local >= self._stream_window // 2:
            stream.max_stream_data_local = limit
            self._table.to_announce[stream_id] = stream

    def _consume_connection(self, size: int) -> None:
        self._consumed += size
        limit = self._consumed + self._window
        if limit - self._local_max_data.value >= self._window // 2:
            self._local_max_data.value = limit

    def _handle_reset_stream_frame(self, context: QuicReceiveContext, frame_type: int, buf: Buffer) -> None:
        """The rest of a reset stream never comes: its share of the connection's window is free again."""
        start = buf.tell()
        stream = self._streams.get(buf.pull_uint_var())
        buf.seek(start)
        was_finished = stream is None or stream.receiver.is_finished
        super()._handle_reset_stream_frame(context, frame_type, buf)
        if stream is not None and not was_finished:
            receiver = cast("Receiver", stream.receiver)
            self._consume_connection(receiver.highest_offset - receiver.consumed)

    def _write_stream_limits(self, builder: QuicPacketBuilder, space: QuicPacketSpace, stream: QuicStream) -> None:
        assert stream.stream_id is not None
        self.streams_visited += 1
        if not stream.receiver.is_finished:
            buf = builder.start_frame(
                QuicFrameType.MAX_STREAM_DATA,
                capacity=MAX_STREAM_DATA_FRAME_CAPACITY,
                handler=self._on_max_stream_data_delivery,
                handler_args=(stream,),
            )
            buf.push_uint_var(stream.stream_id)
            buf.push_uint_var(stream.max_stream_data_local)
            stream.max_stream_data_local_sent = stream.max_stream_data_local
        self._table.to_announce.pop(stream.stream_id, None)

    def _on_max_stream_data_delivery(self, delivery: QuicDeliveryState, stream: QuicStream) -> None:
        if delivery is QuicDeliveryState.LOST and stream.stream_id in self._streams:
            self._table.to_announce[stream.stream_id] = stream

    def _write_connection_limits(self, builder: QuicPacketBuilder, space: QuicPacketSpace) -> None:
        for limit in self._limits_to_announce():
            buf = builder.start_frame(
                limit.frame_type,
                capacity=CONNECTION_LIMIT_FRAME_CAPACITY,
                handler=self._on_connection_limit_delivery,
                handler_args=(limit,),
            )
            buf.push_uint_var(limit.value)
            limit.sent = limit.value

    def _limits_to_announce(self) -> list[Limit]:
        """MAX_DATA when it has grown; MAX_STREAMS once the peer has fewer streams left than it would gain."""
        streams = (self._local_max_streams_bidi, self._local_max_streams_uni)
        limits = [limit for limit in streams if limit.sent - limit.used < limit.value - limit.sent]
        if self._local_max_data.value != self._local_max_data.sent:
            limits.append(self._local_max_data)
        return limits

    # The peer's windows

    def _handle_max_data_frame(self, context: QuicReceiveContext, frame_type: int, buf: Buffer) -> None:
        super()._handle_max_data_frame(context, frame_type, buf)
        starved, self._starved = self._starved, {}
        for stream in starved.values():
            self.wake(stream)

    def _handle_max_stream_data_frame(self, context: QuicReceiveContext, frame_type: int, buf: Buffer) -> None:
        start = buf.tell()
        stream_id = buf.pull_uint_var()
        buf.seek(start)
        super()._handle_max_stream_data_frame(context, frame_type, buf)
        stream = self._streams.get(stream_id)
        if stream is not None:
            self.wake(stream)
