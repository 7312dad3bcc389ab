"""Links inside one process, for tests: every step of the network is under the test's control.

    client link ── lanes ──► MemoryNetwork ──► server link        and the same the other way

Nothing moves by itself: `deliver` hands over all that can move, `step` one piece of one lane, in any order among
lanes that `ready` lists; a lane can be stalled, a connection lost. A paused lane keeps its bytes at the writer, so
what is unsent is exact. Given an event loop the network runs by itself instead, one round per turn.

With `two_way` each lane is answered on the lane itself, as bidirectional QUIC streams are; the client's lanes then have
odd numbers and the server's even ones.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from moq.broker.link import CONTROL
from moq.reasons import describe
from transports.options import DEFAULTS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from moq.broker.link import Lane, Link, LinkHandler, LinkState
    from transports.options import TransportOptions

logger = logging.getLogger(__name__)

OVERFLOW_KEY: Final = -1


class MemoryLane:
    """One ordered flow of bytes to the other side."""

    def __init__(self, link: MemoryLink, lane_id: int, priority: int, *, is_shared: bool) -> None:
        self.id = lane_id
        self.priority = priority
        self.is_stalled = False
        """Set by a test: the network takes nothing from this lane until it is cleared."""
        self.congested = False
        self.is_closed = False
        self._link = link
        self._is_shared = is_shared
        self._data = bytearray()
        self._end: Callable[[LinkHandler], None] | None = None

    @property
    def stream_id(self) -> int:
        """Where every topic has a lane, as a stream."""
        return self.id

    @property
    def unsent(self) -> int:
        """Bytes not handed over yet."""
        return len(self._data)

    def write(self, data: bytes) -> None:
        """Queue bytes."""
        if self.is_closed:
            return
        self._data += data
        if len(self._data) > self._link.network.options.high_water_bytes:
            self.congested = True
        self._link.network.wake()

    def finish(self) -> None:
        """End this lane after what was written."""
        if not (self._is_shared or self.is_closed):
            self._close(lambda handler: handler.lane_finished(self.id))

    def reset(self, reason: int) -> None:
        """End this lane now."""
        if not (self._is_shared or self.is_closed):
            self._data.clear()
            self._close(lambda handler: handler.lane_reset(self.id, reason))

    def _close(self, end: Callable[[LinkHandler], None]) -> None:
        self.is_closed = True
        self._end = end
        self._link.network.wake()

    @property
    def is_over(self) -> bool:
        """True once closed and everything, its end included, has been handed over."""
        return self.is_closed and not self._data and self._end is None

    def discard(self) -> None:
        """The link is gone."""
        self.is_closed = True
        self._data.clear()
        self._end = None

    @property
    def can_move(self) -> bool:
        """True if the network has something to take from here, and the reader takes it."""
        if self.is_stalled or self._link.other.is_paused(self.id):
            return False
        return bool(self._data) or self._end is not None or (self.id == CONTROL and self._link.goodbye is not None)

    def move(self, size: int) -> None:
        """Hand over the next bytes, or else the end."""
        if self._data:
            piece = bytes(self._data[:size])
            del self._data[:size]
            self._link.other.call(lambda handler: handler.data_received(self.id, piece))
            if self.congested and len(self._data) <= self._link.network.options.low_water_bytes:
                self.congested = False
                self._link.call(lambda handler: handler.lane_writable(self))
        elif self._end is not None:
            end, self._end = self._end, None
            self._link.other.call(end)
        elif self._link.goodbye is not None:
            reason, message = self._link.goodbye
            self._link.other.end(reason, message)
            self._link.end(None, f"closed by this side: {message}")


class MemoryLink:
    """One side of a connection."""

    other: MemoryLink
    control: Lane

    def __init__(self, network: MemoryNetwork, peer: str, lane_ids: Iterator[int]) -> None:
        self.transport = "memory"
        self.alpn = network.alpn
        self.peer = peer
        self.network = network
        self.goodbye: tuple[int, str] | None = None
        """Reason and message of `close`: they follow what the control lane still holds."""
        self.handler: LinkHandler | None = None
        self.is_gone = False
        self.control = self._control = MemoryLane(self, CONTROL, -1, is_shared=True)
        self._lanes: dict[int, MemoryLane] = {}
        self._replies: dict[int, MemoryLane] = {}
        """Also those that have ended, so that none is opened twice."""
        self._lane_ids = lane_ids
        self._paused: set[int] = set()

    @property
    def outgoing_streams(self) -> int:
        """Lanes, the control lane among them."""
        return 1 + len(self._lanes)

    @property
    def has_lanes(self) -> bool:
        """As the network was built."""
        return self.network.has_lanes

    @property
    def unsent(self) -> int:
        """Bytes on all lanes not handed over yet."""
        return sum(lane.unsent for lane in self.lanes())

    def lanes(self) -> list[MemoryLane]:
        """Every outgoing lane that still has a part to play, the control lane first, then by priority."""
        lanes = [*self._lanes.values(), *self._replies.values()]
        return [self._control, *sorted(lanes, key=lambda lane: lane.priority)]

    def lane(self, key: int, priority: int = 128) -> Lane:
        """Open the lane of a topic, or give the overflow lane past `max_lanes`."""
        if not self.has_lanes:
            return self.control
        lane = self._lanes.get(key)
        if lane is not None and not lane.is_closed:
            return lane
        is_overflow = sum(not lane.is_closed for lane in self._lanes.values()) >= self.network.max_lanes
        if is_overflow and key != OVERFLOW_KEY:
            return self.lane(OVERFLOW_KEY)
        lane = MemoryLane(self, next(self._lane_ids), priority, is_shared=key == OVERFLOW_KEY)
        if key in self._lanes:
            # The one that has ended still has bytes to deliver: it moves on under a key nobody asks for.
            self._lanes[-1 - lane.id] = self._lanes.pop(key)
        self._lanes[key] = lane
        if self.is_gone or self.goodbye is not None:
            lane.discard()
        return lane

    def reply_lane(self, lane_id: int) -> Lane:
        """Give the way back of an incoming lane, which has the same number, or the control lane if there is none."""
        if not (self.network.two_way and self.has_lanes) or lane_id == CONTROL:
            return self.control
        lane = self._replies.get(lane_id)
        if lane is None:
            lane = self._replies[lane_id] = MemoryLane(self, lane_id, 128, is_shared=False)
            if self.is_gone or self.goodbye is not None:
                lane.discard()
        return lane

    def pause_reading(self, lane_id: int) -> None:
        """Leave this lane's bytes with their writer."""
        self._paused.add(lane_id if self.has_lanes else CONTROL)

    def resume_reading(self, lane_id: int) -> None:
        """Take them again."""
        self._paused.discard(lane_id if self.has_lanes else CONTROL)
        self.network.wake()

    def is_paused(self, lane_id: int) -> bool:
        """True if this side takes nothing of an incoming lane."""
        return lane_id in self._paused

    def close(self, reason: int, message: str = "") -> None:
        """Send what the control lane holds, then end the link."""
        if self.goodbye is not None or self.is_gone:
            return
        self.goodbye = (reason, message or describe(reason))
        for lane in self.lanes()[1:]:
            lane.discard()
        self._control.is_closed = True
        self.network.close_later(self)
        self.network.wake()

    def abort(self) -> None:
        """End the link; the other side finds it lost."""
        self.network.post(partial(self.end, None, "aborted by this side"))
        self.network.post(partial(self.other.end, None, "connection lost"))

    def state(self) -> LinkState | None:
        """There is no network."""
        return None

    def call(self, tell: Callable[[LinkHandler], None]) -> None:
        """Tell this side's handler; a bug in it ends this link and no other."""
        if self.handler is None or self.is_gone or self.goodbye is not None:
            return
        try:
            tell(self.handler)
        except Exception:
            logger.exception("the handler of the memory link with %s failed; the link is aborted", self.peer)
            self.abort()

    def end(self, reason: int | None, message: str) -> None:
        """The link is gone: tell the handler, once."""
        if self.is_gone:
            return
        self.goodbye = None
        for lane in self.lanes():
            lane.discard()
        self.call(lambda handler: handler.closed(reason, message))
        self.is_gone = True

    def forget_ended_lanes(self) -> None:
        """Drop the lanes that are closed and empty."""
        self._lanes = {key: lane for key, lane in self._lanes.items() if not lane.is_over}


