"""One connection on an endpoint: it carries datagrams to its engine and the engine's events to its owner.

    endpoint ── datagrams ──> engine ── events ──> owner (a link)
             <── datagrams ──        <── send ────

Everything happens in turns: what came in is handled, the owner fills the engine's streams, what may leave leaves.
There is one timer, re-armed only when the engine wants it earlier than it stands.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Protocol

from transports.fair import NEW_FOR_S
from transports.figures import TransportFigures
from transports.quic.engine import (
    Closed,
    ConnectionIdIssued,
    ConnectionIdRetired,
    HandshakeCompleted,
    StreamData,
    StreamReset,
    StreamStopped,
    Terminated,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from transports.quic.endpoint import Endpoint
    from transports.quic.engine import Address, Engine, Event
    from transports.quic.options import QUICOptions

logger = logging.getLogger(__name__)

HANDSHAKE_TIMED_OUT = "the handshake timed out"

MAX_DATAGRAMS_PER_FLUSH = 256
"""Then the other connections have their turn: 5 ms of work."""

REFUSALS_UNTIL_LOST = 3
"""One ICMP message can be forged or stale; this many with nothing heard in between say that nobody is there."""


class Owner(Protocol):
    """Who uses a connection once its handshake is complete: a link, or a benchmark's relay."""

    def stream_data(self, stream_id: int, data: bytes, *, is_finished: bool) -> None:
        """Bytes of a stream; call `engine.consume` when they are taken."""

    def stream_reset(self, stream_id: int, code: int) -> None:
        """The peer abandoned a stream."""

    def stream_stopped(self, stream_id: int, code: int) -> None:
        """The peer wants nothing more on a stream of ours."""

    def fill(self, drained: list[int]) -> None:
        """Hand data to the engine: new data, and more for the streams that have drained."""

    def flushed(self) -> None:
        """What could leave in this turn has left."""

    def closed(self, code: int | None, message: str) -> None:
        """The connection is gone."""


