"""Links over TCP and TLS: one byte stream each way, so every lane is the control lane.

    write ─► outbox ── once per turn of the loop ──► asyncio's buffer ──► kernel
             └───────────── unsent, bounded by congested ──┘

A write appends to a list; a lane written to for the first time in a turn asks to be flushed, and the flush joins the
list into one system call. That is the whole of the speed: a broker that makes one system call per message spends its
time in the kernel. Backpressure is asyncio's: while it holds more than the low-water mark it is given nothing more,
and what is written waits in the outbox, where `congested` bounds it.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
import socket
import ssl
import sys
import termios
import time
import traceback
from asyncio import sslproto
from typing import TYPE_CHECKING, Final, cast

from moq.broker.link import CONTROL
from moq.errors import ConfigError, ConnectFailed
from moq.reasons import describe
from transports.fair import mark_new
from transports.figures import TransportFigures
from transports.options import DEFAULTS
from transports.tcp_info import read_state
from transports.tls import read_certificate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from moq.broker.link import Lane, Link, LinkHandler, LinkState
    from transports.options import TransportOptions

logger = logging.getLogger(__name__)

TLS_SLICE_BYTES: Final = 64 * 1024
"""TLS is given this much at a time: asyncio does not count the ciphertext that already left its TLS layer for the
socket, and says that it is full only with the write after. Small slices keep what is uncounted under two of them."""


TLS_READ_BYTES: Final = 64 * 1024
"""What one read of a TLS connection takes. Each has a buffer of this size for itself; with asyncio's own choice of 256
KiB, two hundred handshakes under way are 50 MB."""

sslproto.SSLProtocol.max_size = TLS_READ_BYTES

BUSY_SHARE: Final = 0.3
"""Of the loop's time while connections wait to be accepted: with more, messages of the established ones queue up."""

MAX_REST_S: Final = 0.02
"""However busy the loop is with other things, fifty a second are accepted."""

ACCEPT_AGAIN_S: Final = 1.0
"""How long nobody is accepted after the kernel had no file descriptor or memory for another connection."""


