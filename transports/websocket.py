"""Links over WebSocket, for clients that cannot open a socket of their own: MQTT in binary frames at `/mqtt`.

    TCPLink ── bytes ──► WebSocketLink ── payloads of frames ──► handler
            ◄── frames ──             ◄── write ──

A WebSocket is a handler to the TCP or TLS link below and a link to the protocol above. Handshake, frames, masks, pings
and the closing exchange are the `websockets` library's; outboxes, marks, pausing and time-outs are the link's below.
Frames do not matter to the protocol above: their payloads make one byte stream, and each write is one frame or more.

A web page may connect to any address its reader's browser can reach, loopback included. So a request that names the
page it comes from (`Origin`) is refused unless the page was served from this machine or its origin is allowed.
"""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol

from moq.broker.link import CONTROL
from moq.reasons import FIRST_REFUSAL, Reason, describe
from transports import tcp
from transports.options import TransportOptions

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from websockets.protocol import Event, Protocol

    from moq.broker.link import Lane, Link, LinkHandler, LinkState

logger = logging.getLogger(__name__)

protocol_logger = logging.getLogger(f"{__name__}.protocol")
protocol_logger.setLevel(logging.WARNING)  # it tells of every connection; whoever owns the link does that

PATH: Final = "/mqtt"
SUBPROTOCOL: Final = Subprotocol("mqtt")
ANY_ORIGIN: Final = "*"
OWN_ORIGINS: Final = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")

FRAME_BYTES: Final = 64 * 1024
"""Longer writes are cut: clients commonly refuse frames above some size, and 64 KiB is below all that are known."""

