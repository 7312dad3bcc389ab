"""How long the broker takes, as histograms. Pure: times are arguments, on the clock of `now`.

    read ──► taken ──► handed to a lane at once          residence, path "direct"
               │  └──► waited in a queue ──► handed over  residence, path "queued"
               │                                └──► acknowledged by the subscriber
               └──► stored ──► acknowledged to the publisher

Most deliveries are direct ones, and nothing is measured for each of them: whoever feeds the core tells when a read is
done, and all messages sent meanwhile count as having taken until then (`on_read`). Retained messages, and those held
back for a reception period, have no residence that would say anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.broker.traffic import QOS_LEVELS
from moq.histogram import Histogram

if TYPE_CHECKING:
    from moq.broker.message import Message

NS_PER_S = 1_000_000_000


class Latencies:
    """Those of one broker, since its start."""

    __slots__ = ("acknowledgement", "deferred", "direct", "end_to_end", "queued", "subscriber_acknowledgement")

    def __init__(self) -> None:
        self.direct = Histogram()
        """From bytes read to the message on its lane, in the same event."""
        self.queued = Histogram()
        """The same with a stay in the subscriber's queue."""
        self.end_to_end = Histogram()
        """From the time that the publisher stamped a message with to its being handed to a lane."""
        self.acknowledgement = [Histogram() for _ in range(QOS_LEVELS)]
        """By QoS, from a message taken to its acknowledgement leaving: the wait for the store."""
        self.subscriber_acknowledgement = [Histogram() for _ in range(QOS_LEVELS)]
        """By QoS, from a message sent to its receipt told by the subscriber."""
        self.deferred = 0
        """Messages sent that did not arrive in the event that sent them, since whoever feeds the core set it to 0."""

    def on_read(self, sent: int, took_s: float) -> None:
        """An event is over in which so many messages were sent: all that were not deferred had just arrived."""
        direct = sent - self.deferred
        if direct > 0:
            self.direct.add(took_s, direct)

    def on_queued(self, message: Message, now: float) -> None:
        """A message was sent that had waited; one that comes from the store does not know since when."""
        self.deferred += 1
        if message.received_at and not message.retain:
            self.queued.add(now - message.received_at)

    def on_stamped(self, timestamp_ns: int, wall_s: float) -> None:
        """A message was sent that its publisher stamped; one from a clock ahead of ours took no time."""
        self.end_to_end.add(max(0.0, wall_s - timestamp_ns / NS_PER_S))
