"""Whether data satisfies a rule: the typing of MQTT+ section 3.1.

A rule whose value is a number speaks of numbers, and data that is none never satisfies it, not even `$NEQ`. Any other
rule speaks of text, and data that is no text (not UTF-8) never satisfies it; `$CONTAINS` looks into any bytes.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from moq.broker.operators.plan import Comparison
from moq.broker.operators.values import Literal, field, number, written

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from moq.broker.operators.plan import Rule

_COMPARISONS: dict[Comparison, Callable[[Decimal, Decimal], bool]] = {
    Comparison.EQ: operator.eq,
    Comparison.NEQ: operator.ne,
    Comparison.GT: operator.gt,
    Comparison.GTE: operator.ge,
    Comparison.LT: operator.lt,
    Comparison.LTE: operator.le,
}


class RuleFilter:
    """One rule, made ready to be asked often."""

    __slots__ = ("_compares", "_comparison", "_number", "_path", "_text")

    def __init__(self, rule: Rule) -> None:
        self._path = rule.path
        self._comparison = rule.comparison
        self._compares = _COMPARISONS.get(rule.comparison)
        self._text = rule.value.encode()
        self._number = number(self._text) if self._compares is not None else None

    def matches(self, payload: bytes) -> bool:
        """True if a payload, or the field of it that the rule names, satisfies the rule."""
        if self._path is None:
            return self._data_matches(payload)
        scalar = field(payload, self._path)
        if scalar is None:
            return False
        # A string of a document may hold half a surrogate pair, which has no UTF-8 and so equals no value.
        data = scalar.encode(errors="surrogatepass")
        return self._data_matches(data) if isinstance(scalar, Literal) else self._text_matches(data)

    def accepts(self, value: Decimal) -> bool:
        """True if the value of an aggregate satisfies the rule."""
        if self._number is not None and self._compares is not None:
            return self._compares(value, self._number)
        return self._text_matches(written(value).encode())

    def _data_matches(self, data: bytes) -> bool:
        if self._number is None or self._compares is None:
            return self._text_matches(data)
        value = number(data)
        return value is not None and self._compares(value, self._number)

    def _text_matches(self, data: bytes) -> bool:
        if self._number is not None:
            return False
        if self._comparison is Comparison.CONTAINS:
            return self._text in data
        if self._comparison is Comparison.EQ:
            return data == self._text
        return data != self._text and _is_text(data)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
