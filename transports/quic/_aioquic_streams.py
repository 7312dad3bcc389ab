"""The two halves of an aioquic stream with a bell: they say when their stream has something to send or is done.

aioquic looks at every stream of a connection for every packet it builds, to find out. With these halves in place
nobody has to look: a stream enters the `ReadyQueue` when it has something to send and leaves it when it has not,
so the work of a packet does not depend on how many streams are open (aioquic 1.7.1: ten times slower at 1000).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aioquic.quic.packet_builder import QuicDeliveryState
from aioquic.quic.stream import QuicStream, QuicStreamReceiver, QuicStreamSender

if TYPE_CHECKING:
    from aioquic.quic.events import StreamDataReceived, StreamReset
    from aioquic.quic.packet import QuicStreamFrame

ACKED = QuicDeliveryState.ACKED


class Bell(Protocol):
    """Who hears a stream ring: its connection."""

    frames_lost: int

    def wake(self, stream: QuicStream) -> None:
        """The stream may have something to send, or be done."""


class Sender(QuicStreamSender):
    """The sending half: rings when data, a FIN or a reset waits to be sent, and when all is acknowledged."""

    def __init__(self, stream: QuicStream, priority: int, bell: Bell) -> None:
        super().__init__(stream.stream_id, writable=not stream.sender.is_finished)
        self.priority = priority
        self.is_watched = False
        """True while whoever filled this stream waits to hear that it has drained."""
        self._stream = stream
        self._bell = bell

    @property
    def is_open(self) -> bool:
        """True if more may be written."""
        return self._reset_error_code is None and self._buffer_fin is None and not self.is_finished

    @property
    def has_pending(self) -> bool:
        """True if a frame of this half waits to be sent."""
        if self._reset_error_code is not None:
            return self.reset_pending
        return self._pending_eof or len(self._pending) > 0

    @property
    def unsent(self) -> int:
        """Bytes that have not been in a packet yet."""
        return 0 if self._reset_error_code is not None else self._buffer_stop - self.highest_offset

    @property
    def is_acknowledged(self) -> bool:
        """True if the peer has all that was written."""
        return self.is_finished or (self._buffer_start == self._buffer_stop and self._buffer_fin is None)

    def write(self, data: bytes, end_stream: bool = False) -> None:
        """Queue data and ring."""
        super().write(data, end_stream)
        self._bell.wake(self._stream)

    def reset(self, error_code: int) -> None:
        """Abandon what is queued and ring; what was sent but not acknowledged is not needed again either."""
        super().reset(error_code)
        self._buffer.clear()
        self._bell.wake(self._stream)

    def on_data_delivery(self, delivery: QuicDeliveryState, start: int, stop: int, fin: bool) -> None:
        """Drop acknowledged data, send lost data again."""
        if delivery is ACKED and start == self._buffer_start and self._buffer_fin is None and not len(self._acked):
            # The common case: the oldest data is acknowledged and the stream goes on.
            if self._reset_error_code is None:
                del self._buffer[: stop - start]
                self._buffer_start = stop
            return
        super().on_data_delivery(delivery, start, stop, fin)
        if delivery is not ACKED:
            self._bell.frames_lost += 1
        self._bell.wake(self._stream)

    def on_reset_delivery(self, delivery: QuicDeliveryState) -> None:
        """Send a lost reset again; an acknowledged one ends the stream."""
        super().on_reset_delivery(delivery)
        self._bell.wake(self._stream)


class Receiver(QuicStreamReceiver):
    """The receiving half: counts what was consumed; rings when it is done or wants the peer to stop."""

    def __init__(self, stream: QuicStream, bell: Bell) -> None:
        super().__init__(stream.stream_id, readable=not stream.receiver.is_finished)
        self.consumed = 0
        self._stream = stream
        self._bell = bell

    def handle_frame(self, frame: QuicStreamFrame) -> StreamDataReceived | None:
        """Take a STREAM frame."""
        event = super().handle_frame(frame)
        if self.is_finished:
            self._bell.wake(self._stream)
        return event

    def handle_reset(self, *, final_size: int, error_code: int = 0) -> StreamReset | None:
        """Take a RESET_STREAM frame; what was received out of order is not needed any more."""
        event = super().handle_reset(final_size=final_size, error_code=error_code)
        self._buffer.clear()
        self._bell.wake(self._stream)
        return event

    def stop(self, error_code: int = 0) -> None:
        """Ask the peer to stop sending."""
        super().stop(error_code)
        self._bell.wake(self._stream)

    def on_stop_sending_delivery(self, delivery: QuicDeliveryState) -> None:
        """Ask again if the question was lost."""
        super().on_stop_sending_delivery(delivery)
        self._bell.wake(self._stream)


class StreamTable(dict[int, QuicStream]):
    """aioquic's table of streams; `values` gives only those with a window to announce.

    aioquic walks `values()` for nothing else: once per packet, to write MAX_STREAM_DATA frames.
    """

    def __init__(self) -> None:
        super().__init__()
        self.to_announce: dict[int, QuicStream] = {}

    def values(self) -> list[QuicStream]:  # type: ignore[override]  # a list is all aioquic needs of it
        """The streams whose window has grown since it was last announced."""
        return list(self.to_announce.values())
