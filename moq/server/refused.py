"""Clients that are not let in: told why in their own dialect, which their first bytes show, and closed.

A refusal holds a few bytes and a timer. So that a storm of connections does not make even that much, only so many
wait to be told at a time; further ones are closed without a word.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from moq.broker.dialects.refusal import ENOUGH_BYTES, refusal_words
from moq.broker.link import CONTROL
from moq.reasons import describe

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from moq.broker.link import Lane, Link
    from moq.reasons import Reason

logger = logging.getLogger(__name__)

MAX_WAITING: Final = 128
"""Refused links open at a time."""

PATIENCE_S: Final = 2.0
"""From the refusal to the end of the link: for the client to say its first words and to read ours."""


class Doorkeeper:
    """Turns links away."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting = 0

    def turn_away(self, link: Link, reason: Reason) -> RefusedLink:
        """Give a link a handler that refuses it."""
        logger.debug("%s %s refused: %s", link.transport, link.peer, describe(reason))
        refused = RefusedLink(link, reason, self._on_closed)
        self._waiting += 1
        if self._waiting > MAX_WAITING:
            link.abort()
        else:
            refused.begin(self._loop.call_later(PATIENCE_S, link.abort))
        return refused

    def _on_closed(self) -> None:
        self._waiting -= 1


class RefusedLink:
    """The handler of a link whose client is not let in."""

    __slots__ = ("_first", "_link", "_on_closed", "_reason", "_timer")

    def __init__(self, link: Link, reason: Reason, on_closed: Callable[[], None]) -> None:
        self._link = link
        self._reason = reason
        self._on_closed = on_closed
        self._first: bytes | None = b""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, timer: asyncio.TimerHandle) -> None:
        """Say why, if the dialect is known already."""
        self._timer = timer
        self.data_received(CONTROL, b"")

    def data_received(self, lane_id: int, data: bytes) -> None:
        """See `LinkHandler`."""
        if self._first is None or lane_id != CONTROL:
            return
        self._first = (self._first + data)[:ENOUGH_BYTES]
        words = refusal_words(self._link.alpn, self._first, self._reason)
        if words is not None:
            self._first = None
            self._link.control.write(words)
            self._link.close(self._reason)

    def lane_finished(self, lane_id: int) -> None:
        """See `LinkHandler`."""

    def lane_reset(self, lane_id: int, reason: int) -> None:
        """See `LinkHandler`."""

    def lane_writable(self, lane: Lane) -> None:
        """See `LinkHandler`."""

    def closed(self, reason: int | None, message: str) -> None:
        """See `LinkHandler`."""
        if self._timer is not None:
            self._timer.cancel()
        self._on_closed()
