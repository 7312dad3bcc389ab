"""What waits in memory for one subscriber: a queue for each topic, served in turn.

Order holds per topic, so a topic whose lane is full holds up no other: it is blocked until something changes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from moq.broker.delivery import Delivery


class TopicQueues:
    """The queues of one session."""

    __slots__ = ("_blocked", "_queues", "_ready", "messages", "size")

    def __init__(self) -> None:
        self._queues: dict[str, deque[Delivery]] = {}
        self._ready: deque[str] = deque()
        self._blocked: set[str] = set()
        self.messages = 0
        self.size = 0
        """Payload bytes of all of them."""

    def __contains__(self, topic: str) -> bool:
        return topic in self._queues

    def __iter__(self) -> Iterator[Delivery]:
        for queue in self._queues.values():
            yield from queue

    def append(self, delivery: Delivery, *, is_blocked: bool) -> None:
        """Let a delivery wait behind those of its topic; a topic that is new here may be blocked from the start."""
        self._queue(delivery.message.topic, is_blocked=is_blocked).append(delivery)
        self._note(delivery, 1)

    def put_back(self, delivery: Delivery) -> None:
        """Let a delivery wait before all others of its topic."""
        self._queue(delivery.message.topic, is_blocked=False).appendleft(delivery)
        self._note(delivery, 1)

    def first(self) -> Delivery | None:
        """The delivery whose turn it is; then either `take` it or `block` its topic."""
        return self._queues[self._ready[0]][0] if self._ready else None

    def take(self) -> None:
        """Remove the delivery whose turn it was; its topic's next one comes after all other topics."""
        topic = self._ready.popleft()
        queue = self._queues[topic]
        self._note(queue.popleft(), -1)
        if queue:
            self._ready.append(topic)
        else:
            del self._queues[topic]

    def block(self) -> None:
        """Pass over the topic whose turn it is until `unblock`."""
        self._blocked.add(self._ready.popleft())

    def unblock(self) -> None:
        """Give every topic another chance."""
        self._ready.extend(self._blocked)
        self._blocked.clear()

    def remove(self, delivery: Delivery) -> None:
        """Take out a delivery, wherever it is."""
        topic = delivery.message.topic
        queue = self._queues[topic]
        queue.remove(delivery)
        self._note(delivery, -1)
        if not queue:
            del self._queues[topic]
            self._blocked.discard(topic)
            if topic in self._ready:
                self._ready.remove(topic)

    def oldest(self, topic: str) -> Delivery | None:
        """The oldest of a topic, or else of the topic that has waited longest, that was never sent."""
        for name in (topic, next(iter(self._queues), topic)):
            found = next((delivery for delivery in self._queues.get(name, ()) if not delivery.packet_id), None)
            if found is not None:
                return found
        return None

    def clear(self) -> None:
        """Forget everything."""
        self._queues.clear()
        self._ready.clear()
        self._blocked.clear()
        self.messages = self.size = 0

    def _queue(self, topic: str, *, is_blocked: bool) -> deque[Delivery]:
        queue = self._queues.get(topic)
        if queue is None:
            queue = self._queues[topic] = deque()
            if is_blocked:
                self._blocked.add(topic)
            else:
                self._ready.append(topic)
        return queue

    def _note(self, delivery: Delivery, difference: int) -> None:
        self.messages += difference
        self.size += difference * len(delivery.message.payload)
