"""What a subscription asks the broker to compute: its operators, and the topics they take in.

    $MRP;100  $GT;5   $SUM     $LT;9   $DAILYAVG   $CNTPPL   /+/image
    period    outer   spatial  inner   temporal    function  levels

A published payload passes the parts from right to left; each may be absent. Two plans with the same `key` compute the
same thing, so one computation serves both: a period, which paces one subscriber, is not part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from moq.broker.operators.escapes import escape_level, escape_step, escape_value

if TYPE_CHECKING:
    from moq.broker.operators.values import Path


class Comparison(StrEnum):
    """The operators of rules."""

    EQ = "EQ"
    NEQ = "NEQ"
    GT = "GT"
    GTE = "GTE"
    LT = "LT"
    LTE = "LTE"
    CONTAINS = "CONTAINS"


class Operation(StrEnum):
    """What many numbers become."""

    COUNT = "COUNT"
    SUM = "SUM"
    AVG = "AVG"
    MIN = "MIN"
    MAX = "MAX"


class Naming(StrEnum):
    """What stands for the wildcards of a spatial aggregate in the topic of its values."""

    SKR = "SKR"  # single keyword replacement
    RPT = "RPT"  # replacement with participating topics


CALENDAR_WINDOWS = {"DAILY": 86_400, "HOURLY": 3_600, "QUARTERHOURLY": 900}
"""The windows of the paper, in seconds."""

UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
"""Of the windows that `$WIN` names, longest first."""

PERIOD_UNIT_S = 0.01
"""Of `$MRP`, as in the packets of MMQP."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition; `value` is in its one canonical text if it is a number."""

    comparison: Comparison
    value: str
    path: Path | None = None

    def __str__(self) -> str:
        return f"${self.comparison};{escape_value(self.value)}{_path(self.path)}"


@dataclass(frozen=True, slots=True)
class Spatial:
    """One number of the latest values of many topics."""

    operation: Operation
    path: Path | None = None

    def __str__(self) -> str:
        return f"${self.operation}{_path(self.path)}"


@dataclass(frozen=True, slots=True)
class Temporal:
    """One number of all values of a topic in a window; `calendar` is the paper's name for it, if it has one."""

    operation: Operation
    window_s: int
    calendar: str | None = None
    path: Path | None = None

    def __str__(self) -> str:
        if self.calendar is not None:
            return f"${self.calendar}{self.operation}{_path(self.path)}"
        unit = next(unit for unit, seconds in UNITS.items() if self.window_s % seconds == 0)
        return f"$WIN;{self.window_s // UNITS[unit]}{unit};{self.operation}{_path(self.path)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One subscription with operators, as `parse` read it."""

    levels: tuple[str | tuple[str, ...], ...]
    """Of the topic filter; a tuple is an explicit list, which only a spatial aggregate has."""
    period: int | None = None
    """The shortest time between two messages, in units of 10 ms."""
    naming: Naming = Naming.SKR
    outer: Rule | None = None
    spatial: Spatial | None = None
    inner: Rule | None = None
    temporal: Temporal | None = None
    function: str | None = None

    @property
    def is_filter(self) -> bool:
        """True if messages pass unchanged or not at all: a rule, a period, or both, and nothing to remember."""
        return self.spatial is None and self.temporal is None and self.function is None

    @property
    def period_s(self) -> float:
        """The period in seconds; 0 paces nothing."""
        return (self.period or 0) * PERIOD_UNIT_S

    @property
    def operators(self) -> str:
        """The operators that compute, which begin the topic of every value they make."""
        parts = (self.outer, self.spatial, self.inner, self.temporal, self.function and f"${self.function}")
        return "".join(str(part) for part in parts if part is not None)

    @property
    def sources(self) -> tuple[str, ...]:
        """The plain topic filters whose messages are taken in: one, or as many as a list has items."""
        if (place := self.list_place) is None:
            return ("/".join(str(level) for level in self.levels),)
        before = [str(level) for level in self.levels[:place]]
        after = [str(level) for level in self.levels[place + 1 :]]
        return tuple("/".join([*before, item, *after]) for item in self.levels[place])

    @property
    def list_place(self) -> int | None:
        """Which level is an explicit list."""
        return next((place for place, level in enumerate(self.levels) if isinstance(level, tuple)), None)

    @property
    def key(self) -> str:
        """The canonical text of what is computed; equal for subscriptions that may share it."""
        named = "$RPT" if self.naming is Naming.RPT else ""
        operators = named + self.operators
        return f"{operators}/{self._topic}" if operators else self._topic

    def __str__(self) -> str:
        """The canonical text of the subscription: `parse` makes the same plan of it."""
        if self.period is None:
            return self.key
        separator = "" if self.operators else "/"
        return f"$MRP;{self.period}{separator}{self.key}"

    @property
    def _topic(self) -> str:
        if self.spatial is None:
            return self.sources[0]
        return "/".join(_level(level) for level in self.levels)


def _level(level: str | tuple[str, ...]) -> str:
    return escape_level(level) if isinstance(level, str) else ";".join(map(escape_level, level))


def _path(path: Path | None) -> str:
    return "" if path is None else ";" + "".join(f".{escape_step(step)}" for step in path)
