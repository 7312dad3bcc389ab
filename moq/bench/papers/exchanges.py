"""The clients of E-MQTT's experiment: a publisher that wants to know, and subscribers that let it know."""

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


class Party(MMQPClient):
    """A client that takes its part in exchanges of QoS 2 and 3."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self.exchanges = 0
        """Those under way, whoever began them."""
        self._last_packet_id = 0
        self._handlers: dict[type[wire.Packet], Callable[..., None]] = {
            wire.PubReq: self._on_message,
            wire.PubSyn: self._on_step,
            wire.ConfirmSyn: self._on_answer,
            wire.PubAck: self._on_end,
        }

    @property
    def packets(self) -> int:
        """That passed this link, both ways."""
        return self.sent + self.received

    def publish(self, topic: str, waited: int | None = None) -> None:
        """Begin an exchange: QoS 3 if confirmations are waited for, else QoS 2."""
        self._last_packet_id = self._last_packet_id % LAST_PACKET_ID + 1
        self.exchanges += 1
        qos = 2 if waited is None else 3
        self.send(wire.PubReq(0, False, False, qos, self._last_packet_id, ALIASES[topic], None, waited, None, PAYLOAD))

    def take(self, packet: wire.Packet) -> None:
        """Handle what belongs to an exchange; the rest answers a request."""
        self._handlers.get(type(packet), super().take)(packet)

    def on_message(self, packet: wire.PubReq) -> None:
        """A message arrived."""

    def on_answer(self) -> None:
        """The answer to a message of QoS 3 arrived."""

    def on_acknowledged(self) -> None:
        """An exchange begun here has ended."""

    def on_quiet(self) -> None:
        """No exchange is under way here now."""

    def on_refused(self, reason: int) -> None:
        """The broker did not take a message."""

    def _on_message(self, packet: wire.PubReq) -> None:
        self.exchanges += 1
        if packet.qos == 3:
            self.send(wire.ConfirmSyn(packet.packet_id, Reason.SUCCESS, [wire.Confirmation()]))
        else:
            self.send(wire.PubSyn(packet.kind, packet.packet_id, Reason.SUCCESS))
        self.on_message(packet)

    def _on_step(self, packet: wire.PubSyn) -> None:
        if packet.reason == Reason.RELEASE:
            self.send(wire.PubAck(packet.kind, packet.packet_id, Reason.SUCCESS))
            self._end()
        elif packet.reason >= REFUSED:
            self.on_refused(packet.reason)
        else:
            self.send(wire.PubSyn(packet.kind, packet.packet_id, Reason.RELEASE))

    def _on_answer(self, packet: wire.ConfirmSyn) -> None:
        if packet.reason >= REFUSED:
            self.on_refused(packet.reason)
            return
        self.on_answer()
        self.send(wire.PubSyn(0, packet.packet_id, Reason.RELEASE))

    def _on_end(self, packet: wire.PubAck) -> None:
        if packet.reason >= REFUSED:
            self.on_refused(packet.reason)
            return
        self.on_acknowledged()
        self._end()

    def _end(self) -> None:
        self.exchanges -= 1
        if not self.exchanges:
            self.on_quiet()


class Subscriber(Party):
    """Gets queries; where the broker does not confirm them, it publishes a response as soon as it has one."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._receptions = 0
        self._quiet = asyncio.Event()

    def on_message(self, packet: wire.PubReq) -> None:
        """A query."""
        self._receptions += 1
        if packet.alias == ALIASES[ANSWERED]:
            self.publish(RESPONSE)

    def on_quiet(self) -> None:
        """Tell whoever waits."""
        self._quiet.set()

    async def quiet_after(self, queries: int) -> None:
        """Wait until all exchanges of so many queries have ended."""
        while self._receptions < queries or self.exchanges:
            self._quiet.clear()
            await self._quiet.wait()


class Publisher(Party):
    """Asks, and wants to know."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self.sent_ns = 0
        self.known_ns = 0
        """When it knew that the subscribers have the query."""
        self.completed_ns = 0
        """When its own exchange ended."""
        self._responses = 0
        self._wanted_responses = 0
        self._over = asyncio.Event()
        self._refusal: RequestRefused | None = None

    async def query(self, topic: str, waited: int | None, responses: int) -> None:
        """Send a query and wait until this side knows and all its exchanges have ended."""
        self.known_ns = self.completed_ns = self._responses = 0
        self._wanted_responses = responses
        self._over.clear()
        self.sent_ns = time.perf_counter_ns()
        self.publish(topic, waited)
        await self._over.wait()
        if self._refusal is not None:
            raise self._refusal

    def on_message(self, packet: wire.PubReq) -> None:
        """A response: with the last one it knows."""
        self._responses += 1
        if self._responses == self._wanted_responses:
            self.known_ns = time.perf_counter_ns()

    def on_answer(self) -> None:
        """The one answer of QoS 3."""
        self.known_ns = time.perf_counter_ns()

    def on_acknowledged(self) -> None:
        """The query's own exchange is over."""
        self.completed_ns = time.perf_counter_ns()

    def on_quiet(self) -> None:
        """Between two responses it may be quiet as well."""
        if self.known_ns:
            self._over.set()

    def on_refused(self, reason: int) -> None:
        """There will be no answer."""
        self._refusal = RequestRefused("a query", reason)
        self._over.set()