MAX_CLOSE_REASON_BYTES: Final = 123
"""RFC 6455 section 5.5: what a control frame has room for besides the code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketOptions(TransportOptions):
    """How the WebSockets of one listener behave."""

    max_frame_bytes: int = 16 * 1024 * 1024 + 64
    """Refused at its header past this; a frame is kept until it is complete. Clients send a packet as one frame, so
    this is the largest packet of a broker and its header."""
    max_handshake_bytes: int = 16 * 1024
    """Request line and headers together: what a stranger can make us keep before it is a WebSocket."""

    @classmethod
    def of(cls, options: TransportOptions) -> WebSocketOptions:
        """The options every transport shares, with defaults for those of WebSocket."""
        if isinstance(options, WebSocketOptions):
            return options
        return cls(**{name: getattr(options, name) for name in TransportOptions.__dataclass_fields__})


class WebSocketLane:
    """The one outgoing byte stream, in binary frames."""

    stream_id: Final = CONTROL
    __slots__ = ("_protocol", "_stream")

    def __init__(self, stream: Lane, protocol: Protocol) -> None:
        self._stream = stream
        self._protocol = protocol

    @property
    def congested(self) -> bool:
        """True while the stream below holds too much."""
        return self._stream.congested

    @property
    def unsent(self) -> int:
        """Bytes, frame headers included, that the kernel has not taken yet."""
        return self._stream.unsent

    @property
    def is_closed(self) -> bool:
        """True once either side has begun to close."""
        return self._stream.is_closed or self._protocol.state is not OPEN

    def write(self, data: bytes) -> None:
        """Queue bytes as one frame, or several if they are many."""
        if self.is_closed:
            return
        if len(data) <= FRAME_BYTES:
            self._protocol.send_binary(data)
        else:
            view = memoryview(data)
            for start in range(0, len(data), FRAME_BYTES):
                self._protocol.send_binary(view[start : start + FRAME_BYTES])
        self.flush()

    def finish(self) -> None:
        """Do nothing: the stream is shared by all topics."""

    def reset(self, reason: int) -> None:
        """Do nothing: the stream is shared by all topics."""

    def flush(self) -> None:
        """Hand frames to the stream below, which sends those of one turn of the event loop together."""
        for data in self._protocol.data_to_send():
            self._stream.write(data)  # the empty piece that asks for the end of the stream is left to `close`


class WebSocketLink:
    """One WebSocket, whose handshake a subclass makes."""

    has_lanes: Final = False
    outgoing_streams: Final = 1
    control: Lane

    def __init__(self, stream: Link, protocol: Protocol) -> None:
        self.transport = "wss" if stream.transport == "tls" else "ws"
        self.alpn = ""
        self.peer = stream.peer
        self.control = self._lane = WebSocketLane(stream.control, protocol)
        self._stream = stream
        self._protocol = protocol
        self._handler: LinkHandler | None = None  # from the end of the handshake on there is one
        self._is_ending = False
        self._end_message = ""
        self._is_paused = False
        """The handler wants nothing more for now."""
        self._is_choked = False
        """The peer does not take what it made us say, such as pongs: it is not read until it does."""

    # --- what the protocol above asks for ---

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self._stream.unsent

    def lane(self, key: int, priority: int = 128) -> Lane:
        """Give the control lane: there is no other."""
        return self.control

    def reply_lane(self, lane_id: int) -> Lane:
        """Give the control lane: there is no other."""
        return self.control

    def pause_reading(self, lane_id: int) -> None:
        """Stop reading the socket: the peer's window closes."""
        self._is_paused = True
        self._stream.pause_reading(CONTROL)

    def resume_reading(self, lane_id: int) -> None:
        """Read on."""
        self._is_paused = False
        if not self._is_choked:
            self._stream.resume_reading(CONTROL)

    def close(self, reason: int, message: str = "") -> None:
        """Send what is unsent and a close frame with the reason in words, then end the link."""
        if self._is_ending:
            return
        words = message or describe(reason)
        if self._protocol.state is OPEN:
            self._protocol.send_close(_close_code(reason), _cut(words))
        self._lane.flush()
        self._end(f"closed by this side: {words}")

    def abort(self) -> None:
        """Drop the connection; what is unsent is lost."""
        self._is_ending = True
        self._end_message = self._end_message or "aborted by this side"
        self._stream.abort()

    def state(self) -> LinkState | None:
        """That of the stream below it."""
        return self._stream.state()

    # --- what the link below reports ---

    def data_received(self, lane_id: int, data: bytes) -> None:
        """Take the frames of one read apart."""
        self._protocol.receive_data(data)
        payload = self._take(self._protocol.events_received())
        if payload and self._handler is not None:
            self._handler.data_received(CONTROL, payload)
        if self._is_ending:
            return
        self._lane.flush()
        if self._protocol.close_expected():
            self._leave()
        elif self.control.congested:
            self._is_choked = True
            self._stream.pause_reading(CONTROL)

    def lane_finished(self, lane_id: int) -> None:
        """The peer ended the connection without a close frame."""
        self._is_ending = True
        if self._handler is not None:
            self._handler.lane_finished(CONTROL)

    def lane_reset(self, lane_id: int, reason: int) -> None:
        """TCP has no lanes to reset."""

    def lane_writable(self, lane: Lane) -> None:
        """The peer takes data again."""
        if self._is_choked:
            self._is_choked = False
            if not self._is_paused:
                self._stream.resume_reading(CONTROL)
        if self._handler is not None:
            self._handler.lane_writable(self.control)

    def closed(self, reason: int | None, message: str) -> None:
        """The link below is gone."""
        self._is_ending = True
        if self._handler is not None:
            self._handler.closed(None, self._end_message or message)

    # --- shared ---

    def _take(self, events: list[Event]) -> bytes:
        """Act on what came, and give the payloads of binary frames."""
        payloads: list[bytes | bytearray | memoryview] = []
        for event in events:
            if not isinstance(event, Frame):
                self._shake_hands(event)
            elif event.opcode in (Opcode.BINARY, Opcode.CONT):
                payloads.append(event.data)
            elif event.opcode is Opcode.TEXT:
                # [MQTT-6.0.0-1]: a control packet in any other frame closes the connection.
                self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "MQTT is in binary frames")
                break
        return b"".join(payloads)

    def _shake_hands(self, event: Event) -> None:
        raise NotImplementedError

    def _open(self, handler: LinkHandler) -> None:
        """The handshake is complete."""
        self.alpn = self._protocol.subprotocol or ""
        self._handler = handler

    def _leave(self) -> None:
        """The peer said goodbye, broke the protocol of WebSocket, or was refused: it has been told."""
        protocol = self._protocol
        if protocol.close_rcvd is not None and protocol.parser_exc is None:
            if self._handler is not None:
                self._handler.lane_finished(CONTROL)
            self._end("closed by the peer")
        else:
            said = protocol.close_sent.reason if protocol.close_sent is not None else None
            self._end(f"the peer broke the rules of WebSocket: {protocol.handshake_exc or said}")

    def _end(self, message: str) -> None:
        if self._handler is None:
            logger.info("the %s handshake with %s failed: %s", self.transport, self.peer, message)
        self._is_ending = True
        self._end_message = self._end_message or message
        self._stream.close(Reason.SUCCESS, message)


