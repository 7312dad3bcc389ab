"""The default engine: aioquic, translated into the words of `engine`."""

from __future__ import annotations

import ssl
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

from aioquic.quic import events as aioquic_events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnectionState
from aioquic.quic.packet import QuicErrorCode, QuicFrameType

from transports.quic import _aioquic_congestion
from transports.quic._aioquic_send import StraightConnection
from transports.quic.engine import (
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
from transports.quic.qlog import QlogDirectory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from transports.quic._aioquic_streams import Sender
    from transports.quic.options import QUICOptions
    from transports.quic.tickets import TicketStore

AIOQUIC_VERSION = "1.7.1"

if version("aioquic") != AIOQUIC_VERSION:
    # Our subclasses use private names, which another version may have changed in ways no test of ours has seen.
    raise ImportError(f"aioquic is {version('aioquic')}; this engine is written for {AIOQUIC_VERSION}")


class AioquicEngine:
    """One connection of aioquic."""

    def __init__(self, quic: StraightConnection) -> None:
        self.connection_id = quic.host_cid
        self._quic = quic
        self._is_closed = False

    def connect(self, address: Address, now: float) -> None:
        """Start the handshake of a client."""
        self._quic.connect(address, now)

    def receive(self, datagrams: list[bytes], address: Address, now: float) -> None:
        """Take datagrams of one read."""
        self._quic.receive(datagrams, address, now)

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Address]]:
        """What may leave now."""
        return self._quic.datagrams_to_send(now) if self._quic._network_paths else []

    def timer(self) -> float | None:
        """When `handle_timer` wants to be called."""
        return self._quic.get_timer()

    def handle_timer(self, now: float) -> None:
        """The timer fired."""
        if self._quic._close_at is not None:
            self._quic.handle_timer(now)

    def events(self) -> list[Event]:
        """What happened since the last call, in order."""
        queue = self._quic._events
        events: list[Event] = []
        while queue:
            native: Any = queue.popleft()
            if type(native) is StreamData:
                events.append(native)
                continue
            translate = TRANSLATIONS.get(type(native))
            if translate is not None:
                events.append(translate(native))
        ended = self._quic._close_event
        if ended is not None and not self._is_closed:
            # aioquic reports the end only when late packets need no absorbing any more; readers want it at once.
            self._is_closed = True
            events.append(self._closed(ended))
        if self._quic._state is QuicConnectionState.TERMINATED:
            events.append(Terminated())
        return events

    def _closed(self, ended: aioquic_events.ConnectionTerminated) -> Closed:
        is_by_peer = self._quic._state is QuicConnectionState.DRAINING
        code = ended.error_code if ended.frame_type is None else None
        alert = ended.error_code - QuicErrorCode.CRYPTO_ERROR
        is_alert = ended.frame_type is not None and 0 <= alert < 0x100
        return Closed(code, ended.reason_phrase, is_by_peer, alert if is_alert else None)

    def streams_left(self) -> int:
        """How many unidirectional streams the peer lets us open."""
        return self._quic.uni_streams_left()

    def open_stream(self, priority: int) -> int:
        """Open a unidirectional stream."""
        return self._quic.open_uni_stream(priority)

    def can_send(self, stream_id: int) -> bool:
        """True if a stream is open in our direction."""
        sender = self._quic.sender(stream_id)
        return sender is not None and sender.is_open

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        """Append to a stream; nothing happens on one that is gone or was reset."""
        quic = self._quic
        if stream_id not in quic._streams and quic._stream_is_discarded(stream_id):
            return
        sender = cast("Sender", quic._get_or_create_stream_for_send(stream_id).sender)
        if sender.is_open:
            sender.is_watched = True
            sender.write(data, fin)

    def unsent(self, stream_id: int) -> int:
        """Bytes that have not been in a packet yet."""
        sender = self._quic.sender(stream_id)
        return 0 if sender is None else sender.unsent

    def is_acknowledged(self, stream_id: int) -> bool:
        """True if the peer has all that was handed over."""
        sender = self._quic.sender(stream_id)
        return sender is None or sender.is_acknowledged

    def drained(self) -> list[int]:
        """Streams whose data has all been sent since the last call."""
        if not self._quic.drained:
            return []
        drained, self._quic.drained = self._quic.drained, []
        return drained

    def consume(self, stream_id: int, size: int) -> None:
        """Let the peer send as many more."""
        self._quic.consume(stream_id, size)

    def reset(self, stream_id: int, code: int) -> None:
        """Abandon sending on a stream."""
        self._quic.reset_stream(stream_id, code)

    def stop(self, stream_id: int, code: int) -> None:
        """Ask the peer to stop sending on a stream, if it still is."""
        if stream_id in self._quic._streams:
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
        """See `Engine`. A connection of aioquic is full of references to itself: 70 kB until the collector comes."""
        quic = self._quic
        if quic._quic_logger is not None and quic._configuration.quic_logger is not None:
            quic._configuration.quic_logger.end_trace(quic._quic_logger)
        vars(quic).clear()

    def stats(self) -> EngineStats:
        """A snapshot."""
        quic = self._quic
        return EngineStats(
            packets_sent=quic._packet_number,
            packets_received=quic.packets_received,
            packets_lost=cast("_aioquic_congestion.Measured", quic._loss._cc).packets_lost,
            frames_lost=quic.frames_lost,
            streams_visited=quic.streams_visited,
            open_streams=len(quic._streams),
            congestion_window=quic._loss.congestion_window,
            bytes_in_flight=quic._loss.bytes_in_flight,
            round_trip_s=quic._loss._rtt_smoothed,
        )


