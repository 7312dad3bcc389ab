"""From the text of a subscription to its plan: the language of docs/reference/operators.md, exactly.

The operators stand before the first `/` and the topic filter after it. Which operator may follow which is one table,
`_NEXT`: section 3.6 of MQTT+ as far as it goes, with the period in front. What is absent from it is refused, and
`_REFUSALS` says why.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from moq.broker.operators.escapes import unescape
from moq.broker.operators.plan import (
    CALENDAR_WINDOWS,
    UNITS,
    Comparison,
    Naming,
    Operation,
    Plan,
    Rule,
    Spatial,
    Temporal,
)
from moq.broker.operators.values import number, written
from moq.errors import MoqError
from moq.reasons import Reason
from moq.topics import filter_error, has_operators, has_wildcard

if TYPE_CHECKING:
    from collections.abc import Collection

    from moq.broker.operators.values import Path

MAX_PERIOD = 0xFFFF
"""Two bytes in the packets of MMQP."""

MAX_WINDOW_S = 31 * 86_400
"""A window is remembered until it ends."""

MAX_VALUE_CHARACTERS = 1_024
MAX_STEPS = 16
MAX_LISTED = 1_000
"""Topics of an explicit list: each is a subscription of its own to the routing."""

_PERIOD = re.compile(r"0|[1-9][0-9]{0,4}")
_WINDOW = re.compile(rf"([1-9][0-9]{{0,6}})([{''.join(UNITS)}])")

_EXCERPT = 24
_MAX_PROBLEM = 160
"""Characters of a complaint: it may quote a filter of 65,535 bytes, and travels in a packet."""


class OperatorError(MoqError):
    """A subscription is not of the language: `problem` says why, `position` at which of its characters."""

    reason = Reason.TOPIC_FILTER_INVALID

    def __init__(self, problem: str, filter_: str, position: int) -> None:
        excerpt = filter_[position : position + _EXCERPT]
        if len(problem) > _MAX_PROBLEM:
            problem = f"{problem[:_MAX_PROBLEM]}…"
        super().__init__(f"{problem} (at character {position}: {excerpt!r})")
        self.problem = problem
        self.position = position


class _Kind(Enum):
    PERIOD = auto()
    NAMING = auto()
    RULE = auto()
    SPATIAL = auto()
    TEMPORAL = auto()
    FUNCTION = auto()


class _Place(Enum):
    """Where in a plan an operator stands, by the one read last."""

    START = auto()
    PERIOD = auto()
    NAMING = auto()
    OUTER = auto()
    SPATIAL = auto()
    INNER = auto()
    TEMPORAL = auto()
    FUNCTION = auto()


_ANY_COMPUTATION = {
    _Kind.RULE: _Place.OUTER,
    _Kind.SPATIAL: _Place.SPATIAL,
    _Kind.TEMPORAL: _Place.TEMPORAL,
    _Kind.FUNCTION: _Place.FUNCTION,
}

_NEXT: dict[_Place, dict[_Kind, _Place]] = {
    _Place.START: {_Kind.PERIOD: _Place.PERIOD, _Kind.NAMING: _Place.NAMING, **_ANY_COMPUTATION},
    _Place.PERIOD: {_Kind.NAMING: _Place.NAMING, **_ANY_COMPUTATION},
    _Place.NAMING: _ANY_COMPUTATION,
    _Place.OUTER: {_Kind.SPATIAL: _Place.SPATIAL, _Kind.TEMPORAL: _Place.TEMPORAL},
    _Place.SPATIAL: {
        _Kind.RULE: _Place.INNER,
        _Kind.TEMPORAL: _Place.TEMPORAL,
        _Kind.FUNCTION: _Place.FUNCTION,
    },
    _Place.INNER: {_Kind.TEMPORAL: _Place.TEMPORAL, _Kind.FUNCTION: _Place.FUNCTION},
    _Place.TEMPORAL: {_Kind.FUNCTION: _Place.FUNCTION},
    _Place.FUNCTION: {},
}

_ONE_RULE = "two rules in a row are not permitted"
_ONE_SPATIAL = "a second spatial aggregate is not permitted"

_REFUSALS: dict[tuple[_Place, _Kind], str] = {
    (_Place.OUTER, _Kind.RULE): _ONE_RULE,
    (_Place.INNER, _Kind.RULE): _ONE_RULE,
    (_Place.OUTER, _Kind.FUNCTION): "a rule on processed data needs an aggregate in between, such as $MAX",
    (_Place.SPATIAL, _Kind.SPATIAL): _ONE_SPATIAL,
    (_Place.INNER, _Kind.SPATIAL): _ONE_SPATIAL,
    (_Place.TEMPORAL, _Kind.SPATIAL): "a spatial aggregate is not permitted after a temporal one, only before it",
    (_Place.TEMPORAL, _Kind.RULE): "a rule is not permitted after a temporal aggregate, only before it",
    (_Place.TEMPORAL, _Kind.TEMPORAL): "a second temporal aggregate is not permitted",
}

_REFUSALS_ANYWHERE: dict[_Kind, str] = {
    _Kind.PERIOD: "$MRP is permitted only as the first operator",
    _Kind.NAMING: "$RPT is permitted only before what computes",
}

_NAMED_KINDS: dict[str, _Kind] = {
    "MRP": _Kind.PERIOD,
    "RPT": _Kind.NAMING,
    "WIN": _Kind.TEMPORAL,
    **dict.fromkeys(Comparison, _Kind.RULE),
    **dict.fromkeys(Operation, _Kind.SPATIAL),
    **{f"{window}{operation}": _Kind.TEMPORAL for window in CALENDAR_WINDOWS for operation in Operation},
}

KEYWORDS = frozenset({"SYS", "AGGREGATE", *_NAMED_KINDS})
"""Names a processing function cannot have."""


def parse(filter_: str, functions: Collection[str] = (), naming: Naming = Naming.SKR) -> Plan | None:
    """Read a subscription; None if it is a plain topic filter, which costs one comparison.

    Args:
        filter_: What the client asked for, without `$share/NAME/`.
        functions: The names of the processing functions there are, without `$`.
        naming: How the client asked for spatial aggregates to be named, if its packet can say so.

    Raises:
        OperatorError: It has operators, and is not of the language.
    """
    if not has_operators(filter_):
        return None
    head, slash, topic = filter_.partition("/")
    parser = _Parser(filter_, functions, naming)
    parser.read_operators(head)
    if not slash:
        raise OperatorError("the operators are not followed by '/' and a topic filter", filter_, len(filter_))
    parser.read_topic(topic, len(head) + 1)
    return parser.plan()


class _Token(NamedTuple):
    """An operator: `NAME;argument;argument`, and where it and its arguments begin."""

    name: str
    arguments: tuple[str, ...]
    position: int

    def position_of(self, argument: int) -> int:
        return self.position + len(self.name) + 2 + sum(len(text) + 1 for text in self.arguments[:argument])


class _Parser:
    def __init__(self, filter_: str, functions: Collection[str], naming: Naming) -> None:
        self._filter = filter_
        self._functions = functions
        self._naming = naming
        self._asked_for_names_at: int | None = None
        self._period: int | None = None
        self._outer: Rule | None = None
        self._spatial: Spatial | None = None
        self._inner: Rule | None = None
        self._temporal: Temporal | None = None
        self._function: str | None = None
        self._levels: tuple[str | tuple[str, ...], ...] = ()

    def plan(self) -> Plan:
        has_wildcards = any(level in ("+", "#") for level in self._levels)
        return Plan(
            levels=self._levels,
            period=self._period,
            naming=self._naming if self._spatial is not None and has_wildcards else Naming.SKR,
            outer=self._outer,
            spatial=self._spatial,
            inner=self._inner,
            temporal=self._temporal,
            function=self._function,
        )

    # --- operators ------------------------------------------------------------------------------------

    def read_operators(self, head: str) -> None:
        for wildcard in "+#":
            if wildcard in head:
                raise self._error(f"{wildcard!r} in a value is written %{ord(wildcard):02X}", head.index(wildcard))
        place = _Place.START
        paths: list[tuple[_Token, Path | None]] = []
        for token in _tokens(head):
            place = self._place_of(token, place)
            paths.append((token, self._read(token, place)))
        self._check_paths(paths)
        if self._asked_for_names_at is not None and self._spatial is None:
            raise self._error("$RPT names the values of a spatial aggregate; there is none", self._asked_for_names_at)

    def _place_of(self, token: _Token, place: _Place) -> _Place:
        kind = _NAMED_KINDS.get(token.name)
        if kind is None:
            if token.name not in self._functions:
                raise self._error(f"there is no operator ${token.name}", token.position)
            kind = _Kind.FUNCTION
        following = _NEXT[place].get(kind)
        if following is None:
            reason = _REFUSALS.get((place, kind)) or _REFUSALS_ANYWHERE.get(kind)
            raise self._error(reason or "nothing is permitted after a processing function", token.position)
        return following

    def _read(self, token: _Token, place: _Place) -> Path | None:
        """Take one operator in; returns the path it reads."""
        match place:
            case _Place.PERIOD:
                self._period = self._period_of(token)
            case _Place.NAMING:
                self._expect(token, 0, 0, "no argument")
                self._naming, self._asked_for_names_at = Naming.RPT, token.position
            case _Place.OUTER:
                self._outer = self._rule(token)
                return self._outer.path
            case _Place.INNER:
                self._inner = self._rule(token)
                return self._inner.path
            case _Place.SPATIAL:
                self._expect(token, 0, 1, "at most a path")
                self._spatial = Spatial(Operation(token.name), self._path(token, 0))
                return self._spatial.path
            case _Place.TEMPORAL:
                self._temporal = self._window(token) if token.name == "WIN" else self._calendar_window(token)
                return self._temporal.path
            case _:
                self._expect(token, 0, 0, "no argument")
                self._function = token.name
        return None

    def _period_of(self, token: _Token) -> int:
        self._expect(token, 1, 1, "one argument, the period in units of 10 ms")
        text = token.arguments[0]
        if not _PERIOD.fullmatch(text) or int(text) > MAX_PERIOD:
            raise self._error(f"a period is a whole number from 0 to {MAX_PERIOD}, not {text!r}", token.position_of(0))
        return int(text)

    def _rule(self, token: _Token) -> Rule:
        self._expect(token, 1, 2, "a value, and at most a path")
        comparison = Comparison(token.name)
        value = self._unescaped(token.arguments[0], token.position_of(0))
        if len(value) > MAX_VALUE_CHARACTERS:
            problem = f"a value has at most {MAX_VALUE_CHARACTERS} characters, not {len(value)}"
            raise self._error(problem, token.position_of(0))
        if comparison is Comparison.CONTAINS:
            if not value:
                raise self._error("$CONTAINS needs a text to look for", token.position_of(0))
        elif (as_number := number(value.encode())) is not None:
            value = written(as_number)
        elif comparison not in (Comparison.EQ, Comparison.NEQ):
            raise self._error(f"${comparison} compares numbers; {value!r} is none", token.position_of(0))
        return Rule(comparison, value, self._path(token, 1))

    def _calendar_window(self, token: _Token) -> Temporal:
        self._expect(token, 0, 1, "at most a path")
        calendar = next(name for name in CALENDAR_WINDOWS if token.name.startswith(name))
        operation = Operation(token.name.removeprefix(calendar))
        return Temporal(operation, CALENDAR_WINDOWS[calendar], calendar, self._path(token, 0))

    def _window(self, token: _Token) -> Temporal:
        self._expect(token, 2, 3, "a window, an operation, and at most a path")
        length, operation = token.arguments[:2]
        found = _WINDOW.fullmatch(length)
        window_s = int(found[1]) * UNITS[found[2]] if found else 0
        if not 0 < window_s <= MAX_WINDOW_S:
            problem = f"a window is a whole number of s, m, h or d, at most 31d; not {length!r}"
            raise self._error(problem, token.position_of(0))
        if operation not in Operation.__members__:
            problem = f"a window is aggregated by {', '.join(Operation)}; not by {operation!r}"
            raise self._error(problem, token.position_of(1))
        return Temporal(Operation(operation), window_s, None, self._path(token, 2))

    def _path(self, token: _Token, argument: int) -> Path | None:
        if argument >= len(token.arguments):
            return None
        text, position = token.arguments[argument], token.position_of(argument)
        steps = text.split(".")[1:]
        if not text.startswith(".") or not all(steps):
            raise self._error(f"a path is written .name.name, not {text!r}", position)
        if len(steps) > MAX_STEPS:
            raise self._error(f"a path has at most {MAX_STEPS} steps, not {len(steps)}", position)
        return tuple(self._unescaped(step, position) for step in steps)

    def _check_paths(self, paths: list[tuple[_Token, Path | None]]) -> None:
        """Only what reads payloads can address their fields: an aggregate makes bare numbers."""
        aggregate: _Token | None = None
        for token, path in reversed(paths):
            if path is not None and aggregate is not None:
                problem = f"${token.name} reads the numbers of ${aggregate.name}, which have no fields"
                raise self._error(problem, token.position_of(len(token.arguments) - 1))
            if _NAMED_KINDS.get(token.name) in (_Kind.SPATIAL, _Kind.TEMPORAL):
                aggregate = token

    def _expect(self, token: _Token, least: int, most: int, what: str) -> None:
        if not least <= len(token.arguments) <= most:
            raise self._error(f"${token.name} takes {what}", token.position)

    # --- topic ----------------------------------------------------------------------------------------

    def read_topic(self, topic: str, position: int) -> None:
        if self._spatial is None:
            self._levels = tuple(topic.split("/"))
        else:
            self._levels = self._spatial_levels(topic, position)
        listed = [level for level in self._levels if isinstance(level, tuple)]
        if len(listed) > 1:
            raise self._error("one level can be a list, not several", position)
        if listed and any(level in ("+", "#") for level in self._levels):
            raise self._error("a list and a wildcard cannot be combined", position)
        for source in Plan(levels=self._levels).sources:
            if (problem := filter_error(source)) is not None:
                raise self._error(problem, position)
            if has_operators(source):
                raise self._error("operators follow each other without '/'", position)

    def _spatial_levels(self, topic: str, position: int) -> tuple[str | tuple[str, ...], ...]:
        levels: list[str | tuple[str, ...]] = []
        for text in topic.split("/"):
            levels.append(self._listed(text, position) if ";" in text else self._level(text, position))
            position += len(text) + 1
        return tuple(levels)

    def _level(self, text: str, position: int) -> str:
        if text in ("+", "#"):
            return text
        level = self._unescaped(text, position)
        if "/" in level or ("%" in text and has_wildcard(level)):
            raise self._error(f"no topic level is {level!r}", position)
        return level

    def _listed(self, text: str, position: int) -> tuple[str, ...]:
        texts = text.split(";")
        if len(texts) > MAX_LISTED:
            raise self._error(f"a list has at most {MAX_LISTED} items, not {len(texts)}", position)
        items: set[str] = set()
        for item_text in texts:
            item = self._unescaped(item_text, position)
            if not item:
                raise self._error(f"the list {text!r} has an empty item", position)
            if has_wildcard(item):
                raise self._error(f"the list {text!r} has a wildcard in it", position)
            items.add(item)
            position += len(item_text) + 1
        return tuple(sorted(items))

    # --- inside ---------------------------------------------------------------------------------------

    def _unescaped(self, text: str, position: int) -> str:
        try:
            return unescape(text)
        except ValueError as error:
            raise self._error(str(error), position) from None

    def _error(self, problem: str, position: int) -> OperatorError:
        return OperatorError(problem, self._filter, position)


def _tokens(head: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    for text in head[1:].split("$"):
        name, *arguments = text.split(";")
        tokens.append(_Token(name, tuple(arguments), position))
        position += len(text) + 1
    return tokens
