"""Compares the books of a run: nothing acknowledged lost, nothing of QoS 2 twice, order kept, nobody left waiting.

Pure: from a `Ledger` and the moments of the kills to a list of breaches, each said so that the cause can be looked
for: which message, when it was sent and acknowledged, between which kills, and what its subscriber saw around it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from tests.crash.ledger import Arrived, Sent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.crash.ledger import Flow, Ledger

NEIGHBOURS: Final = 3
"""Arrivals shown on either side of a breach."""


SHOWN: Final = 5
"""Breaches of each kind shown in a report."""


class Kind(Enum):
    """The promises a broker can break."""

    LOST = "lost"
    TWICE = "delivered twice"
    DISORDER = "out of order"
    STUCK = "never acknowledged"
    INVENTED = "never sent"
    COMPLAINT = "complaint"


@dataclass(frozen=True, slots=True)
class Breach:
    """One promise broken."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}"


@dataclass(frozen=True, slots=True)
class Timeline:
    """When the run began and when the broker was killed, for telling times in its terms."""

    began_at: float
    kills: Sequence[float]

    def place(self, at: float) -> str:
        """A moment as people want it: seconds into the run, and the kills around it."""
        before = bisect_left(self.kills, at)
        text = f"{at - self.began_at:.3f} s"
        if before:
            text += f", {at - self.kills[before - 1]:.3f} s after kill {before}"
        if before < len(self.kills):
            text += f", {self.kills[before] - at:.3f} s before kill {before + 1}"
        return text


def judge(flows: Sequence[Flow], ledger: Ledger, timeline: Timeline) -> list[Breach]:
    """Every breach, flow by flow."""
    breaches = [Breach(Kind.COMPLAINT, text) for text in ledger.complaints]
    for flow in flows:
        sent = ledger.sent.get(flow.number, Sent())
        breaches += _stuck(flow, sent, timeline)
        for subscriber in flow.subscribers:
            arrived = ledger.arrived.get((subscriber, flow.number), Arrived())
            breaches += _Comparison(flow, sent, subscriber, arrived, timeline).breaches()
    return breaches


def _stuck(flow: Flow, sent: Sent, timeline: Timeline) -> Iterator[Breach]:
    for number, at in enumerate(sent.acknowledged_at):
        if not at:
            where = timeline.place(sent.sent_at[number])
            yield Breach(Kind.STUCK, f"{_name(flow, number)}, sent at {where}, and quiet since the load ended")


def _name(flow: Flow, number: int) -> str:
    return f"message {number} of {flow.publisher} on {flow.topic!r} (QoS {flow.qos})"


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One flow as its publisher and one of its subscribers saw it."""

    flow: Flow
    sent: Sent
    subscriber: str
    arrived: Arrived
    timeline: Timeline

    def breaches(self) -> Iterator[Breach]:
        first_index: dict[int, int] = {}
        newest = -1
        for index, number in enumerate(self.arrived.numbers):
            if number >= len(self.sent.sent_at):
                yield self._breach(Kind.INVENTED, number, index)
                continue
            if number in first_index:
                if self.flow.qos == 2:
                    yield self._breach(Kind.TWICE, number, index, first_index[number])
                continue
            first_index[number] = index
            if number < newest and self.flow.is_ordered:
                yield self._breach(Kind.DISORDER, number, index, first_index[newest])
            newest = max(newest, number)
        highest = list(accumulate(self.arrived.numbers, max))
        for number, at in enumerate(self.sent.acknowledged_at):
            if at > 0 and number not in first_index:
                yield self._breach(Kind.LOST, number, bisect_right(highest, number))

    def _breach(self, kind: Kind, number: int, index: int, other: int | None = None) -> Breach:
        lines = [f"{_name(self.flow, number)} at {self.subscriber}"]
        if number < len(self.sent.sent_at):
            lines.append(f"    sent          {self.timeline.place(self.sent.sent_at[number])}")
            acknowledged = self.sent.acknowledged_at[number]
            lines.append(f"    acknowledged  {self.timeline.place(acknowledged) if acknowledged > 0 else 'never'}")
        if other is not None:
            lines.append(f"    its subscriber saw first  {self._around(other)}")
        lines.append(f"    its subscriber saw        {self._around(index)}")
        return Breach(kind, "\n".join(lines))

    def _around(self, index: int) -> str:
        """The arrivals next to a place, with their times."""
        numbers, at = self.arrived.numbers, self.arrived.at
        shown = range(max(0, index - NEIGHBOURS), min(len(numbers), index + NEIGHBOURS + 1))
        if not shown:
            return "nothing of this flow"
        seen = " ".join(str(numbers[place]) for place in shown)
        nearest = min(index, len(numbers) - 1)
        return f"… {seen} … ({numbers[nearest]} arrived at {self.timeline.place(at[nearest])})"


def report(breaches: Sequence[Breach]) -> str:
    """All breaches counted by kind, the first of each kind in full."""
    lines = []
    for kind in Kind:
        of_kind = [breach for breach in breaches if breach.kind is kind]
        if of_kind:
            lines.append(f"{len(of_kind)} {kind.value}, the first {min(len(of_kind), SHOWN)}:")
            lines += map(str, of_kind[:SHOWN])
    return "\n".join(lines) or "no breaches"
