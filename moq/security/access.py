"""The access file: who may do what on which topics, as rules in TOML.

    [groups]
    staff = ["alice", "bob"]

    [[rule]]
    groups = ["staff"]
    deny = ["publish"]
    topics = ["home/alarm/#"]

    [[rule]]
    users = ["*"]
    allow = ["read", "write"]
    topics = ["home/#", "people/%u/#"]

Rules are read from top to bottom and the first that applies decides; what none speaks of is denied. Order, because
the answer is then found by reading, and one rule is the whole reason for it: no ranking of users against groups and of
long topics against short ones has to be known.

A rule is asked about a name, or about a filter, which stands for many names. A filter is granted if some of its names
may be: what arrives is decided name by name, so a wildcard never brings more than its parts.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from moq.broker.access import Action
from moq.errors import ConfigError
from moq.security.scram import saslprep
from moq.topics import filter_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from moq.broker.access import Actor

FILE_NAME: Final = "access.toml"
"""What the file is called in a data directory."""

ANYBODY: Final = "*"
"""In `users`: everyone who logged in. At the end of a client identifier: any ending."""

SYSTEM: Final = "$SYS"
SYSTEM_TOPICS: Final = "$SYS/#"

RIGHTS: Final = ("publish", "subscribe", "register", "request", "respond", "type", "query", "sys")
"""What a rule can name. `subscribe` includes to receive; `sys` is to read the broker's own topics below `$SYS`."""

SHORTHANDS: Final = {
    "read": ("subscribe", "type"),
    "write": ("publish", "register"),
    "all": tuple(right for right in RIGHTS if right != "sys"),
}

_KEYS: Final = ("users", "clients", "groups", "allow", "deny", "topics")
_READING: Final = frozenset({Action.SUBSCRIBE, Action.RECEIVE, Action.TYPE, Action.QUERY})

MAX_ANSWERS: Final = 50_000
"""Answers remembered, some 300 bytes each: bounds what inventing topic names can cost; past it they are worked out."""

MAX_KNOWN_ACTORS: Final = 10_000
"""Clients whose rules are kept at hand; past it they are found out again."""


class _Wildcard(Enum):
    """A level of a pattern that stands for others. Not text: a user may be called `#`."""

    ONE = "+"
    REST = "#"


