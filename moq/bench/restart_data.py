"""A data directory with much in it, written through the store itself: what a broker finds that has run for long.

Every session has its own topics and its own queue. The messages of a queue are numbered as those of the load generator
are, so that a subscriber who takes them can check them all.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from moq.bench.dialects import BODY, topic
from moq.broker.message import NEVER, Message, Subscription
from moq.broker.store import MessageRecord, SessionRecord, SubscriptionRecord, Table
from moq.config import Limits
from moq.errors import StoreError
from moq.store import SQLiteStore

if TYPE_CHECKING:
    from pathlib import Path

BATCH: Final = 20_000
"""Changes in one transaction."""

FLUSH_TIMEOUT_S: Final = 120.0
EXPIRY_S: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of everything."""

    sessions: int
    subscriptions: int
    retained: int
    queued: int
    payload_bytes: int

    @property
    def queue_length(self) -> int:
        """Messages waiting for each session."""
        return self.queued // self.sessions


def client_id(session: int) -> str:
    """The client of a session."""
    return f"restart-{session:06d}"


def make_directory(path: Path, amounts: Amounts) -> None:
    """Fill a data directory and end in peace."""
    _Filler(path, amounts).run()


def _plain_subscription() -> SubscriptionRecord:
    """Of a client that asks for nothing but QoS 1."""
    usual: dict[str, Any] = {field.name: field.default for field in fields(Subscription)}
    return SubscriptionRecord(**{field.name: usual[field.name] for field in fields(SubscriptionRecord)} | {"qos": 1})


class _Filler:
    def __init__(self, path: Path, amounts: Amounts) -> None:
        self._amounts = amounts
        self._done = 0
        self._total = amounts.sessions + amounts.subscriptions + amounts.retained + amounts.queued
        self._store = SQLiteStore(
            path,
            durability="relaxed",
            spool_bytes=Limits().spool_bytes,
            on_pending=lambda: None,
            on_progress=lambda: None,
        )

    def run(self) -> None:
        self._store.open()
        self._sessions()
        self._retained()
        self._queues()
        self._flush()
        self._store.close(FLUSH_TIMEOUT_S)
        print(file=sys.stderr)

    def _sessions(self) -> None:
        amounts, expires_at = self._amounts, self._store.timeline.now() + EXPIRY_S
        subscription = _plain_subscription()
        for session in range(amounts.sessions):
            record = SessionRecord(EXPIRY_S, expires_at, (None, None), None, None)
            self._store.put(Table.SESSION, client_id(session), record)
            self._step()
            for number in range(amounts.subscriptions // amounts.sessions):
                filter_ = topic(session) if number == 0 else f"restart/{session:06d}/{number}"
                self._store.put(Table.SUBSCRIPTION, (client_id(session), filter_, None), subscription)
                self._step()

    def _retained(self) -> None:
        payload = bytes(self._amounts.payload_bytes)
        for number in range(self._amounts.retained):
            name = f"retained/{number:06d}"
            self._store.put(Table.RETAINED, (name, 0), MessageRecord(name, payload, 1, True, "filler", NEVER, None))
            self._step()

    def _queues(self) -> None:
        """One message for every session in turn, as publishers would have left them."""
        amounts = self._amounts
        padding = bytes(amounts.payload_bytes - BODY.size)
        for number in range(amounts.queue_length):
            payload = BODY.pack(0, number, 0) + padding
            for session in range(amounts.sessions):
                message = Message(topic(session), payload, 1, False, "filler")
                self._store.enqueue(client_id(session), number + 1, message, NEVER, 1, 0, None)
                self._step()

    def _step(self) -> None:
        self._done += 1
        if self._done % BATCH == 0:
            self._flush()

    def _flush(self) -> None:
        if not self._store.flush_and_wait(FLUSH_TIMEOUT_S):
            raise StoreError(f"the data directory could not be filled: {self._store.failure or 'the disk is too slow'}")
        print(f"\rfilling the data directory: {self._done / self._total:.0%}", end="", file=sys.stderr, flush=True)
