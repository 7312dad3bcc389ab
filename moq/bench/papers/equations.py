"""Equations (2) to (6) of MQTT+: what a broker sends to n subscribers of m sensors, with and without aggregation.

    λ   messages per second of a sensor            P   bytes of a message with a number
    λA  results per second of an aggregate         O   bytes of the operator
    T   seconds                                    W   bytes of the level that names a sensor

The paper writes ≈ between some of them: P + O leaves out the "/" between operator and topic and that $AGGREGATE is
longer than the name it replaces; P + O + Wm counts the one name that P has already, and not the ";" between names.
`exact_skr` and `exact_rpt` count these too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KEYWORD: Final = "$AGGREGATE"
SEPARATOR_BYTES: Final = 1


@dataclass(frozen=True, slots=True)
class Parameters:
    """The lengths."""

    p: int
    o: int
    w: int

    def skr(self) -> int:
        """Q of equation (4), single keyword replacement."""
        return self.p + self.o

    def rpt(self, sensors: int) -> int:
        """Q of equation (4), replacement with participating topics."""
        return self.p + self.o + self.w * sensors

    def exact_skr(self) -> int:
        """To the byte: the slash, and the keyword in the place of a name."""
        return self.p + self.o + SEPARATOR_BYTES + len(KEYWORD) - self.w

    def exact_rpt(self, sensors: int) -> int:
        """To the byte: the slash, all names but the one P has, and what separates them."""
        return self.p + self.o + SEPARATOR_BYTES + (self.w + SEPARATOR_BYTES) * (sensors - 1)


def plain_bytes(messages_per_sensor: float, sensors: int, subscribers: int, p: int) -> float:
    """Equation (2), with λT as a number of messages."""
    return messages_per_sensor * sensors * subscribers * p


def ratio(messages_per_result: float, sensors: int, p: int, q: int) -> float:
    """Equations (5) and (6): traffic without aggregation over that with; `messages_per_result` is λ/λA."""
    return sensors * messages_per_result * p / q
