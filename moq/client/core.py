"""The client's side of MMQP on one link: a pure machine, driven by bytes and by the program's wishes.

    CREATED ──start──► CONNECTING ──CONACK──► OPEN ──CONEND, lost, close──► CLOSED
                            └────────refused, lost, close──────────────────► CLOSED

It is a `LinkHandler`: a transport calls it. It accepts wishes in every state and fulfils them when it is open; what
is unfulfilled when the link is lost stays in the `ClientSession`, and the next core made with it goes on there. It
reads no clock, opens no link and never waits: `now` is an argument and the owner connects again.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from moq.broker.link import CONTROL
from moq.client.asking import Asker, to_pub_type
from moq.client.inbox import DEFAULT_QUEUE, Filter, Inbox
from moq.client.pending import Exchange, Operation
from moq.client.receiving import CONFIRMED, IncomingLane, Receiver
from moq.client.sending import LOST_REQUESTER, Sender
from moq.client.session import ClientSession, SessionOptions
from moq.client.topics import Registration
from moq.client.tracer import TracedReceiver, TracedSender
from moq.errors import ConnectionLost, LocalProtocolError, ProtocolError, RemoteProtocolError
from moq.reasons import FIRST_REFUSAL, Reason, describe
from moq.topics import MAX_TOPIC_BYTES, filter_error, has_wildcard, name_error
from moq.wire import PayloadChunk, PayloadEnded, PayloadStarted, encode
from moq.wire.mmqp import (
    Authentication,
    ConAck,
    ConEnd,
    ConfirmSyn,
    ConReq,
    ConSyn,
    PubAck,
    PublishKind,
    PubReq,
    PubSyn,
    PubType,
    Query,
    QueryAck,
    Register,
    RetentionMode,
    Settings,
    Subscribe,
    TopAck,
    TopReq,
    TypeReq,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.broker.link import Lane, Link
    from moq.client.confirming import Wish
    from moq.client.messages import Message, Request, TopicType
    from moq.client.tracer import ClientTracer
    from moq.wire import Item
    from moq.wire.mmqp import Packet, PublishExtension, SubscribeExtension

SILENT_INTERVALS = 2
"""The broker asks whoever is silent for a keep-alive interval: after this many without a byte it is dead."""


class State(Enum):
    """How far a connection has come."""

    CREATED = auto()
    CONNECTING = auto()
    OPEN = auto()
    CLOSED = auto()


class Owner(Protocol):
    """What whoever runs the core wants to hear at once."""

    def opened(self, core: ClientCore) -> None:
        """CONACK has arrived and said yes."""

    def ended(self, core: ClientCore, error: ConnectionLost) -> None:
        """The connection is over; the session lives on."""

    def gone(self, core: ClientCore) -> None:
        """The link itself is gone, and all that was to be sent over it with it or before it."""


class ClientCore:
    """One connection of a session. Call `start` once the link is up."""

    def __init__(
        self,
        session: ClientSession,
        link: Link,
        now: Callable[[], float],
        options: SessionOptions | None = None,
        owner: Owner | None = None,
        tracer: ClientTracer | None = None,
    ) -> None:
        self.session = session
        self.link = link
        self.options = options or SessionOptions()
        self.state = State.CREATED
        self.session_present = False
        self._now = now
        self._owner = owner
        self._last_active = now()
        self._sent = 0
        self._lanes: dict[int, IncomingLane] = {}
        self._early: list[tuple[int, bytes]] = []
        self._asker = Asker(session, link)
        sender, receiver = (Sender, Receiver) if tracer is None else (TracedSender, TracedReceiver)
        self._sender = self._asker.sender = sender(session, link, self.options.window, self._asker.register)
        self._receiver = receiver(session, link, self._sender.on_response)
        if isinstance(self._sender, TracedSender) and isinstance(self._receiver, TracedReceiver):
            assert tracer is not None
            self._sender.tracer = self._receiver.tracer = tracer

    # --- the connection -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Send CONREQ, with the topic requests that wait for an answer."""
        assert self.state is State.CREATED
        session, options = self.session, self.options
        self.state = State.CONNECTING
        session.connections += 1
        self._write(
            ConReq(
                resume=session.resume,
                authentication=_authentication(options),
                settings=Settings(options.persistent, options.keep_alive_s, options.expiry_s),
                initial_will=options.initial_will.to_section() if options.initial_will else None,
                last_will=options.last_will.to_section() if options.last_will else None,
                topics=self._asker.inline_requests(),
                client_id=session.client_id,
            )
        )

    def close(self, reason: Reason = Reason.SUCCESS) -> None:
        """Say goodbye and end the link; with DISCONNECT_WITH_WILL the last will is published all the same."""
        if self.state in (State.CONNECTING, State.OPEN):
            self._write(ConEnd(reason))
        self.link.close(reason)
        self._end(ConnectionLost(f"closed by this client: {describe(reason)}", reason))

    def next_timeout(self) -> float:
        """When `handle_timeout` wants to be called."""
        return self._last_active + SILENT_INTERVALS * self.options.keep_alive_s

    def handle_timeout(self, now: float) -> None:
        """The deadline may have passed: a broker that should have spoken by now is gone."""
        if self._sent != self._sender.sent:
            # It asks only who is silent. Whoever goes on sending may hear nothing, until the link takes no more.
            self._sent = self._sender.sent
            self._last_active = now
        if self.state is not State.CLOSED and now >= self.next_timeout():
            silence = SILENT_INTERVALS * self.options.keep_alive_s
            self.link.abort()
            self._end(ConnectionLost(f"the broker at {self.link.peer} has been silent for {silence} s"))

    # --- wishes of the program ----------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        extension: PublishExtension | None = None,
        kind: PublishKind = PublishKind.PUBLISH,
        wish: Wish | None = None,
    ) -> Exchange:
        """Send a message, or a REQUEST; the exchange settles when it is written (QoS 0), acknowledged or answered.

        With a wish it has QoS 3 and settles when it is confirmed.
        """
        _check_name(topic)
        if wish is None:
            _check_qos(qos)
        else:
            qos = CONFIRMED
        if extension is not None:
            # What cannot be encoded is refused here, where the caller is, and not when the message's turn comes.
            encode(PubReq(PublishKind.PUBLISH, False, False, 0, 0, 1, None, None, extension, b""))
        exchange = Exchange(topic, payload, qos, retain, extension, kind, wish=wish)
        self._sender.submit(exchange)
        return exchange

    def respond(
        self, request: Request, payload: bytes, qos: int, extension: PublishExtension | None = None
    ) -> Exchange:
        """Answer a request."""
        exchange = Exchange(
            request.topic, payload, qos, False, extension, PublishKind.RESPONSE, request.packet_id, request.alias
        )
        if request.connection == self.session.connections:
            self._sender.submit(exchange)
        else:
            exchange.settle(ConnectionLost(LOST_REQUESTER.format(request.topic)))
        return exchange

    def withdraw(self, exchange: Exchange) -> bool:
        """Take back a message that has not been sent; False if it has, and goes its way."""
        return self._sender.withdraw(exchange)

    def register(self, topic: str, mode: int = RetentionMode.OVERRIDE, expiry_s: int | None = None) -> Operation:
        """Announce that this client publishes on a topic or filter, and how the broker shall keep the messages."""
        _check_filter(topic)
        encode(TopReq(1, [Register(mode, False, 0, topic, expiry_s)]))
        entry = self.session.topics.find(topic)
        entry.mode, entry.expiry_s, entry.is_explicit = RetentionMode(mode), expiry_s, True
        if has_wildcard(topic):
            self.session.topics.add_wildcard(entry)
        # One that is already on its way says something older.
        entry.operation = None
        entry.registration = Registration.UNKNOWN
        return self._asker.register(entry)

    def ensure_registered(self, topic: str) -> Operation:
        """Register a topic by its own name, if that has not been done; its type can then be announced."""
        _check_name(topic)
        topics = self.session.topics
        entry = topics.find(topic)
        registrar = entry if entry.alias else topics.registrar(entry)
        if registrar.registration is not Registration.GRANTED:
            return self._asker.register(registrar)
        done = Operation(f"REGISTER {topic!r}", topic)
        done.settle()
        return done

    def subscribe(
        self,
        filter_: str,
        qos: int = 0,
        group: str | None = None,
        requests: bool = False,
        extension: SubscribeExtension | None = None,
        queue: int = DEFAULT_QUEUE,
        replies: bool = False,
    ) -> Inbox:
        """Ask for messages; `inbox.operation` settles when the subscription is active."""
        _check_filter(filter_)
        if qos != CONFIRMED:
            _check_qos(qos)
            if replies:
                raise LocalProtocolError(f"qos is {qos} with replies; only messages of QoS 3 are replied to")
        encode(TopReq(1, [Subscribe(qos, requests, 0, filter_, group, extension)]))
        session = self.session
        entry = session.filters.get(filter_)
        if entry is None:
            entry = Filter(filter_, qos, group, extension)
        elif (entry.group, entry.extension) != (group, extension):
            raise LocalProtocolError(
                f"{filter_!r} is already subscribed to with another group, period, priority or deadline; "
                "the broker keeps one subscription per filter and session"
            )
        entry.qos = max(entry.qos, qos)
        session.filters[filter_] = entry
        inbox = Inbox(filter_, queue, requests)
        inbox.takes_replies = replies
        entry.inboxes.append(inbox)
        session.subscriptions_changed()
        inbox.operation = self._asker.subscribe(entry)
        if session.is_foreign:
            self._receiver.claim(inbox)
        return inbox

    def unsubscribe(self, inbox: Inbox) -> Operation | None:
        """End a subscription of the program; the last of a filter ends it at the broker too."""
        inbox.end()
        self._receiver.discard(inbox)
        inbox.clear()
        session = self.session
        entry = session.filters.get(inbox.filter)
        if entry is None or inbox not in entry.inboxes:
            return None
        entry.inboxes.remove(inbox)
        session.subscriptions_changed()
        if entry.inboxes:
            return None
        del session.filters[inbox.filter]
        return self._asker.unsubscribe(inbox.filter)

    def take(self, inbox: Inbox) -> Message | None:
        """The next message of a subscription, if there is one."""
        return self._receiver.take(inbox)

    def reply(self, message: Message, payload: bytes) -> None:
        """Confirm a message of QoS 3 with a word to its publisher."""
        self._receiver.reply(message, payload)

    def query(self, topic: str) -> Operation:
        """Ask who subscribes to a topic: `operation.subscribers`."""
        _check_name(topic)
        return self._asker.ask(Operation(f"QUERY {topic!r}", Query(0, topic)))

    def describe(self, filter_: str) -> Operation:
        """Ask what is published on the topics of a filter: `operation.types`."""
        _check_filter(filter_)
        return self._asker.ask(Operation(f"TYPEREQ {filter_!r}", filter_))

    def announce(self, type_: TopicType) -> Operation:
        """Say what this client publishes on a topic; the broker asks again whenever it has forgotten."""
        _check_name(type_.topic)
        encode(to_pub_type(type_, 1, answer=False))
        self.session.types[type_.topic] = type_
        return self._asker.ask(Operation(f"PUBTYPE {type_.topic!r}", type_))

    # --- from the transport -------------------------------------------------------------------------------

    def data_received(self, lane_id: int, data: bytes) -> None:
        """Bytes arrived on a lane."""
        self._last_active = self._now()
        if self.state is State.CONNECTING and lane_id != CONTROL:
            # Lanes overtake each other, and what a message means is not known before CONACK. A paused lane
            # hands over no more, so this holds at most one read of each.
            self._early.append((lane_id, data))
            self.link.pause_reading(lane_id)
            return
        lane = self._lanes.get(lane_id)
        if lane is None:
            lane = self._lanes[lane_id] = IncomingLane(lane_id, self.options)
        try:
            for item in lane.reader.feed(data):
                if self.state not in (State.CONNECTING, State.OPEN):
                    return
                self._handle(lane, item)
        except ProtocolError as error:
            self._refuse(error)

    def lane_finished(self, lane_id: int) -> None:
        """The broker ended a lane: its aliases end with it."""
        lane = self._lanes.pop(lane_id, None)
        if lane is not None and lane.reader.mid_packet:
            self._refuse(RemoteProtocolError(f"lane {lane_id} ended inside a packet", Reason.MALFORMED_PACKET))

    def lane_reset(self, lane_id: int, reason: int) -> None:
        """The broker abandoned a lane, and with it what was incomplete."""
        self._lanes.pop(lane_id, None)

    def lane_writable(self, lane: Lane) -> None:
        """A lane has drained or closed: what waited for it can go."""
        if self.state is State.OPEN:
            self._sender.pump()

    def closed(self, reason: int | None, message: str) -> None:
        """The link is gone."""
        why = message or (describe(reason) if reason is not None else "no reason was given")
        self._end(ConnectionLost(f"the connection to {self.link.peer} was lost: {why}", reason))
        if self._owner is not None:
            self._owner.gone(self)

    # --- packets ------------------------------------------------------------------------------------------

    def _handle(self, lane: IncomingLane, item: Item) -> None:
        handler = _HANDLERS.get(type(item))
        if handler is None:
            raise RemoteProtocolError(f"{type(item).__name__} is not for clients")
        if lane.id != CONTROL and type(item) not in _TOPIC_LANE:
            raise RemoteProtocolError(f"{type(item).__name__} on lane {lane.id}; only PubReq leaves the control lane")
        if self.state is State.CONNECTING and type(item) not in _BEFORE_CONACK:
            raise RemoteProtocolError(f"{type(item).__name__} before ConAck")
        handler(self, lane, item)

    def _on_con_ack(self, lane: IncomingLane, packet: ConAck) -> None:
        if self.state is not State.CONNECTING:
            raise RemoteProtocolError("ConAck comes once, after ConReq")
        session = self.session
        if packet.reason >= FIRST_REFUSAL:
            self.link.close(Reason.SUCCESS)
            refusal = f"the broker at {self.link.peer} refused the connection: {describe(packet.reason)}"
            self._end(ConnectionLost(refusal, packet.reason))
            return
        self.state = State.OPEN
        self.session_present = present = packet.session_present
        session.is_foreign = present and (session.is_foreign or not session.is_established)
        session.is_established = session.resume = True
        if packet.client_id is not None:
            session.client_id = packet.client_id
        self._asker.opened(present)
        self._receiver.opened(present)
        self._sender.opened(present)
        if self._owner is not None:
            self._owner.opened(self)
        early, self._early = self._early, []
        for lane_id, data in early:
            self.data_received(lane_id, data)
            self.link.resume_reading(lane_id)

    def _on_con_syn(self, lane: IncomingLane, packet: ConSyn) -> None:
        self._write(packet)

    def _on_con_end(self, lane: IncomingLane, packet: ConEnd) -> None:
        self.link.close(Reason.SUCCESS)
        refusal = f"the broker at {self.link.peer} ended the connection: {describe(packet.reason)}"
        self._end(ConnectionLost(refusal, packet.reason))

    def _on_top_ack(self, lane: IncomingLane, packet: TopAck) -> None:
        self._asker.on_top_ack(packet)

    def _on_query_ack(self, lane: IncomingLane, packet: QueryAck) -> None:
        self._asker.on_query_ack(packet)

    def _on_pub_req(self, lane: IncomingLane, packet: PubReq) -> None:
        self._receiver.on_pub_req(lane, packet)

    def _on_payload_started(self, lane: IncomingLane, item: PayloadStarted) -> None:
        lane.begin_payload(item.packet)

    def _on_payload_chunk(self, lane: IncomingLane, item: PayloadChunk) -> None:
        lane.add_chunk(item.data)

    def _on_payload_ended(self, lane: IncomingLane, item: PayloadEnded) -> None:
        self._receiver.on_pub_req(lane, lane.end_payload())

    def _on_pub_syn(self, lane: IncomingLane, packet: PubSyn) -> None:
        if packet.reason == Reason.RELEASE:
            self._receiver.on_release(packet)
        else:
            self._sender.on_pub_syn(packet)

    def _on_confirm_syn(self, lane: IncomingLane, packet: ConfirmSyn) -> None:
        self._sender.on_confirm_syn(packet)

    def _on_pub_ack(self, lane: IncomingLane, packet: PubAck) -> None:
        self._sender.on_pub_ack(packet)

    def _on_type_req(self, lane: IncomingLane, packet: TypeReq) -> None:
        self._asker.on_type_req(packet)

    def _on_pub_type(self, lane: IncomingLane, packet: PubType) -> None:
        self._asker.on_pub_type(packet)

    # --- inside -------------------------------------------------------------------------------------------

    def _refuse(self, error: ProtocolError) -> None:
        """The broker broke the protocol."""
        if self.state in (State.CONNECTING, State.OPEN):
            self._write(ConEnd(error.reason))
            self.link.close(error.reason, str(error))
            self._end(ConnectionLost(f"the broker at {self.link.peer} broke the protocol: {error}", error.reason))

    def _end(self, error: ConnectionLost) -> None:
        if self.state is State.CLOSED:
            return
        was_started = self.state is not State.CREATED
        self.state = State.CLOSED
        if was_started:
            self._asker.closed()
            self._receiver.closed()
            self._sender.closed()
        if self._owner is not None:
            self._owner.ended(self, error)

    def _write(self, packet: Packet) -> None:
        self.link.control.write(encode(packet))