class Flusher:
    """Flushes every lane written to in this turn of the event loop, in one callback."""

    __slots__ = ("_lanes", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lanes: list[TCPLane] = []

    def add(self, lane: TCPLane) -> None:
        """Flush this lane once the callbacks of this turn have run."""
        if not self._lanes:
            self._loop.call_soon(self._flush)
        self._lanes.append(lane)

    def _flush(self) -> None:
        lanes, self._lanes = self._lanes, []
        for lane in lanes:
            lane.flush()


class _Gone(asyncio.Transport):
    """Stands where the transport was once that is gone.

    What refers to a TLS transport keeps its buffer of 256 KiB, and the parts of a link refer to each other: until the
    garbage collector came round, a storm of connections would leave hundreds of megabytes behind.
    """

    def is_closing(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        pass


_GONE: Final = _Gone()


class TCPLane:
    """The one outgoing byte stream of a link."""

    stream_id: Final = CONTROL

    __slots__ = (
        "_flusher",
        "_high_water",
        "_is_paused",
        "_is_scheduled",
        "_link",
        "_low_water",
        "_outbox",
        "_queued",
        "_slice",
        "_threshold",
        "_transport",
        "congested",
        "is_closed",
    )

    def __init__(
        self, link: TCPLink, transport: asyncio.Transport, flusher: Flusher, options: TransportOptions
    ) -> None:
        self.congested = False
        self.is_closed = False
        self._link = link
        self._transport = transport
        self._flusher = flusher
        self._high_water = options.high_water_bytes
        self._low_water = options.low_water_bytes
        self._slice = TLS_SLICE_BYTES if link.transport == "tls" else sys.maxsize
        self._outbox: list[bytes] = []
        self._queued = 0
        # One comparison in `write` serves three ends. It is 0 while nothing is queued, so that the first write asks
        # for a flush; then what may still be queued before the lane is congested; and -1 once the lane is closed.
        self._threshold = 0
        self._is_scheduled = False
        self._is_paused = False
        transport.set_write_buffer_limits(high=options.low_water_bytes, low=options.low_water_bytes)

    @property
    def unsent(self) -> int:
        """Bytes in the outbox and in asyncio's buffer."""
        return 0 if self.is_closed else self._queued + self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Queue bytes: the hot path, called once per delivery."""
        self._outbox.append(data)
        self._queued += len(data)
        if self._queued > self._threshold:
            self._pass_threshold()

    def finish(self) -> None:
        """Do nothing: the stream is shared by all topics."""

    def reset(self, reason: int) -> None:
        """Do nothing: the stream is shared by all topics."""

    def _pass_threshold(self) -> None:
        if self.is_closed:
            self._outbox.clear()
            self._queued = 0
            return
        self._schedule()
        self._threshold = self._high_water - self._transport.get_write_buffer_size()
        if self._queued > self._threshold:
            self.congested = True
            self._threshold = sys.maxsize

    def _schedule(self) -> None:
        if not (self._is_scheduled or self._is_paused):
            self._is_scheduled = True
            self._flusher.add(self)

    def pause(self) -> None:
        """Asyncio holds enough: keep what is written from now on."""
        self._is_paused = True

    def resume(self) -> None:
        """Asyncio has room again: go on at the end of this turn."""
        self._is_paused = False
        self._schedule()

    def flush(self) -> None:
        """Hand the outbox to asyncio; tell the handler if that ends a congestion."""
        self._is_scheduled = False
        if self.is_closed or self._is_paused:
            return
        self._hand_over()
        self._threshold = sys.maxsize if self.congested else 0
        if self.congested and self.unsent <= self._low_water:
            self.congested = False
            self._threshold = 0
            self._link.announce_writable()

    def _hand_over(self) -> None:
        """Write until all is written or asyncio calls `pause`; the rest stays in the outbox."""
        outbox = self._outbox
        data = outbox[0] if len(outbox) == 1 else b"".join(outbox)
        self._outbox = []
        self._queued = 0
        if len(data) <= self._slice:
            if data:
                self._transport.write(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), self._slice):
            if self._is_paused:
                self._outbox = [bytes(view[start:])]
                self._queued = len(data) - start
                return
            self._transport.write(view[start : start + self._slice])

    def close(self) -> None:
        """Hand over all that is left, take nothing more."""
        if self.is_closed:
            return
        self.is_closed = True
        self._threshold = -1
        if self._outbox and not self._transport.is_closing():
            self._transport.write(b"".join(self._outbox))
        self._outbox.clear()
        self._queued = 0

    def let_go(self) -> None:
        """The transport is gone, and with it the link."""
        self._transport = _GONE
        del self._link


class TCPLink(asyncio.BufferedProtocol):
    """One connection, accepted or made.

    Reads go into one buffer shared by all links of a listener, and what came is copied out: asyncio's own way, a new
    buffer of the largest size for each read, doubles the cost of a small one (24 µs against 12).
    """

    has_lanes: Final = False
    outgoing_streams: Final = 1
    control: Lane

    def __init__(
        self,
        make_handler: Callable[[Link], LinkHandler],
        flusher: Flusher,
        read_buffer: memoryview,
        options: TransportOptions,
        *,
        is_tls: bool,
    ) -> None:
        self.transport = "tls" if is_tls else "tcp"
        self.alpn = ""
        self.peer = ""
        self._make_handler = make_handler
        self._flusher = flusher
        self._read_buffer = read_buffer
        self._options = options
        self._handler: LinkHandler | None = None  # as long as the link is not ending there is one
        self._is_ending = False
        self._end_message = ""
        self._last_moment = 0.0
        self._end_timer: asyncio.TimerHandle | None = None
        self._last_state: LinkState | None = None
        """As the end began: TLS tells of it when its socket is gone."""

    # --- what the protocol above asks for ---

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self._lane.unsent

    def lane(self, key: int, priority: int = 128) -> Lane:
        """Give the control lane: there is no other."""
        return self.control

    def reply_lane(self, lane_id: int) -> Lane:
        """Give the control lane: there is no other."""
        return self.control

    def pause_reading(self, lane_id: int) -> None:
        """Stop reading the socket: the peer's window closes."""
        if not self._is_ending:
            self._stream.pause_reading()

    def resume_reading(self, lane_id: int) -> None:
        """Read on."""
        if not self._is_ending:
            self._stream.resume_reading()

    def close(self, reason: int, message: str = "") -> None:
        """Send what is unsent, then end the link. TCP has no place for the reason: the protocol above has said it."""
        if self._is_ending:
            return
        self._end(f"closed by this side: {message or describe(reason)}")
        if self._stream.can_write_eof():
            # Closing a socket with unread bytes in it makes the kernel send a reset, which destroys what the peer
            # has not read yet, our last words included. So: end our direction, and read on until the peer ends its.
            try:
                self._stream.write_eof()
            except OSError:  # reset by the peer, which asyncio has yet to find out
                self._stream.abort()
                return
            self._stream.resume_reading()
        else:
            self._stream.close()

    def abort(self) -> None:
        """Drop the connection; what is unsent is lost."""
        self._is_ending = True
        self._end_message = self._end_message or "aborted by this side"
        self._last_state = self.state()
        self._stream.abort()

    def state(self) -> LinkState | None:
        """How the network below it does, if the kernel tells; what it told last once the socket is gone."""
        sock = None if self._stream is _GONE else self._stream.get_extra_info("socket")
        return (None if sock is None else read_state(sock)) or self._last_state

    # --- what asyncio reports ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Build the lane and the handler."""
        self._stream = cast("asyncio.Transport", transport)
        self.peer = _address_text(transport.get_extra_info("peername"))
        self.control = self._lane = TCPLane(self, self._stream, self._flusher, self._options)
        try:
            self._handler = self._make_handler(self)
        except Exception:
            self._fail()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next read goes; between this call and `buffer_updated` nothing else runs."""
        return self._read_buffer

    def buffer_updated(self, size: int) -> None:
        """Hand over what one read brought."""
        if self._is_ending:
            return
        try:
            self._handler.data_received(CONTROL, bytes(self._read_buffer[:size]))  # type: ignore[union-attr]
        except Exception:
            self._fail()

    def eof_received(self) -> None:
        """The peer has said all: answer what is unsent, then asyncio closes the transport."""
        if self._is_ending:
            return
        try:
            self._handler.lane_finished(CONTROL)  # type: ignore[union-attr]
        except Exception:
            self._fail()
        else:
            self._end("closed by the peer")

    def pause_writing(self) -> None:
        """Asyncio holds more than the low-water mark."""
        self._lane.pause()

    def resume_writing(self) -> None:
        """Asyncio has drained to it."""
        self._lane.resume()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone: tell the handler, once."""
        if self._end_timer is not None:
            self._end_timer.cancel()
        self._is_ending = True
        self._last_state = self.state()
        self._lane.close()
        self._lane.let_go()
        self._stream = _GONE
        # Nothing here refers to its owner from now on, so that both go without the garbage collector: when a storm
        # has left thousands of connections to it, it stops the broker for a tenth of a second.
        handler, self._handler = self._handler, None
        if handler is None:
            return
        message = self._end_message or (f"connection lost: {error}" if error else "connection lost")
        try:
            handler.closed(None, message)
        except Exception:
            logger.exception("the handler of the %s link with %s failed as the link closed", self.transport, self.peer)

    # --- shared ---

    def announce_writable(self) -> None:
        """Tell the handler that the lane has drained."""
        try:
            self._handler.lane_writable(self.control)  # type: ignore[union-attr]
        except Exception:
            self._fail()

    def _end(self, message: str) -> None:
        """Send the rest within the close timeout: a peer that does not read does not keep the link for ever."""
        self._is_ending = True
        self._end_message = self._end_message or message
        self._last_state = self.state()
        self._lane.close()
        self._last_moment = asyncio.get_running_loop().time() + self._options.close_timeout_s
        self._linger()

    def _linger(self) -> None:
        options = self._options
        self._end_timer = asyncio.get_running_loop().call_later(
            min(options.linger_s, options.close_timeout_s), self._on_end_timer
        )

    def _on_end_timer(self) -> None:
        """Do not wait for a peer that keeps its side open, only for what is on its way to it."""
        is_late = asyncio.get_running_loop().time() >= self._last_moment
        if is_late or not (self._stream.get_write_buffer_size() or _unacknowledged(self._stream)):
            self._stream.abort()  # with nothing unsent and nothing unread this is an orderly end, not a reset
        else:
            self._linger()

    def _fail(self) -> None:
        """A bug in a handler ends its own link and no other."""
        logger.exception("the handler of the %s link with %s failed; the link is aborted", self.transport, self.peer)
        self._end_message = "the handler failed"
        self.abort()


class TCPListener:
    """A listening port. Closing it leaves the links it has accepted open.

    It accepts `accepts_per_turn` connections in a turn of the loop, where asyncio's own server accepts as many as there
    are: hundreds that arrive together would hold up everybody else for as long as it takes to greet them all. And it
    rests while the loop has been busy since the last one, for a storm would take all the time there is.
    """

    def __init__(self, make_link: Callable[[], TCPLink], tls: ssl.SSLContext | None, options: TransportOptions) -> None:
        self.port = 0
        self.figures = TransportFigures()
        self._make_link = make_link
        self._tls = tls
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._greetings: set[asyncio.Task[None]] = set()
        self._accepted_at = 0.0
        self._busy_s = 0.0

    def read_certificate(self, certificate: Path, private_key: Path) -> Callable[[], None]:
        """See `transports.Listener`; without TLS there is nothing to do."""
        if self._tls is None:
            return lambda: None
        return read_certificate(self._tls, certificate, private_key)

    def bind(self, family: int, address: str, port: int) -> None:
        """Listen on one more address."""
        # Named, because asyncio turns Nagle's algorithm off only where it sees that the protocol is TCP.
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address, port))
            sock.listen(self._options.backlog)
        except OSError:
            sock.close()
            raise
        sock.setblocking(False)
        self.port = sock.getsockname()[1]
        self._sockets.append(sock)
        self._watch(sock)

    async def close(self) -> None:
        """Accept no more."""
        for sock in self._sockets:
            self._loop.remove_reader(sock)
            sock.close()
        self._sockets.clear()

    def _watch(self, sock: socket.socket) -> None:
        if sock in self._sockets:
            self._loop.add_reader(sock, self._on_readable, sock)

    def _on_readable(self, sock: socket.socket) -> None:
        rest_s = self._rest_s()
        if rest_s > 0:
            self._loop.remove_reader(sock)
            self._loop.call_later(rest_s, self._watch, sock)
            return
        for _ in range(self._options.accepts_per_turn):
            try:
                accepted, _ = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of file descriptors or memory: those who wait stay in the backlog until somebody has left.
                logger.warning("cannot accept on port %d for now: %s", self.port, _why(error))
                self._loop.remove_reader(sock)
                self._loop.call_later(ACCEPT_AGAIN_S, self._watch, sock)
                return
            mark_new(self._loop, accepted.fileno())
            greeting = self._loop.create_task(self._greet(accepted))
            self._greetings.add(greeting)
            greeting.add_done_callback(self._greetings.discard)

    def _rest_s(self) -> float:
        """How long to leave those who wait in the backlog, so that the loop is idle for a while between two of them."""
        now, busy_s = self._loop.time(), time.thread_time()
        rest_s = self._accepted_at + min((busy_s - self._busy_s) / BUSY_SHARE, MAX_REST_S) - now
        if rest_s <= 0:
            self._accepted_at, self._busy_s = now, busy_s
        return rest_s

    async def _greet(self, accepted: socket.socket) -> None:
        """Make a link of a connection, shaking hands first if it is TLS."""
        options, tls = self._options, self._tls
        try:
            await self._loop.connect_accepted_socket(
                self._make_link,
                accepted,
                ssl=tls,
                ssl_handshake_timeout=options.connect_timeout_s if tls else None,
                ssl_shutdown_timeout=options.close_timeout_s if tls else None,
            )
        except OSError as error:  # of TLS, too
            logger.info("a connection to port %d did not come about: %s", self.port, _why(error))
            if tls is not None:
                self.figures.handshakes_failed["tls" if isinstance(error, ssl.SSLError) else "other"] += 1
            # Where it was raised the error is a local name: a circle that keeps the buffers of the handshake.
            traceback.clear_frames(error.__traceback__)


