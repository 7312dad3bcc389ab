"""One connection as the asyncio client sees it: things to wait for, and when to try the next."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from moq.client.core import ClientCore
from moq.errors import ConfigError
from moq.reasons import Reason

if TYPE_CHECKING:
    from moq.broker.link import Link
    from moq.client.session import ClientSession, SessionOptions
    from moq.client.tracer import ClientTracer
    from moq.errors import ConnectionLost

T = TypeVar("T")

FINAL_REASONS = frozenset(
    {
        Reason.SESSION_TAKEN_OVER,
        Reason.NOT_AUTHORIZED,
        Reason.BANNED,
        Reason.BAD_USER_NAME_OR_PASSWORD,
        Reason.BAD_AUTHENTICATION_METHOD,
        Reason.CLIENT_IDENTIFIER_NOT_VALID,
        Reason.UNSUPPORTED_PROTOCOL_VERSION,
    }
)
"""Answers that another attempt would only get again, or would fight over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnect:
    """When to try again after the link is lost: longer each time, and not all clients at once."""

    first_s: float = 0.1
    longest_s: float = 30.0

    def __post_init__(self) -> None:
        """Refuse delays that never grow or never end."""
        if not 0 < self.first_s <= self.longest_s:
            raise ConfigError(f"first_s is {self.first_s}; it must be above 0 and at most longest_s, {self.longest_s}")

    def delay_s(self, attempt: int) -> float:
        """A random half of the doubled delay: clients that lost one broker do not return as one crowd."""
        return min(self.first_s * 2.0 ** min(attempt, 32), self.longest_s) * random.uniform(0.5, 1.0)


class Connection:
    """One link with its core, as things to wait for."""

    def __init__(
        self, session: ClientSession, link: Link, options: SessionOptions, tracer: ClientTracer | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        self._now = loop.time
        self.outcome: asyncio.Future[ConnectionLost | None] = loop.create_future()
        """None once CONACK said yes, else why there is no connection."""
        self.lost: asyncio.Future[ConnectionLost] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.core = ClientCore(session, link, loop.time, options, self, tracer)

    async def until_lost(self) -> ConnectionLost:
        """Wait for the end, watching that the broker is not silent for too long."""
        while not self.lost.done():
            await asyncio.wait([self.lost], timeout=max(0.0, self.core.next_timeout() - self._now()))
            self.core.handle_timeout(self._now())
        return self.lost.result()

    # --- from the core ---

    def opened(self, core: ClientCore) -> None:
        """The broker has accepted the connection."""
        resolve(self.outcome, None)

    def ended(self, core: ClientCore, error: ConnectionLost) -> None:
        """The connection is over."""
        resolve(self.outcome, error)
        resolve(self.lost, error)

    def gone(self, core: ClientCore) -> None:
        """The link is gone."""
        resolve(self.closed, None)


def resolve(future: asyncio.Future[T], result: T) -> None:
    """Give a future its result, unless it has one or nobody waits any more."""
    if not future.done():
        future.set_result(result)