class MemoryNetwork:
    """Everything in flight between the links of a test."""

    def __init__(
        self,
        *,
        has_lanes: bool = True,
        max_lanes: int = 1000,
        two_way: bool = False,
        alpn: str = "",
        options: TransportOptions = DEFAULTS,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.has_lanes = has_lanes
        self.max_lanes = max_lanes
        self.two_way = two_way
        self.alpn = alpn
        self.options = options
        self._loop = loop
        self._links: list[MemoryLink] = []
        self._connections = 0
        self._posted: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def connect(
        self,
        accept: Callable[[Link], LinkHandler],
        make_handler: Callable[[Link], LinkHandler],
    ) -> tuple[MemoryLink, MemoryLink]:
        """Make a connection: the client's side of it, then the server's."""
        self._connections += 1
        step = 2 if self.two_way else 1
        client = MemoryLink(self, f"server {self._connections}", count(1, step))
        server = MemoryLink(self, f"client {self._connections}", count(step, step))
        client.other, server.other = server, client
        self._links += (client, server)
        client.handler = make_handler(client)
        try:
            server.handler = accept(server)
        except Exception:
            logger.exception("no handler for the memory link with %s; the link is aborted", server.peer)
            server.abort()
        return client, server

    def ready(self) -> list[MemoryLane]:
        """The lanes with something that can arrive now; any of them may be next."""
        return [lane for link in self._links for lane in link.lanes() if lane.can_move]

    def step(self, lane: MemoryLane, size: int | None = None) -> None:
        """Hand over one piece of one lane, of at most `size` bytes."""
        lane.move(size or self.options.read_bytes)
        self._run_posted()

    def deliver(self) -> int:
        """Hand over everything that can arrive, also what the handlers write meanwhile; the number of steps."""
        steps = self._run_posted()
        while moved := self._round():
            steps += moved
        return steps

    def lose(self, link: MemoryLink) -> None:
        """Cut a connection: neither side can send, and both find out."""
        self.post(partial(link.end, None, "connection lost"))
        self.post(partial(link.other.end, None, "connection lost"))

    # --- for links ---

    def post(self, call: Callable[[], None]) -> None:
        """Do this as a step of its own: a handler is never called while it is calling."""
        self._posted.append(call)
        self.wake()

    def wake(self) -> None:
        """Something may move now."""
        if self._loop is not None and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def close_later(self, link: MemoryLink) -> None:
        """Bound the wait for a peer that does not read, where there is a clock."""
        if self._loop is not None:
            self._loop.call_later(self.options.close_timeout_s, link.abort)

    def _turn(self) -> None:
        self._is_scheduled = False
        if self._run_posted() + self._round():
            self.wake()

    def _round(self) -> int:
        """One piece of each lane that is ready now."""
        lanes = self.ready()
        for lane in lanes:
            if lane.can_move:
                self.step(lane)
        self._links = [link for link in self._links if not link.is_gone]
        for link in self._links:
            link.forget_ended_lanes()
        return len(lanes)

    def _run_posted(self) -> int:
        count = 0
        while self._posted:
            self._posted.popleft()()
            count += 1
        return count
