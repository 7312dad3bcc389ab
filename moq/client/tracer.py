"""What the client's core tells whoever traces it, and the sender and receiver that do so.

They stand in place of the plain ones where a client is traced: one that is not knows nothing of all this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from moq.client.receiving import Receiver
from moq.client.sending import UNALIASED, Sender
from moq.client.topics import Registration

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from moq.broker.link import Lane, Link
    from moq.client.messages import Message
    from moq.client.pending import Exchange
    from moq.client.receiving import IncomingLane
    from moq.client.session import ClientSession
    from moq.client.topics import Topic
    from moq.wire.mmqp import PubReq


class ClientTracer(Protocol):
    """Hears what one client sends and receives. A stamp of 0 is none."""

    def open(self) -> None:
        """Begin; raises ConfigError if nothing can be written."""

    def start(self, ask_time: Callable[[], Awaitable[bytes]]) -> None:
        """The client is connected: `ask_time` asks the broker for the time."""

    async def close(self) -> None:
        """Complete what is written."""

    def stamp_ns(self) -> int:
        """The time, for a message that is being published."""

    def opened(self, link: Link, client_id: str) -> None:
        """A connection was accepted."""

    def closed(self, link: Link) -> None:
        """It is over."""

    def sent(
        self,
        link: Link,
        lane: Lane,
        topic: str,
        alias: int,
        qos: int,
        kind: int,
        payload_bytes: int,
        stamp_ns: int,
        waiting: int,
        dup: bool,
    ) -> None:
        """A message was written to a lane; so many of its topic wait."""

    def received(
        self,
        link: Link,
        lane_id: int,
        topic: str,
        alias: int,
        qos: int,
        kind: int,
        payload_bytes: int,
        stamp_ns: int,
        dup: bool,
    ) -> None:
        """A message arrived for the first time."""


class TracedSender(Sender):
    """Tells of each message that leaves."""

    tracer: ClientTracer

    def opened(self, session_present: bool) -> None:
        """See `Sender`."""
        self.tracer.opened(self._link, self._session.client_id or "")
        super().opened(session_present)

    def closed(self) -> None:
        """See `Sender`."""
        super().closed()
        self.tracer.closed(self._link)

    def _send(self, topic: Topic, exchange: Exchange) -> bool:
        dup = exchange.was_sent and exchange.qos > 0
        if not super()._send(topic, exchange):
            return False
        assert topic.lane is not None
        extension = exchange.extension
        self.tracer.sent(
            self._link,
            topic.lane,
            exchange.topic,
            topic.alias if topic.registration is Registration.GRANTED else UNALIASED,
            exchange.qos,
            exchange.kind,
            len(exchange.payload),
            (extension.timestamp_ns or 0) if extension is not None else 0,
            len(topic.waiting),
            dup,
        )
        return True


class TracedReceiver(Receiver):
    """Tells of each message that arrives."""

    tracer: ClientTracer

    def __init__(self, session: ClientSession, link: Link, on_response: Callable[[int, Message], None]) -> None:
        super().__init__(session, link, on_response)
        self._lane_id = 0

    def on_pub_req(self, lane: IncomingLane, packet: PubReq) -> None:
        """See `Receiver`."""
        self._lane_id = lane.id
        super().on_pub_req(lane, packet)

    def _message(self, topic: str, packet: PubReq) -> Message:
        """Made of each message once, repetitions of QoS 2 excluded."""
        extension = packet.extension
        self.tracer.received(
            self._link,
            self._lane_id,
            topic,
            packet.alias,
            packet.qos,
            packet.kind,
            len(packet.payload),
            (extension.timestamp_ns or 0) if extension is not None else 0,
            packet.dup,
        )
        return super()._message(topic, packet)