async def serve(
    host: str,
    port: int,
    accept: Callable[[Link], LinkHandler],
    *,
    tls: ssl.SSLContext | None = None,
    options: TransportOptions = DEFAULTS,
) -> TCPListener:
    """Listen on every address of the host, all on one port; port 0 picks a free one.

    Raises:
        ConfigError: the host is unknown or the port cannot be had.
    """
    loop = asyncio.get_running_loop()
    listener = TCPListener(_link_maker(accept, tls, options), tls, options)
    try:
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((info[0], str(info[4][0])) for info in infos):
            # With port 0 the first address picks, and the others follow it.
            listener.bind(family, address, listener.port or port)
    except (OSError, UnicodeError) as error:
        await listener.close()
        raise ConfigError(f"cannot listen on {_url(host, port, tls)}: {_why(error)}") from error
    return listener


async def connect(
    host: str,
    port: int,
    make_handler: Callable[[Link], LinkHandler],
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
    options: TransportOptions = DEFAULTS,
) -> TCPLink:
    """Open a link; the handler hears from it once this returns or shortly before.

    Raises:
        ConnectFailed: nobody answers, or the certificate is not trusted.
    """
    loop = asyncio.get_running_loop()
    url = _url(host, port, tls)
    try:
        async with asyncio.timeout(options.connect_timeout_s):
            _, link = await loop.create_connection(
                _link_maker(make_handler, tls, options),
                host,
                port,
                ssl=tls,
                server_hostname=(server_name or host) if tls else None,
                ssl_shutdown_timeout=options.close_timeout_s if tls else None,
            )
    except TimeoutError as error:
        raise ConnectFailed(f"{url} did not answer within {options.connect_timeout_s:g} s") from error
    except ssl.SSLCertVerificationError as error:
        raise ConnectFailed(f"the certificate of {url} is not trusted: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise ConnectFailed(f"{url} does not speak TLS as we do: {error.reason or error}") from error
    except (OSError, UnicodeError) as error:
        raise ConnectFailed(f"no connection to {url}: {_why(error)}") from error
    return link


def _link_maker(
    make_handler: Callable[[Link], LinkHandler], tls: ssl.SSLContext | None, options: TransportOptions
) -> Callable[[], TCPLink]:
    flusher = Flusher(asyncio.get_running_loop())
    read_buffer = memoryview(bytearray(options.read_bytes))
    return lambda: TCPLink(make_handler, flusher, read_buffer, options, is_tls=tls is not None)


def _unacknowledged(stream: asyncio.Transport) -> int:
    """Bytes that the kernel has and the peer's has not: what asyncio gave it, TLS included, which asyncio forgets."""
    try:
        answer = fcntl.ioctl(stream.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:  # not known on this system
        return 0
    return int.from_bytes(answer, sys.byteorder)


def _url(host: str, port: int, tls: ssl.SSLContext | None) -> str:
    return f"{'tls' if tls else 'tcp'}://{host}:{port}"


def _why(error: OSError | UnicodeError) -> str:
    """The kernel's words, which asyncio wraps in its own once for each address tried; or what is wrong with a name."""
    codes = set(re.findall(r"\[Errno (\d+)\]", str(error)))
    return os.strerror(int(codes.pop())).lower() if len(codes) == 1 else str(error)


def _address_text(address: tuple[str, int] | None) -> str:
    if not address:
        return "unknown"
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