_Pattern = tuple[str | _Wildcard, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a file."""

    number: int
    """Its place among the rules, from 1."""
    line: int | None
    """Where it begins in the file."""
    allows: bool
    rights: frozenset[str]
    users: frozenset[str] | None
    """By name and by group; None: everybody, logged in or not."""
    clients: tuple[str, ...]
    topics: tuple[str, ...]
    words: str
    """As a person would say it."""

    def applies_to(self, actor: Actor) -> bool:
        """True if this rule speaks of this client, whatever it wants."""
        if self.users is not None and (actor.user is None or not self.users & {actor.user, ANYBODY}):
            return False
        return not self.clients or any(_is_client(wanted, actor.client_id) for wanted in self.clients)

    @property
    def place(self) -> str:
        """Where to find it."""
        return f"rule {self.number}" + ("" if self.line is None else f" (line {self.line})")


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer with its reason."""

    is_allowed: bool
    rule: Rule | None
    """The rule that decided, if one did."""
    right: str
    """What it takes."""
    is_for_a_part: bool = False
    """Of a filter: some of its names are allowed."""
    is_broker_s: bool = False
    """The broker's own topics would be written to, which no rule can allow."""

    @property
    def reason(self) -> str:
        """The answer's reason, for people."""
        if self.is_broker_s:
            return f"topics that begin with $ are the broker's own; nobody may {self.right} there"
        if self.rule is None:
            return f"no rule allows it to {self.right}"
        return f"{self.rule.place}{', for a part of it' if self.is_for_a_part else ''}: {self.rule.words}"


@dataclass(frozen=True, slots=True)
class _Known:
    """A rule as it is for one client: with its placeholders filled in."""

    rule: Rule
    patterns: tuple[_Pattern, ...]


class Rules:
    """All rules of a file, in their order."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules = tuple(rules)
        self._known: dict[tuple[str, str | None], tuple[_Known, ...]] = {}

    def decide(self, actor: Actor, action: Action, topic: str) -> Decision:
        """Whether a client may do this, and which rule says so."""
        if topic.startswith("$") and action not in _READING:
            return Decision(False, None, action.value, is_broker_s=True)
        right = right_of(action, topic)
        levels = topic.split("/")
        is_filter = "+" in levels or levels[-1] == "#"
        for known in self._rules_for(actor):
            rule = known.rule
            if right not in rule.rights:
                continue
            if any(covers(pattern, levels) for pattern in known.patterns):
                return Decision(rule.allows, rule, right)
            if is_filter and rule.allows and any(overlaps(pattern, levels) for pattern in known.patterns):
                return Decision(True, rule, right, is_for_a_part=True)
        return Decision(False, None, right)

    def _rules_for(self, actor: Actor) -> tuple[_Known, ...]:
        who = (actor.client_id, actor.user)
        known = self._known.get(who)
        if known is None:
            if len(self._known) >= MAX_KNOWN_ACTORS:
                self._known.clear()
            known = self._known[who] = tuple(
                _Known(rule, _patterns(rule.topics, actor)) for rule in self.rules if rule.applies_to(actor)
            )
        return known


class AccessList:
    """The rules a broker goes by, and the answers they gave: members of groups are asked about for every message."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._answers: dict[tuple[str, str | None, str, str], bool] = {}

    @property
    def rules(self) -> Rules:
        """What decides; it may be replaced while the broker runs."""
        return self._rules

    @rules.setter
    def rules(self, rules: Rules) -> None:
        self._rules = rules
        self._answers.clear()

    def allows(self, actor: Actor, action: Action, topic: str) -> bool:
        """See `Access`."""
        question = (actor.client_id, actor.user, action.value, topic)
        answer = self._answers.get(question)
        if answer is None:
            if len(self._answers) >= MAX_ANSWERS:
                self._answers.clear()
            answer = self._answers[question] = self._rules.decide(actor, action, topic).is_allowed
        return answer


def right_of(action: Action, topic: str) -> str:
    """The right an action takes, as a file names it."""
    if topic.startswith(SYSTEM) and topic.split("/")[0] == SYSTEM and action in _READING:
        return "sys"
    return "subscribe" if action is Action.RECEIVE else action.value


# --- matching -----------------------------------------------------------------------------------------


def covers(pattern: _Pattern, levels: list[str]) -> bool:
    """True if the pattern matches this name, or every name of this filter."""
    if isinstance(pattern[0], _Wildcard) and levels[0].startswith("$"):
        return False
    for position, wanted in enumerate(pattern):
        if wanted is _Wildcard.REST:
            return True
        if position == len(levels) or levels[position] == "#":
            return False
        if wanted is not _Wildcard.ONE and (levels[position] == "+" or wanted != levels[position]):
            return False
    return len(pattern) == len(levels)


def overlaps(pattern: _Pattern, levels: list[str]) -> bool:
    """True if the pattern matches some name of this filter."""
    first = pattern[0]
    if isinstance(first, _Wildcard) and levels[0].startswith("$"):
        return False
    if isinstance(first, str) and first.startswith("$") and levels[0] in ("+", "#"):
        return False
    for position in range(max(len(pattern), len(levels)) + 1):
        wanted = pattern[position] if position < len(pattern) else None
        level = levels[position] if position < len(levels) else None
        if wanted is _Wildcard.REST or level == "#":
            return True
        if wanted is None or level is None:
            return wanted is level
        if wanted is not _Wildcard.ONE and level not in ("+", wanted):
            return False
    return True


def _patterns(topics: Iterable[str], actor: Actor) -> tuple[_Pattern, ...]:
    return tuple(pattern for topic in topics if (pattern := to_pattern(topic, actor)) is not None)


def to_pattern(topic: str, actor: Actor) -> _Pattern | None:
    """A topic of a rule for one client; None if it can match nothing for this one.

    A placeholder is part of one level and never a wildcard, whatever the client is called.
    """
    if "%u" in topic and actor.user is None:
        return None
    levels = topic.split("/")
    pattern = tuple(_level(level, actor) for level in levels)
    first = pattern[0]
    if isinstance(first, str) and first.startswith("$") and not levels[0].startswith("$"):
        return None  # nobody's name makes a topic of the broker's
    return pattern


def _level(level: str, actor: Actor) -> str | _Wildcard:
    if level in ("+", "#"):
        return _Wildcard(level)
    if "%" not in level:
        return level
    # In one pass: what one placeholder brings is not looked at again.
    return re.sub("%[uc]", lambda found: (actor.user or "") if found[0] == "%u" else actor.client_id, level)


def _is_client(wanted: str, client_id: str) -> bool:
    return client_id.startswith(wanted[:-1]) if wanted.endswith(ANYBODY) else client_id == wanted


# --- reading ------------------------------------------------------------------------------------------


def load_rules(path: Path) -> Rules:
    """The rules of a file.

    Raises:
        ConfigError: It cannot be read or does not say what it should; the message names file, rule, value and rule.
    """
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read the access file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the access file {path} is not TOML: {error}") from error
    try:
        return parse_rules(tables, text)
    except ConfigError as error:
        raise ConfigError(f"the access file {path}: {error}") from None


def parse_rules(tables: Mapping[str, object], text: str) -> Rules:
    """The rules of a file that has been read as TOML; its text tells on which lines they begin.

    Raises:
        ConfigError: They cannot be used.
    """
    _check_keys("", tables, ("groups", "rule"))
    groups = tables.get("groups", {})
    if not isinstance(groups, dict):
        raise ConfigError(f"groups is {groups!r}; expected a table of groups, each a list of user names")
    members = {
        name: frozenset(map(_user, _texts(f"groups.{name}", users) if users != [] else ()))
        for name, users in groups.items()
    }
    rules = tables.get("rule", [])
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise ConfigError("rule is not a list of tables; write each one under [[rule]]")
    lines = _lines(text, len(rules))
    return Rules(_to_rule(number, lines[number - 1], rule, members) for number, rule in enumerate(rules, 1))


def _lines(text: str, count: int) -> list[int] | list[None]:
    """Where the rules begin, which the parser does not tell."""
    found = [number for number, line in enumerate(text.splitlines(), 1) if re.match(r"\s*\[\[\s*rule\s*]]", line)]
    return found if len(found) == count else [None] * count


def _to_rule(number: int, line: int | None, table: Mapping[str, object], groups: Mapping[str, frozenset[str]]) -> Rule:
    where = f"rule {number}"
    _check_keys(f"{where}: ", table, _KEYS)
    if ("allow" in table) is ("deny" in table):
        raise ConfigError(f"{where}: has {'both' if 'allow' in table else 'neither'} of allow and deny; it needs one")
    verb = "allow" if "allow" in table else "deny"
    named = _texts(f"{where}: {verb}", table[verb])
    rights = frozenset(right for word in named for right in _rights(f"{where}: {verb}", word))
    topics = _topics(where, table.get("topics"), rights)
    users, chosen, clients = (
        _texts(f"{where}: {key}", table[key]) if key in table else () for key in ("users", "groups", "clients")
    )
    names = frozenset(user if user == ANYBODY else _user(user) for user in users)
    for group in chosen:
        if group not in groups:
            raise ConfigError(f"{where}: groups has {group!r}; known are {', '.join(groups) or 'none'}")
        names |= groups[group]
    who = [f"users {', '.join(users)}"] if users else []
    who += [f"groups {', '.join(chosen)}"] if chosen else []
    as_clients = f" as clients {', '.join(clients)}" if clients else ""
    words = f"{verb} {' and '.join(who) or 'everybody'}{as_clients} to {', '.join(named)} on {', '.join(topics)}"
    return Rule(number, line, verb == "allow", rights, names if who else None, clients, topics, words)


def _rights(where: str, word: str) -> tuple[str, ...]:
    if word in RIGHTS:
        return (word,)
    if word not in SHORTHANDS:
        raise ConfigError(f"{where} has {word!r}; known are {', '.join((*RIGHTS, *SHORTHANDS))}")
    return SHORTHANDS[word]


def _topics(where: str, value: object, rights: frozenset[str]) -> tuple[str, ...]:
    if value is None:
        if rights == {"sys"}:
            return (SYSTEM_TOPICS,)
        raise ConfigError(f"{where}: has no topics; `topics = ['#']` is all of them")
    topics = _texts(f"{where}: topics", value)
    for topic in topics:
        if (error := filter_error(topic)) is not None:
            raise ConfigError(f"{where}: topics: {error}")
    return topics


def _texts(where: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) and text for text in value):
        raise ConfigError(f"{where} is {value!r}; expected a list of texts, at least one")
    return tuple(value)


def _user(name: str) -> str:
    """A user name in the form in which users log in."""
    try:
        return saslprep(name)
    except ValueError as error:
        raise ConfigError(f"the user name {name!r} cannot be used: {error} (RFC 4013)") from error


def _check_keys(where: str, table: Mapping[str, object], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
            raise ConfigError(f"{where}{key} is not a setting{hint}")
