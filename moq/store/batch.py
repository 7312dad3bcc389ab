"""Changes that wait to be written together, reduced to what they come to.

A batch is a row of segments. Within a segment only the net effect counts and order does not matter: a delivery that
came and went is gone without a trace, a fact keeps its last value. A question (a page of a queue, a trim, a sweep) ends
a segment, so that it sees exactly the changes made before it.

    segment              question   segment              question   segment
    +d1 +d2 -d0 fact=…   read?      +d3 -d1              trim?      -d3 fact=…     one transaction

A queue goes by a number that is never used again. So dropping one, or giving it to another owner, is just another value
for that number, and what the old owner does next concerns another queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from moq.broker.message import Message
    from moq.broker.store import DeliveryRecord, Record, Table

Delivery = tuple["Message", float, int, int, bool, "str | None"]
"""Message, expires_at, qos, packet_id, released, share. A tuple: one is built for each delivery."""

Answer = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Read:
    """Give a page of a queue."""

    queue: int
    after: int
    messages: int
    size: int
    then: Callable[[list[DeliveryRecord], bool], None]


@dataclass(frozen=True, slots=True)
class Trim:
    """Remove the oldest of a queue after a number."""

    queue: int
    after: int
    messages: int
    size: int
    then: Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Remove some of what has expired; `then` hears queue and size of each, and whether that was all."""

    before: float
    skip: tuple[int, ...]
    then: Callable[[list[tuple[int, int]], bool], None]


Question = Read | Trim | Sweep


class Segment:
    """Net changes, and the question that ended them."""

    __slots__ = ("added", "created", "facts", "forgotten", "marked", "owners", "question", "removed")

    def __init__(self) -> None:
        self.facts: dict[Table, dict[Hashable, Record]] = {}
        self.forgotten: dict[Table, dict[Hashable, None]] = {}
        """Facts to remove, before those above are written."""
        self.owners: dict[int, str | None] = {}
        """By queue; None if it was dropped."""
        self.created: set[int] = set()
        """Queues that were not there before."""
        self.added: dict[int, dict[int, Delivery]] = {}
        """By queue and number."""
        self.marked: dict[int, dict[int, tuple[int, bool]]] = {}
        self.removed: dict[int, list[int]] = {}
        self.question: Question | None = None

    def is_empty(self) -> bool:
        """Whether there is nothing to write and nothing to answer."""
        return not (
            self.question
            or any(self.added.values())
            or any(self.removed.values())
            or any(self.marked.values())
            or self.owners
            or any(self.facts.values())
            or any(self.forgotten.values())
        )


class Batch:
    """Changes on their way to the disk: the core adds to it, then the writer carries it out."""

    __slots__ = ("answers", "first", "last", "payload_bytes", "rows", "segment", "segments")

    def __init__(self, first: int) -> None:
        self.first = first
        """The number of the change before its first one."""
        self.last = first
        """The number of its last change: set when it is cut."""
        self.segment = Segment()
        """The one that takes changes."""
        self.segments = [self.segment]
        self.rows = 0
        """About how many will be written."""
        self.payload_bytes = 0
        self.answers: list[Answer] = []
        """What the writer found, to be said once the batch is safe."""

    def is_empty(self) -> bool:
        """Whether all of it came to nothing."""
        return len(self.segments) == 1 and self.segment.is_empty()

    def put(self, table: Table, key: Hashable, record: Record) -> None:
        """Write a fact."""
        self.segment.facts.setdefault(table, {})[key] = record
        self.rows += 1

    def forget(self, table: Table, key: Hashable) -> None:
        """Remove a fact, which may be on disk whatever this batch knows of it."""
        self.segment.facts.get(table, {}).pop(key, None)
        self.segment.forgotten.setdefault(table, {})[key] = None
        self.rows += 1

    def create(self, queue: int, owner: str) -> None:
        """Begin a queue."""
        self.segment.created.add(queue)
        self.give(queue, owner)

    def give(self, queue: int, owner: str) -> None:
        """Say whose queue it is."""
        self.segment.owners[queue] = owner
        self.rows += 1

    def drop(self, queue: int) -> None:
        """Remove a queue: what was about to happen in it need not happen."""
        segment = self.segment
        segment.added.pop(queue, None)
        segment.marked.pop(queue, None)
        segment.removed.pop(queue, None)
        if queue in segment.created:
            segment.created.discard(queue)
            del segment.owners[queue]
        else:
            segment.owners[queue] = None
            self.rows += 1

    def add(self, queue: int, number: int, delivery: Delivery) -> None:
        """Add a delivery."""
        added = self.segment.added.get(queue)
        if added is None:
            added = self.segment.added[queue] = {}
        added[number] = delivery
        self.rows += 1
        self.payload_bytes += len(delivery[0].payload)

    def mark(self, queue: int, number: int, packet_id: int, released: bool) -> None:
        """Alter a delivery: right here if it has not been written yet."""
        segment = self.segment
        added = segment.added.get(queue)
        if added is not None and (delivery := added.get(number)) is not None:
            message, expires_at, qos, _, _, share = delivery
            added[number] = (message, expires_at, qos, packet_id, released, share)
            return
        marked = segment.marked.get(queue)
        if marked is None:
            marked = segment.marked[queue] = {}
        marked[number] = (packet_id, released)
        self.rows += 1

    def remove(self, queue: int, number: int) -> None:
        """Remove a delivery: without a trace if it has not been written yet."""
        segment = self.segment
        added = segment.added.get(queue)
        if added is not None and (delivery := added.pop(number, None)) is not None:
            self.rows -= 1
            self.payload_bytes -= len(delivery[0].payload)
            return
        marked = segment.marked.get(queue)
        if marked is not None:
            marked.pop(number, None)
        removed = segment.removed.get(queue)
        if removed is None:
            removed = segment.removed[queue] = []
        removed.append(number)
        self.rows += 1

    def ask(self, question: Question) -> None:
        """Put a question about everything so far."""
        self.segment.question = question
        self.segment = Segment()
        self.segments.append(self.segment)
