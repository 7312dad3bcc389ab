"""Incoming lanes: what arrives is handed to the handler, or held while the handler has paused its lane.

Bytes are consumed, and the peer's window opened again, when the handler has taken them. So what is held of a paused
lane is at most one window of its stream, and of all lanes together one of the connection.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.broker.link import LinkHandler
    from transports.quic.engine import Engine


class _Held:
    """What has arrived on a paused lane, and whether it is all."""

    __slots__ = ("data", "is_finished")

    def __init__(self) -> None:
        self.data: deque[bytes] = deque()
        self.is_finished = False


class Inbox:
    """The receiving side of one link."""

    handler: LinkHandler
    """Set by the link before it hears of anything."""

    def __init__(self, engine: Engine, *, on_resume: Callable[[], None], on_finished: Callable[[int], None]) -> None:
        """`on_resume` asks for a turn in which `hand_over_held` is called; `on_finished` is told of ended lanes."""
        self.is_silent = False
        """Set when the handler wants to hear nothing more."""
        self._engine = engine
        self._on_resume = on_resume
        self._on_finished = on_finished
        self._paused: dict[int, _Held] = {}
        self._resumed: dict[int, None] = {}

    def pause(self, lane_id: int) -> None:
        """Hold what comes from now on."""
        self._paused.setdefault(lane_id, _Held())
        self._resumed.pop(lane_id, None)

    def resume(self, lane_id: int) -> None:
        """Go on, beginning with what was held, when the turn comes."""
        if lane_id in self._paused and not self.is_silent:
            self._resumed[lane_id] = None
            self._on_resume()

    def receive(self, lane_id: int, data: bytes, *, is_finished: bool) -> None:
        """Take bytes from the engine."""
        held = self._paused.get(lane_id)
        if held is not None and not self.is_silent:
            held.is_finished |= is_finished
            if data:
                held.data.append(data)
            return
        if data:
            self._hand_over(lane_id, data)
        if is_finished:
            self._finish(lane_id)

    def reset(self, lane_id: int) -> None:
        """The peer abandoned a lane: what was held of it is not wanted any more."""
        self._paused.pop(lane_id, None)
        self._resumed.pop(lane_id, None)

    def hand_over_held(self) -> None:
        """Hand over what was held of resumed lanes, until they are paused again."""
        while self._resumed and not self.is_silent:
            lane_id, _ = self._resumed.popitem()
            held = self._paused.pop(lane_id)
            while held.data and lane_id not in self._paused:
                self._hand_over(lane_id, held.data.popleft())
            if lane_id in self._paused:
                self._paused[lane_id] = held
            elif held.is_finished:
                self._finish(lane_id)

    def _hand_over(self, lane_id: int, data: bytes) -> None:
        if not self.is_silent:
            self.handler.data_received(lane_id, data)
        self._engine.consume(lane_id, len(data))

    def _finish(self, lane_id: int) -> None:
        paused = self._paused.get(lane_id)
        if paused is not None:
            paused.is_finished = True  # paused while taking the last bytes: the end waits as they would have
        elif not self.is_silent:
            self._on_finished(lane_id)

    def close(self) -> None:
        """Drop what is held."""
        self.is_silent = True
        self._paused.clear()
        self._resumed.clear()
