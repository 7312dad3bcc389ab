"""MMQP on one connection: packets into the core's words and the core's words into packets.

    CONNECTING ── CONREQ accepted ──► OPEN ── CONEND, violation, keep-alive, take-over ──► CLOSED

The connection owns what ends with it: a frame reader per incoming lane, the alias table (rebuilt from the session
when that is resumed), keep-alive, and the lanes messages leave on. Everything that outlives it is the session's.
A peer that breaks the protocol is told why in CONEND and closed; nobody else notices.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from moq.broker.dialects.mmqp_outlets import Outlets
from moq.broker.link import CONTROL
from moq.broker.message import Kind, Message, Mode, Properties, Registration, Subscription, TopicType, Will
from moq.errors import RemoteProtocolError, RequestRefused
from moq.reasons import FIRST_REFUSAL, Reason
from moq.topics import filter_error, has_wildcard, matches, name_error
from moq.wire import (
    FIRST_BROKER_ALIAS,
    VERSION_MOQ_1,
    Authen,
    ConAck,
    ConEnd,
    ConReq,
    ConSyn,
    FrameReader,
    Packet,
    PayloadChunk,
    PayloadEnded,
    PayloadStarted,
    PubAck,
    PublishExtension,
    PubReq,
    PubSyn,
    PubType,
    Query,
    QueryAck,
    Register,
    Settings,
    Subscribe,
    TopAck,
    TopicRequest,
    TopReq,
    TypeFormat,
    TypeReq,
    Unsubscribe,
    encode,
)
from moq.wire import NEVER as NEVER_EXPIRES
from moq.wire import Will as WireWill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from moq.broker.core import Broker
    from moq.broker.link import Lane, Link
    from moq.broker.message import Target
    from moq.broker.session import Session
    from moq.broker.timers import Timer
    from moq.broker.types import Described
    from moq.wire import Item

MAX_KNOWN_NAMES = 10_000
"""Topics published through a wildcard registration that a connection remembers having checked."""


class State(Enum):
    """Where a connection is in its life."""

    CONNECTING = "connecting"
    OPEN = "open"
    CLOSED = "closed"


class _Assembly:
    """A large payload on its way in."""

    __slots__ = ("chunks", "packet", "size")

    def __init__(self, packet: PubReq, size: int) -> None:
        self.packet = packet
        self.size = size
        self.chunks: list[bytes] = []


class Connection:
    """One MMQP client, connected: a `Peer` to the core, fed by whoever owns the link."""

    def __init__(self, broker: Broker, link: Link, new_client_id: Callable[[], str], now: float) -> None:
        self._broker = broker
        self._environment = broker.environment
        self._limits = broker.limits
        self._link = link
        self._new_client_id = new_client_id
        self.state = State.CONNECTING
        self._session: Session | None = None
        self._readers: dict[int, FrameReader] = {}
        self._assemblies: dict[int, _Assembly] = {}
        self._paused: set[int] = set()  # incoming lanes not read until the client reads our answers
        self._waiting: set[int] = set()  # incoming lanes not read until other payloads are complete
        self._topics: dict[int, str] = {}  # alias → topic, for both directions
        self._remembered: set[int] = set()  # those known from earlier connections of the session only
        self._aliases: dict[str, int] = {}  # topic → alias, to send under
        self._published: dict[int, str] = {}  # the aliases among them that are registered
        self._known_names: dict[str, Reason] = {}
        self._outlets = Outlets(link, broker.environment, self._aliases)
        self._last_received = now
        self._keep_alive_s = float(self._limits.max_keep_alive_s)
        self._timer: Timer = broker.timers.at(now + self._limits.connect_timeout_s, self._on_connect_timeout)

    # --- events of the link ---------------------------------------------------------------------------

    def receive_data(self, lane_id: int, data: bytes, now: float) -> None:
        """Bytes arrived on a lane."""
        if self.state is State.CLOSED:
            return
        self._environment.now = self._last_received = now
        reader = self._readers.get(lane_id)
        if reader is None:
            reader = self._readers[lane_id] = FrameReader(self._limits.max_packet_bytes)
        try:
            self._take(reader.feed(data), lane_id, now)
        except RemoteProtocolError as error:
            self._violated(error, now)
        if self._link.control.congested and self.state is State.OPEN:
            # It asks faster than it reads our answers: read no more of it until those are gone.
            self._paused.add(lane_id)
            self._link.pause_reading(lane_id)

    def lane_finished(self, lane_id: int, now: float) -> None:
        """The client ended a lane; it may do so only between packets."""
        self._environment.now = now
        reader = self._forget_lane(lane_id)
        if reader is not None and reader.mid_packet:
            self._violated(RemoteProtocolError(f"lane {lane_id} ended inside a packet", Reason.MALFORMED_PACKET), now)

    def lane_reset(self, lane_id: int) -> None:
        """The client abandoned a lane: what was incomplete on it never was."""
        self._forget_lane(lane_id)

    def lane_writable(self, lane: Lane, now: float) -> None:
        """A lane has drained, or closed."""
        self._environment.now = now
        if lane.is_closed:
            self._outlets.forget_lane(lane)
        if not self._link.control.congested:
            for lane_id in self._paused - self._waiting:
                self._link.resume_reading(lane_id)
            self._paused.clear()
        if self._session is not None and self.state is State.OPEN:
            self._broker.on_writable(self._session, now)

    def closed(self, now: float) -> None:
        """The link is gone without a goodbye."""
        self._environment.now = now
        self._leave(with_will=True, now=now)

    def shut_down(self, now: float) -> None:
        """The broker stops: say so; the client's will is not for this."""
        if self.state is not State.CLOSED:
            self._send(ConEnd(Reason.SERVER_SHUTTING_DOWN))
            self._leave(with_will=False, keeps_session=True, now=now)
            self._end(Reason.SERVER_SHUTTING_DOWN)

    # --- Peer: what the core asks for -----------------------------------------------------------------

    def send_message(self, message: Message, target: Target | None, qos: int, packet_id: int, dup: bool) -> bool:
        """See `Peer`."""
        return self._outlets.send(message, target, qos, packet_id, dup)

    def acknowledge(self, kind: int, packet_id: int, reason: Reason) -> None:
        """See `Peer`."""
        self._send(PubAck(kind, packet_id, reason))

    def confirm_received(self, kind: int, packet_id: int, reason: Reason) -> None:
        """See `Peer`."""
        self._send(PubSyn(kind, packet_id, reason))

    def confirm_completed(self, kind: int, packet_id: int, reason: Reason) -> None:
        """See `Peer`."""
        self._send(PubAck(kind, packet_id, reason))

    def release(self, kind: int, packet_id: int) -> None:
        """See `Peer`."""
        self._send(PubSyn(kind, packet_id, Reason.RELEASE))

    def ask_type(self, query_id: int, topic: str) -> None:
        """See `Peer`."""
        self._send(TypeReq(query_id, topic))

    def close(self, reason: Reason) -> None:
        """See `Peer`."""
        if self.state is not State.CLOSED:
            self._send(ConEnd(reason))
            self._end(reason)

    # --- packets --------------------------------------------------------------------------------------

    def _take(self, items: Iterable[Item], lane_id: int, now: float) -> None:
        for item in items:
            if item.__class__ is PubReq and self.state is State.OPEN:
                self._on_pubreq(item, now)
            elif self.state is State.CLOSED:
                return
            elif self.state is State.CONNECTING:
                self._on_first_packet(item, lane_id, now)
            else:
                self._on_packet(item, lane_id, now)

    def _on_first_packet(self, item: Item, lane_id: int, now: float) -> None:
        if not isinstance(item, ConReq) or lane_id != CONTROL:
            raise RemoteProtocolError(f"the first packet is {type(item).__name__} on lane {lane_id}; expected ConReq")
        self._on_conreq(item, now)

    def _on_packet(self, item: Item, lane_id: int, now: float) -> None:
        match item:
            case PayloadStarted():
                self._on_payload_started(item, lane_id)
            case PayloadChunk():
                self._assemblies[lane_id].chunks.append(item.data)
            case PayloadEnded():
                self._on_payload_ended(lane_id, now)
            case _ if lane_id != CONTROL:
                raise RemoteProtocolError(f"{type(item).__name__} on lane {lane_id}; only PubReq may leave lane 0")
            case PubAck():
                self._on_puback(item, now)
            case PubSyn():
                self._on_pubsyn(item, now)
            case ConSyn():
                pass  # the client is there: that it was heard is noted already
            case TopReq():
                self._on_topreq(item, now)
            case TypeReq():
                self._on_typereq(item, now)
            case PubType():
                self._on_pubtype(item)
            case ConEnd():
                self._on_conend(item, now)
            case Authen():
                raise RemoteProtocolError(
                    f"authentication method {item.method!r} is not offered", Reason.BAD_AUTHENTICATION_METHOD
                )
            case _:
                raise RemoteProtocolError(f"{type(item).__name__} is not for a client to send on an open connection")

    def _on_conreq(self, packet: ConReq, now: float) -> None:
        refusal = _refusal(packet)
        if refusal is not None:
            self._refuse(refusal)
            return
        settings = packet.settings
        client_id = packet.client_id or self._new_client_id()
        try:
            session, is_present = self._broker.sessions.connect(
                client_id,
                resume=packet.resume,
                is_persistent=settings.persistent if settings is not None else None,
                expiry_s=self._expiry(settings) if settings is not None else None,
                initial_will=_to_will(packet.initial_will),
                last_will=_to_will(packet.last_will),
                now=now,
            )
        except RequestRefused as error:
            self._refuse(Reason(error.reason))
            return
        self._session = session
        self.state = State.OPEN
        self._timer.cancel()
        if settings is not None and settings.keep_alive_s:
            self._keep_alive_s = float(min(settings.keep_alive_s, self._limits.max_keep_alive_s))
        self._timer = self._broker.timers.at(now + self._keep_alive_s, self._on_keep_alive)
        self._send(ConAck(is_present, Reason.SUCCESS, None if packet.client_id else client_id))
        self._remember_aliases(session)
        self._broker.sessions.start(session, self, now)
        if packet.topics is not None:
            self._send(TopAck(0, bytes(self._on_topic_request(request, now) for request in packet.topics)))

    def _remember_aliases(self, session: Session) -> None:
        """What aliases meant on earlier connections, as long as this one does not say otherwise.

        A client that has kept its session may use them; one that has lost it may choose anew. So the broker
        itself uses only those that this connection has confirmed.
        """
        for subscription in session.subscriptions.values():
            if subscription.identifier:
                self._topics[subscription.identifier] = subscription.filter
        for registration in session.registrations.values():
            if registration.identifier:
                self._topics[registration.identifier] = registration.filter
                self._published[registration.identifier] = registration.filter
        self._remembered.update(self._topics)

    def _bind(self, alias: int, topic: str) -> None:
        if alias in self._remembered:
            self._remembered.discard(alias)
            if self._topics[alias] != topic:
                self._published.pop(alias, None)
        self._topics[alias] = topic
        self._aliases.setdefault(topic, alias)

    def _on_conend(self, packet: ConEnd, now: float) -> None:
        self._leave(with_will=packet.reason != Reason.SUCCESS, now=now)
        self._end(Reason.SUCCESS)

    # --- topic requests -------------------------------------------------------------------------------

    def _on_topreq(self, packet: TopReq, now: float) -> None:
        first = packet.requests[0]
        if isinstance(first, Query):
            self._on_query(packet.packet_id, first)
            return
        reasons = bytes(self._on_topic_request(request, now) for request in packet.requests)
        self._send(TopAck(packet.packet_id, reasons))

    def _on_topic_request(self, request: TopicRequest, now: float) -> Reason:
        topic = self._resolve(request)
        if isinstance(topic, Reason):
            return topic
        match request:
            case Subscribe():
                return self._on_subscribe(request, topic, now)
            case Register():
                return self._on_register(request, topic)
            case Unsubscribe():
                return self._on_unsubscribe(request, topic)
            case Query():
                return Reason.PROTOCOL_ERROR  # it needs a QUERY answer of its own: it stands alone in a TOPREQ

    def _resolve(self, request: TopicRequest) -> str | Reason:
        """The topic or filter a request is about; a first mention binds its alias for this connection."""
        alias, topic = request.alias, request.topic
        if alias >= FIRST_BROKER_ALIAS or (alias == 0 and topic is None):
            return Reason.TOPIC_ALIAS_INVALID
        known = self._topics.get(alias)
        if topic is None:
            if known is None:
                return Reason.TOPIC_ALIAS_INVALID
            self._bind(alias, known)
            return known
        if filter_error(topic) is not None:
            return Reason.TOPIC_FILTER_INVALID
        if alias == 0:
            return topic
        # Messages under this alias may be on their way on any lane: giving it another meaning would give them one.
        if has_wildcard(topic) or (known not in (None, topic) and alias not in self._remembered):
            return Reason.TOPIC_ALIAS_INVALID
        self._bind(alias, topic)
        return topic

    def _on_subscribe(self, request: Subscribe, topic: str, now: float) -> Reason:
        assert self._session is not None
        extension = request.extension
        if request.qos > 2:
            return Reason.QOS_NOT_SUPPORTED
        if extension is not None and (extension.period or extension.deadline or extension.repeat_name):
            return Reason.IMPLEMENTATION_SPECIFIC_ERROR
        subscription = Subscription(
            self._session,
            topic,
            request.qos,
            request.group,
            request.accepts_requests,
            identifier=request.alias,
        )
        if extension is not None and extension.priority is not None:
            subscription.priority = extension.priority
        return self._broker.subscribe(subscription, now)

    def _on_register(self, request: Register, topic: str) -> Reason:
        assert self._session is not None
        registration = Registration(topic, Mode(request.mode), _seconds(request.expiry_s), request.alias)
        reason = self._broker.register(self._session, registration)
        if reason is Reason.SUCCESS:
            self._known_names.clear()
            if request.alias:
                self._published[request.alias] = topic
        return reason

    def _on_unsubscribe(self, request: Unsubscribe, topic: str) -> Reason:
        assert self._session is not None
        if request.registration:
            self._known_names.clear()
            self._published = {alias: name for alias, name in self._published.items() if name != topic}
            return self._broker.unregister(self._session, topic)
        groups = [group for filter_, group in self._session.subscriptions if filter_ == topic]
        for group in groups:
            self._broker.unsubscribe(self._session, topic, group)
        return Reason.SUCCESS if groups else Reason.NO_SUBSCRIPTION_EXISTED

    def _on_query(self, packet_id: int, request: Query) -> None:
        assert self._session is not None
        topic = self._resolve(request)
        found = topic if isinstance(topic, Reason) else self._broker.subscribers(self._session, topic)
        if isinstance(found, Reason):
            self._send(QueryAck(packet_id, found, []))
        else:
            self._send(QueryAck(packet_id, Reason.SUCCESS, found))

    # --- messages -------------------------------------------------------------------------------------

    def _on_pubreq(self, packet: PubReq, now: float) -> None:
        if packet.kind or packet.qos == 3:
            self._on_other_pubreq(packet, now)
            return
        session = self._session
        topic = self._published.get(packet.alias) if packet.topic is None else self._named(packet)
        if topic is None:
            self._on_unregistered(packet)
            return
        assert session is not None
        # Only what is acknowledged is retained: a QoS 0 message could be lost before anyone asks for it.
        message = Message(topic, packet.payload, packet.qos, packet.retain and packet.qos > 0, session.client_id)
        if packet.extension is not None:
            _extend(message, packet.extension, now)
        self._broker.publish(session, message, packet.packet_id, now)

    def _on_other_pubreq(self, packet: PubReq, now: float) -> None:
        """REQUEST, RESPONSE, and the QoS that is not offered."""
        assert self._session is not None
        if packet.qos == 3:
            self._send(PubSyn(packet.kind, packet.packet_id, Reason.QOS_NOT_SUPPORTED))
            return
        if packet.kind == Kind.RESPONSE:
            message = Message("", packet.payload, packet.qos, publisher=self._session.client_id, kind=Kind.RESPONSE)
            if packet.extension is not None:
                _extend(message, packet.extension, now)
            self._broker.respond(self._session, message, packet.packet_id, now)
            return
        topic = self._published.get(packet.alias) if packet.topic is None else self._named(packet)
        if topic is None:
            self._on_unregistered(packet)
            return
        message = Message(topic, packet.payload, packet.qos, publisher=self._session.client_id, kind=Kind.REQUEST)
        timeout_s = self._limits.request_timeout_s
        if packet.extension is not None:
            _extend(message, packet.extension, now)
            if packet.extension.deadline_ms is not None:
                timeout_s = packet.extension.deadline_ms / 1000
        self._broker.request(self._session, message, packet.packet_id, timeout_s, now)

    def _named(self, packet: PubReq) -> str | None:
        """The topic of a PUBREQ that spells it out: one that a wildcard registration covers."""
        topic = packet.topic
        assert topic is not None
        assert self._session is not None
        if packet.alias:
            raise RemoteProtocolError(
                f"PubReq names topic {topic!r} and alias {packet.alias}", Reason.TOPIC_ALIAS_INVALID
            )
        if (error := name_error(topic)) is not None:
            raise RemoteProtocolError(error, Reason.TOPIC_NAME_INVALID)
        reason = self._known_names.get(topic)
        if reason is None:
            if len(self._known_names) >= MAX_KNOWN_NAMES:
                self._known_names.clear()
            reason = self._known_names[topic] = self._check_name(topic)
        return topic if reason is Reason.SUCCESS else None

    def _check_name(self, topic: str) -> Reason:
        assert self._session is not None
        for registration in self._session.registrations.values():
            if matches(registration.filter, topic):
                return self._broker.adopt(self._session, topic, registration)
        return Reason.TOPIC_NOT_REGISTERED

    def _on_unregistered(self, packet: PubReq) -> None:
        """Publishing needs a registration: refused where a refusal can be told, else the connection ends."""
        if packet.topic is None and packet.alias not in self._topics:
            raise RemoteProtocolError(
                f"PubReq.alias is {packet.alias}, which names no topic", Reason.TOPIC_ALIAS_INVALID
            )
        reason = Reason.TOPIC_NOT_REGISTERED
        if packet.topic is not None:
            reason = self._known_names.get(packet.topic, reason)
        if packet.qos == 2:
            assert self._session is not None
            self._broker.refuse(self._session, packet.kind, packet.packet_id, reason)
        elif packet.packet_id:
            self._send(PubAck(packet.kind, packet.packet_id, reason))
        else:
            raise RemoteProtocolError(f"topic of PubReq (alias {packet.alias}) is not registered", reason)

    def _on_pubsyn(self, packet: PubSyn, now: float) -> None:
        assert self._session is not None
        if packet.reason == Reason.RELEASE:
            self._broker.release(self._session, packet.kind, packet.packet_id)
        else:
            self._broker.on_received(self._session, packet.kind, packet.packet_id, packet.reason, now)

    def _on_puback(self, packet: PubAck, now: float) -> None:
        assert self._session is not None
        if packet.reason >= FIRST_REFUSAL:
            # A refusal ends the exchange wherever it stands.
            self._broker.on_received(self._session, packet.kind, packet.packet_id, packet.reason, now)
        elif not self._broker.on_acknowledged(self._session, packet.kind, packet.packet_id, now):
            raise RemoteProtocolError(f"PubAck of packet id {packet.packet_id} at QoS 2 before PubSyn")

    # --- large payloads -------------------------------------------------------------------------------

    def _on_payload_started(self, item: PayloadStarted, lane_id: int) -> None:
        self._assemblies[lane_id] = _Assembly(item.packet, item.size)
        self._pace_assemblies()

    def _on_payload_ended(self, lane_id: int, now: float) -> None:
        assembly = self._assemblies.pop(lane_id)
        self._pace_assemblies()
        packet = assembly.packet
        packet.payload = b"".join(assembly.chunks)
        self._on_pubreq(packet, now)

    def _pace_assemblies(self) -> None:
        """All lanes together may hold one largest packet: lanes past that wait, those that began first go first."""
        total = 0
        waiting: set[int] = set()
        for lane_id, assembly in self._assemblies.items():
            total += assembly.size
            if total > self._limits.max_packet_bytes:
                waiting.add(lane_id)
        for lane_id in waiting - self._waiting:
            self._link.pause_reading(lane_id)
        for lane_id in self._waiting - waiting - self._paused:
            self._link.resume_reading(lane_id)
        self._waiting = waiting

    def _forget_lane(self, lane_id: int) -> FrameReader | None:
        self._paused.discard(lane_id)
        self._waiting.discard(lane_id)
        if self._assemblies.pop(lane_id, None) is not None:
            self._pace_assemblies()
        return self._readers.pop(lane_id, None)

    # --- types ----------------------------------------------------------------------------------------

    def _on_typereq(self, packet: TypeReq, now: float) -> None:
        assert self._session is not None
        packet_id = packet.packet_id
        reason = self._broker.describe(
            self._session, packet.topic, lambda described: self._send_types(packet_id, described), now
        )
        if reason is not Reason.SUCCESS:
            self._send(_no_type(packet_id, reason))

    def _send_types(self, packet_id: int, described: Described) -> None:
        if not described:
            self._send(_no_type(packet_id, Reason.TYPE_UNKNOWN))
        for position, (topic, type_) in enumerate(described, 1):
            self._send(
                PubType(
                    more=position < len(described),
                    answer=True,
                    packet_id=packet_id,
                    reason=Reason.SUCCESS,
                    format=type_.format,
                    type_id=type_.type_id,
                    topic=topic,
                    media_type=type_.media_type,
                    schema=type_.schema,
                )
            )

    def _on_pubtype(self, packet: PubType) -> None:
        assert self._session is not None
        type_ = TopicType(packet.format, packet.media_type, packet.schema, packet.type_id)
        if packet.answer:
            known = type_ if packet.reason == Reason.SUCCESS else None
            self._broker.on_type_answer(self._session, packet.packet_id, packet.topic, known)
        else:
            reason = self._broker.announce(self._session, packet.topic, type_)
            self._send(TopAck(packet.packet_id, bytes((reason,))))

    # --- the end --------------------------------------------------------------------------------------

    def _on_connect_timeout(self, now: float) -> None:
        self._violated(RemoteProtocolError("no CONREQ in time", Reason.KEEP_ALIVE_TIMEOUT), now)

    def _on_keep_alive(self, now: float) -> None:
        """Ask a silent client whether it is there; give one that does not answer up after another half interval."""
        silent_s = now - self._last_received
        if silent_s < self._keep_alive_s:
            due = self._last_received + self._keep_alive_s
        elif silent_s < self._keep_alive_s * 1.5:
            self._send(ConSyn())
            due = self._last_received + self._keep_alive_s * 1.5
        else:
            self._violated(RemoteProtocolError("the client is silent", Reason.KEEP_ALIVE_TIMEOUT), now)
            return
        self._timer = self._broker.timers.at(due, self._on_keep_alive)

    def _violated(self, error: RemoteProtocolError, now: float) -> None:
        if self.state is State.CLOSED:
            return  # garbage after a goodbye
        self._broker.figures.protocol_errors += 1
        if self.state is State.CONNECTING:
            self._send(ConAck(False, error.reason))
        else:
            self._send(ConEnd(error.reason))
        self._leave(with_will=True, now=now)
        self._end(error.reason, str(error))

    def _refuse(self, reason: Reason) -> None:
        self._send(ConAck(False, reason))
        self._end(reason)

    def _leave(self, *, with_will: bool, now: float, keeps_session: bool = False) -> None:
        """Give the session back; a goodbye ends one that is not persistent."""
        self._timer.cancel()
        self.state = State.CLOSED
        session, self._session = self._session, None
        if session is not None:
            survives = with_will or keeps_session or session.is_persistent
            expiry_s = session.expiry_s if survives else 0.0
            self._broker.sessions.disconnect(session, self, with_will=with_will, expiry_s=expiry_s, now=now)

    def _end(self, reason: Reason, message: str = "") -> None:
        self._timer.cancel()
        self.state = State.CLOSED
        self._readers.clear()
        self._assemblies.clear()
        self._link.close(reason, message)

    def _send(self, packet: Packet) -> None:
        self._link.control.write(encode(packet))

    def _expiry(self, settings: Settings) -> float:
        longest = float(self._limits.max_session_expiry_s)
        if settings.expiry_s is None:
            return longest if settings.persistent else 0.0
        return longest if settings.expiry_s == NEVER_EXPIRES else min(float(settings.expiry_s), longest)


