"""A spatial aggregate: one number of the latest values of many topics, kept up to date value by value.

    put("a", 7)   drop("b")   expire(now)
        │             │            │
        ▼             ▼            ▼
    values  {a: 7, c: 5}   total 12   ranking [5 c, 7 a, (9 b)]   deadlines [...]
                                                     └─ gone, but still in the heap until it comes to the top

The total is exact, so values that come and go for years leave no error behind in it. The least, the greatest and the
next to expire are the tops of heaps in which what has changed stays until it surfaces or outnumbers the living: a
change costs O(log n), a look O(1).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from decimal import Decimal
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from moq.broker.operators.plan import Operation
from moq.broker.operators.statistics import average
from moq.broker.operators.values import EXACT, rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

_Key = TypeVar("_Key", Decimal, float)

_SWEEP_FROM = 64
"""Smaller heaps are not worth sweeping."""


class _Member(NamedTuple):
    value: Decimal
    expires_at: float
    number: int
    """Of the change that brought it: an entry of a heap is alive while its topic has that number."""


class _Ranking(Generic[_Key]):
    """Topics by key, the least first; those whose member has changed since are passed over."""

    def __init__(self, members: dict[str, _Member]) -> None:
        self._members = members
        self._heap: list[tuple[_Key, int, str]] = []

    def add(self, key: _Key, number: int, topic: str) -> None:
        """Note a member that has just been put."""
        heap = self._heap
        heappush(heap, (key, number, topic))
        if len(heap) > _SWEEP_FROM and len(heap) > 2 * len(self._members):
            self._heap = [entry for entry in heap if self._is_alive(entry)]
            heapify(self._heap)

    def first(self) -> tuple[_Key, int, str] | None:
        """The least key, the number of its change and its topic."""
        heap = self._heap
        while heap and not self._is_alive(heap[0]):
            heappop(heap)
        return heap[0] if heap else None

    def _is_alive(self, entry: tuple[_Key, int, str]) -> bool:
        member = self._members.get(entry[2])
        return member is not None and member.number == entry[1]


class Members:
    """The topics that take part in one aggregate, at most `max_topics`, and what they come to."""

    def __init__(self, operation: Operation, max_topics: int, *, keeps_order: bool = False) -> None:
        self._operation = operation
        self._sums = operation in (Operation.SUM, Operation.AVG)
        self._max_topics = max_topics
        self._members: dict[str, _Member] = {}
        self._numbers = count()
        self._total = Decimal(0)
        self._ranking: _Ranking[Decimal] = _Ranking(self._members)
        self._deadlines: _Ranking[float] = _Ranking(self._members)
        self._order: list[str] | None = [] if keeps_order else None
        self.membership = 0
        """Changes whenever a topic joins or leaves, not when its value changes."""

    def __len__(self) -> int:
        return len(self._members)

    @property
    def topics(self) -> Sequence[str]:
        """Those taking part, in the order of their names; for members that keep it."""
        return self._order or ()

    def put(self, topic: str, value: Decimal, expires_at: float) -> bool:
        """Take a topic's new value in. False if the topic is new and there is no room for it."""
        known = self._members.get(topic)
        if known is None:
            if len(self._members) >= self._max_topics:
                return False
            self._note_joined(topic)
        elif self._sums:
            self._total = EXACT.subtract(self._total, known.value)
        member = self._members[topic] = _Member(value, expires_at, next(self._numbers))
        if self._sums:
            self._total = EXACT.add(self._total, value)
        elif self._operation is Operation.MIN:
            self._ranking.add(value, member.number, topic)
        elif self._operation is Operation.MAX:
            # Not `-value`, which would round to the precision of the thread's context.
            self._ranking.add(value.copy_negate(), member.number, topic)
        self._deadlines.add(expires_at, member.number, topic)
        return True

    def drop(self, topic: str) -> bool:
        """A topic's value counts no longer. False if it did not."""
        member = self._members.pop(topic, None)
        if member is None:
            return False
        if self._sums:
            self._total = EXACT.subtract(self._total, member.value)
        self.membership += 1
        if self._order is not None:
            del self._order[bisect_left(self._order, topic)]
        return True

    def expire(self, now: float) -> None:
        """Drop the values whose time is over."""
        while (earliest := self._deadlines.first()) is not None and earliest[0] <= now:
            self.drop(earliest[2])

    def result(self) -> Decimal | None:
        """What the values come to; None if there are none."""
        size = len(self._members)
        if not size:
            return None
        match self._operation:
            case Operation.COUNT:
                return Decimal(size)
            case Operation.SUM:
                return rounded(self._total)
            case Operation.AVG:
                return average(self._total, size)
        least = self._ranking.first()
        assert least is not None
        return least[0] if self._operation is Operation.MIN else least[0].copy_negate()

    def _note_joined(self, topic: str) -> None:
        self.membership += 1
        if self._order is not None:
            insort(self._order, topic)
