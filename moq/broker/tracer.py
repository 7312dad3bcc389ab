"""What the core tells whoever traces: each message put on the way to a client, as it happens.

One of the core's narrow interfaces. A broker that is not traced has none, and its connections then have outlets that
know nothing of it: what is off costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from moq.broker.link import Lane, Link
    from moq.broker.message import Message, Run, Target


class ConnectionTracer(Protocol):
    """Hears of the deliveries to one connection."""

    def delivered(self, message: Message, target: Target | None, qos: int, dup: bool, lane: Lane, alias: int) -> None:
        """A message was written to a lane, under this alias or none."""

    def run_delivered(self, run: Run, target: Target, lane: Lane, alias: int) -> None:
        """The same of a whole run."""


class WallClock(Protocol):
    """Times in nanoseconds since 1970."""

    def now_ns(self) -> int:
        """Read it."""

    def from_loop(self, seconds: float) -> int:
        """What it was at a time of the core's clock."""


class Tracer(Protocol):
    """Hears of connections."""

    def opened(self, link: Link, dialect: str, client_id: str) -> ConnectionTracer:
        """A client has been let in: whom to tell of its deliveries."""
