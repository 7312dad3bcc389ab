"""The clients of E-MQTT's experiment: a publisher that wants to know, and subscribers that let it know.

A `Conversation` is everything that follows from one query, at all clients together. It is over when the publisher
knows, every subscriber has the query, and no exchange is open anywhere; only then may the next one begin, so that every
message counted belongs to the query it is counted for.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from moq import wire
from moq.bench.papers import published
from moq.bench.papers.clients import REFUSED, MMQPClient
from moq.errors import RequestRefused
from moq.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.broker.link import Link

ANSWERED, RESPONSE, CONFIRMED = TOPICS = ("A", "B", "C")
"""The query that is answered by responses, those, and the query that is confirmed by the broker."""
ALIASES: Final = {topic: number for number, topic in enumerate(TOPICS, 1)}
PAYLOAD: Final = bytes(published.EMQTT_PAYLOAD_BYTES)
LAST_PACKET_ID: Final = 0xFFFF


class Conversation:
    """One query at a time."""

    def __init__(self) -> None:
        self.receptions = 0
        self.responses = 0
        self.sent_ns = 0
        self.known_ns = 0
        """When the publisher knew."""
        self.completed_ns = 0
        """When the publisher's own exchange ended."""
        self._wanted = 0
        self._open = 0
        self._over = asyncio.Event()
        self._failure: RequestRefused | None = None

    def begin(self, subscribers: int) -> None:
        """A query to so many is about to be sent."""
        self.receptions = self.responses = self.known_ns = self.completed_ns = 0
        self._wanted = subscribers
        self._over.clear()
        self.sent_ns = time.perf_counter_ns()

    def exchange_begins(self) -> None:
        """Somebody sent or got a message that is to be acknowledged."""
        self._open += 1

    def exchange_ends(self) -> None:
        """Its last packet was sent, or came."""
        self._open -= 1
        if not self._open and self.known_ns and self.completed_ns and self.receptions == self._wanted:
            self._over.set()

    def fail(self, reason: int) -> None:
        """The broker refused."""
        self._failure = RequestRefused("a query", reason)
        self._over.set()

    async def over(self) -> None:
        """Wait until nothing more will come."""
        await self._over.wait()
        if self._failure is not None:
            raise self._failure


class Party(MMQPClient):
    """A client that takes its part in exchanges of QoS 2 and 3."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self.conversation = Conversation()
        self._last_packet_id = 0
        self._handlers: dict[type[wire.Packet], Callable[..., None]] = {
            wire.PubReq: self._on_message,
            wire.PubSyn: self._on_step,
            wire.ConfirmSyn: self._on_answer,
            wire.PubAck: self._on_end,
        }

    def publish(self, topic: str, waited: int | None = None) -> None:
        """Begin an exchange: QoS 3 if confirmations are waited for, else QoS 2."""
        self._last_packet_id = self._last_packet_id % LAST_PACKET_ID + 1
        self.conversation.exchange_begins()
        qos = 2 if waited is None else 3
        self.send(wire.PubReq(0, False, False, qos, self._last_packet_id, ALIASES[topic], None, waited, None, PAYLOAD))

    def take(self, packet: wire.Packet) -> None:
        """Handle what belongs to an exchange; the rest answers a request."""
        self._handlers.get(type(packet), super().take)(packet)

    def on_message(self, packet: wire.PubReq) -> None:
        """A message arrived."""

    def on_answer(self) -> None:
        """The answer to a message of QoS 3 arrived."""

    def on_end(self) -> None:
        """An exchange begun here has ended."""

    def _on_message(self, packet: wire.PubReq) -> None:
        self.conversation.exchange_begins()
        if packet.qos == 3:
            self.send(wire.ConfirmSyn(packet.packet_id, Reason.SUCCESS, [wire.Confirmation()]))
        else:
            self.send(wire.PubSyn(packet.kind, packet.packet_id, Reason.SUCCESS))
        self.on_message(packet)

    def _on_step(self, packet: wire.PubSyn) -> None:
        if packet.reason == Reason.RELEASE:
            self.send(wire.PubAck(packet.kind, packet.packet_id, Reason.SUCCESS))
            self.conversation.exchange_ends()
        elif packet.reason >= REFUSED:
            self.conversation.fail(packet.reason)
        else:
            self.send(wire.PubSyn(packet.kind, packet.packet_id, Reason.RELEASE))

    def _on_answer(self, packet: wire.ConfirmSyn) -> None:
        if packet.reason >= REFUSED:
            self.conversation.fail(packet.reason)
            return
        self.on_answer()
        self.send(wire.PubSyn(0, packet.packet_id, Reason.RELEASE))

    def _on_end(self, packet: wire.PubAck) -> None:
        if packet.reason >= REFUSED:
            self.conversation.fail(packet.reason)
            return
        self.on_end()
        self.conversation.exchange_ends()


class Subscriber(Party):
    """Gets queries; where the broker does not confirm them, it publishes a response as soon as it has one."""

    def on_message(self, packet: wire.PubReq) -> None:
        """A query."""
        self.conversation.receptions += 1
        if packet.alias == ALIASES[ANSWERED]:
            self.publish(RESPONSE)


class Publisher(Party):
    """Asks, and wants to know."""

    wanted_responses = 0

    def on_message(self, packet: wire.PubReq) -> None:
        """A response: with the last one it knows."""
        self.conversation.responses += 1
        if self.conversation.responses == self.wanted_responses:
            self.conversation.known_ns = time.perf_counter_ns()

    def on_answer(self) -> None:
        """The one answer of QoS 3."""
        self.conversation.known_ns = time.perf_counter_ns()

    def on_end(self) -> None:
        """The query's own exchange is over."""
        self.conversation.completed_ns = time.perf_counter_ns()
