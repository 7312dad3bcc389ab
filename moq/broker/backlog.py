"""The queue of a persistent session in the store, and how much of it is in the store alone.

        in flight │ waiting in memory │ backlog
      ────────────┴───────────────────┴──────────────► numbers
                                  cursor        next_number

Every delivery of the session is in the store until it is over. Of one with a connection the first ones are in memory
too; the backlog is read a page at a time as those go out. Of a session without a connection nothing is in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.broker.delivery import Delivery
    from moq.broker.environment import Environment
    from moq.broker.store import DeliveryRecord, QueueRecord

PAGE_MESSAGES: Final = 256
PAGE_BYTES: Final = 1024 * 1024


class Backlog:
    """One session's queue in the store."""

    __slots__ = ("_cursor", "_environment", "_is_reading", "_life", "_next_number", "_owner", "messages", "size")

    def __init__(self, owner: str, environment: Environment) -> None:
        self._owner = owner
        self._environment = environment
        self._next_number = 0
        self._cursor = -1
        self._life = 0  # of which connection: a page asked for by an earlier one is not wanted any more
        self._is_reading = False
        self.messages = 0
        """Those that are not in memory."""
        self.size = 0

    def save(self, delivery: Delivery) -> None:
        """Write a new delivery at the end of the queue."""
        delivery.number = self._next_number
        self._next_number += 1
        environment, message, target = self._environment, delivery.message, delivery.target
        environment.store.enqueue(
            self._owner,
            delivery.number,
            message,
            message.expires_at + environment.epoch,
            delivery.qos,
            delivery.packet_id,
            target.label if target is not None else None,
        )
        delivery.stored_as = environment.store.last

    def mark(self, delivery: Delivery) -> None:
        """Write how far the exchange of a delivery is."""
        environment = self._environment
        environment.store.mark(self._owner, delivery.number, delivery.packet_id, delivery.released)
        delivery.stored_as = environment.store.last

    def remove(self, delivery: Delivery) -> None:
        """A delivery is over."""
        self._environment.store.dequeue(self._owner, delivery.number)

    def leave(self, delivery: Delivery) -> None:
        """A delivery is in the store alone from now on."""
        if not self.messages:
            self._cursor = delivery.number - 1
        self.messages += 1
        self.size += len(delivery.message.payload)
        self._environment.sweeper.note(delivery.message.expires_at)

    def trim(self, messages: int, size: int) -> bool:
        """Drop the oldest, at least so many and so many bytes.

        False if that cannot be: there is nothing, or it is on its way into memory.
        """
        if self._is_reading or not self.messages:
            return False
        # Until the store tells what it dropped, as much as was asked for counts as gone, or all there is.
        reckoned, reckoned_size = min(messages, self.messages), min(size, self.size)
        self._shrink(reckoned, reckoned_size)

        def gone(count: int, bytes_: int) -> None:
            self._shrink(count - reckoned, bytes_ - reckoned_size)
            self._environment.figures.dropped_queue_full += count

        self._environment.store.trim(self._owner, self._cursor, messages, size, gone)
        return True

    def on_swept(self, size: int) -> None:
        """A delivery expired in the store."""
        self._shrink(1, size)

    def rewind(self) -> None:
        """A connection came or went: nothing of the queue is in memory now."""
        self._cursor = -1
        self._life += 1
        self._is_reading = False

    def read_on(self, load: Callable[[DeliveryRecord], None], then: Callable[[], None]) -> bool:
        """Load the next page, unless one is on its way; `then` follows it. True if it has been loaded already."""
        if self._is_reading or not self.messages:
            return False
        self._is_reading = True
        life, asked_at = self._life, self._next_number

        def on_page(page: list[DeliveryRecord], is_last: bool) -> None:
            if life != self._life:
                return
            self._is_reading = False
            for record in page:
                self._cursor = record.number
                self._shrink(1, len(record.message.payload))
                load(record)
            if is_last and asked_at == self._next_number:
                self.messages = self.size = 0
            then()

        self._environment.store.read(self._owner, self._cursor, PAGE_MESSAGES, PAGE_BYTES, on_page)
        return not self._is_reading

    def recover(self, queue: QueueRecord) -> None:
        """Take back a queue of an earlier broker."""
        self.messages, self.size = queue.messages, queue.size
        self._next_number = queue.next_number

    def take_out(self, record: DeliveryRecord) -> None:
        """Someone else delivers this one, which is not in memory."""
        self._environment.store.dequeue(self._owner, record.number)
        self._shrink(1, len(record.message.payload))

    def forget(self) -> None:
        """The queue is someone else's."""
        self.messages = self.size = 0

    def _shrink(self, messages: int, size: int) -> None:
        self.messages = max(0, self.messages - messages)
        self.size = max(0, self.size - size)
