"""The bounded queue of one subscription, and the acknowledgements that wait for room in it.

    broker ──► withheld (QoS 1, 2: no room yet, not acknowledged) ──► queue (acknowledged) ──► the program

When the queue is full a QoS 0 message displaces the oldest QoS 0 message at its head, counted in `dropped`. A QoS 1
or 2 message is never dropped: it is kept aside and its acknowledgement withheld until the program has made room,
so the broker stops sending when its window is full. Other subscriptions have queues of their own and go on; only
past `MAX_WITHHELD` messages, which a broker whose window is no larger than ours never reaches, is the lane paused.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from moq.client.messages import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.client.messages import Message
    from moq.client.pending import Operation
    from moq.errors import MoqError
    from moq.wire.mmqp import SubscribeExtension

DEFAULT_QUEUE = 1000
MAX_QUEUED_BYTES = 64 * 1024 * 1024
"""A queue is also full at this size, whatever its length: large messages do not multiply by a thousand."""
MAX_WITHHELD = 1000
"""Messages kept aside for one full queue; past it reading stops on the lane they come from."""


class Delivery:
    """One message on its way into every inbox that wants it; acknowledged when the last has taken it."""

    __slots__ = ("key", "lane_id", "message", "takers")

    def __init__(self, message: Message, key: tuple[int, int], lane_id: int) -> None:
        self.message = message
        self.key = key  # (kind, packet identifier)
        self.lane_id = lane_id
        self.takers = 0
        """Inboxes that have not taken it; 0 once it is acknowledged."""


class Inbox:
    """What one subscription of the program has received and not yet looked at."""

    def __init__(self, filter_: str, limit: int = DEFAULT_QUEUE, accepts_requests: bool = False) -> None:
        self.filter = filter_
        self.limit = limit
        self.accepts_requests = accepts_requests
        self.only_requests = False
        self.takes_replies = False
        """The program confirms messages of QoS 3 itself, and may add a reply."""
        self.current: Delivery | None = None
        """The one the program looks at and has not confirmed."""
        self.queue: deque[Message] = deque()
        self.queued_bytes = 0
        self.withheld: deque[Delivery] = deque()
        self.paused_lanes: set[int] = set()
        self.dropped = 0
        self.is_ended = False
        self.error: MoqError | None = None
        self.operation: Operation | None = None  # the SUBSCRIBE; settled when the subscription is active
        self.wake: Callable[[], None] | None = None

    @property
    def is_full(self) -> bool:
        """True if a message has to wait or to displace another."""
        return len(self.queue) >= self.limit or self.queued_bytes >= MAX_QUEUED_BYTES

    def wants(self, message: Message) -> bool:
        """Requests go only to subscriptions that answer them, and those of `requests()` take nothing else."""
        return self.accepts_requests if isinstance(message, Request) else not self.only_requests

    def offer(self, delivery: Delivery) -> bool:
        """Take a message; False if it is withheld until there is room."""
        message = delivery.message
        if message.qos == 0:
            self._put_best_effort(message)
            return True
        if self.withheld or self.is_full:
            self.withheld.append(delivery)
            return False
        self._put(message)
        return True

    def take(self) -> Message | None:
        """The oldest message, if any."""
        if not self.queue:
            return None
        message = self.queue.popleft()
        self.queued_bytes -= len(message.payload)
        return message

    def admit(self) -> Delivery | None:
        """Move one withheld message into the queue if there is room: it can be acknowledged now."""
        if not self.withheld or self.is_full:
            return None
        delivery = self.withheld.popleft()
        self._put(delivery.message)
        return delivery

    def end(self, error: MoqError | None = None) -> None:
        """Nothing more will come; what is queued can still be taken."""
        if not self.is_ended:
            self.is_ended = True
            self.error = error
            self._wake()

    def clear(self) -> None:
        """Nobody will look at what is queued."""
        self.queue.clear()
        self.queued_bytes = 0

    def _put_best_effort(self, message: Message) -> None:
        if self.is_full:
            self.dropped += 1
            # A head that is acknowledged must not be lost, and nothing may overtake what is withheld.
            if self.withheld or not self.queue or self.queue[0].qos:
                return
            self.take()
        self._put(message)

    def _put(self, message: Message) -> None:
        self.queue.append(message)
        self.queued_bytes += len(message.payload)
        self._wake()

    def _wake(self) -> None:
        if self.wake is not None:
            self.wake()


class Filter:
    """One subscription at the broker: what it was asked for, and the inboxes that share it."""

    def __init__(self, name: str, qos: int, group: str | None, extension: SubscribeExtension | None) -> None:
        self.name = name
        self.qos = qos
        self.group = group
        self.extension = extension
        self.inboxes: list[Inbox] = []

    @property
    def accepts_requests(self) -> bool:
        """True if any inbox answers requests."""
        return any(inbox.accepts_requests for inbox in self.inboxes)
