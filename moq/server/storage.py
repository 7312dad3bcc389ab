"""The store of a running broker: opened before it, moved on by its event loop, closed after it.

The store says when it has something to do: at the end of the turn in which something changed, and when its writer has
made changes safe. Both come here and become a call of `advance` on the loop, between the calls of the core.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from moq.broker.store import MemoryStore
from moq.store import SQLiteStore

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from moq.broker.core import Broker
    from moq.broker.store import Store
    from moq.config import BrokerConfig
    from moq.store import Recovered


class Storage:
    """Owns the store of one server."""

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop, on_advanced: Callable[[], None]) -> None:
        self._loop = loop
        self._on_advanced = on_advanced
        self._broker: Broker | None = None
        self.sqlite: SQLiteStore | None = None
        """The store, if it is one that lasts."""
        self.recovered: Recovered | None = None
        if config.store == "sqlite":
            self.sqlite = SQLiteStore(
                config.data_dir,
                durability=config.durability,
                spool_bytes=config.limits.spool_bytes,
                on_pending=self._advance_soon,
                on_progress=self._advance_from_writer,
            )
        self.store: Store = self.sqlite or MemoryStore()

    def open(self) -> None:
        """Read what there is; takes its time, and need not run on the loop.

        Raises:
            ConfigError: The directory cannot be used, or another broker does.
            StoreError: The database is damaged.
        """
        if self.sqlite is not None:
            self.recovered = self.sqlite.open()

    def epoch(self, now: float) -> float:
        """What to add to the loop's time to get the one that stored times are told in."""
        return (time.time() if self.sqlite is None else self.sqlite.timeline.now()) - now

    def start(self, broker: Broker, started_at: float) -> str | None:
        """The core has read back what it needs and may be told things. Returns what was restored, in words."""
        self._broker = broker
        self._advance_soon()
        if self.recovered is None:
            return None
        return str(replace(self.recovered, seconds=self._loop.time() - started_at))

    def close(self) -> None:
        """Make everything safe and let go of the directory.

        Raises:
            StoreError: Some of it could not be stored.
        """
        self._broker = None
        if self.sqlite is not None and self.recovered is not None:
            self.sqlite.close()

    def _advance_soon(self) -> None:
        if self._broker is not None:
            self._loop.call_soon(self._advance)

    def _advance_from_writer(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: `close` looks for itself
            self._loop.call_soon_threadsafe(self._advance)

    def _advance(self) -> None:
        broker = self._broker
        if broker is not None and self.sqlite is not None:
            broker.environment.now = now = self._loop.time()
            self.sqlite.advance()
            broker.on_durable(now)
            self._on_advanced()
