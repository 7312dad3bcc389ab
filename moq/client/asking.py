"""What one connection asks the broker besides sending messages: topic requests, types, subscribers.

    Operation ──► CONREQ (inline) or TOPREQ, TYPEREQ, PUBTYPE ──► TOPACK, PUBTYPE ──► settled

Operations belong to the session: one that the connection did not live to see answered is asked again on the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from moq.client.messages import TopicType
from moq.client.pending import Operation
from moq.client.topics import Registration
from moq.errors import RemoteProtocolError, RequestRefused
from moq.reasons import FIRST_REFUSAL, Reason
from moq.topics import has_wildcard
from moq.wire import encode
from moq.wire.mmqp import PubType, Register, Subscribe, TopReq, TypeFormat, TypeReq, Unsubscribe

if TYPE_CHECKING:
    from moq.broker.link import Link
    from moq.client.inbox import Filter
    from moq.client.sending import Sender
    from moq.client.session import ClientSession
    from moq.client.topics import Topic
    from moq.wire.mmqp import Packet, QueryAck, TopAck, TopicRequest

MAX_INLINE_REQUESTS = 255
"""CONREQ counts its topic requests in one byte; the others follow in TOPREQs."""


class Asker:
    """Asks the session's operations over one link."""

    sender: Sender
    """Where messages wait for a registration; set by the core, which makes both."""

    def __init__(self, session: ClientSession, link: Link) -> None:
        self._session = session
        self._link = link
        self._is_open = False
        self._inline: list[Operation] = []
        self._asked: dict[int, Operation] = {}

    # --- the connection -----------------------------------------------------------------------------------

    def inline_requests(self) -> list[TopicRequest] | None:
        """What CONREQ carries: registrations to restore and whatever was not answered on the last connection."""
        session = self._session
        for topic in session.topics.all():
            if topic.is_explicit or topic.waiting:
                self.register(session.topics.registrar(topic))
        inline = [operation for operation in session.operations if _is_inline(operation)]
        self._inline = inline[:MAX_INLINE_REQUESTS]
        return [cast("TopicRequest", operation.request) for operation in self._inline] or None

    def opened(self, session_present: bool) -> None:
        """CONACK arrived: ask what CONREQ did not."""
        self._is_open = True
        inline = set(self._inline)
        for operation in list(self._session.operations):
            if operation not in inline:
                self._send(operation)
        if not session_present:
            self._restore_subscriptions()

    def closed(self) -> None:
        """The link is gone: the identifiers are free, the questions stay."""
        self._is_open = False
        for packet_id in self._asked:
            self._session.ids.release(packet_id)

    # --- questions ----------------------------------------------------------------------------------------

    def ask(self, operation: Operation) -> Operation:
        """Ask now if the connection is open, else as soon as one is."""
        self._session.operations[operation] = None
        if self._is_open:
            self._send(operation)
        return operation

    def register(self, topic: Topic) -> Operation:
        """Make sure that a REGISTER for this topic is on its way."""
        operation = topic.operation
        if operation is None:
            alias, name = self._name(topic.name)
            request = Register(topic.mode, topic.wants_requests, alias, name, topic.expiry_s)
            operation = topic.operation = Operation(f"REGISTER {topic.name!r}", request, topic)
            topic.registration = Registration.ASKED
            self.ask(operation)
        return operation

    def subscribe(self, entry: Filter) -> Operation:
        """Ask for the messages of a filter."""
        alias, name = self._name(entry.name)
        request = Subscribe(entry.qos, entry.accepts_requests, alias, name, entry.group, entry.extension)
        return self.ask(Operation(f"SUBSCRIBE {entry.name!r}", request))

    def unsubscribe(self, filter_: str) -> Operation:
        """Ask for them no longer."""
        alias, name = self._name(filter_)
        return self.ask(Operation(f"UNSUBSCRIBE {filter_!r}", Unsubscribe(False, alias, name)))

    # --- answers ------------------------------------------------------------------------------------------

    def on_top_ack(self, packet: TopAck) -> None:
        """One reason for each request of a TOPREQ, or of CONREQ."""
        if packet.packet_id:
            operations = [self._take(packet.packet_id, "TopAck")]
        else:
            operations, self._inline = self._inline, []
        if len(operations) != len(packet.reasons):
            raise RemoteProtocolError(f"TopAck has {len(packet.reasons)} reasons; {len(operations)} requests were made")
        for operation, reason in zip(operations, packet.reasons, strict=True):
            self._settle(operation, reason)

    def on_query_ack(self, packet: QueryAck) -> None:
        """Who subscribes."""
        operation = self._take(packet.packet_id, "QueryAck")
        operation.subscribers = packet.subscribers
        self._settle(operation, packet.reason)

    def on_pub_type(self, packet: PubType) -> None:
        """One of the types asked for; the last of them ends the answer."""
        operation = self._asked.get(packet.packet_id)
        if operation is None or not packet.answer or not isinstance(operation.request, str):
            raise RemoteProtocolError(f"PubType {packet.packet_id} answers no TypeReq")
        if packet.reason < FIRST_REFUSAL:
            format_ = TypeFormat(packet.format)
            operation.types.append(TopicType(packet.topic, packet.schema, format_, packet.media_type, packet.type_id))
        if not packet.more:
            self._take(packet.packet_id, "PubType")
            # That nothing is known of the topics asked for is an answer, and no refusal.
            self._settle(operation, Reason.SUCCESS if packet.reason == Reason.TYPE_UNKNOWN else packet.reason)

    def on_type_req(self, packet: TypeReq) -> None:
        """The broker asks what we publish."""
        type_ = self._session.types.get(packet.topic)
        if type_ is not None:
            self._write(to_pub_type(type_, packet.packet_id, answer=True))
        else:
            opaque = TopicType(packet.topic, b"", TypeFormat.OPAQUE, "")
            self._write(to_pub_type(opaque, packet.packet_id, answer=True, reason=Reason.TYPE_UNKNOWN))

    # --- inside -------------------------------------------------------------------------------------------

    def _restore_subscriptions(self) -> None:
        """The broker knows none of our subscriptions any more, save those asked for just now."""
        requests = [operation.request for operation in self._session.operations]
        asked = {request.topic for request in requests if isinstance(request, Subscribe)}
        for entry in self._session.filters.values():
            if entry.name not in asked:
                operation = self.subscribe(entry)
                for inbox in entry.inboxes:
                    inbox.operation = operation

    def _name(self, name: str) -> tuple[int, str]:
        """A topic's alias and name as topic requests carry them; a wildcard has no alias."""
        return (0 if has_wildcard(name) else self._session.topics.find(name).alias), name

    def _send(self, operation: Operation) -> None:
        packet_id = self._session.ids.take()
        self._asked[packet_id] = operation
        request = operation.request
        if isinstance(request, str):
            self._write(TypeReq(packet_id, request))
        elif isinstance(request, TopicType):
            self._write(to_pub_type(request, packet_id, answer=False))
        else:
            self._write(TopReq(packet_id, [request]))

    def _take(self, packet_id: int, packet: str) -> Operation:
        operation = self._asked.pop(packet_id, None)
        if operation is None:
            raise RemoteProtocolError(f"{packet} {packet_id} answers no request")
        self._session.ids.release(packet_id)
        return operation

    def _settle(self, operation: Operation, reason: int) -> None:
        self._session.operations.pop(operation, None)
        error = RequestRefused(operation.what, reason) if reason >= FIRST_REFUSAL else None
        if operation.topic is not None and operation.topic.operation is operation:
            self._registered(operation.topic, cast("Register", operation.request), error)
        elif error is not None and isinstance(operation.request, Subscribe):
            self._unsubscribed(operation, error)
        operation.settle(error)

    def _registered(self, topic: Topic, request: Register, error: RequestRefused | None) -> None:
        topic.operation = None
        if error is None:
            topic.registration = Registration.GRANTED
            topic.sends_requests = request.sends_requests
            self.sender.granted(topic)
            return
        topic.registration = Registration.UNKNOWN
        topic.is_explicit = False
        self.sender.refused(topic, error)
        self._session.topics.remove_wildcard(topic)

    def _unsubscribed(self, operation: Operation, error: RequestRefused) -> None:
        """A subscription was refused, perhaps one that another session had: its inboxes get nothing more."""
        for entry in list(self._session.filters.values()):
            for inbox in [inbox for inbox in entry.inboxes if inbox.operation is operation]:
                entry.inboxes.remove(inbox)
                inbox.end(error)
            if not entry.inboxes:
                del self._session.filters[entry.name]
        self._session.subscriptions_changed()

    def _write(self, packet: Packet) -> None:
        self._link.control.write(encode(packet))


def _is_inline(operation: Operation) -> bool:
    return isinstance(operation.request, Subscribe | Register | Unsubscribe)


def to_pub_type(type_: TopicType, packet_id: int, *, answer: bool, reason: int = Reason.SUCCESS) -> PubType:
    """A type as it travels."""
    return PubType(
        False, answer, packet_id, reason, type_.format, type_.type_id, type_.topic, type_.media_type, type_.schema
    )
