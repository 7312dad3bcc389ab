"""Temporal aggregates: what each topic said in the current window of time.

Windows are those of the calendar: a day begins at midnight, a quarter of an hour at :00, :15, :30 and :45, and
`$WIN;30s` counts its thirty seconds from 1970. So all topics of a computation are in the same window, and one deadline
serves them all; there is none while nothing was said.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING

from moq.broker.operators.statistics import Statistics

if TYPE_CHECKING:
    from decimal import Decimal

    from moq.broker.operators.plan import Temporal
    from moq.broker.operators.statistics import StatisticsRecord


@dataclass(frozen=True, slots=True)
class Calendar:
    """Where windows begin.

    `epoch` is what to add to `now` to get seconds since 1970. Days are those of a place `utc_offset_s` ahead of UTC all
    year round: a day of 23 or 25 hours would be a window that is not comparable to its neighbours.
    """

    epoch: float = 0.0
    utc_offset_s: int = 0

    def window_at(self, now: float, window_s: int) -> int:
        """The number of the window that a time is in."""
        return floor((now + self.epoch + self.utc_offset_s) / window_s)

    def end_of(self, window: int, window_s: int) -> float:
        """When a window is over."""
        return (window + 1) * window_s - self.epoch - self.utc_offset_s


@dataclass(frozen=True, slots=True)
class WindowRecord:
    """An open window as a store keeps it."""

    window: int
    """Its number in calendar time, which means the same to a broker started later."""
    topics: tuple[tuple[str, StatisticsRecord], ...]


class Windows:
    """The current window of every topic of one computation, at most `max_topics` of them."""

    def __init__(self, temporal: Temporal, calendar: Calendar, max_topics: int) -> None:
        self._operation = temporal.operation
        self._window_s = temporal.window_s
        self._calendar = calendar
        self._max_topics = max_topics
        self._topics: dict[str, Statistics] = {}
        self._window: int | None = None
        self.ends_at: float | None = None
        """When the current window is to be closed; None while it is empty."""

    def __len__(self) -> int:
        return len(self._topics)

    def add(self, topic: str, value: Decimal, now: float) -> bool:
        """Count a value. False if its topic is new and there is no room. A window that is over must be closed first."""
        statistics = self._topics.get(topic)
        if statistics is not None:
            statistics.add(value)
            return True
        if len(self._topics) >= self._max_topics:
            return False
        if self.ends_at is None:
            self._open(self._calendar.window_at(now, self._window_s))
        self._topics[topic] = Statistics(value)
        return True

    def close(self, now: float) -> list[tuple[str, Decimal]]:
        """If the window is over, what each topic comes to, in the order of their names; else nothing."""
        if self.ends_at is None or now < self.ends_at:
            return []
        results = [(topic, statistics.result(self._operation)) for topic, statistics in sorted(self._topics.items())]
        self._topics = {}
        self.ends_at = None
        return results

    @property
    def window(self) -> int | None:
        """The number of the current window; None while it is empty."""
        return None if self.ends_at is None else self._window

    def topic_record(self, topic: str) -> StatisticsRecord | None:
        """What a store keeps of one topic in the current window."""
        statistics = self._topics.get(topic)
        return None if statistics is None else statistics.to_record()

    def to_record(self) -> WindowRecord | None:
        """What a store keeps of the current window; None if it is empty."""
        if self.ends_at is None or self._window is None:
            return None
        topics = tuple((topic, statistics.to_record()) for topic, statistics in self._topics.items())
        return WindowRecord(self._window, topics)

    def restore(self, record: WindowRecord, now: float) -> None:
        """Go on where an earlier broker stopped. A window that has ended meanwhile is closed by the next `close`.

        One that has not even begun tells of a clock that was set back: what it holds counts in the current one.
        """
        self._topics = {topic: Statistics.from_record(statistics) for topic, statistics in record.topics}
        self._open(min(record.window, self._calendar.window_at(now, self._window_s)))

    def _open(self, window: int) -> None:
        # Next to a boundary rounding may put a time into the window that was just closed: it is the next one's.
        self._window = window if self._window is None else max(window, self._window + 1)
        self.ends_at = self._calendar.end_of(self._window, self._window_s)