class ServedWebSocket(WebSocketLink):
    """A WebSocket that was asked for over HTTP."""

    _protocol: ServerProtocol

    def __init__(
        self,
        stream: Link,
        accept: Callable[[Link], LinkHandler],
        options: WebSocketOptions,
        origins: Sequence[Origin | re.Pattern[str] | None] | None,
    ) -> None:
        protocol = ServerProtocol(
            origins=origins,
            subprotocols=[SUBPROTOCOL],
            max_size=(None, options.max_frame_bytes),
            logger=protocol_logger,
        )
        super().__init__(stream, protocol)
        self._accept = accept
        self._handshake_room = options.max_handshake_bytes
        self._deadline = asyncio.get_running_loop().call_later(options.connect_timeout_s, self._on_deadline)

    def data_received(self, lane_id: int, data: bytes) -> None:
        """Bound what comes before the handshake is complete."""
        if self._handler is None:
            self._handshake_room -= len(data)
            if self._handshake_room < 0:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too long")
                return
        super().data_received(lane_id, data)

    def closed(self, reason: int | None, message: str) -> None:
        """The link below is gone."""
        self._deadline.cancel()
        super().closed(reason, message)

    def _shake_hands(self, event: Event) -> None:
        assert isinstance(event, Request)
        if event.path.partition("?")[0] != PATH:
            self._refuse(HTTPStatus.NOT_FOUND, f"MQTT is at {PATH}")
            return
        response = self._protocol.accept(event)
        self._protocol.send_response(response)
        if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            self._deadline.cancel()
            self._open(self._accept(self))

    def _on_deadline(self) -> None:
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the request took too long")

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        if self._is_ending:
            return
        self._protocol.send_response(self._protocol.reject(status, f"{why}\n"))
        self._lane.flush()
        self._end(why)


async def serve(
    host: str,
    port: int,
    accept: Callable[[Link], LinkHandler],
    *,
    tls: ssl.SSLContext | None = None,
    origins: Sequence[str] = (),
    options: TransportOptions | None = None,
) -> tcp.TCPListener:
    """Accept WebSockets on every address of the host; port 0 picks a free one.

    `origins` are those of web pages that may connect besides pages of this machine; `*` stands for any.

    Raises:
        ConfigError: the host is unknown or the port cannot be had.
    """
    chosen = WebSocketOptions.of(options) if options is not None else WebSocketOptions()
    allowed = None if ANY_ORIGIN in origins else [None, OWN_ORIGINS, *map(Origin, origins)]
    return await tcp.serve(
        host, port, lambda stream: ServedWebSocket(stream, accept, chosen, allowed), tls=tls, options=chosen
    )


def _close_code(reason: int) -> CloseCode:
    if reason < FIRST_REFUSAL:
        return CloseCode.NORMAL_CLOSURE
    return CloseCode.GOING_AWAY if reason == Reason.SERVER_SHUTTING_DOWN else CloseCode.POLICY_VIOLATION


def _cut(words: str) -> str:
    return words.encode()[:MAX_CLOSE_REASON_BYTES].decode(errors="ignore")
