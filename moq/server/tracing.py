"""The trace of a broker: begun with it, ticked by its loop, completed when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.trace.broker import BrokerTracer
from moq.trace.schema import BROKER
from moq.trace.writer import INTERVAL_S, TraceWriter

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from moq.broker.figures import Figures
    from moq.broker.link import Link
    from moq.config import BrokerConfig


class Tracing:
    """The tracer of one server and its timer."""

    def __init__(self, directory: Path, config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> None:
        """Start writing.

        Raises:
            ConfigError: Nothing can be written there.
        """
        writer = TraceWriter(directory, BROKER, sample=config.trace_sample, max_rate=config.trace_max_rate)
        self.tracer = BrokerTracer(writer.open())
        self._loop = loop
        self._figures: Figures | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, figures: Figures) -> None:
        """There is a broker, whose figures shall tell how much is recorded."""
        self._figures = figures
        self._tick()

    def forget(self, link: Link) -> None:
        """A link is gone."""
        self.tracer.connections.remove(link)

    def close(self) -> None:
        """Complete the files."""
        if self._timer is not None:
            self._timer.cancel()
        self.tracer.writer.close()

    def _tick(self) -> None:
        self.tracer.tick()
        if self._figures is not None:
            self._figures.traced_messages = self.tracer.writer.recorded
            self._figures.traced_messages_lost = self.tracer.writer.dropped
        self._timer = self._loop.call_later(INTERVAL_S, self._tick)
