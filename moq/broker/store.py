"""What must survive: the interface to durable facts, and the store that keeps them in memory.

The core writes changes as they happen. Writing is asynchronous: each change gets the next number in one sequence, and
`durable` is the highest number that would survive `kill -9` now. An acknowledgement waits until `durable` has reached
what it promises, so a store may put a thousand changes into one transaction.

Facts are read back once, when a broker starts:

    SESSION       client_id                → SessionRecord
    SUBSCRIPTION  client_id, filter, group → SubscriptionRecord
    REGISTRATION  client_id, filter        → RegistrationRecord
    TOPIC         topic                    → TopicRecord           mode and expiry, type
    RETAINED      topic, number            → MessageRecord
    RECEIVED      client_id, kind << 16|id → None                  QoS 2 messages a publisher has not released
    PACED         client_id, label, topic  → MessageRecord         waits for the end of a reception period
    AGGREGATE     computation, topic       → AggregateRecord       what a topic said in a window that is open
    COLLECTION    client_id, packet_id     → CollectionRecord      QoS 3: what is to be confirmed
    CONFIRMATION  the same, place          → ConfirmationRecord    and by whom it was

Queues hold what a session is still to receive: deliveries by owner and number, in the order of their numbers. They
stay in the store until somebody wants them, and are read a page at a time. A read sees exactly the changes made before
it was asked for; it answers through a callback, when those are durable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable

    from moq.broker.message import Message, Properties, Will


class Table(Enum):
    """The kinds of facts, named as in the module's table."""

    SESSION = "session"
    SUBSCRIPTION = "subscription"
    REGISTRATION = "registration"
    TOPIC = "topic"
    RETAINED = "retained"
    RECEIVED = "received"
    PACED = "paced"
    AGGREGATE = "aggregate"
    COLLECTION = "collection"
    CONFIRMATION = "confirmation"


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
    period: int = 0
    repeats_names: bool = False


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
    """A message; `expires_at` in seconds since 1970, infinite if never."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    publisher: str
    expires_at: float
    properties: Properties | None
    stored_as: int = 0
    """The store's number for a queued message: see `Message.stored_as`."""


@dataclass(frozen=True, slots=True)
class AggregateRecord:
    """What one topic said in the open window of a computation; `window` is its number since 1970."""

    window: int
    statistics: tuple[int, str, str, str]
    """Count, sum, least and greatest, numbers in all their digits."""


@dataclass(frozen=True, slots=True)
class CollectionRecord:
    """A message whose confirmations are collected: see `confirmations.py`."""

    number: int
    topic: str
    qos: int
    waited: int
    subscribers: tuple[str, ...]
    began_at: float
    deadline: float
    places: tuple[str, ...]
    """From where answers could come when it began."""
    reason: int | None
    """How it ended; None while it is open."""


@dataclass(frozen=True, slots=True)
class ConfirmationRecord:
    """What became of a place: who answered from it, if anybody did."""

    subscriber: str | None
    after_s: float
    reply: bytes | None


Record = (
    SessionRecord
    | SubscriptionRecord
    | RegistrationRecord
    | TopicRecord
    | MessageRecord
    | AggregateRecord
    | CollectionRecord
    | ConfirmationRecord
    | None
)


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """A message in a queue; `packet_id` is 0 until it has one that must be kept."""

    number: int
    message: MessageRecord
    qos: int
    packet_id: int
    released: bool
    share: str | None
    """The shared subscription it was chosen for: another member may get it instead."""


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """One queue as a starting broker finds it: what it holds, not the messages themselves."""

    owner: str
    messages: int
    size: int
    """Payload bytes of all of them."""
    next_number: int
    packet_ids: tuple[int, ...]
    """Those of deliveries that have one."""


class Store(Protocol):
    """Durable facts by table and key, and queues by owner."""

    @property
    def last(self) -> int:
        """The number of the latest change."""

    @property
    def durable(self) -> int:
        """The number up to which every change is safe. The owner calls `Broker.on_durable` as it grows."""

    @property
    def failure(self) -> str | None:
        """Why nothing can be made safe at present, such as a full disk; None if all is well."""

    # --- facts ----------------------------------------------------------------------------------------

    def put(self, table: Table, key: Hashable, record: Record) -> None:
        """Write or replace a fact."""

    def delete(self, table: Table, key: Hashable) -> None:
        """Remove a fact; removing one that is not there is no error."""

    def load(self, table: Table) -> Iterable[tuple[Hashable, Record]]:
        """Every fact of a table, in the order first written."""

    # --- queues ---------------------------------------------------------------------------------------

    def enqueue(
        self, owner: str, number: int, message: Message, expires_at: float, qos: int, packet_id: int, share: str | None
    ) -> None:
        """Add a delivery to the end of a queue: numbers only grow.

        A message in several queues is kept once: `Message.stored_as` is set when it is first seen. `expires_at` is in
        seconds since 1970.
        """

    def mark(self, owner: str, number: int, packet_id: int, released: bool) -> None:
        """Note how far the exchange of a delivery is; one that is not there any more is ignored."""

    def dequeue(self, owner: str, number: int) -> None:
        """Remove a delivery; one that is not there is ignored. The last one takes its message along."""

    def trim(self, owner: str, after: int, messages: int, size: int, then: Callable[[int, int], None]) -> None:
        """Remove the oldest deliveries that follow a number: so many, and until so many bytes are gone.

        Those with a packet identifier stay: their receiver may have them already and wait for the exchange to end.
        `then` hears how many went, and how many bytes.
        """

    def sweep(self, before: float, skip: Collection[str], then: Callable[[list[tuple[str, int]]], None]) -> None:
        """Remove deliveries without a packet identifier that have expired; `then` gets owner and size of each.

        It may be called several times, if there are many. The owners to skip have some of theirs in memory, where they
        are looked at before they are sent.
        """

    def read(
        self, owner: str, after: int, messages: int, size: int, then: Callable[[list[DeliveryRecord], bool], None]
    ) -> None:
        """Give `then` the deliveries that follow a number, and whether there were no more of them.

        At most so many, and no more after so many bytes; at least one if there is one.
        """

    def rename(self, owner: str, new_owner: str) -> None:
        """Give a whole queue to another owner, who has none."""

    def drop(self, owner: str) -> None:
        """Remove a whole queue."""

    def queues(self) -> Iterable[QueueRecord]:
        """Every queue that is not empty."""


