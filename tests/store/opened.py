"""Stores for tests, opened and closed alike whatever they keep their facts in."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from moq.broker.message import NEVER, Message
from moq.broker.store import DeliveryRecord, MemoryStore, QueueRecord, Store, Table
from moq.store import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Hashable
    from pathlib import Path

    from moq.broker.store import Record

SPOOL_BYTES = 100
"""Small, so that tests spool without large payloads."""


def open_sqlite(path: Path, **settings: Any) -> SQLiteStore:
    """A store whose owner calls `advance` by hand."""
    chosen: dict[str, Any] = {"durability": "full", "spool_bytes": SPOOL_BYTES}
    chosen |= {"on_pending": lambda: None, "on_progress": lambda: None}
    store = SQLiteStore(path, **(chosen | settings))
    store.open()
    return store


def settle(store: SQLiteStore) -> None:
    """Wait until all changes are safe and all questions answered."""
    assert store.flush_and_wait(), store.failure


class Keeper(Protocol):
    """A store that a contract test can settle and restart."""

    @property
    def store(self) -> Store: ...

    def settle(self) -> None:
        """Make all changes safe."""

    def restart(self) -> None:
        """Another store with the same facts."""

    def close(self) -> None:
        """No more of it."""


class MemoryKeeper:
    """Keeps a `MemoryStore`."""

    def __init__(self, path: Path) -> None:
        self.store: Store = MemoryStore()

    def settle(self) -> None:
        """All is safe already."""

    def restart(self) -> None:
        assert isinstance(self.store, MemoryStore)
        self.store = self.store.copy()

    def close(self) -> None:
        """Nothing is open."""


class SQLiteKeeper:
    """Keeps an `SQLiteStore`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sqlite = open_sqlite(path)

    @property
    def store(self) -> Store:
        return self.sqlite

    def settle(self) -> None:
        settle(self.sqlite)

    def restart(self) -> None:
        self.sqlite.close()
        self.sqlite = open_sqlite(self.path)

    def close(self) -> None:
        self.sqlite.close()


KEEPERS: dict[str, type[MemoryKeeper | SQLiteKeeper]] = {"memory": MemoryKeeper, "sqlite": SQLiteKeeper}


def copy_files(path: Path, to: Path) -> None:
    """What a crash at this moment would leave: every file as it is, the lock of a living process aside."""
    shutil.copytree(path, to, ignore=shutil.ignore_patterns("broker.lock", "*-shm"))


def message(payload: bytes = b"hello", topic: str = "a/b", **fields: Any) -> Message:
    chosen: dict[str, Any] = {"qos": 1, "publisher": "somebody"} | fields
    return Message(topic, payload, **chosen)


def enqueue(store: Store, owner: str, number: int, content: Message | bytes, **fields: Any) -> Message:
    """Add a delivery with what is usual."""
    sent = content if isinstance(content, Message) else message(content)
    chosen: dict[str, Any] = {"expires_at": NEVER, "qos": 1, "packet_id": 0, "share": None} | fields
    store.enqueue(owner, number, sent, **chosen)
    return sent


def facts(store: Store, table: Table) -> list[tuple[Hashable, Record]]:
    return list(store.load(table))


def unnumbered(delivery: DeliveryRecord) -> DeliveryRecord:
    """A delivery without the number that only some stores give its message."""
    return replace(delivery, message=replace(delivery.message, stored_as=0))


class Page:
    """Hears the answer of a read."""

    deliveries: list[DeliveryRecord]
    is_end: bool

    def __call__(self, deliveries: list[DeliveryRecord], is_end: bool) -> None:
        self.deliveries = [unnumbered(delivery) for delivery in deliveries]
        self.is_end = is_end

    @property
    def numbers(self) -> list[int]:
        return [delivery.number for delivery in self.deliveries]

    @property
    def payloads(self) -> list[bytes]:
        return [delivery.message.payload for delivery in self.deliveries]


def read(keeper: Keeper, owner: str, after: int = 0, messages: int = 1_000, size: int = 1 << 30) -> Page:
    """A page of a queue, waited for."""
    page = Page()
    keeper.store.read(owner, after, messages, size, page)
    keeper.settle()
    return page


def queues(store: Store) -> dict[str, QueueRecord]:
    return {queue.owner: queue for queue in store.queues()}
