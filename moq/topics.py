"""Topic names, topic filters and whether one matches the other: pure functions.

A name is what a message is published on: levels separated by `/`, no wildcards. A filter is what a
subscription asks for: `+` stands for one level, a final `#` for any number of levels, none included. A leading
wildcard never matches a name that begins with `$`, which is the broker's own.
"""

from __future__ import annotations

import re

MAX_TOPIC_BYTES = 255
"""MMQP strings have a one-byte length."""

MAX_LEVELS = 64
"""Bounds the depth of the tries, and so the work and memory one hostile topic can cause."""

_KEYWORD = re.compile(r"\$[A-Z][A-Z0-9_]*")


def name_error(name: str) -> str | None:
    """Say what is wrong with a topic name, or None."""
    if "+" in name or "#" in name:
        return f"topic name {name!r} contains a wildcard"
    return _common_error(name, "topic name")


def filter_error(filter_: str) -> str | None:
    """Say what is wrong with a topic filter, or None."""
    if "#" in filter_ or "+" in filter_:
        levels = filter_.split("/")
        for position, level in enumerate(levels):
            if level == "#" and position != len(levels) - 1:
                return f"topic filter {filter_!r} has levels after '#'"
            if len(level) > 1 and ("#" in level or "+" in level):
                return f"topic filter {filter_!r} has a wildcard inside level {level!r}"
    return _common_error(filter_, "topic filter")


def _common_error(text: str, what: str) -> str | None:
    if not text:
        return f"{what} is empty"
    if "\0" in text:
        return f"{what} {text!r} contains U+0000"
    if text.count("/") >= MAX_LEVELS:
        return f"{what} has {text.count('/') + 1} levels; at most {MAX_LEVELS} are allowed"
    return None


def has_wildcard(filter_: str) -> bool:
    """True if the filter can match more than one name."""
    return "#" in filter_ or "+" in filter_


def matches(filter_: str, name: str) -> bool:
    """The definition of matching, written for clarity; the broker's tries agree with it (a test says so)."""
    wanted = filter_.split("/")
    levels = name.split("/")
    if name.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position >= len(levels) or level not in ("+", levels[position]):
            return False
    return len(wanted) == len(levels)


def has_operators(filter_: str) -> bool:
    """Tell operators from other topics that begin with `$`, such as `$SYS`; capitals that are none are a slip."""
    if filter_[:1] != "$":
        return False
    head = filter_.partition("/")[0]
    if ";" in head or "$" in head[1:]:
        return True
    return head != "$SYS" and _KEYWORD.fullmatch(head) is not None
