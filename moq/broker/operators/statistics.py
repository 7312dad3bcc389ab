"""What is remembered of many numbers instead of the numbers: how many, their exact sum, the least and the greatest."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal

from moq.broker.operators.plan import Operation
from moq.broker.operators.values import EXACT, rounded

AVERAGE_DIGITS = 17
"""Significant digits of an average, as many as tell two doubles apart; rounded once, from the exact sum."""

_AVERAGING = Context(prec=AVERAGE_DIGITS, rounding=ROUND_HALF_EVEN)

StatisticsRecord = tuple[int, str, str, str]
"""Count, sum, least and greatest, as a store keeps them: the sum in all its digits."""


def average(total: Decimal, size: int) -> Decimal:
    """The mean, correctly rounded."""
    return _AVERAGING.divide(total, Decimal(size))


class Statistics:
    """Five figures in constant memory: a sum has at most some 700 digits whatever was added."""

    __slots__ = ("_count", "_greatest", "_least", "_total")

    def __init__(self, first: Decimal) -> None:
        self._count = 1
        self._total = self._least = self._greatest = first

    def add(self, value: Decimal) -> None:
        """One number more."""
        self._count += 1
        self._total = EXACT.add(self._total, value)
        if value < self._least:
            self._least = value
        elif value > self._greatest:
            self._greatest = value

    def result(self, operation: Operation) -> Decimal:
        """One of the five."""
        match operation:
            case Operation.COUNT:
                return Decimal(self._count)
            case Operation.SUM:
                return rounded(self._total)
            case Operation.AVG:
                return average(self._total, self._count)
        return self._least if operation is Operation.MIN else self._greatest

    def to_record(self) -> StatisticsRecord:
        """What a store keeps of them."""
        return self._count, str(self._total), str(self._least), str(self._greatest)

    @classmethod
    def from_record(cls, record: StatisticsRecord) -> Statistics:
        """The statistics a record was made of."""
        size, total, least, greatest = record
        statistics = cls(Decimal(total))
        statistics._count = size
        statistics._least, statistics._greatest = Decimal(least), Decimal(greatest)
        return statistics
