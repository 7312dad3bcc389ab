"""What a payload says: a number, a text, or a field of a JSON document; and how a number is written.

Numbers are decimals, because that is what publishers write: `0.1` and `0.2` make `0.3`. They have the grammar of JSON,
so `nan`, `inf`, `0x10`, `1_000` and `007` are text. Whatever is read here comes from strangers: sizes are looked at
before anything is parsed, and nothing raises.
"""

from __future__ import annotations

import json
import re
from decimal import ROUND_HALF_EVEN, Context, Decimal

MAX_NUMBER_BYTES = 64
"""A longer payload is no number, and is not looked at further."""

MAX_DIGITS = 34
"""Significant digits of a number, those of decimal128; more are rounded, half to even."""

MAX_EXPONENT = 308
"""Powers of ten a number spans either way, those of a double: it bounds the size of an exact sum."""

MAX_DOCUMENT_BYTES = 64 * 1024
"""A longer payload is not searched for fields: parsing JSON takes some fifty times its size in memory."""

MAX_DEPTH = 32
"""Of arrays and objects inside each other; the parser recurses."""

Path = tuple[str, ...]
"""The way to a field: names of members, or positions in arrays."""

EXACT = Context(prec=1_000, rounding=ROUND_HALF_EVEN)
"""Sums of numbers as bounded above never need more digits, however many are added: nothing is ever rounded."""

_ROUNDED = Context(prec=MAX_DIGITS, rounding=ROUND_HALF_EVEN)

_NUMBER = re.compile(rb"[ \t\r\n]*(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?)[ \t\r\n]*")

# A string without an end goes on to the last byte: were it no match, each quote in it would be tried anew.
_STRUCTURE = re.compile(rb'"(?>[^"\\]+|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)

_POSITION = re.compile(r"0|[1-9][0-9]{0,5}")


class Literal(str):
    """A number of a JSON document as it was written: only the one that is asked for is worth converting."""

    __slots__ = ()


def number(text: bytes) -> Decimal | None:
    """The number a payload is, blanks around it aside; None if it is none."""
    if len(text) > MAX_NUMBER_BYTES or (found := _NUMBER.fullmatch(text)) is None:
        return None
    value = _ROUNDED.create_decimal(found[1].decode("ascii"))
    if not value:
        return Decimal(0)
    return value if -MAX_EXPONENT <= value.adjusted() <= MAX_EXPONENT else None


def rounded(value: Decimal) -> Decimal:
    """An exact sum as it is published."""
    return _ROUNDED.plus(value)


def written(value: Decimal) -> str:
    """The one text of a number: `number` reads it back, and equal numbers have equal texts."""
    if not value:
        return "0"
    plain = EXACT.normalize(value)
    if -7 < plain.adjusted() < 21:
        return format(plain, "f")
    return str(plain).replace("E+", "e").replace("E", "e")


def field(payload: bytes, path: Path) -> str | None:
    """The scalar at a path of a JSON document: a `Literal` if it is a number; None if there is none.

    Strings are what they say; `true`, `false` and `null` are those words.
    """
    if len(payload) > MAX_DOCUMENT_BYTES or not _is_shallow(payload):
        return None
    try:
        node: object = json.loads(payload.decode(), parse_int=Literal, parse_float=Literal, parse_constant=_refuse)
    except ValueError:
        return None
    for step in path:
        node = _member(node, step)
    if isinstance(node, str):
        return node
    return _WORDS.get(node) if node is None or isinstance(node, bool) else None


def measured(payload: bytes, path: Path | None) -> Decimal | None:
    """The number to aggregate: the payload itself, or the field at a path."""
    if path is None:
        return number(payload)
    scalar = field(payload, path)
    return number(scalar.encode()) if isinstance(scalar, Literal) else None


_WORDS: dict[object, str] = {True: "true", False: "false", None: "null"}

_NOTHING = object()


def _member(node: object, step: str) -> object:
    if isinstance(node, dict):
        return node.get(step, _NOTHING)
    if isinstance(node, list) and _POSITION.fullmatch(step) and int(step) < len(node):
        return node[int(step)]
    return _NOTHING


def _is_shallow(payload: bytes) -> bool:
    if payload.count(b"[") + payload.count(b"{") <= MAX_DEPTH:
        return True
    depth = 0
    for found in _STRUCTURE.finditer(payload):
        mark = found[0][0]
        if mark in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                return False
        elif mark in b"]}":
            depth -= 1
    return True


def _refuse(word: str) -> object:
    raise ValueError(f"{word} is not JSON")
