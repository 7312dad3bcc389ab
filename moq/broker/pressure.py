"""How much the broker holds, what it does about it, and which publishers it does not read meanwhile.

    held / watermark    0 ──────── 1.0 ──────── 1.25 ──────── 1.5 ────►
                          CALM        SLOWING      DROPPING      REFUSING
                                      publishers   and drops     and takes no
                                      are slowed   best effort   new connections

A level is left only well below where it began, so that it does not flutter. Whoever runs the core counts what is
held and calls `update`; the dialects look at the flags. Pure: nothing here knows how anything is counted.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from moq.config import Limits


class Level(IntEnum):
    """What the broker does to hold no more."""

    CALM = 0
    SLOWING = 1
    DROPPING = 2
    REFUSING = 3


RISES: Final = (1.0, 1.25, 1.5)
"""Shares of the watermark above which the levels begin."""

EASES: Final = 0.9
"""A level ends below this part of where it began: what is held changes by as much from one sample to the next."""

TURN_S: Final = 0.05
"""How often slowed lanes have a turn."""

ANSWERS_PER_TURN: Final = 4
"""Lanes read per turn that bring acknowledgements, which let go of what is held."""

PUBLISHERS_PER_TURN: Final = 1
"""Others read per turn. One read is at most 256 KiB, so all publishers together bring 5 MB a second: their keep-alives
get through, and nothing that a subscriber could not take."""

PUBLISHERS_EVERY_TURNS: Final = 20
"""While connections are refused publishers have a turn in so many: once a second, which keeps them from giving up."""

UNSTORED_STOP: Final = 2.0
"""How many times over the changes that may be unstored are before publishers have no turn at all: a store so far behind
may be hanging, and every turn would add to what it cannot take."""

LOOKED_AT_PER_TURN: Final = 256
"""Slowed lanes looked at per turn: thousands of them cost no more."""


def next_level(level: Level, ratio: float) -> Level:
    """The level that follows when so much of the watermark is held."""
    risen = sum(ratio > mark for mark in RISES)
    kept = sum(ratio > mark * EASES for mark in RISES)
    return Level(max(risen, min(level, kept)))


class Slowable(Protocol):
    """A connection whose incoming lanes can wait."""

    def is_awaited(self, lane_id: int) -> bool:
        """True if its client owes us acknowledgements that come on this lane."""

    def read_on(self, lane_id: int, now: float) -> None:
        """Read the lane again: it is slowed anew if it brings more messages."""


class Pressure:
    """The level of one broker, and the lanes that wait because of it."""

    def __init__(self, limits: Limits) -> None:
        self._watermark = limits.memory_watermark_bytes
        self._max_unstored = limits.max_unstored_changes
        self._memory = Level.CALM
        self._storing = Level.CALM
        self._lanes: dict[tuple[Slowable, int], None] = {}  # those that have waited longest first
        self._turns = 0
        self._is_storing_too_slow = False
        self.held_bytes = 0
        self.level = Level.CALM
        self.slows = False
        """Publishers are read in turns."""
        self.slows_storing = False
        """At least those whose messages have to be stored."""
        self.drops = False
        """Messages of QoS 0 are not taken."""
        self.refuses = False
        """New connections are refused."""

    @property
    def slowed(self) -> int:
        """Incoming lanes that wait for their turn."""
        return len(self._lanes)

    def update(self, held_bytes: int, unstored: int) -> bool:
        """So much is held, and so many changes are not safe yet. True if that changes the level."""
        before = self.level
        self.held_bytes = held_bytes
        self._memory = next_level(self._memory, held_bytes / self._watermark)
        # A store that is behind slows publishers and has no further level: it catches up if they wait.
        self._storing = min(next_level(self._storing, unstored / self._max_unstored), Level.SLOWING)
        self._is_storing_too_slow = unstored > self._max_unstored * UNSTORED_STOP
        self.level = max(self._memory, self._storing)
        self.slows = self._memory >= Level.SLOWING
        self.slows_storing = self.level >= Level.SLOWING
        self.drops = self.level >= Level.DROPPING
        self.refuses = self.level >= Level.REFUSING
        return self.level != before

    def slow(self, connection: Slowable, lane_id: int) -> None:
        """This lane has brought messages: it waits for its turn."""
        self._lanes[connection, lane_id] = None

    def forget(self, connection: Slowable, lane_id: int) -> None:
        """The lane is gone."""
        self._lanes.pop((connection, lane_id), None)

    def turn(self, now: float) -> None:
        """Read some lanes again, or all of them once publishers are slowed no more."""
        self._turns += 1
        answers, publishers = ANSWERS_PER_TURN, PUBLISHERS_PER_TURN
        if self._is_storing_too_slow or (self.refuses and self._turns % PUBLISHERS_EVERY_TURNS):
            publishers = 0
        for lane in list(islice(self._lanes, LOOKED_AT_PER_TURN)) if self.slows_storing else list(self._lanes):
            connection, lane_id = lane
            del self._lanes[lane]
            if not self.slows_storing:
                connection.read_on(lane_id, now)
            elif answers and connection.is_awaited(lane_id):
                answers -= 1
                connection.read_on(lane_id, now)
            elif publishers:
                publishers -= 1
                connection.read_on(lane_id, now)
            else:
                self._lanes[lane] = None