TRANSLATIONS: dict[type[aioquic_events.QuicEvent], Callable[[Any], Event]] = {
    aioquic_events.HandshakeCompleted: lambda e: HandshakeCompleted(
        e.alpn_protocol or "", e.session_resumed, e.early_data_accepted
    ),
    aioquic_events.StreamDataReceived: lambda e: StreamData(e.stream_id, e.data, e.end_stream),
    aioquic_events.StreamReset: lambda e: StreamReset(e.stream_id, e.error_code),
    aioquic_events.StopSendingReceived: lambda e: StreamStopped(e.stream_id, e.error_code),
    aioquic_events.ConnectionIdIssued: lambda e: ConnectionIdIssued(e.connection_id),
    aioquic_events.ConnectionIdRetired: lambda e: ConnectionIdRetired(e.connection_id),
}
"""Events with nothing to say to us, such as answered PINGs, are left out."""


def _configuration(options: QUICOptions, *, is_client: bool) -> QuicConfiguration:
    return QuicConfiguration(
        alpn_protocols=list(options.alpn),
        congestion_control_algorithm=_aioquic_congestion.NAMES[options.congestion_control],
        idle_timeout=options.idle_timeout_s,
        is_client=is_client,
        max_data=options.connection_window_bytes,
        max_datagram_size=options.max_datagram_bytes,
        max_stream_data=options.stream_window_bytes,
        quic_logger=None if options.qlog is None else QlogDirectory(options.qlog),
    )


def _connection(configuration: QuicConfiguration, options: QUICOptions, **arguments: Any) -> StraightConnection:
    return StraightConnection(
        configuration=configuration,
        max_incoming_streams=options.max_incoming_streams,
        max_bidirectional_streams=options.max_bidirectional_streams,
        ack_packets=options.ack_packets,
        **arguments,
    )


def client_engine(
    options: QUICOptions,
    *,
    server_name: str,
    ca: Path | None,
    session_ticket: object | None,
    on_session_ticket: Callable[[object], None] | None,
) -> AioquicEngine:
    """The engine of one outgoing connection."""
    configuration = _configuration(options, is_client=True)
    configuration.server_name = server_name
    configuration.verify_mode = ssl.CERT_REQUIRED
    configuration.session_ticket = cast("Any", session_ticket)
    if ca is not None:
        configuration.load_verify_locations(cafile=str(ca))
    return AioquicEngine(_connection(configuration, options, session_ticket_handler=on_session_ticket))


class ServerEngines:
    """Makes the engine of each connection a listener accepts."""

    def __init__(self, options: QUICOptions, configuration: QuicConfiguration, tickets: TicketStore) -> None:
        self.versions = tuple(int(number) for number in configuration.supported_versions)
        self._options = options
        self._configuration = configuration
        self._tickets = tickets

    def __call__(self, original_cid: bytes, retry_cid: bytes | None) -> AioquicEngine:
        """An engine for the client whose first packet was addressed to `original_cid`."""
        return AioquicEngine(
            _connection(
                self._configuration,
                self._options,
                original_destination_connection_id=original_cid,
                retry_source_connection_id=retry_cid,
                session_ticket_fetcher=self._tickets.take,
                session_ticket_handler=self._tickets.add,
            )
        )


def server_engines(
    options: QUICOptions, *, certificate: Path, private_key: Path, tickets: TicketStore
) -> ServerEngines:
    """Load certificate and key once, for all connections of a listener."""
    configuration = _configuration(options, is_client=False)
    configuration.load_cert_chain(certificate, private_key)
    return ServerEngines(options, configuration, tickets)
