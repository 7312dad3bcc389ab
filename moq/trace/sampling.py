"""Which messages are recorded: a probability that adapts to a bound on the records per second.

A message with a stamp is chosen by a hash of the stamp. Publisher, broker and subscriber so choose the same ones, and
whoever has the smaller probability chooses some of what the others chose. A message without one is chosen by counting,
with random strides: a fixed one would always hit the same of several subscribers.

    the budget of an interval is used up ──► half the probability, at once
    less than a quarter of it was used   ──► twice the probability, at the end of the interval

So the bound holds on average; as a load begins it is passed for an interval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MULTIPLIER: Final = 0x9E3779B97F4A7C15
"""Fibonacci hashing: spreads neighbouring stamps evenly."""
WORD: Final = 1 << 64
_MASK: Final = WORD - 1

MAX_HALVINGS: Final = 40


class Sampler:
    """Decides for one writer."""

    def __init__(self, probability: float, max_rate: float, interval_s: float, random: Callable[[], float]) -> None:
        """At most `max_rate` records per second; `tick` follows every `interval_s`."""
        self.offered = 0
        """Messages asked about."""
        self._random = random
        self._largest = probability
        self._budget = max(1, int(max_rate * interval_s))
        self._left = self._budget
        self._halvings = 0
        self.due = 0.0
        """Messages without stamps until the next one that is recorded."""
        self._apply()

    def _apply(self) -> None:
        self.probability = self._largest / (1 << self._halvings)
        self.weight = 1.0 / self.probability
        self._threshold = int(self._largest * WORD) >> self._halvings
        self.due = min(self.due, self.weight)

    def weigh(self, stamp_ns: int) -> float:
        """How many messages this one stands for if it is to be recorded, else 0; a stamp of 0 is none."""
        self.offered += 1
        if stamp_ns:
            if (stamp_ns * MULTIPLIER & _MASK) >= self._threshold:
                return 0.0
        elif self.due >= 1.0:
            self.due -= 1.0
            return 0.0
        else:
            self.due += self._stride() - 1.0
        weight = self.weight
        self._take(1)
        return weight

    def choose(self, count: int) -> list[int]:
        """The places of those to record among so many messages without stamps; each has the weight before the call."""
        self.offered += count
        due = self.due
        if due >= count:
            self.due = due - count
            return []
        places: list[int] = []
        while due < count:
            places.append(int(due))
            due += self._stride()
        self.due = due - count
        self._take(len(places))
        return places

    def tick(self) -> None:
        """An interval is over."""
        if self._halvings and (self._budget - self._left) * 4 < self._budget:
            self._halvings -= 1
            self._apply()
        self._left = self._budget

    def _stride(self) -> float:
        return 1.0 + (self.weight - 1.0) * 2.0 * self._random() if self.weight > 1.0 else 1.0

    def _take(self, count: int) -> None:
        self._left -= count
        if self._left < 0 and self._halvings < MAX_HALVINGS:
            self._halvings += 1
            self._left = self._budget // 2
            self._apply()
