"""`$SYS`: the broker's figures as topics, for anyone with a client.

Each figure is a retained message, published when it has changed since the last round: an idle broker sends nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.broker.message import Message
from moq.broker.operators import capabilities

if TYPE_CHECKING:
    from moq.broker.core import Broker

PREFIX = "$SYS/broker/"
CAPABILITIES = "$SYS/capabilities"

CLOCK = "$SYS/clock"
"""A REQUEST here is answered by the broker itself, with the times at which it read the question and answers."""


def time_answer(received_at_ns: int, sent_at_ns: int) -> bytes:
    """The answer to a REQUEST on CLOCK."""
    return b'{"received_at_ns": %d, "sent_at_ns": %d}' % (received_at_ns, sent_at_ns)


def publish_capabilities(broker: Broker, now: float) -> None:
    """Retain what subscriptions can ask this broker to compute."""
    broker.route(Message(CAPABILITIES, capabilities(broker.environment.functions), retain=True), now)


class SystemTopics:
    """Publishes the figures of one broker at an interval."""

    def __init__(self, broker: Broker, version: str, interval_s: float, now: float) -> None:
        self._broker = broker
        self._interval_s = interval_s
        self._started_at = now
        self._version = version
        self._published: dict[str, str] = {}
        self._publish(now)

    def _publish(self, now: float) -> None:
        for name, value in self._figures(now).items():
            if self._published.get(name) != value:
                self._published[name] = value
                self._broker.route(Message(PREFIX + name, value.encode(), retain=True), now)
        self._broker.timers.at(now + self._interval_s, self._publish)

    def _figures(self, now: float) -> dict[str, str]:
        broker = self._broker
        current: dict[str, object] = {
            "version": self._version,
            "uptime_seconds": int(now - self._started_at),
            "clients/connected": sum(session.peer is not None for session in broker.sessions),
            "sessions": len(broker.sessions),
            "subscriptions": broker.subscriptions.count,
            "topics": len(broker.topics),
            "retained/messages": broker.topics.retained_count,
            "retained/bytes": broker.topics.retained_bytes,
        }
        for name, value in broker.figures.totals().items():
            current[f"totals/{name}"] = value
        return {name: str(value) for name, value in current.items()}
