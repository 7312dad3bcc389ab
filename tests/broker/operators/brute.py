"""Aggregates the slow way: every value is kept, and all of them are looked at each time. For comparison only."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

NUMBER = re.compile(rb"-?[0-9]+([.][0-9]+)?")


def numeric(payload: bytes) -> Fraction | None:
    return Fraction(payload.decode()) if NUMBER.fullmatch(payload) else None


def aggregate(operation: str, values: Iterable[Fraction]) -> Fraction:
    """Of exact values, exactly; an average to its 17 digits."""
    known = list(values)
    match operation:
        case "COUNT":
            return Fraction(len(known))
        case "SUM":
            return sum(known, Fraction(0))
        case "AVG":
            mean = sum(known, Fraction(0)) / len(known)
            rounding = Context(prec=17, rounding=ROUND_HALF_EVEN)
            return Fraction(rounding.divide(Decimal(mean.numerator), Decimal(mean.denominator)))
        case "MIN":
            return min(known)
        case "MAX":
            return max(known)
    raise AssertionError(operation)
