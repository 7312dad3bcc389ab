"""What must survive: the interface to durable facts, and the store that keeps them in memory.

The core writes facts as they happen and reads them back once, when a broker starts. Writing is asynchronous: each
`put` or `delete` gets the next number in one sequence, and `durable` is the highest number that would survive
`kill -9` now. An acknowledgement waits until `durable` has reached what it promises, so a store may put a thousand
facts into one transaction.

    SESSION       client_id                → SessionRecord
    SUBSCRIPTION  client_id, filter, group → SubscriptionRecord
    REGISTRATION  client_id, filter        → RegistrationRecord
    TOPIC         topic                    → TopicRecord           mode and expiry, type
    RETAINED      topic, number            → MessageRecord
    DELIVERY      client_id, number        → DeliveryRecord        queued or in flight to a subscriber
    RECEIVED      client_id, kind << 16|id → None                  QoS 2 messages a publisher has not released
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from moq.broker.message import Properties, Will


class Table(Enum):
    """The kinds of facts, named as in the module's table."""

    SESSION = "session"
    SUBSCRIPTION = "subscription"
    REGISTRATION = "registration"
    TOPIC = "topic"
    RETAINED = "retained"
    DELIVERY = "delivery"
    RECEIVED = "received"


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A persistent session; times are seconds since 1970, because they must make sense after a restart."""

    expiry_s: float
    expires_at: float
    wills: tuple[Will | None, Will | None]
    last_will: Will | None
    user: str | None


@dataclass(frozen=True, slots=True)
class SubscriptionRecord:
    """A subscription of a persistent session."""

    qos: int
    group: str | None
    accepts_requests: bool
    no_local: bool
    alias: int
    priority: int
    retain_as_published: bool
    identifier: int
    answers_by_topic: bool


@dataclass(frozen=True, slots=True)
class RegistrationRecord:
    """A registration of a persistent session."""

    mode: int
    expiry_s: int | None
    alias: int


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """How a topic keeps its messages, and the type it was announced with."""

    mode: int
    expiry_s: int | None
    format: int | None
    media_type: str
    schema: bytes
    type_id: int


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """A message; `expires_at` in seconds since 1970."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    publisher: str
    expires_at: float
    properties: Properties | None


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """A message on its way to one persistent session; `packet_id` is 0 until it has one that must be kept."""

    message: MessageRecord
    qos: int
    packet_id: int
    released: bool


Record = SessionRecord | SubscriptionRecord | RegistrationRecord | TopicRecord | MessageRecord | DeliveryRecord | None


class Store(Protocol):
    """Durable facts by table and key."""

    @property
    def last(self) -> int:
        """The number of the latest change."""

    @property
    def durable(self) -> int:
        """The number up to which every change is safe. The owner calls `Broker.on_durable` as it grows."""

    def put(self, table: Table, key: Hashable, record: Record) -> None:
        """Write or replace a fact."""

    def delete(self, table: Table, key: Hashable) -> None:
        """Remove a fact; removing one that is not there is no error."""

    def load(self, table: Table) -> Iterable[tuple[Hashable, Record]]:
        """Every fact of a table, in the order first written."""


class MemoryStore:
    """Facts in dictionaries: they outlive a `Broker`, not the process, so every change counts as durable at once."""

    def __init__(self) -> None:
        self._tables: dict[Table, dict[Hashable, Record]] = {table: {} for table in Table}
        self.last = 0

    @property
    def durable(self) -> int:
        """See `Store`."""
        return self.last

    def put(self, table: Table, key: Hashable, record: Record) -> None:
        """See `Store`."""
        self._tables[table][key] = record
        self.last += 1

    def delete(self, table: Table, key: Hashable) -> None:
        """See `Store`."""
        self._tables[table].pop(key, None)
        self.last += 1

    def load(self, table: Table) -> list[tuple[Hashable, Record]]:
        """See `Store`."""
        return list(self._tables[table].items())
