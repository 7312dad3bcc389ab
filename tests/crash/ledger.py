"""What each side of a run saw, message by message: the publishers' book and the subscribers' book.

    flow = one publisher on one topic at one QoS; its messages are numbered from 0

    publisher    flow → when each number was sent, and when it was acknowledged (0.0: not yet)
    subscriber   flow → the numbers in the order they arrived, and when

Times are of the machine's monotonic clock, which all processes of a run share. The payload of a message follows from
its flow and number, so whoever receives one can tell whether it is whole.
"""

from __future__ import annotations

import pickle
import struct
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

HEAD: Final = struct.Struct(">II")
SMALL_BYTES: Final = 24
LARGE_BYTES: Final = 6000
LARGE_EVERY: Final = 61
"""Now and then a message is large enough for a file of its own (the runs set `spool_bytes` below it)."""


REFUSED: Final = -1.0
"""Stands for the time of acknowledgement of a message that the broker did not take and said so."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One publisher on one topic."""

    number: int
    publisher: str
    topic: str
    qos: int
    subscribers: tuple[str, ...]
    """Who has to get its messages."""
    is_ordered: bool = True
    """Whether its publisher sends in order, over reconnects too."""


@dataclass(slots=True)
class Sent:
    """What the publisher of a flow saw."""

    sent_at: array[float] = field(default_factory=lambda: array("d"))
    acknowledged_at: array[float] = field(default_factory=lambda: array("d"))

    def send(self, at: float) -> int:
        """The number of the next message."""
        self.sent_at.append(at)
        self.acknowledged_at.append(0.0)
        return len(self.sent_at) - 1

    @property
    def acknowledged(self) -> int:
        """How many were."""
        return sum(at > 0 for at in self.acknowledged_at)


@dataclass(slots=True)
class Arrived:
    """What one subscriber saw of one flow."""

    numbers: array[int] = field(default_factory=lambda: array("L"))
    at: array[float] = field(default_factory=lambda: array("d"))
    newest: int = -1
    """The highest number so far."""

    def add(self, number: int, at: float) -> None:
        """One more message."""
        self.numbers.append(number)
        self.at.append(at)
        self.newest = max(self.newest, number)


@dataclass(slots=True)
class Ledger:
    """The books of the clients of one process, or of all."""

    sent: dict[int, Sent] = field(default_factory=dict)
    arrived: dict[tuple[str, int], Arrived] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    """What a client saw that cannot be told by numbers: a session forgotten, a payload damaged."""

    def add(self, other: Ledger) -> None:
        """Take over the books of another process; no client is in both."""
        self.sent.update(other.sent)
        self.arrived.update(other.arrived)
        self.complaints += other.complaints

    def save(self, path: Path) -> None:
        """Write the books to a file."""
        path.write_bytes(pickle.dumps(self))

    @classmethod
    def load(cls, path: Path) -> Ledger:
        """Read what `save` wrote."""
        loaded = pickle.loads(path.read_bytes())
        assert isinstance(loaded, cls)
        return loaded


def payload_of(flow: int, number: int) -> bytes:
    """The payload of a message."""
    size = LARGE_BYTES if number % LARGE_EVERY == LARGE_EVERY - 1 else SMALL_BYTES
    return HEAD.pack(flow, number) + bytes([number & 0xFF]) * (size - HEAD.size)


def read_payload(payload: bytes) -> tuple[int, int] | None:
    """Flow and number of a payload; None if it is not exactly as it was made."""
    if len(payload) < HEAD.size:
        return None
    flow, number = HEAD.unpack_from(payload)
    return (flow, number) if payload == payload_of(flow, number) else None
