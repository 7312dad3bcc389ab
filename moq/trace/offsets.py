"""How far two clocks are apart, by question and answer, as NTP does it.

    ours      asked ──┐                     ┌──► answered
    theirs            └──► received ── sent ┘

    round trip = (answered - asked) - (sent - received)
    offset     = ((received - asked) + (sent - answered)) / 2

The offset is exact if both ways take equally long, and wrong by half the round trip at most. Of several answers the one
with the shortest round trip is the best.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Offset:
    """One estimate."""

    offset_ns: int
    """Their clock minus ours."""
    round_trip_ns: int


def estimate(asked_ns: int, received_ns: int, sent_ns: int, answered_ns: int) -> Offset:
    """From the four times of one exchange."""
    offset = ((received_ns - asked_ns) + (sent_ns - answered_ns)) // 2
    return Offset(offset, max(0, (answered_ns - asked_ns) - (sent_ns - received_ns)))
