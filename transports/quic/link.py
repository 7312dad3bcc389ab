"""A link on a QUIC connection: stream 0 is the control lane, every topic has a unidirectional stream of its own.

    write ──> outbox ──(at most HANDOVER_BYTES at a time)──> engine's stream ──> packets
              bounded by the high-water mark                 kept until acknowledged

What is written stays in the lane's outbox until the engine has room, so that what a peer does not take is ours to
count. Incoming lanes are numbered by their stream id; those the peer opened for both ways are answered on themselves.

Past the peer's stream limit keys share an overflow lane, for which the last stream is reserved; if the peer allows
none at all, they share the control lane.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from moq.broker.link import CONTROL, LinkState
from moq.reasons import describe
from transports.figures import TransportFigures
from transports.quic.inbox import Inbox
from transports.quic.lane import QUICLane

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from moq.broker.link import Lane, LinkHandler
    from transports.quic.connection import Connection
    from transports.quic.engine import EngineStats
    from transports.quic.options import QUICOptions

HANDOVER_BYTES = 64 * 1024
"""Given to the engine at a time: enough to fill many packets at once, and little to hold twice."""

OVERFLOW = -1
"""The key of the shared lane; those of topics are positive, those of reply lanes, which nobody asks for, are less."""

UNIDIRECTIONAL = 0x2
"""RFC 9000 section 2.1: the bit of a stream id that says so."""


class QUICLink:
    """A connection to one peer, as the broker and the client see it."""

    transport = "quic"
    _handler: LinkHandler

    def __init__(
        self,
        connection: Connection,
        options: QUICOptions,
        alpn: str,
        *,
        is_client: bool,
        is_resumed: bool,
        figures: TransportFigures | None = None,
    ) -> None:
        self.alpn = alpn
        self.has_lanes = not options.single_stream
        self.is_resumed = is_resumed
        """True if the handshake was shortened by a session ticket."""
        self.peer = format_address(connection.address)
        self._control = QUICLane(self, CONTROL, CONTROL, is_shared=True)
        self.control: Lane = self._control
        self._connection = connection
        self._engine = connection.engine
        self._options = options
        self._figures = figures or TransportFigures()
        self._on_gone: Callable[[], None] | None = None
        self._inbox = Inbox(connection.engine, on_resume=connection.schedule_flush, on_finished=self._lane_finished)
        self._lanes: dict[int, QUICLane] = {}
        self._streams: dict[int, QUICLane] = {CONTROL: self._control}
        """Lanes by stream, finishing ones included."""
        self._ready: dict[QUICLane, None] = {}
        """Lanes with something to hand over and room in the engine for it."""
        self._handed: set[int] = set()
        """Streams whose data the engine has not sent yet."""
        self._congested: dict[QUICLane, None] = {}
        self._relieved: dict[QUICLane, None] = {}
        """Congested lanes that have handed something over in this turn."""
        self._is_congested = False
        """True from the link's high-water mark to its low one: until then no lane is writable again."""
        self.queued = 0
        """Bytes in all outboxes."""
        self._handover = min(HANDOVER_BYTES, options.high_water_bytes // 2)
        self.lane_mark = options.high_water_bytes - self._handover
        """An outbox that passes it is congested: with what the engine was given, that is the high-water mark."""
        self.link_mark = options.link_high_water_bytes
        self._goodbye: tuple[int | None, str] | None = None
        self._goodbye_timer: asyncio.TimerHandle | None = None
        self._goodbye_deadline = 0.0
        self._is_gone = False
        self._is_control_open = is_client
        """Stream 0 is the client's to open: a server's words wait for it."""
        self._idle_timer: asyncio.TimerHandle | None = None

    def start(self, handler: LinkHandler, on_gone: Callable[[], None] | None = None) -> None:
        """Give the link its handler; nothing is reported before. `on_gone` is called when the link is."""
        self._handler = handler
        self._on_gone = on_gone
        self._inbox.handler = handler

    # Lanes

    @property
    def unsent(self) -> int:
        """Bytes on all lanes that have not been in a packet yet."""
        return self.queued + sum(map(self._engine.unsent, self._handed))

    @property
    def outgoing_streams(self) -> int:
        """Streams that are open in our direction, the control stream among them."""
        return len(self._streams)

    def engine_unsent(self, stream_id: int) -> int:
        """What the engine holds of a stream and has not sent."""
        return self._engine.unsent(stream_id) if stream_id in self._handed else 0

    def lane(self, key: int, priority: int = 128) -> QUICLane:
        """The lane of a topic."""
        lane = self._lanes.get(key)
        if lane is not None and not lane.is_closed:
            return lane
        if self._is_gone or self._goodbye is not None:
            lane = QUICLane(self, CONTROL, key, is_shared=True)
            lane.is_closed = True
            return lane
        if not self.has_lanes:
            return self._control
        left = self._engine.streams_left()
        overflow = self._lanes.get(OVERFLOW)
        if left > (0 if overflow is not None else 1):
            lane = self._open(key, priority, is_shared=False)
        elif overflow is not None:
            lane = overflow
        elif left:
            lane = self._lanes[OVERFLOW] = self._open(OVERFLOW, priority, is_shared=True)
        else:
            lane = self._control
        self._lanes[key] = lane
        return lane

    def reply_lane(self, lane_id: int) -> QUICLane:
        """The sending half of a bidirectional stream, or the control lane if the stream has none."""
        if lane_id == CONTROL or lane_id & UNIDIRECTIONAL:
            return self._control
        lane = self._streams.get(lane_id)
        if lane is None:
            lane = QUICLane(self, lane_id, OVERFLOW - lane_id, is_shared=False)
            if self._is_gone or self._goodbye is not None or not self._engine.can_send(lane_id):
                lane.is_closed = True
            else:
                self._streams[lane_id] = lane
                self._figures.lanes_opened += 1
        return lane

    def _open(self, key: int, priority: int, *, is_shared: bool) -> QUICLane:
        lane = QUICLane(self, self._engine.open_stream(priority), key, is_shared=is_shared)
        lane.written_at = time.monotonic()
        self._streams[lane.stream_id] = lane
        self._figures.lanes_opened += 1
        if self._idle_timer is None:
            self._watch_idle_lanes()
        return lane

    def _forget(self, lane: QUICLane) -> None:
        """The lane's stream is over: its key opens another."""
        self.queued -= lane.discard()
        self._streams.pop(lane.stream_id, None)
        self._handed.discard(lane.stream_id)
        self._ready.pop(lane, None)
        self._congested.pop(lane, None)
        if lane.key == OVERFLOW:
            self._lanes = {key: kept for key, kept in self._lanes.items() if kept is not lane}
        elif self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]

    def wake(self, lane: QUICLane) -> None:
        """A lane has something to hand over: flush at the end of the turn."""
        lane.is_asleep = False
        self._ready[lane] = None
        self._connection.schedule_flush()

    def congest(self, lane: QUICLane) -> None:
        """A lane, or the link, holds too much."""
        lane.congested = True
        self._congested[lane] = None
        self._is_congested |= self.queued > self.link_mark

    def finish(self, lane: QUICLane) -> None:
        """End a lane after what was written to it."""
        if self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]
        if lane.is_asleep:
            self.wake(lane)

    def reset(self, lane: QUICLane, reason: int) -> None:
        """End a lane now."""
        self._engine.reset(lane.stream_id, reason)
        self._figures.lanes_ended["reset"] += 1
        self._forget(lane)
        self._connection.schedule_flush()

    def _watch_idle_lanes(self) -> None:
        loop = self._connection.loop
        self._idle_timer = loop.call_later(self._options.idle_lane_s / 2, self._finish_idle_lanes)

    def _finish_idle_lanes(self) -> None:
        """Finish lanes nobody has written to for a while.

        Only once all is acknowledged: then what is written to the next stream of the key cannot overtake it on the
        network. (A reader that has paused the old stream all this while may still see the new one first.)
        """
        idle_since = time.monotonic() - self._options.idle_lane_s
        for lane in list(self._lanes.values()):
            if lane.is_shared or lane.is_closed or lane.written_at > idle_since:
                continue
            if not lane.queued and self._engine.is_acknowledged(lane.stream_id):
                lane.finish()
        self._idle_timer = None
        if len(self._streams) > 1:
            self._watch_idle_lanes()

    # Reading

    def pause_reading(self, lane_id: int) -> None:
        """Hand over no more data of this lane; its window stays closed."""
        self._inbox.pause(lane_id)

    def resume_reading(self, lane_id: int) -> None:
        """Go on, beginning with what was held, at the end of the turn."""
        self._inbox.resume(lane_id)

    def _lane_finished(self, lane_id: int) -> None:
        self._handler.lane_finished(lane_id)
        if lane_id == CONTROL:
            self.close(0, "the peer finished the control stream")

    # What the connection reports

    def stream_data(self, stream_id: int, data: bytes, *, is_finished: bool) -> None:
        """Bytes of an incoming lane."""
        if stream_id == CONTROL and not self._is_control_open:
            self._is_control_open = True
            self._connection.schedule_flush()
        self._inbox.receive(stream_id, data, is_finished=is_finished)

    def stream_reset(self, stream_id: int, code: int) -> None:
        """The peer abandoned an incoming lane."""
        self._inbox.reset(stream_id)
        if not self._inbox.is_silent:
            self._handler.lane_reset(stream_id, code)

    def stream_stopped(self, stream_id: int, code: int) -> None:
        """The peer does not want an outgoing lane."""
        lane = self._streams.get(stream_id)
        if lane is None:
            return
        if lane is self._control:
            self.abort()
            return
        self._figures.lanes_ended["stopped"] += 1
        self._forget(lane)
        if not self._inbox.is_silent:
            self._handler.lane_writable(lane)

    def fill(self, drained: list[int]) -> None:
        """Hand over what waits, and more of the lanes that have drained."""
        self._inbox.hand_over_held()
        if self._goodbye is not None and self._goodbye[0] is None:
            return
        for stream_id in drained:
            self._handed.discard(stream_id)
            lane = self._streams.get(stream_id)
            if lane is None:
                continue
            if lane.congested:
                self._relieved[lane] = None
            if lane.queued or lane.is_finishing:
                self._ready[lane] = None
            else:
                lane.is_asleep = True
        ready, self._ready = self._ready, {}
        if self._control in ready and not self._is_control_open:
            self._ready[self._control] = ready.pop(self._control)
        now = time.monotonic() if ready else 0.0
        for lane in ready:
            lane.written_at = now
            if lane.congested:
                self._relieved[lane] = None
            self._hand_to_engine(lane)

    def _hand_to_engine(self, lane: QUICLane) -> None:
        data = lane.take(self._handover) if lane.queued else b""
        self.queued -= len(data)
        fin = lane.is_finishing and not lane.queued
        self._engine.send(lane.stream_id, data, fin=fin)
        if data:
            self._handed.add(lane.stream_id)
        if fin:
            self._figures.lanes_ended["finished"] += 1
            self._streams.pop(lane.stream_id, None)
            if not data:
                self._handed.discard(lane.stream_id)

    def flushed(self) -> None:
        """Say which lanes are writable again; end the link if it is closing and all is said."""
        if self._goodbye is not None:
            self._say_goodbye()
        elif self._is_congested:
            if self.queued <= self._options.link_low_water_bytes:
                self._is_congested = False
                self._report_writable(list(self._congested))
        elif self._relieved:
            self._report_writable(list(self._relieved))
        self._relieved = {}

    def _report_writable(self, lanes: list[QUICLane]) -> None:
        low = self._options.low_water_bytes
        writable = [lane for lane in lanes if lane.congested and lane.unsent <= low]
        for lane in writable:
            lane.congested = False
            del self._congested[lane]
        for lane in writable:
            self._handler.lane_writable(lane)

    # The end

    def close(self, reason: int, message: str = "") -> None:
        """Send what was written to the control lane, then end the link with the reason."""
        self._leave(reason, message or describe(reason), self._options.close_timeout_s)

    def abort(self) -> None:
        """End the link at the end of this turn; the peer learns that it is gone, but no reason."""
        self._leave(None, "aborted", 0.0)

    def _leave(self, reason: int | None, message: str, timeout_s: float) -> None:
        if self._is_gone or (self._goodbye is not None and (timeout_s or self._goodbye[0] is None)):
            return
        self._goodbye = (reason, message)
        self._inbox.is_silent = True
        self._goodbye_deadline = time.monotonic() + timeout_s
        for lane in self._streams.values():
            lane.is_closed = True
        self._control.is_closed = True
        if self._goodbye_timer is not None:
            self._goodbye_timer.cancel()
        self._goodbye_timer = self._connection.loop.call_later(timeout_s, self._connection.schedule_flush)
        self._connection.schedule_flush()

    def _say_goodbye(self) -> None:
        assert self._goodbye is not None
        reason, message = self._goodbye
        is_all_said = not self._control.unsent and not self._engine.stats().bytes_in_flight
        if is_all_said or time.monotonic() >= self._goodbye_deadline:
            self._connection.end(reason, message)

    def closed(self, code: int | None, message: str) -> None:
        """The connection is gone."""
        if self._is_gone:
            return
        self._is_gone = True
        for timer in (self._idle_timer, self._goodbye_timer):
            if timer is not None:
                timer.cancel()
        for lane in list(self._streams.values()):
            lane.discard()
        self._figures.lanes_ended["link"] += len(self._streams.keys() - {CONTROL})
        self.queued = 0
        self._handed.clear()
        for table in (self._streams, self._lanes, self._ready, self._congested):
            table.clear()
        self._inbox.close()
        if self._on_gone is not None:
            self._on_gone()
        self._handler.closed(code, message)

    def state(self) -> LinkState:
        """How the network below it does."""
        stats = self._engine.stats()
        return LinkState(
            stats.round_trip_s,
            stats.congestion_window,
            stats.bytes_in_flight,
            stats.packets_sent,
            stats.packets_received,
            stats.packets_lost,
            stats.open_streams,
        )

    def stats(self) -> EngineStats:
        """What the connection has done, for metrics and traces."""
        return self._engine.stats()


def format_address(address: tuple[object, ...]) -> str:
    """An address as `Link.peer` has it."""
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