class Connection:
    """Drives one engine."""

    def __init__(
        self,
        endpoint: Endpoint,
        engine: Engine,
        address: Address,
        *,
        options: QUICOptions,
        on_open: Callable[[Connection, HandshakeCompleted], Owner],
        on_failed: Callable[[Closed], None],
        figures: TransportFigures | None = None,
    ) -> None:
        self.engine = engine
        self.address = address
        self.cids: set[bytes] = set()
        """Under which the endpoint knows this connection."""
        self.is_open = False
        self._figures = figures or TransportFigures()
        self._heard_from = address
        self._endpoint = endpoint
        self.loop = endpoint.loop
        self._on_open = on_open
        self._on_failed = on_failed
        self._owner: Owner | None = None
        self._early: list[Event] = []
        self._deadline: float | None = time.monotonic() + options.connect_timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_closed = False
        self._farewell: list[tuple[bytes, Address]] = []
        self._late_datagrams = 0
        self.is_new_until = time.monotonic() + NEW_FOR_S
        self._refusals = 0
        self._is_released = False
        self._keep_alive_s = options.keep_alive_s if endpoint.is_client else None
        self._keep_alive_timer: asyncio.TimerHandle | None = None
        self._heard_at = 0.0

    def receive(self, datagrams: list[bytes], address: Address, now: float) -> None:
        """Take datagrams; the endpoint calls `handle_events` and `flush` when it has read all there is."""
        self._refusals = 0
        self._heard_at = now
        if self._farewell:
            self._repeat_farewell(len(datagrams))
        try:
            if address != self._heard_from and self.is_open:
                self._receive_from_elsewhere(datagrams, address, now)
            else:
                self.engine.receive(datagrams, address, now)
        except Exception:
            # No datagram may have this effect; if one has, it is this connection's and nobody else's.
            logger.exception("a datagram from %s could not be handled; the link is aborted", address)
            self.end(None, "internal error")

    def _receive_from_elsewhere(self, datagrams: list[bytes], address: Address, now: float) -> None:
        """The peer may go on from another address; only if the datagrams are its own has it done so."""
        before = self.engine.stats().packets_received
        self.engine.receive(datagrams, address, now)
        if self.engine.stats().packets_received > before:
            self._heard_from = address
            self._figures.migrations += 1

    def handle_events(self) -> None:
        """Tell the owner what happened; a bug in it ends this connection and no other."""
        events = self.engine.events()
        if not events:
            return
        try:
            for event in events:
                self._handle(event)
        except Exception:
            logger.exception("the handler of the quic link with %s failed; the link is aborted", self.address)
            self.end(None, "internal error")

    def _handle(self, event: Event) -> None:
        owner = self._owner
        match event:
            case StreamData() if owner is not None:
                owner.stream_data(event.stream_id, event.data, is_finished=event.is_finished)
            case StreamReset() if owner is not None:
                owner.stream_reset(event.stream_id, event.code)
            case StreamStopped() if owner is not None:
                owner.stream_stopped(event.stream_id, event.code)
            case ConnectionIdIssued():
                self._endpoint.add_cid(self, event.connection_id)
            case ConnectionIdRetired():
                self._endpoint.remove_cid(self, event.connection_id)
            case HandshakeCompleted():
                self._open(event)
            case Closed():
                self._closed(event)
            case Terminated():
                self._endpoint.forget(self)
            case _ if not self._is_closed:
                # Early data waits, for it may be a replay until the handshake is complete; it is bounded by the
                # windows, which only its reader opens.
                self._early.append(event)

    def _open(self, event: HandshakeCompleted) -> None:
        self.is_open = True
        self._deadline = None
        self._owner = self._on_open(self, event)
        self._keep_alive()
        early, self._early = self._early, []
        for waiting in early:
            self._handle(waiting)

    def _closed(self, event: Closed) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._deadline = None
        if self._owner is not None:
            self._owner.closed(event.code, event.message)
        else:
            self._on_failed(event)
        if self._endpoint.is_client:
            self._endpoint.forget(self)  # nobody else uses its socket, so late packets need no absorbing

    # Sending

    def schedule_flush(self) -> None:
        """Something was written: flush at the end of this turn."""
        self._endpoint.schedule_flush(self)

    def flush(self, now: float) -> None:
        """Send what may leave now. The endpoint calls this once per turn."""
        engine, owner = self.engine, self._owner
        try:
            if owner is not None and not self._is_closed:
                owner.fill(engine.drained())
            sent = 0
            while datagrams := engine.datagrams_to_send(now):
                self._endpoint.send(datagrams)
                sent += len(datagrams)
                if owner is None or self._is_closed or not (drained := engine.drained()):
                    break
                owner.fill(drained)
                if sent >= MAX_DATAGRAMS_PER_FLUSH or self._endpoint.is_full:
                    self.schedule_flush()
                    break
            if owner is not None and not self._is_closed:
                owner.flushed()
        except Exception:
            logger.exception("sending to %s failed; the link is aborted", self.address)
            self.end(None, "internal error")
        self.handle_events()
        self._arm(now)

    def end(self, code: int | None, message: str) -> None:
        """Close with an application code, or without one; the owner is told at once, late packets are absorbed."""
        if self._is_closed:
            return
        self.engine.close(code, message)
        now = time.monotonic()
        self._farewell = self.engine.datagrams_to_send(now)
        self._endpoint.send(self._farewell)
        self._arm(now)
        self.lose(message)

    def _repeat_farewell(self, count: int) -> None:
        """RFC 9000 section 10.2.1: a peer that still sends has not heard it; answer ever more rarely."""
        before = self._late_datagrams
        self._late_datagrams += count
        if self._late_datagrams.bit_length() > before.bit_length():
            self._endpoint.send(self._farewell)

    def refused(self) -> None:
        """The peer's port was found closed."""
        self._refusals += 1
        if not self.is_open or self._refusals >= REFUSALS_UNTIL_LOST:
            self.lose("connection refused")

    def lose(self, message: str) -> None:
        """Nothing will be sent any more: tell the owner."""
        try:
            self._closed(Closed(None, message, is_by_peer=False))
        except Exception:
            logger.exception("the handler of the quic link with %s failed as the link closed", self.address)

    # Time

    def _arm(self, now: float) -> None:
        if self._is_released:
            return
        at = self.engine.timer()
        if self._deadline is not None and (at is None or self._deadline < at):
            at = self._deadline
        if at is None or (self._timer is not None and self._timer_at <= at):
            return  # a timer that fires early only re-arms itself, which costs less than replacing it each turn
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.loop.call_later(max(0.0, at - now), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = max(time.monotonic(), self._timer_at)
        if self._deadline is not None and now >= self._deadline:
            self._deadline = None
            self.end(None, HANDSHAKE_TIMED_OUT)
            return
        at = self.engine.timer()
        if at is not None and at <= now:
            self.engine.handle_timer(now)
            self.handle_events()
            self._endpoint.flush(self, now)
        else:
            self._arm(now)

    def _keep_alive(self) -> None:
        """A client asks a silent server whether it is there, which also keeps routers in between from forgetting us."""
        if self._keep_alive_s is None or self._is_closed:
            return
        silence_s = time.monotonic() - self._heard_at
        if silence_s >= self._keep_alive_s:
            self.engine.ping()
            self.schedule_flush()
            silence_s = 0.0
        self._keep_alive_timer = self.loop.call_later(self._keep_alive_s - silence_s, self._keep_alive)

    def release(self) -> None:
        """The endpoint has forgotten this connection."""
        self._is_released = True
        for timer in (self._timer, self._keep_alive_timer):
            if timer is not None:
                timer.cancel()
        self._timer = None
        # At the end of this turn: the engine may be in the middle of something.
        self.loop.call_soon(self.engine.release)
