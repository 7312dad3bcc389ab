"""The optional engine `qh3`, several times faster: a native core that has most of what we ask of it.

What it has not is made up for here, as far as that goes:

* Priorities. The core serves its streams in turn, so data waits here, by priority, and the core gets only as much
  as it sends soon.
* Windows by consumption. The core opens a window when data leaves its queue, and the queue is one for all streams.
  So we stop emptying it once the readers are a connection's window behind: memory stays bounded and the peer stops,
  but then one paused lane stops the others of its connection too. aioquic has no such limit.
* Stream limits. The core grants its peer 103 unidirectional streams at once and 100 bidirectional ones, whatever
  `max_incoming_streams` and `max_bidirectional_streams` say.
* Acknowledgements. The core does not tell them by stream: a stream counts as acknowledged when nothing is in flight.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from qh3.quic import events as qh3_events
from qh3.quic.configuration import QuicConfiguration
from qh3.quic.connection import QuicConnection, QuicConnectionError, QuicConnectionState
from qh3.quic.packet import QuicErrorCode, QuicFrameType

from moq.errors import ConfigError
from transports.quic.engine import (
    CONTROL_PRIORITY,
    Address,
    Closed,
    ConnectionIdIssued,
    ConnectionIdRetired,
    EngineStats,
    Event,
    HandshakeCompleted,
    StreamData,
    StreamReset,
    StreamStopped,
    Terminated,
)
from transports.quic.ready import ReadyQueue

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from transports.quic.options import QUICOptions
    from transports.quic.tickets import TicketStore

logger = logging.getLogger(__name__)

# qh3 warns of every close by a peer, which is our caller's to judge.
logging.getLogger("quic").setLevel(logging.ERROR)

CORE_ERRORS = (QuicConnectionError, ValueError)
"""What the core raises of itself; seen under heavy loss and reordering: `reserved stream is missing`."""

CORE_BYTES = 128 * 1024
"""Unsent data the core holds: what one flush sends; the less, the sooner a higher priority has its turn."""

CONTROL_STREAM = 0
NO_APPLICATION_PROTOCOL = 120
MAX_DATAGRAMS = 256
"""Made by one call, so that other connections have their turn."""


class _HeldConnection(QuicConnection):
    """A connection whose core is emptied only while its readers keep up."""

    unconsumed = 0
    window = 0

    def _drain_core(self) -> None:
        # Once the connection ends there is no more data to come, and the end must be heard.
        if self.unconsumed < self.window or self._require_core().state != "connected":
            super()._drain_core()


class QH3Engine:
    """One connection of qh3."""

    def __init__(self, quic: _HeldConnection, window: int) -> None:
        self.connection_id = quic.host_cid
        self._quic = quic
        self._quic.window = window
        self._is_closed = False
        self._priorities: dict[int, int] = {CONTROL_STREAM: CONTROL_PRIORITY}
        self._waiting: dict[int, deque[bytes]] = {}
        self._fins: set[int] = set()
        self._ready: ReadyQueue[int] = ReadyQueue()
        self._watched: set[int] = set()
        self._packets_sent = 0
        self._packets_received = 0
        self._streams_visited = 0

    def connect(self, address: Address, now: float) -> None:
        """Start the handshake of a client."""
        self._quic.connect(address, now)

    def receive(self, datagrams: list[bytes], address: Address, now: float) -> None:
        """Take datagrams of one read."""
        self._packets_received += len(datagrams)
        try:
            self._quic.receive_many_datagrams(datagrams, address, now)
        except CORE_ERRORS as error:
            self._fail(error)

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Address]]:
        """What may leave now."""
        datagrams: list[tuple[bytes, Address]] = []
        core = self._quic._core
        if core is None:
            return datagrams
        try:
            while len(datagrams) < MAX_DATAGRAMS:
                self._feed_core()
                made = len(datagrams)
                while (transmit := core.poll_transmit(now)) is not None:
                    datagrams.append(transmit[:2])
                if len(datagrams) == made:
                    break
        except RuntimeError:
            # `packet builder capacity exhausted`: a server may not answer an unproven address with more than three
            # times what it sent. The core goes on when the next datagram comes.
            pass
        except CORE_ERRORS as error:
            self._fail(error)
        self._packets_sent += len(datagrams)
        return datagrams

    def _feed_core(self) -> None:
        """Give the core data by priority, up to what it sends soon."""
        room = CORE_BYTES - self._quic.get_send_buffer_size()
        while room > 0:
            stream_id = self._ready.first()
            if stream_id is None:
                return
            self._streams_visited += 1
            if not self._quic._stream_can_send(stream_id):
                self._drop(stream_id)  # stopped by the peer, which we hear of only when the readers keep up
                continue
            chunks = self._waiting[stream_id]
            data = chunks.popleft()
            room -= len(data)
            is_last = not chunks
            fin = is_last and stream_id in self._fins
            if is_last:
                self._drop(stream_id)
            else:
                self._ready.rotate(stream_id, self._priority(stream_id))
            self._quic.send_stream_data(stream_id, data, fin)

    def _drop(self, stream_id: int) -> None:
        """Nothing of this stream waits any more."""
        self._waiting.pop(stream_id, None)
        self._ready.remove(stream_id, self._priority(stream_id))
        if stream_id in self._fins:
            self._fins.discard(stream_id)
            self._priorities.pop(stream_id, None)

    def _priority(self, stream_id: int) -> int:
        return self._priorities.get(stream_id, 0)

    def _fail(self, error: Exception) -> None:
        """The core met something it cannot go on from: it is closed, and no other connection with it."""
        logger.warning("the native core of a quic connection failed: %s", error)
        self._quic.unconsumed = 0
        if self._quic._close_event is None:
            self._quic.close(QuicErrorCode.INTERNAL_ERROR, QuicFrameType.PADDING, str(error))

    def timer(self) -> float | None:
        """When `handle_timer` wants to be called."""
        return self._quic.get_timer()

    def handle_timer(self, now: float) -> None:
        """The timer fired."""
        try:
            self._quic.handle_timer(now)
        except CORE_ERRORS as error:
            self._fail(error)

    def events(self) -> list[Event]:
        """What happened since the last call, in order."""
        events: list[Event] = []
        while (native := self._quic.next_event()) is not None:
            translate = TRANSLATIONS.get(type(native))
            if translate is None:
                continue
            event = translate(native)
            if type(event) is StreamData:
                self._quic.unconsumed += len(event.data)
            elif type(event) is StreamStopped:
                self._watched.discard(event.stream_id)
                self._drop(event.stream_id)
            events.append(event)
        ended = self._quic._close_event
        if ended is not None and not self._is_closed:
            self._is_closed = True
            events.append(self._closed(ended))
        if self._quic._state is QuicConnectionState.TERMINATED:
            events.append(Terminated())
        return events

    def _closed(self, ended: qh3_events.ConnectionTerminated) -> Closed:
        code = ended.error_code if ended.frame_type is None else None
        alert = ended.error_code - QuicErrorCode.CRYPTO_ERROR
        is_alert = ended.frame_type is not None and 0 <= alert < 0x100
        if is_alert and "ALPN" in ended.reason_phrase:
            alert = NO_APPLICATION_PROTOCOL  # which is what RFC 9001 section 8.1 asks for; qh3 sends 40
        is_by_peer = self._quic._core is not None and self._quic._core.state == "draining"
        return Closed(code, ended.reason_phrase, is_by_peer, alert if is_alert else None)

    def streams_left(self) -> int:
        """How many unidirectional streams the peer lets us open."""
        _, limit, _, opened = self._quic._require_core().stream_limits
        return int(limit - opened)

    def open_stream(self, priority: int) -> int:
        """Open a unidirectional stream."""
        stream_id = self._quic._open_stream(is_unidirectional=True)
        self._priorities[stream_id] = priority
        return stream_id

    def can_send(self, stream_id: int) -> bool:
        """True if a stream is open in our direction."""
        return stream_id not in self._fins and bool(self._quic._stream_can_send(stream_id))

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        """Append to a stream; nothing happens on one that is gone or was reset."""
        if not self._quic._stream_can_send(stream_id):
            self._priorities.pop(stream_id, None)
            return
        if fin:
            self._fins.add(stream_id)
        if data or fin:
            self._waiting.setdefault(stream_id, deque()).append(data)
            self._ready.add(stream_id, self._priority(stream_id))
            self._watched.add(stream_id)

    def unsent(self, stream_id: int) -> int:
        """Bytes that have not been in a packet yet."""
        waiting = sum(map(len, self._waiting.get(stream_id, ())))
        return waiting + self._quic.get_send_buffer_size(stream_id)

    def is_acknowledged(self, stream_id: int) -> bool:
        """True if nothing of any stream is in flight and nothing of this one waits."""
        return not self.unsent(stream_id) and not self._quic._require_core().bytes_in_flight

    def drained(self) -> list[int]:
        """Streams whose data has all been sent since the last call."""
        size = self._quic.get_send_buffer_size
        drained = [sid for sid in self._watched if sid not in self._waiting and not size(sid)]
        self._watched.difference_update(drained)
        return drained

    def consume(self, stream_id: int, size: int) -> None:
        """Bytes were taken: if the readers have caught up, take more from the core."""
        was_held = self._quic.unconsumed >= self._quic.window
        self._quic.unconsumed = max(0, self._quic.unconsumed - size)
        if was_held and self._quic._core is not None:
            self._quic._drain_core()

    def reset(self, stream_id: int, code: int) -> None:
        """Abandon sending on a stream."""
        self._drop(stream_id)
        self._priorities.pop(stream_id, None)
        if self._quic._stream_can_send(stream_id):
            self._quic.reset_stream(stream_id, code)

    def stop(self, stream_id: int, code: int) -> None:
        """Ask the peer to stop sending on a stream."""
        with contextlib.suppress(*CORE_ERRORS):  # it is over already
            self._quic.stop_stream(stream_id, code)

    def ping(self) -> None:
        """Make the peer answer."""
        self._quic.send_ping(0)

    def close(self, code: int | None, message: str) -> None:
        """End the connection."""
        self._is_closed = True
        if code is None:
            self._quic.close(QuicErrorCode.NO_ERROR, QuicFrameType.PADDING, message)
        else:
            self._quic.close(code, None, message)

    def release(self) -> None:
        """See `Engine`."""
        vars(self._quic).clear()

    def stats(self) -> EngineStats:
        """A snapshot."""
        core = self._quic._require_core()
        return EngineStats(
            packets_sent=self._packets_sent,
            packets_received=self._packets_received,
            packets_lost=core.loss_total,
            frames_lost=core.loss_total,
            streams_visited=self._streams_visited,
            open_streams=sum(core.active_local_streams),
            congestion_window=core.congestion_window,
            bytes_in_flight=core.bytes_in_flight,
            round_trip_s=core.smoothed_rtt or 0.0,
        )


TRANSLATIONS: dict[type[qh3_events.QuicEvent], Callable[[Any], Event]] = {
    qh3_events.HandshakeCompleted: lambda e: HandshakeCompleted(
        e.alpn_protocol or "", e.session_resumed, e.early_data_accepted
    ),
    qh3_events.StreamDataReceived: lambda e: StreamData(e.stream_id, e.data, e.end_stream),
    qh3_events.StreamReset: lambda e: StreamReset(e.stream_id, e.error_code),
    qh3_events.StopSendingReceived: lambda e: StreamStopped(e.stream_id, e.error_code),
    qh3_events.ConnectionIdIssued: lambda e: ConnectionIdIssued(e.connection_id),
    qh3_events.ConnectionIdRetired: lambda e: ConnectionIdRetired(e.connection_id),
}


def _configuration(options: QUICOptions, *, is_client: bool) -> QuicConfiguration:
    if options.qlog is not None:
        raise ConfigError(f"qlog is {str(options.qlog)!r}; the engine qh3 writes none, only aioquic does")
    return QuicConfiguration(
        alpn_protocols=list(options.alpn),
        idle_timeout=options.idle_timeout_s,
        is_client=is_client,
        max_data=options.connection_window_bytes,
        max_datagram_size=options.max_datagram_bytes,
        max_stream_data=options.stream_window_bytes,
    )


def client_engine(
    options: QUICOptions,
    *,
    server_name: str,
    ca: Path | None,
    session_ticket: object | None,
    on_session_ticket: Callable[[object], None] | None,
) -> QH3Engine:
    """The engine of one outgoing connection."""
    configuration = _configuration(options, is_client=True)
    configuration.server_name = server_name
    configuration.verify_mode = ssl.CERT_REQUIRED
    configuration.session_ticket = cast("Any", session_ticket)
    if ca is not None:
        configuration.load_verify_locations(cafile=str(ca))
    quic = _HeldConnection(configuration=configuration, session_ticket_handler=on_session_ticket)
    return QH3Engine(quic, options.connection_window_bytes)


class ServerEngines:
    """Makes the engine of each connection a listener accepts."""

    def __init__(self, options: QUICOptions, configuration: QuicConfiguration, tickets: TicketStore) -> None:
        self.versions = tuple(int(number) for number in configuration.supported_versions)
        self._options = options
        self._configuration = configuration
        self._tickets = tickets

    def __call__(self, original_cid: bytes, retry_cid: bytes | None) -> QH3Engine:
        """An engine for the client whose first packet was addressed to `original_cid`."""
        quic = _HeldConnection(
            configuration=self._configuration,
            original_destination_connection_id=original_cid,
            retry_source_connection_id=retry_cid,
            session_ticket_fetcher=cast("Any", self._tickets.take),
            session_ticket_handler=self._tickets.add,
        )
        return QH3Engine(quic, self._options.connection_window_bytes)


def server_engines(
    options: QUICOptions, *, certificate: Path, private_key: Path, tickets: TicketStore
) -> ServerEngines:
    """Load certificate and key once, for all connections of a listener."""
    configuration = _configuration(options, is_client=False)
    configuration.load_cert_chain(str(certificate), str(private_key))
    return ServerEngines(options, configuration, tickets)
