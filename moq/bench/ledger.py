"""The books of one open-loop run: every delivery is checked and counted here, and nowhere else.

    deliver ──► Place       one receiver in one flow: what is missing, repeated or out of order
            └─► arrays      due time and latency of each counted delivery, for each flow

Only what was due within the counted time is counted, whenever it came; the warm-up is delivered and forgotten. Every
latency is kept, not a summary: a slice of the timeline is cut by when messages were due and not by when they came.
"""

from __future__ import annotations

import statistics
from array import array
from collections import Counter
from math import ceil
from typing import TYPE_CHECKING, Final

from moq.bench.results import SLICE_S, Slice, sparse
from moq.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from moq.bench.scenarios import FlowPlan

    Hook = Callable[[int, FlowPlan, int, int, int, int], None]

SLICE_NS: Final = round(SLICE_S * 1e9)

SPIKE_FACTOR: Final = 1.5
"""A topic has a spike in a slice if the 95th percentile there is more than so many times the median of the run. A lost
packet costs at least the round trip of one hop, which doubles the latency over two; three times would miss it."""


class Place:
    """How far one receiver is in one flow."""

    __slots__ = ("expected", "missing")

    def __init__(self) -> None:
        self.expected = 0
        self.missing: set[int] = set()


class FlowBook:
    """One flow: what was sent and what came of it, of the counted time."""

    __slots__ = ("disordered", "due_ns", "latency_ns", "places", "plan", "repeated", "sent")

    def __init__(self, plan: FlowPlan, receivers: int) -> None:
        self.plan = plan
        self.sent = 0
        self.repeated = 0
        self.disordered = 0
        self.due_ns = array("q")
        """Of each delivery, in the order they came."""
        self.latency_ns = array("q")
        self.places = [Place() for _ in range(receivers)]

    @property
    def received(self) -> int:
        """Deliveries that were no repetition."""
        return len(self.due_ns)


class Ledger:
    """All flows of one run."""

    def __init__(self, plans: Sequence[FlowPlan], receivers: int) -> None:
        self.receivers = receivers
        self.books = [FlowBook(plan, receivers) for plan in plans]
        self.arrived = 0
        """Whatever came, counted or not: whether something still moves."""
        self.acknowledged_ns = array("q")
        """From when a message was due to its acknowledgement at the publisher, above QoS 0."""
        self.on_delivery: Hook | None = None
        """Told of every delivery: receiver, flow, sequence number, due at, now, size."""
        self._start_ns = self._end_ns = 0

    def count_from(self, start_ns: int, end_ns: int) -> None:
        """Set the counted time; before that nothing is counted."""
        self._start_ns, self._end_ns = start_ns, end_ns

    def sent(self, index: int, due_ns: int) -> None:
        """A message has been handed to its client."""
        if self._start_ns <= due_ns < self._end_ns:
            self.books[index].sent += 1

    def deliver(self, receiver: int, index: int, seq: int, due_ns: int, now_ns: int, size: int) -> None:
        """Check one delivery, and count it if it was due in the counted time."""
        self.arrived += 1
        book = self.books[index]
        if size != book.plan.size(seq):
            raise RemoteProtocolError(
                f"message {seq} of flow {index} came with {size} bytes; it was sent with {book.plan.size(seq)}"
            )
        is_counted = self._start_ns <= due_ns < self._end_ns
        place = book.places[receiver]
        if seq == place.expected:
            place.expected += 1
        elif seq > place.expected:
            place.missing.update(range(place.expected, seq))
            place.expected = seq + 1
        elif seq in place.missing:
            place.missing.discard(seq)
            book.disordered += is_counted
        else:
            book.repeated += is_counted
            is_counted = False
        if is_counted:
            book.due_ns.append(due_ns)
            book.latency_ns.append(now_ns - due_ns)
        if self.on_delivery is not None:
            self.on_delivery(receiver, book.plan, seq, due_ns, now_ns, size)

    def acknowledge(self, due_ns: int, now_ns: int) -> None:
        """The publisher of a message knows that it is done."""
        if self._start_ns <= due_ns < self._end_ns:
            self.acknowledged_ns.append(now_ns - due_ns)

    # --- afterwards ---------------------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """True once everything counted has come."""
        return all(book.received >= book.sent * self.receivers for book in self.books)

    def books_of(self, *, video: bool) -> list[FlowBook]:
        """The flows of the run, or those that are measured apart."""
        return [book for book in self.books if book.plan.is_video is video]

    def timeline(self, books: Sequence[FlowBook]) -> list[Slice]:
        """Tenths of a second by when messages were due; one in which none was due, or none came, is left out."""
        slices: dict[int, list[int]] = {}
        for book in books:
            for due_ns, latency_ns in zip(book.due_ns, book.latency_ns, strict=True):
                slices.setdefault((due_ns - self._start_ns) // SLICE_NS, []).append(latency_ns)
        return [_slice(number, sorted(slices[number])) for number in sorted(slices)]

    def isolation(self) -> dict[str, float]:
        """How far topics suffer together: the share of the spikes that hit all of them at once.

        A topic has a spike in a tenth of a second if the 95th percentile of its messages due there is more than one
        and a half times the median of the run. The ratio is slices in which every topic has one to slices in which any
        has; without spikes, or with one topic only, there is none.
        """
        books = self.books_of(video=False)
        everything = [latency_ns for book in books for latency_ns in book.latency_ns]
        if len(books) < 2 or not everything:
            return {}
        limit_ns = SPIKE_FACTOR * statistics.median(everything)
        hit: Counter[int] = Counter()
        for book in books:
            slices: dict[int, list[int]] = {}
            for due_ns, latency_ns in zip(book.due_ns, book.latency_ns, strict=True):
                slices.setdefault((due_ns - self._start_ns) // SLICE_NS, []).append(latency_ns)
            hit.update(number for number, found in slices.items() if nearest_rank(sorted(found), 95) > limit_ns)
        if not hit:
            return {"spike_slices": 0.0}
        of_all = sum(topics == len(books) for topics in hit.values())
        return {"spike_slices": float(len(hit)), "isolation_ratio": of_all / len(hit)}


def histogram(books: Iterable[FlowBook]) -> dict[int, int]:
    """Latencies in microseconds, as results have them."""
    return sparse(Counter(latency_ns // 1000 for book in books for latency_ns in book.latency_ns))


def nearest_rank(ordered: Sequence[int], percent: float) -> int:
    """The smallest value that so many percent do not exceed."""
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def _slice(number: int, ordered: Sequence[int]) -> Slice:
    return Slice(
        at_s=round(number * SLICE_S, 3),
        count=len(ordered),
        p50_us=nearest_rank(ordered, 50) / 1000,
        p99_us=nearest_rank(ordered, 99) / 1000,
        max_us=ordered[-1] / 1000,
    )