_HANDLERS: dict[type, Callable[..., None]] = {
    ConAck: ClientCore._on_con_ack,
    ConSyn: ClientCore._on_con_syn,
    ConEnd: ClientCore._on_con_end,
    TopAck: ClientCore._on_top_ack,
    QueryAck: ClientCore._on_query_ack,
    PubReq: ClientCore._on_pub_req,
    PubSyn: ClientCore._on_pub_syn,
    ConfirmSyn: ClientCore._on_confirm_syn,
    PubAck: ClientCore._on_pub_ack,
    TypeReq: ClientCore._on_type_req,
    PubType: ClientCore._on_pub_type,
    PayloadStarted: ClientCore._on_payload_started,
    PayloadChunk: ClientCore._on_payload_chunk,
    PayloadEnded: ClientCore._on_payload_ended,
}

_TOPIC_LANE = frozenset({PubReq, PayloadStarted, PayloadChunk, PayloadEnded})
_BEFORE_CONACK = frozenset({ConAck, ConEnd, ConSyn})


def _check_name(topic: str) -> None:
    if (fault := name_error(topic) or _length_error(topic)) is not None:
        raise LocalProtocolError(fault, Reason.TOPIC_NAME_INVALID)


def _check_filter(filter_: str) -> None:
    if (fault := filter_error(filter_) or _length_error(filter_)) is not None:
        raise LocalProtocolError(fault, Reason.TOPIC_FILTER_INVALID)


def _length_error(topic: str) -> str | None:
    # A character takes at most four bytes: most topics are too short to need counting.
    if len(topic) <= MAX_TOPIC_BYTES // 4 or len(topic.encode()) <= MAX_TOPIC_BYTES:
        return None
    return f"topic {topic[:40]!r}... has {len(topic.encode())} bytes; at most {MAX_TOPIC_BYTES} are allowed"


def _check_qos(qos: int) -> None:
    if qos not in (0, 1, 2):
        raise LocalProtocolError(f"qos is {qos}; expected 0, 1 or 2", Reason.QOS_NOT_SUPPORTED)


def _authentication(options: SessionOptions) -> Authentication | None:
    if options.user_name is None and options.password is None:
        return None
    password = options.password.encode() if isinstance(options.password, str) else options.password
    return Authentication(options.user_name, password)
