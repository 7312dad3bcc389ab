"""The topics of what operators make: MQTT+ sections 3.3 and 3.4.

    subscribed to              published on
    $DAILYAVG/+/temp           $DAILYAVG/room1/temp              each topic its own
    $AVG/room1/+/temp          $AVG/room1/$AGGREGATE/temp        single keyword replacement (SKR)
    $RPT$AVG/room1/+/temp      $AVG/room1/sens1;sens2/temp       replacement with participating topics (RPT)
    $AVG/room1/sens1;sens2/t   $AVG/room1/sens1;sens2/t          a list: those that take part

With several wildcards each is replaced by a list of its own; the n-th items of all lists belong to the n-th topic. What
`#` stands for can have several levels: the `/` between them is escaped, as are `;` and `%` in a level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.broker.operators.escapes import escape_level
from moq.broker.operators.plan import Naming

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moq.broker.operators.plan import Plan

KEYWORD = "$AGGREGATE"


class SpatialNames:
    """How the values of one spatial aggregate are named."""

    def __init__(self, plan: Plan, max_bytes: int) -> None:
        self._operators = plan.operators
        self._levels = plan.levels
        self._max_bytes = max_bytes
        place = plan.list_place
        listed = plan.levels[place] if place is not None else ()
        self._items = dict(zip(plan.sources, listed, strict=True)) if listed else {}
        self.tell_topics = bool(listed) or plan.naming is Naming.RPT
        """True if the names depend on which topics take part."""
        self._keyword_name = self._join([KEYWORD] * len(plan.levels))

    def name(self, topics: Sequence[str]) -> str:
        """The topic for a value these topics took part in; with the keyword if it would be too long otherwise."""
        if not self.tell_topics:
            return self._keyword_name
        levels = [topic.split("/") for topic in topics]
        parts = [self._taking_part(place, topics, levels) for place in range(len(self._levels))]
        name = self._join(parts)
        return name if len(name.encode()) <= self._max_bytes else self._keyword_name

    def _taking_part(self, place: int, topics: Sequence[str], levels: list[list[str]]) -> str:
        match self._levels[place]:
            case tuple():
                return ";".join(escape_level(self._items[topic]) for topic in topics)
            case "+":
                return ";".join(escape_level(names[place]) for names in levels)
            case "#":
                return ";".join(escape_level("/".join(names[place:])) for names in levels)
        return ""

    def _join(self, replacements: Sequence[str]) -> str:
        """The filter with its wildcards and lists replaced, behind the operators."""
        levels = [
            replacement if isinstance(level, tuple) or level in ("+", "#") else escape_level(level)
            for level, replacement in zip(self._levels, replacements, strict=True)
        ]
        return "/".join([self._operators, *levels])
