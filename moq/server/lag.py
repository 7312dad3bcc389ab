"""How late the event loop is: a timer that measures how long after its time it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moq.histogram import Histogram

if TYPE_CHECKING:
    import asyncio

INTERVAL_S: Final = 0.5
"""Twice a second: an idle broker hardly notices, and a loop that is held up for long is caught at it."""


class LoopLag:
    """Measures one loop until it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.seconds = Histogram()
        self._loop = loop
        self._timer = loop.call_later(INTERVAL_S, self._look)

    def close(self) -> None:
        """Measure no more."""
        self._timer.cancel()

    def _look(self) -> None:
        self.seconds.add(max(0.0, self._loop.time() - self._timer.when()))
        self._timer = self._loop.call_later(INTERVAL_S, self._look)
