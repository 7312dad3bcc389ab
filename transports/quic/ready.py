"""Whose turn it is to send: by priority, in turn within one."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class ReadyQueue(Generic[T]):
    """Streams with something to send: the lowest priority number first.

         -1 ─ stream 0
         10 ─ stream 3 ─ stream 15
        128 ─ stream 7 ─ stream 11 ─ …      the first is served and, if it has more, goes to the end

    No call depends on how many streams there are, only on how many different priorities.
    """

    def __init__(self) -> None:
        self._levels: dict[int, OrderedDict[T, None]] = {}
        self._order: list[int] = []

    def add(self, stream: T, priority: int) -> None:
        """Put a stream at the end of its level, unless it is there already."""
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = OrderedDict()
            self._order = sorted(self._levels)
        level.setdefault(stream)

    def first(self) -> T | None:
        """The stream whose turn it is."""
        for priority in self._order:
            level = self._levels[priority]
            if level:
                return next(iter(level))
        return None

    def rotate(self, stream: T, priority: int) -> None:
        """The stream was served and has more: the others of its level go first."""
        self._levels[priority].move_to_end(stream)

    def remove(self, stream: T, priority: int) -> None:
        """The stream has nothing to send."""
        level = self._levels.get(priority)
        if level is not None:
            level.pop(stream, None)

    def snapshot(self) -> list[T]:
        """All of them, in the order of their turns."""
        return [stream for priority in self._order for stream in self._levels[priority]]
