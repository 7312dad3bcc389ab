"""What the broker holds for its clients, counted now and then, and the turns of those it slows because of it.

Nothing is counted per message: a sample adds up what links, sessions, topics and the store say of themselves. It is
taken a moment after data arrived, and again and again while the level is not calm, so an idle broker does nothing.

A payload that several clients wait for is counted for each of them: too much rather than too little.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from moq.broker.pressure import TURN_S

if TYPE_CHECKING:
    import asyncio

    from moq.broker.pressure import Level
    from moq.server.server import Server

logger = logging.getLogger(__name__)

SAMPLE_S: Final = 0.05
"""From data to the sample it causes: what a publisher sends meanwhile, some MB, is how far the watermark is passed."""

SAMPLE_SHARE: Final = 20
"""Samples are so many times as far apart as the last one took: with thousands of clients they cost 5 % at most."""

DELIVERY_BYTES: Final = 400
"""What a waiting message takes besides its payload. A million in memory, each for one subscriber, took 280 bytes each
with thousands on a topic, 400 with ten on each topic, and 1,280 where every message had a topic to itself, whose queue
and route are most of that; one that a hundred subscribers share took 105 for each of them."""

CHANGE_BYTES: Final = 500
"""What a change takes that the store has not written yet, besides a payload that is counted where it waits."""


class Watch:
    """Keeps the level of one server's broker."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._pressure = server.broker.environment.pressure
        self._timer: asyncio.TimerHandle | None = None
        self._sample_took_s = 0.0

    def look(self) -> None:
        """Data has arrived: look soon, if that is not about to happen anyway."""
        if self._timer is None:
            self._timer = self._loop.call_later(max(SAMPLE_S, self._sample_took_s * SAMPLE_SHARE), self._sample)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def held_bytes(self) -> int:
        """What is held for clients now."""
        server, broker = self._server, self._server.broker
        store = broker.environment.store
        links = sum(served.link.unsent + served.connection.assembling_bytes for served in server.served)
        sessions = sum(
            session.outbound.held_bytes + session.paces.size + session.outbound.held_messages * DELIVERY_BYTES
            for session in broker.sessions
        )
        rest = broker.topics.retained_bytes + server.functions.held_bytes
        return links + sessions + rest + (store.last - store.durable) * CHANGE_BYTES

    def _sample(self) -> None:
        pressure, store = self._pressure, self._server.broker.environment.store
        self._timer = None
        before, started_at = pressure.level, self._loop.time()
        if pressure.update(self.held_bytes(), store.last - store.durable):
            self._report(before, store.last - store.durable)
        self._sample_took_s = self._loop.time() - started_at
        if pressure.slowed:
            pressure.turn(started_at)
        if pressure.level or pressure.slowed:
            self._timer = self._loop.call_later(max(TURN_S, self._sample_took_s * SAMPLE_SHARE), self._sample)

    def _report(self, before: Level, unstored: int) -> None:
        pressure = self._pressure
        log = logger.warning if pressure.level > before else logger.info
        log(
            "overload: %s (was %s), %d bytes held of %d, %d changes not stored",
            pressure.level.name.lower(),
            before.name.lower(),
            pressure.held_bytes,
            self._server.broker.limits.memory_watermark_bytes,
            unstored,
        )
