"""Which messages a subscription brings, also one with operators: docs/reference/operators.md.

A rule or a period passes messages on as they were published. Anything else makes values, whose topics begin with the
operators in their canonical form, or `$ERROR/` and that: close enough to what was subscribed to, to tell whose it is.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from moq.topics import has_operators, matches

ERRORS: Final = "$ERROR/"
_PASSING: Final = {"EQ", "NEQ", "GT", "GTE", "LT", "LTE", "CONTAINS", "MRP"}
_UNNAMED: Final = {"MRP", "RPT"}
"""They say how often, and how values are named; no name has them."""


def brings(filter_: str, topic: str) -> bool:
    """True if a message of this topic may come for this subscription."""
    if not has_operators(filter_):
        return matches(filter_, topic)
    operators, _, source = filter_.partition("/")
    if topic.startswith(ERRORS):
        return _are_alike(operators, topic.removeprefix(ERRORS).partition("/")[0])
    if all(token[0] in _PASSING for token in _tokens(operators)):
        return matches(source, topic)
    made_by, _, name = topic.partition("/")
    return _are_alike(operators, made_by) and _can_be_named(source, name)


def _tokens(operators: str) -> list[list[str]]:
    return [token.split(";") for token in operators[1:].split("$")]


def _are_alike(subscribed: str, made_by: str) -> bool:
    """The same operators; of their arguments, numbers can be compared although they are written in another way."""
    ours = [token for token in _tokens(subscribed) if token[0] not in _UNNAMED]
    theirs = _tokens(made_by)
    return len(ours) == len(theirs) and all(
        our[0] == their[0] and _numbers(our) == _numbers(their) for our, their in zip(ours, theirs, strict=True)
    )


def _numbers(token: list[str]) -> list[float]:
    numbers: list[float] = []
    for argument in token[1:]:
        try:
            numbers.append(float(unquote(argument)))
        except ValueError:
            continue
    return numbers


def _can_be_named(source: str, name: str) -> bool:
    """The levels of the filter, with something else for wildcards and lists."""
    wanted, levels = source.split("/"), name.split("/")
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position >= len(levels):
            return False
        if level != "+" and ";" not in level and unquote(level) != unquote(levels[position]):
            return False
    return len(wanted) == len(levels)