def _refusal(packet: ConReq) -> Reason | None:
    if packet.version != VERSION_MOQ_1:
        return Reason.UNSUPPORTED_PROTOCOL_VERSION
    if packet.authentication is not None and packet.authentication.method is not None:
        return Reason.BAD_AUTHENTICATION_METHOD
    return None


def _to_will(will: WireWill | None) -> Will | None:
    if will is None:
        return None
    retain = will.retain and will.qos > 0
    return Will(will.topic, will.payload, will.qos, retain, _seconds(will.expiry_s), will.delay_s or 0)


def _seconds(expiry_s: int | None) -> int | None:
    return None if expiry_s == NEVER_EXPIRES else expiry_s


def _extend(message: Message, extension: PublishExtension, now: float) -> None:
    if extension.ttl_ms is not None:
        message.expires_at = now + extension.ttl_ms / 1000
    user = tuple((item.name, item.value) for item in extension.properties or ())
    properties = Properties(extension.timestamp_ns, extension.group_start, extension.encrypted, extension.type_id, user)
    if properties != Properties():
        message.properties = properties


def _no_type(packet_id: int, reason: Reason) -> PubType:
    return PubType(
        more=False,
        answer=True,
        packet_id=packet_id,
        reason=reason,
        format=TypeFormat.OPAQUE,
        type_id=0,
        topic="",
        media_type="",
    )
