"""Our UDP endpoint: one socket, the connections on it, and nothing of the QUIC library behind them.

    readable ──> read until empty ──> connection by id ──> engine ──> events ──> handlers ─┐
                                                                                            │ end of the turn
    socket   <── GSO runs <────────── datagrams <───────── engine <── outboxes <────────────┘

Reads and flushes are batched by turns of the event loop and never by a timer, so a lone packet leaves as soon as
the loop comes round. A full socket stops the engines from making more datagrams instead of dropping what they made.

A step of a handshake takes one or two milliseconds, so a server takes one at a time and then a longer break: those
who connect together wait for each other, and nobody else waits for them all.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from transports.fair import EVENTS_PER_TURN
from transports.quic.packets import CID_BYTES, LONG_HEADER, SMALLEST_INITIAL, maybe_long_header

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from transports.quic.connection import Connection
    from transports.quic.engine import Address
    from transports.quic.packets import LongHeader
    from transports.quic.sockets import UDPSocket

MAX_QUEUED_DATAGRAMS = 4096
"""Held while the socket is full; past it the oldest is dropped and QUIC sends it again."""

REST_PER_STEP = 3.0
"""After a step of a handshake, so many times as long is for the others."""

MAX_HANDSHAKE_DATAGRAMS = 1024
"""Held until the handshakes before them have had their turn; past it they are dropped and QUIC sends them again."""


class Endpoint:
    """Connections that share a UDP socket."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: UDPSocket,
        read_bytes: int,
        accept: Callable[[Endpoint, LongHeader, bytes, Address], Connection | None] | None = None,
    ) -> None:
        """`accept` makes a connection of a stranger's first packet, or answers it; a client has none."""
        self.loop = loop
        self.connections: dict[bytes, Connection] = {}
        self._socket = socket
        self._read_bytes = read_bytes
        self._accept = accept
        self.is_client = accept is None
        self._dirty: dict[Connection, None] = {}
        self._is_scheduled = False
        self._queue: deque[tuple[bytes, Address]] = deque(maxlen=MAX_QUEUED_DATAGRAMS)
        self._handshakes: deque[tuple[bytes, Address]] = deque()
        self._waiting_cids: set[bytes] = set()
        """Of connections with datagrams in there: what follows them waits too, for it cannot be read before."""
        self._has_shaken = False
        """True from a handshake's step to the next turn of the loop."""
        self._is_closed = False
        loop.add_reader(socket.fileno(), self._on_readable)

    @property
    def is_full(self) -> bool:
        """True while the socket takes nothing more."""
        return bool(self._queue)

    # Connections

    def add_cid(self, connection: Connection, cid: bytes) -> None:
        """Datagrams to this id are for this connection."""
        self.connections[cid] = connection
        connection.cids.add(cid)

    def remove_cid(self, connection: Connection, cid: bytes) -> None:
        """No longer."""
        connection.cids.discard(cid)
        self.connections.pop(cid, None)

    def forget(self, connection: Connection) -> None:
        """The connection is over."""
        for cid in connection.cids:
            self.connections.pop(cid, None)
        connection.cids.clear()
        self._dirty.pop(connection, None)
        connection.release()
        if self.is_client:
            self.close()  # its only connection is over

    def all(self) -> set[Connection]:
        """Every connection once."""
        return set(self.connections.values())

    def close(self) -> None:
        """Give the port back; peers of connections still open hear nothing, their owners do."""
        if self._is_closed:
            return
        self._is_closed = True
        dropped = self.all()
        self.connections.clear()
        self._handshakes.clear()
        self._dirty.clear()
        self.loop.remove_reader(self._socket.fileno())
        if self._queue:
            self.loop.remove_writer(self._socket.fileno())
            self._queue.clear()
        self._socket.close()
        for connection in dropped:
            connection.release()
            connection.lose("the endpoint was closed")

    # Receiving

    def _on_readable(self) -> None:
        now = time.monotonic()
        touched: dict[Connection, None] = {}
        budget = self._read_bytes
        self._is_scheduled = True  # what handlers write is flushed below, in this turn
        while budget > 0 and not self._is_closed:
            read = self._socket.read()
            if read is None:
                break
            datagrams, address = read
            for datagram in datagrams:
                # A small one takes as long as a large one.
                budget -= max(len(datagram), SMALLEST_INITIAL)
            budget -= 1
            self._deliver(datagrams, address, now, touched)
        if self._socket.is_refused:
            self._refused()
        self._handle(touched)

    def _handle(self, touched: dict[Connection, None]) -> None:
        for connection in self._in_turn(touched, time.monotonic()):
            connection.handle_events()
            self._dirty[connection] = None
        self._flush_dirty()

    def _in_turn(self, connections: dict[Connection, None], now: float) -> list[Connection]:
        """Those of some connections whose turn it is; the others are flushed, and so handled, in the turns after.

        New ones wait for each other and nobody else for them: see `transports.fair`.
        """
        if self.is_client or len(connections) <= EVENTS_PER_TURN:
            return list(connections)
        new = [connection for connection in connections if now < connection.is_new_until]
        later = dict.fromkeys(new[EVENTS_PER_TURN:])
        self._dirty |= later
        return [connection for connection in connections if connection not in later]

    def _deliver(self, datagrams: list[bytes], address: Address, now: float, touched: dict[Connection, None]) -> None:
        """Give each run of datagrams for one connection id to its connection."""
        stop = 0
        while stop < len(datagrams):
            start = stop
            first = datagrams[start]
            if not first:
                stop += 1
                continue
            cid = first[1 : 1 + CID_BYTES]
            stop += 1
            if first[0] & LONG_HEADER or cid in self._waiting_cids:
                self._shake_hands(first, address, now, touched)
                continue
            connection = self.connections.get(cid)
            while stop < len(datagrams) and datagrams[stop][1 : 1 + CID_BYTES] == cid:
                stop += 1
            if connection is not None:
                connection.receive(datagrams[start:stop] if stop - start < len(datagrams) else datagrams, address, now)
                touched[connection] = None

    def _shake_hands(self, datagram: bytes, address: Address, now: float, touched: dict[Connection, None]) -> None:
        """Take a datagram of a handshake, or keep it until those before it have been taken."""
        if self._accept is None:
            self._take(datagram, address, now, touched)  # a client's one handshake holds nobody up
        elif not self._has_shaken:
            self._has_shaken = True
            self.loop.call_soon(self._next_handshake)
            self._take(datagram, address, now, touched)
        elif len(self._handshakes) < MAX_HANDSHAKE_DATAGRAMS:
            self._handshakes.append((datagram, address))
            self._waiting_cids.add(_destination(datagram))

    def _next_handshake(self) -> None:
        """Another turn of the loop, another datagram."""
        self._has_shaken = bool(self._handshakes) and not self._is_closed
        if not self._has_shaken:
            self._waiting_cids.clear()
            return
        touched: dict[Connection, None] = {}
        self._is_scheduled = True  # as in `_on_readable`
        started_at = time.monotonic()
        self._take(*self._handshakes.popleft(), started_at, touched)
        self._handle(touched)
        self.loop.call_later((time.monotonic() - started_at) * REST_PER_STEP, self._next_handshake)

    def _take(self, datagram: bytes, address: Address, now: float, touched: dict[Connection, None]) -> None:
        if datagram[0] & LONG_HEADER:
            connection = self._by_long_header(datagram, address)
        else:
            connection = self.connections.get(_destination(datagram))
        if connection is not None:
            connection.receive([datagram], address, now)
            touched[connection] = None

    def _by_long_header(self, datagram: bytes, address: Address) -> Connection | None:
        header = maybe_long_header(datagram)
        if header is None:
            return None
        connection = self.connections.get(header.destination_cid)
        if connection is None and self._accept is not None:
            return self._accept(self, header, datagram, address)
        return connection

    def _refused(self) -> None:
        self._socket.is_refused = False
        if self.is_client:  # a server's socket cannot tell whose port was closed
            for connection in self.all():
                connection.refused()

    # Sending

    def schedule_flush(self, connection: Connection) -> None:
        """Flush this connection at the end of the turn."""
        self._dirty[connection] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._flush_dirty)

    def _flush_dirty(self) -> None:
        now = time.monotonic()
        dirty, self._dirty = self._dirty, {}
        for connection in self._in_turn(dirty, now):
            self.flush(connection, now)
        # What handlers wrote meanwhile has its turn next, or once a full socket has room.
        self._is_scheduled = bool(self._dirty)
        if self._dirty and not self._queue:
            self.loop.call_soon(self._flush_dirty)

    def flush(self, connection: Connection, now: float) -> None:
        """Let a connection send now, or when the socket has room again."""
        if self._queue:
            self._dirty[connection] = None
        elif not self._is_closed:
            connection.flush(now)

    def send(self, datagrams: list[tuple[bytes, Address]]) -> None:
        """Send now, or queue what the socket does not take."""
        if self._is_closed or not datagrams:
            return
        if self._queue:
            self._queue.extend(datagrams)
            return
        done = self._socket.send(datagrams)
        if done < len(datagrams):
            self._queue.extend(datagrams[done:])
            self.loop.add_writer(self._socket.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        done = self._socket.send(list(self._queue))
        for _ in range(done):
            self._queue.popleft()
        if not self._queue:
            self.loop.remove_writer(self._socket.fileno())
            self._flush_dirty()


def _destination(datagram: bytes) -> bytes:
    """The connection id a datagram is for; a short header does not say how long it is, but it is one of ours."""
    if datagram[0] & LONG_HEADER:
        header = maybe_long_header(datagram)
        return header.destination_cid if header is not None else b""
    return datagram[1 : 1 + CID_BYTES]