class MemoryStore:
    """Facts in dictionaries: they outlive a `Broker`, not the process, so every change counts as durable at once."""

    failure: str | None = None

    def __init__(self) -> None:
        self._tables: dict[Table, dict[Hashable, Record]] = {table: {} for table in Table}
        self._queues: dict[str, dict[int, DeliveryRecord]] = {}
        self.last = 0

    def copy(self) -> MemoryStore:
        """Another store with the same facts."""
        copy = MemoryStore()
        copy.take(self)
        return copy

    def take(self, other: MemoryStore) -> None:
        """Replace all facts with those of another store."""
        self._tables = {table: dict(facts) for table, facts in other._tables.items()}
        self._queues = {owner: dict(queue) for owner, queue in other._queues.items()}

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

    def enqueue(
        self, owner: str, number: int, message: Message, expires_at: float, qos: int, packet_id: int, share: str | None
    ) -> None:
        """See `Store`. The records of one message share its payload."""
        record = MessageRecord(
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            message.publisher,
            expires_at,
            message.properties,
        )
        delivery = DeliveryRecord(number, record, qos, packet_id, False, share)
        self._queues.setdefault(owner, {})[number] = delivery
        self.last += 1

    def mark(self, owner: str, number: int, packet_id: int, released: bool) -> None:
        """See `Store`."""
        queue = self._queues.get(owner, {})
        if (delivery := queue.get(number)) is not None:
            queue[number] = replace(delivery, packet_id=packet_id, released=released)
        self.last += 1

    def dequeue(self, owner: str, number: int) -> None:
        """See `Store`."""
        queue = self._queues.get(owner, {})
        if queue.pop(number, None) is not None and not queue:
            del self._queues[owner]
        self.last += 1

    def trim(self, owner: str, after: int, messages: int, size: int, then: Callable[[int, int], None]) -> None:
        """See `Store`."""
        gone = gone_size = 0
        for delivery in list(self._queues.get(owner, {}).values()):
            if gone >= messages and gone_size >= size:
                break
            if delivery.number > after and not delivery.packet_id:
                gone += 1
                gone_size += len(delivery.message.payload)
                self.dequeue(owner, delivery.number)
        then(gone, gone_size)

    def sweep(self, before: float, skip: Collection[str], then: Callable[[list[tuple[str, int]]], None]) -> None:
        """See `Store`."""
        gone = [
            (owner, delivery)
            for owner, queue in self._queues.items()
            for delivery in queue.values()
            if owner not in skip and delivery.message.expires_at <= before and not delivery.packet_id
        ]
        for owner, delivery in gone:
            self.dequeue(owner, delivery.number)
        then([(owner, len(delivery.message.payload)) for owner, delivery in gone])

    def read(
        self, owner: str, after: int, messages: int, size: int, then: Callable[[list[DeliveryRecord], bool], None]
    ) -> None:
        """See `Store`."""
        page: list[DeliveryRecord] = []
        page_size = 0
        for delivery in self._queues.get(owner, {}).values():
            if delivery.number <= after:
                continue
            if len(page) >= messages or (page and page_size >= size):
                then(page, False)
                return
            page.append(delivery)
            page_size += len(delivery.message.payload)
        then(page, True)

    def rename(self, owner: str, new_owner: str) -> None:
        """See `Store`."""
        if (queue := self._queues.pop(owner, None)) is not None:
            self._queues[new_owner] = queue
        self.last += 1

    def drop(self, owner: str) -> None:
        """See `Store`."""
        self._queues.pop(owner, None)
        self.last += 1

    def queues(self) -> list[QueueRecord]:
        """See `Store`."""
        return [
            QueueRecord(
                owner,
                len(queue),
                sum(len(delivery.message.payload) for delivery in queue.values()),
                max(queue) + 1,
                tuple(delivery.packet_id for delivery in queue.values() if delivery.packet_id),
            )
            for owner, queue in self._queues.items()
        ]
