"""Deadlines of the pure core: a heap that someone with a clock looks at.

Whoever runs the core asks `next_timeout()` after each call and calls `handle_timeout(now)` when it has passed.
A cancelled timer stays in the heap until its time comes or until half the heap is dead wood.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SWEEP_FROM = 1024
"""Smaller heaps are not worth sweeping."""


class Timer:
    """A deadline that can be called off."""

    __slots__ = ("_timers", "callback", "when")

    def __init__(self, timers: Timers, when: float, callback: Callable[[float], None]) -> None:
        self._timers = timers
        self.when = when
        self.callback: Callable[[float], None] | None = callback

    def cancel(self) -> None:
        """Call it off; once it has run this does nothing."""
        if self.callback is not None:
            self.callback = None
            self._timers.note_cancelled()


class Timers:
    """All deadlines of one broker."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._cancelled = 0

    def at(self, when: float, callback: Callable[[float], None]) -> Timer:
        """Call back at a time, with the time it then is."""
        timer = Timer(self, when, callback)
        heappush(self._heap, (when, next(self._order), timer))
        return timer

    def next_timeout(self) -> float | None:
        """The earliest deadline, or None."""
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else None

    def handle_timeout(self, now: float) -> None:
        """Run what is due, in order. What a callback adds for `now` or earlier waits for the next call."""
        due: list[Timer] = []
        while (when := self.next_timeout()) is not None and when <= now:
            due.append(heappop(self._heap)[2])
        for timer in due:
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback(now)

    def note_cancelled(self) -> None:
        """Keep dead timers from outnumbering the living."""
        self._cancelled += 1
        if self._cancelled > _SWEEP_FROM and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapify(self._heap)
            self._cancelled = 0
