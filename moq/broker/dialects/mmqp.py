"""MMQP on one connection: packets into the core's words and the core's words into packets.

What its topics are called is in `mmqp_topics.py`, how messages leave in `mmqp_outlets.py`. Keep-alive is the broker's:
it asks a silent client whether it is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.broker.authentication import check_password
from moq.broker.confirmations import Wanted
from moq.broker.dialects.connection import DialectConnection, State
from moq.broker.dialects.mmqp_confirmations import confirmations_that_fit
from moq.broker.dialects.mmqp_outlets import Outlets
from moq.broker.dialects.mmqp_topics import ClientTopics, seconds
from moq.broker.dialects.traced_outlets import TracedOutlets
from moq.broker.link import CONTROL
from moq.broker.message import Kind, Message, Properties, Run, TopicType, Will
from moq.broker.system import CLOCK
from moq.errors import RemoteProtocolError, RequestRefused
from moq.reasons import FIRST_REFUSAL, Reason, describe
from moq.wire import NEVER as NEVER_EXPIRES
from moq.wire import (
    VERSION_MOQ_1,
    Authen,
    Authentication,
    ConAck,
    ConEnd,
    ConfirmSyn,
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
    Settings,
    TopAck,
    TopReq,
    TypeFormat,
    TypeReq,
    encode,
)
from moq.wire import Will as WireWill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from moq.broker.confirmations import Outcome
    from moq.broker.core import Broker
    from moq.broker.link import Lane, Link
    from moq.broker.message import Target
    from moq.broker.session import Session
    from moq.broker.types import Described
    from moq.wire import Item, TopicRequest


class Connection(DialectConnection["Packet | PayloadStarted", PubReq]):
    """One MMQP client, connected: a `Peer` to the core, fed by whoever owns the link."""

    def __init__(self, broker: Broker, link: Link, new_client_id: Callable[[], str], now: float) -> None:
        super().__init__(broker, link, new_client_id, now)
        self._aliases: dict[str, int] = {}  # topic → alias, to send under
        self._topics: ClientTopics  # from CONREQ on
        self._traffic = broker.figures.traffic.of(link.transport, "mmqp")
        outlets = Outlets if broker.environment.tracer is None else TracedOutlets
        self._outlets = outlets(link, broker.environment, self._aliases, self._traffic)
        self.send_message = self._outlets.send  # type: ignore[method-assign]
        self.send_run = self._outlets.send_run  # type: ignore[method-assign]
        self._keep_alive_s = float(self._limits.max_keep_alive_s)

    # --- Peer: what the core asks for -----------------------------------------------------------------

    def acknowledge(self, kind: int, packet_id: int, reason: Reason) -> None:
        """See `Peer`."""
        self._send(PubAck(kind, packet_id, _said(reason)))

    def confirm_received(self, kind: int, packet_id: int, reason: Reason) -> None:
        """See `Peer`."""
        self._send(PubSyn(kind, packet_id, _said(reason)))

    def confirm(self, packet_id: int, qos: int, outcome: Outcome) -> None:
        """See `Peer`."""
        self._send(ConfirmSyn(packet_id, outcome.reason, confirmations_that_fit(outcome)))

    def confirm_completed(self, kind: int, packet_id: int, reason: Reason, outcome: Outcome | None = None) -> None:
        """See `Peer`."""
        self._send(PubAck(kind, packet_id, reason))

    def release(self, kind: int, packet_id: int) -> None:
        """See `Peer`."""
        self._send(PubSyn(kind, packet_id, Reason.RELEASE))

    def ask_type(self, query_id: int, topic: str) -> None:
        """See `Peer`."""
        self._send(TypeReq(query_id, topic))

    # --- packets --------------------------------------------------------------------------------------

    @property
    def dialect(self) -> str:
        """See `DialectConnection`."""
        return "mmqp"

    def lane_of(self, topic: str, target: Target | None) -> Lane | None:
        """See `DialectConnection`."""
        return self._outlets.lane_of(topic)

    def _new_reader(self) -> FrameReader:
        return FrameReader(self._limits.max_packet_bytes)

    def _take(self, items: Iterable[Item], lane_id: int, now: float) -> None:
        published = self._topics.published if self.state is State.OPEN else {}
        topic: str | None = None
        payloads: list[bytes] = []
        try:
            for item in items:
                if (
                    item.__class__ is PubReq
                    and not (item.qos or item.kind or item.retain or item.topic or item.extension)
                    and (name := published.get(item.alias)) is not None
                ):
                    if name is not topic:
                        self._publish_run(topic, payloads, now)
                        topic, payloads = name, []
                    payloads.append(item.payload)
                    continue
                self._publish_run(topic, payloads, now)
                topic, payloads = None, []
                self._take_one(item, lane_id, now)
                published = self._topics.published if self.state is State.OPEN else {}
        finally:
            # What came before a fault in the same read still counts.
            self._publish_run(topic, payloads, now)

    def _publish_run(self, topic: str | None, payloads: list[bytes], now: float) -> None:
        if topic is not None and self._session is not None:
            run = Run(topic, payloads, self._session.client_id, now)
            self._traffic.messages_in[0] += len(payloads)
            self._traffic.bytes_in[0] += run.size
            self._broker.publish_run(run, now)

    def _is_message(self, item: object) -> bool:
        return isinstance(item, PubReq | PayloadStarted)

    def _is_droppable(self, item: object) -> bool:
        return isinstance(item, PubReq) and not (item.qos or item.kind)

    def _take_one(self, item: Item, lane_id: int, now: float) -> None:
        if self.state is State.CONNECTING:
            self._on_first_packet(item, lane_id, now)
        elif self.state is State.OPEN and isinstance(item, PubReq):
            self._on_message(item, lane_id, now)
        elif self.state is State.OPEN:
            self._on_packet(item, lane_id, now)

    def _on_first_packet(self, item: Item, lane_id: int, now: float) -> None:
        if not isinstance(item, ConReq) or lane_id != CONTROL:
            raise RemoteProtocolError(f"the first packet is {type(item).__name__} on lane {lane_id}; expected ConReq")
        self._on_conreq(item, now)

    def _on_packet(self, item: Item, lane_id: int, now: float) -> None:
        match item:
            case PayloadStarted():
                self._on_payload_started(item.packet, item.size, lane_id)
            case PayloadChunk():
                self._on_payload_chunk(item, lane_id)
            case PayloadEnded():
                self._on_payload_ended(lane_id, now)
            case _ if lane_id != CONTROL:
                raise RemoteProtocolError(f"{type(item).__name__} on lane {lane_id}; only PubReq may leave lane 0")
            case PubAck():
                self._on_puback(item, now)
            case PubSyn():
                self._on_pubsyn(item, now)
            case ConfirmSyn():
                self._on_confirmsyn(item, now)
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
        settings = packet.settings
        client_id = packet.client_id or self._new_client_id()
        try:
            user = self._user(packet)
            session, is_present = self._broker.sessions.connect(
                client_id,
                resume=packet.resume,
                is_persistent=settings.persistent if settings is not None else None,
                expiry_s=self._expiry(settings) if settings is not None else None,
                initial_will=_to_will(packet.initial_will),
                last_will=_to_will(packet.last_will),
                keeps_wills=packet.resume,
                now=now,
                user=user,
            )
        except RequestRefused as error:
            self._broker.figures.refused_sessions += error.reason == Reason.QUOTA_EXCEEDED
            self._refuse(Reason(error.reason))
            return
        self._session = session
        self._let_in(session)
        if settings is not None and settings.keep_alive_s:
            self._keep_alive_s = float(min(settings.keep_alive_s, self._limits.max_keep_alive_s))
        self._timer = self._broker.timers.at(now + self._keep_alive_s, self._on_keep_alive)
        self._send(ConAck(is_present, Reason.SUCCESS, None if packet.client_id else client_id))
        self._topics = ClientTopics(self._broker, session, self._aliases)
        self._outlets.begin(self.dialect, client_id)
        self._broker.sessions.start(session, self, now)
        if packet.topics is not None:
            self._answer_topics(0, packet.topics, now)

    def _user(self, packet: ConReq) -> str | None:
        if packet.version != VERSION_MOQ_1:
            raise RequestRefused(f"version {packet.version}", Reason.UNSUPPORTED_PROTOCOL_VERSION)
        login = packet.authentication or Authentication()
        if login.method is not None:
            raise RequestRefused(f"authentication method {login.method!r}", Reason.BAD_AUTHENTICATION_METHOD)
        return check_password(self._environment.authenticator, login.user_name, login.password)

    def _on_conend(self, packet: ConEnd, now: float) -> None:
        self._note_end(Reason.SUCCESS)
        self._leave(with_will=packet.reason != Reason.SUCCESS, now=now)
        self._end(Reason.SUCCESS)

    # --- topic requests -------------------------------------------------------------------------------

    def _on_topreq(self, packet: TopReq, now: float) -> None:
        first = packet.requests[0]
        if isinstance(first, Query):
            self._on_query(packet.packet_id, first)
            return
        self._answer_topics(packet.packet_id, packet.requests, now)

    def _answer_topics(self, packet_id: int, requests: list[TopicRequest], now: float) -> None:
        assert self._session is not None
        answer = TopAck(packet_id, bytes(self._topics.answer(request, now) for request in requests))
        self._broker.when_safe(self._session, lambda: self._send(answer))

    def _on_query(self, packet_id: int, request: Query) -> None:
        assert self._session is not None
        topic = self._topics.resolve(request)
        found = topic if isinstance(topic, Reason) else self._broker.subscribers(self._session, topic)
        if isinstance(found, Reason):
            self._send(QueryAck(packet_id, found, []))
        else:
            self._send(QueryAck(packet_id, Reason.SUCCESS, found))

    # --- messages -------------------------------------------------------------------------------------

    def _on_message(self, packet: PubReq, lane_id: int, now: float) -> None:
        if packet.kind or packet.qos == 3:
            self._on_other_pubreq(packet, now)
            return
        session = self._session
        topic = self._topics.published.get(packet.alias) if packet.topic is None else self._topics.named(packet)
        if topic is None:
            self._on_unregistered(packet)
            return
        assert session is not None
        # Only what is acknowledged is retained: a QoS 0 message could be lost before anyone asks for it.
        is_retained = packet.retain and packet.qos > 0
        message = Message(topic, packet.payload, packet.qos, is_retained, session.client_id, received_at=now)
        if packet.extension is not None:
            _extend(message, packet.extension, now)
        self._broker.publish(session, message, packet.packet_id, now)

    def _on_other_pubreq(self, packet: PubReq, now: float) -> None:
        """REQUEST, RESPONSE and QoS 3, which are different things: a request has its answer."""
        assert self._session is not None
        if packet.kind and packet.qos == 3:
            self._send(PubSyn(packet.kind, packet.packet_id, Reason.QOS_NOT_SUPPORTED))
            return
        if packet.kind == Kind.RESPONSE:
            message = self._exchanged("", packet, Kind.RESPONSE, now)
            if packet.extension is not None:
                _extend(message, packet.extension, now)
            self._broker.respond(self._session, message, packet.packet_id, packet.packet_id, now)
            return
        if packet.kind == Kind.REQUEST and packet.topic is None and 0 < packet.alias == self._topics.clock_alias:
            self._broker.tell_time(self._session, self._exchanged(CLOCK, packet, Kind.REQUEST, now), packet.packet_id)
            return
        topic = self._topics.published.get(packet.alias) if packet.topic is None else self._topics.named(packet)
        if topic is None:
            self._on_unregistered(packet)
            return
        if packet.qos == 3:
            self._on_confirmed(packet, self._session, topic, now)
            return
        message = self._exchanged(topic, packet, Kind.REQUEST, now)
        timeout_s = self._limits.request_timeout_s
        if packet.extension is not None:
            _extend(message, packet.extension, now)
            if packet.extension.deadline_ms is not None:
                timeout_s = packet.extension.deadline_ms / 1000
        self._broker.request(self._session, message, packet.packet_id, timeout_s, now)

    def _exchanged(self, topic: str, packet: PubReq, kind: Kind, now: float) -> Message:
        """A REQUEST or RESPONSE."""
        assert self._session is not None
        publisher = self._session.client_id
        return Message(topic, packet.payload, packet.qos, publisher=publisher, kind=kind, received_at=now)

    def _on_confirmed(self, packet: PubReq, session: Session, topic: str, now: float) -> None:
        assert packet.waited is not None
        message = Message(topic, packet.payload, packet.qos, packet.retain, session.client_id, received_at=now)
        wanted = Wanted(packet.waited)
        if packet.extension is not None:
            _extend(message, packet.extension, now)
            deadline_ms = packet.extension.deadline_ms
            wanted = Wanted(
                packet.waited,
                frozenset(packet.extension.subscribers or ()),
                None if deadline_ms is None else deadline_ms / 1000,
            )
        self._broker.publish_confirmed(session, message, packet.packet_id, wanted, now, dup=packet.dup)

    def _on_unregistered(self, packet: PubReq) -> None:
        """Publishing needs a registration: refused where a refusal can be told, else the connection ends."""
        if packet.topic is None and not self._topics.knows(packet.alias):
            raise RemoteProtocolError(
                f"PubReq.alias is {packet.alias}, which names no topic", Reason.TOPIC_ALIAS_INVALID
            )
        reason = self._topics.refusal(packet)
        if packet.qos >= 2:
            assert self._session is not None
            self._broker.refuse(self._session, packet.kind, packet.packet_id, reason)
        elif packet.packet_id:
            self._send(PubAck(packet.kind, packet.packet_id, reason))
        else:
            raise RemoteProtocolError(
                f"topic of PubReq (alias {packet.alias}) cannot be published on: {describe(reason)}", reason
            )

    def _on_pubsyn(self, packet: PubSyn, now: float) -> None:
        assert self._session is not None
        if packet.reason == Reason.RELEASE:
            self._broker.release(self._session, packet.kind, packet.packet_id)
        elif not self._broker.on_received(self._session, packet.kind, packet.packet_id, packet.reason, now):
            raise RemoteProtocolError(f"PubSyn of packet id {packet.packet_id}, which is not of QoS 2")

    def _on_confirmsyn(self, packet: ConfirmSyn, now: float) -> None:
        """A subscriber has a message of QoS 3, and may have something to say to its publisher."""
        assert self._session is not None
        own = packet.confirmations
        if len(own) != 1 or own[0].client_id is not None or own[0].after_ms is not None:
            raise RemoteProtocolError(f"ConfirmSyn of {len(own)} subscribers; one confirms for itself alone")
        packet_id, reason, reply = packet.packet_id, packet.reason, own[0].reply
        if not self._broker.on_received(self._session, Kind.PUBLISH, packet_id, reason, now, reply):
            raise RemoteProtocolError(f"ConfirmSyn of packet id {packet_id}, which is of QoS 1")

    def _on_puback(self, packet: PubAck, now: float) -> None:
        assert self._session is not None
        if packet.reason >= FIRST_REFUSAL:
            # A refusal ends the exchange wherever it stands.
            self._broker.on_received(self._session, packet.kind, packet.packet_id, packet.reason, now)
        elif not self._broker.on_acknowledged(self._session, packet.kind, packet.packet_id, now):
            raise RemoteProtocolError(f"PubAck of packet id {packet.packet_id} at QoS 2 before PubSyn")

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
            answer = TopAck(packet.packet_id, bytes((reason,)))
            self._environment.promises.keep(lambda: self._send(answer))

    # --- the end --------------------------------------------------------------------------------------

    def _on_keep_alive(self, now: float) -> None:
        """Ask a silent client whether it is there; give one that does not answer up after another half interval."""
        heard_at = self._heard_at(now)
        silent_s = now - heard_at
        if silent_s < self._keep_alive_s:
            due = heard_at + self._keep_alive_s
        elif silent_s < self._keep_alive_s * 1.5:
            self._send(ConSyn())
            due = heard_at + self._keep_alive_s * 1.5
        else:
            self._violated(RemoteProtocolError("the client is silent", Reason.KEEP_ALIVE_TIMEOUT), now)
            return
        self._timer = self._broker.timers.at(due, self._on_keep_alive)

    def _say_goodbye(self, reason: Reason, message: str = "") -> None:
        self._send(ConAck(False, reason) if self.state is State.CONNECTING else ConEnd(reason))

    def _forget_outgoing(self, lane: Lane) -> None:
        self._outlets.forget_lane(lane)

    def _refuse(self, reason: Reason) -> None:
        self._note_end(reason)
        self._send(ConAck(False, reason))
        self._end(reason)

    def _leave(self, *, with_will: bool, now: float, keeps_session: bool = False) -> None:
        """Give the session back; a goodbye ends one that is not persistent."""
        session = self._session
        survives = session is not None and (with_will or keeps_session or session.is_persistent)
        self._give_back(
            with_will=with_will, expiry_s=session.expiry_s if session is not None and survives else 0.0, now=now
        )

    def _send(self, packet: Packet) -> None:
        self._link.control.write(encode(packet))

    def _expiry(self, settings: Settings) -> float:
        longest = float(self._limits.max_session_expiry_s)
        if settings.expiry_s is None:
            return longest if settings.persistent else 0.0
        return longest if settings.expiry_s == NEVER_EXPIRES else min(float(settings.expiry_s), longest)


def _said(reason: Reason) -> Reason:
    """MMQP tells a publisher whether its message was taken; who is there to receive it is for QUERY."""
    return Reason.SUCCESS if reason is Reason.NO_MATCHING_SUBSCRIBERS else reason


def _to_will(will: WireWill | None) -> Will | None:
    if will is None:
        return None
    retain = will.retain and will.qos > 0
    return Will(will.topic, will.payload, will.qos, retain, seconds(will.expiry_s), will.delay_s or 0)


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
