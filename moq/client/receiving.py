"""The messages of one connection on their way in: lanes, aliases, duplicates and acknowledgements.

    lane ─► FrameReader ─► PUBREQ ─► topic (by alias or name) ─► the inboxes that match ─► PUBACK or PUBSYN

An acknowledgement leaves only when the last inbox has taken the message. A QoS 2 message is remembered by its
identifier from then until the broker releases it, across connections, so that a repetition is not delivered. One of
QoS 3 for a subscription with replies is remembered from its arrival on, and acknowledged by the program.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from moq.client.inbox import MAX_WITHHELD, Delivery
from moq.client.messages import Message, Request
from moq.errors import LocalProtocolError, RemoteProtocolError
from moq.reasons import Reason
from moq.wire import FrameReader, encode
from moq.wire.mmqp import (
    FIRST_BROKER_ALIAS,
    Confirmation,
    ConfirmSyn,
    PubAck,
    PublishExtension,
    PublishKind,
    PubSyn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from moq.broker.link import Link
    from moq.client.inbox import Inbox
    from moq.client.session import ClientSession, SessionOptions
    from moq.wire.mmqp import PubReq

Key = tuple[int, int]
"""The state of an exchange is found by its kind and packet identifier."""

CONFIRMED = 3
"""The QoS of messages whose publisher waits for confirmations."""

NO_EXTENSION = PublishExtension()
NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


class IncomingLane:
    """One lane from the broker: its reader, the aliases bound on it, the payload under way."""

    __slots__ = ("chunks", "id", "names", "packet", "reader")

    def __init__(self, lane_id: int, options: SessionOptions) -> None:
        self.id = lane_id
        self.reader = FrameReader(options.max_packet_bytes, options.chunk_bytes)
        self.names: dict[int, str] = {}
        self.packet: PubReq | None = None
        self.chunks: list[bytes] = []

    def begin_payload(self, packet: PubReq) -> None:
        """A message too large for one piece begins; the reader has checked its size against the bound."""
        self.packet = packet

    def add_chunk(self, data: bytes) -> None:
        """The next piece of it."""
        self.chunks.append(data)

    def end_payload(self) -> PubReq:
        """The whole of it."""
        packet = self.packet
        assert packet is not None
        packet.payload = b"".join(self.chunks)
        self.packet = None
        self.chunks = []
        return packet


class Receiver:
    """Receives the session's messages over one link."""

    def __init__(self, session: ClientSession, link: Link, on_response: Callable[[int, Message], None]) -> None:
        self._session = session
        self._link = link
        self._on_response = on_response
        self._withheld: set[Key] = set()
        self._confirmable: set[Key] = set()  # of QoS 3, and came on this connection: for the first time, or again
        self._is_open = True

    # --- packets ------------------------------------------------------------------------------------------

    def on_pub_req(self, lane: IncomingLane, packet: PubReq) -> None:
        """A message: acknowledge it once it is where the program will find it."""
        topic = self._topic(lane, packet)
        key = (packet.kind, packet.packet_id)
        if packet.qos == CONFIRMED:
            self._confirmable.add(key)
        if packet.qos >= 2 and key in self._session.received:
            if key not in self._session.unanswered:
                self._confirm(key)
            return
        if key in self._withheld:
            return
        message = self._message(topic, packet)
        if packet.kind == PublishKind.RESPONSE:
            self._on_response(packet.packet_id, message)
            self._acknowledge(key, packet.qos)
            return
        self._deliver(Delivery(message, key, lane.id))

    def on_release(self, packet: PubSyn) -> None:
        """QoS 2: the broker will not repeat this message; its identifier may carry another."""
        session = self._session
        key = (packet.kind, packet.packet_id)
        reason = Reason.SUCCESS if key in session.received else Reason.PACKET_IDENTIFIER_NOT_FOUND
        session.received.discard(key)
        session.replies.pop(key, None)
        self._confirmable.discard(key)
        if packet.kind == PublishKind.RESPONSE and (PublishKind.REQUEST, packet.packet_id) not in session.outgoing:
            session.ids.release(packet.packet_id)
        self._write(PubAck(packet.kind, packet.packet_id, reason))

    # --- the program --------------------------------------------------------------------------------------

    def take(self, inbox: Inbox) -> Message | None:
        """The next message of a subscription; room made this way admits what was withheld."""
        if inbox.current is not None:
            # The program is done with it and had nothing to say.
            delivery, inbox.current = inbox.current, None
            self._taken(delivery)
        message = inbox.take()
        if message is not None and inbox.takes_replies:
            inbox.current = self._unanswered(message)
        if inbox.withheld:
            self._admit(inbox)
        return message

    def reply(self, message: Message, payload: bytes) -> None:
        """Confirm a message of QoS 3, with a word to its publisher."""
        delivery = self._unanswered(message)
        if delivery is None:
            raise LocalProtocolError(
                f"the message on {message.topic!r} is confirmed already; reply once, and before the next one is taken"
            )
        delivery.takers = 0
        self._session.replies[delivery.key] = payload
        self._acknowledge(delivery.key, message.qos)

    def claim(self, inbox: Inbox) -> None:
        """Give a new subscription what its filter matches of the messages nobody had asked for."""
        unclaimed = self._session.unclaimed
        held = list(unclaimed.withheld)
        unclaimed.withheld.clear()
        for delivery in held:
            if inbox in self._session.route(delivery.message.topic) and inbox.wants(delivery.message):
                if inbox.offer(delivery):
                    self._queued(inbox, delivery)
            else:
                unclaimed.withheld.append(delivery)

    def discard(self, inbox: Inbox) -> None:
        """A subscription was closed: what it had not taken is acknowledged, nobody else waits for it."""
        while inbox.withheld:
            self._taken(inbox.withheld.popleft())
        if inbox.takes_replies:
            left = [self._unanswered(message) for message in inbox.queue]
            for delivery in (inbox.current, *left):
                if delivery is not None:
                    self._taken(delivery)
            inbox.current = None
        self._resume(inbox)

    def opened(self, session_present: bool) -> None:
        """CONACK arrived. What a forgotten session had delivered means nothing to the new one."""
        if not session_present:
            for delivery in self._session.unanswered.values():
                delivery.takers = 0
            for forgotten in (self._session.received, self._session.unanswered, self._session.replies):
                forgotten.clear()

    def closed(self) -> None:
        """The link is gone: the broker will repeat what was not acknowledged, so nothing is kept of it here."""
        self._is_open = False
        self._withheld.clear()
        inboxes = [inbox for entry in self._session.filters.values() for inbox in entry.inboxes]
        for inbox in [*inboxes, self._session.unclaimed]:
            inbox.withheld.clear()
            inbox.paused_lanes.clear()

    # --- inside -------------------------------------------------------------------------------------------

    def _topic(self, lane: IncomingLane, packet: PubReq) -> str:
        alias = packet.alias
        if packet.topic is not None:
            if alias:
                lane.names[alias] = packet.topic
            return packet.topic
        topic = lane.names.get(alias)
        if topic is None and alias < FIRST_BROKER_ALIAS:
            topic = self._session.topics.name(alias)
        if topic is None:
            raise RemoteProtocolError(
                f"PubReq.alias is 0x{alias:04x}, which names no topic on lane {lane.id}", Reason.TOPIC_ALIAS_INVALID
            )
        return topic

    def _message(self, topic: str, packet: PubReq) -> Message:
        extension = packet.extension or NO_EXTENSION
        message = Message if packet.kind != PublishKind.REQUEST else Request
        properties = NO_PROPERTIES
        if extension.properties:
            properties = {item.name: item.value for item in extension.properties}
        made = message(
            topic,
            packet.payload,
            packet.qos,
            packet.retain,
            packet.dup,
            extension.timestamp_ns,
            properties,
            extension.type_id,
            extension.group_start,
            extension.encrypted,
        )
        if packet.qos == CONFIRMED:
            made.packet_id, made.waited = packet.packet_id, packet.waited
        if isinstance(made, Request):
            made.packet_id, made.alias, made.connection = packet.packet_id, packet.alias, self._session.connections
        return made

    def _deliver(self, delivery: Delivery) -> None:
        message = delivery.message
        takers = [inbox for inbox in self._session.route(message.topic) if inbox.wants(message)]
        if isinstance(message, Request):
            takers = takers[:1]  # one answer is expected
        if not takers and self._session.is_foreign and message.qos:
            takers = [self._session.unclaimed]
        delivery.takers = len(takers) or 1
        for inbox in takers:
            if inbox.offer(delivery):
                self._queued(inbox, delivery)
            else:
                self._withheld.add(delivery.key)
                self._hold_back(inbox, delivery.lane_id)
        if not takers:
            self._taken(delivery)

    def _queued(self, inbox: Inbox, delivery: Delivery) -> None:
        """A message is where its program will find it, which is enough unless the program wants to reply."""
        if inbox.takes_replies and delivery.message.qos == CONFIRMED:
            self._session.received.add(delivery.key)
            self._session.unanswered[delivery.key] = delivery
        else:
            self._taken(delivery)

    def _unanswered(self, message: Message) -> Delivery | None:
        """The delivery of a message that the program has still to confirm."""
        delivery = self._session.unanswered.get((PublishKind.PUBLISH, message.packet_id))
        return delivery if delivery is not None and delivery.message is message else None

    def _taken(self, delivery: Delivery) -> None:
        if delivery.takers == 0:
            return  # a reply has confirmed it for all
        delivery.takers -= 1
        if delivery.takers == 0:
            self._withheld.discard(delivery.key)
            self._acknowledge(delivery.key, delivery.message.qos)

    def _acknowledge(self, key: Key, qos: int) -> None:
        if qos == 1:
            self._write(PubAck(*key, Reason.SUCCESS))
        elif qos >= 2:
            self._session.received.add(key)
            self._session.unanswered.pop(key, None)
            # What an earlier connection brought is confirmed when the broker has repeated it: before that the broker
            # would take the confirmation for one of nothing, and then deliver the message again.
            if qos != CONFIRMED or key in self._confirmable:
                self._confirm(key)

    def _confirm(self, key: Key) -> None:
        reply = self._session.replies.get(key)
        if reply is None:
            self._write(PubSyn(*key, Reason.SUCCESS))
        else:
            self._write(ConfirmSyn(key[1], Reason.SUCCESS, [Confirmation(reply=reply)]))

    def _admit(self, inbox: Inbox) -> None:
        while (delivery := inbox.admit()) is not None:
            self._queued(inbox, delivery)
        if len(inbox.withheld) <= MAX_WITHHELD // 2:
            self._resume(inbox)

    def _hold_back(self, inbox: Inbox, lane_id: int) -> None:
        if len(inbox.withheld) > MAX_WITHHELD and lane_id not in inbox.paused_lanes:
            inbox.paused_lanes.add(lane_id)
            self._link.pause_reading(lane_id)

    def _resume(self, inbox: Inbox) -> None:
        for lane_id in inbox.paused_lanes:
            self._link.resume_reading(lane_id)
        inbox.paused_lanes.clear()

    def _write(self, packet: PubSyn | ConfirmSyn | PubAck) -> None:
        if self._is_open:
            self._link.control.write(encode(packet))
