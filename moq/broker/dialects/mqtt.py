"""MQTT 3.1.1 and 5 on one connection: packets into the core's words and the core's words into packets.

Which version it is, CONNECT says. MQTT 5 tells a client why; 3.1.1 can only close. What CONNECT agrees on is in
`mqtt_connect.py`, logins in `mqtt_login.py`, topics and subscriptions in `mqtt_topics.py`, how messages leave in
`mqtt_outlets.py`, everything else that leaves in `mqtt_replies.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moq.broker.dialects.connection import DialectConnection, State
from moq.broker.dialects.mqtt_confirmations import reply_of, wanted_of
from moq.broker.dialects.mqtt_connect import CONNACK_REASONS, RETURN_CODES, Terms, agree, bounded_expiry, granted
from moq.broker.dialects.mqtt_login import Login
from moq.broker.dialects.mqtt_outlets import MQTTOutlets
from moq.broker.dialects.mqtt_properties import from_wire, is_text
from moq.broker.dialects.mqtt_replies import PUBACK, PUBCOMP, PUBREC, Replies, explained, told
from moq.broker.dialects.mqtt_topics import MQTTTopics, parse_filter, request_id
from moq.broker.dialects.traced_outlets import TracedMQTTOutlets
from moq.broker.link import CONTROL
from moq.broker.message import Kind, Message
from moq.errors import RemoteProtocolError, RequestRefused
from moq.reasons import FIRST_REFUSAL, Reason
from moq.topics import has_wildcard
from moq.wire import mqtt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from moq.broker.confirmations import Outcome, Wanted
    from moq.broker.core import Broker
    from moq.broker.link import Lane, Link
    from moq.broker.message import Subscription, Target
    from moq.broker.session import Session

DIALECTS: Final = {mqtt.VERSION_3_1_1: "mqtt3", mqtt.VERSION_5: "mqtt5"}
"""How versions are called in metrics; before CONNECT it is just MQTT."""

MAX_WORDS: Final = 2_000
"""Characters of a reason string: a packet may ask for thousands of subscriptions, each refused with a sentence."""


class MQTTConnection(DialectConnection["mqtt.Packet | mqtt.PayloadStarted", mqtt.Publish]):
    """One MQTT client, connected."""

    def __init__(self, broker: Broker, link: Link, new_client_id: Callable[[], str], now: float) -> None:
        super().__init__(broker, link, new_client_id, now)
        self._version = 0
        self._connect: mqtt.Connect | None = None
        self._login: Login | None = None
        self._terms: Terms  # from CONNECT on
        self._topics: MQTTTopics  # from CONNACK on
        self._expiry_s = 0.0
        self._traffic = broker.figures.traffic.of(link.transport, self.dialect)
        outlets = MQTTOutlets if broker.environment.tracer is None else TracedMQTTOutlets
        self._outlets = outlets(link, broker.environment)
        self.send_message = self._outlets.send  # type: ignore[method-assign]
        self._replies = Replies(link)

    # --- Peer: what the core asks for -----------------------------------------------------------------

    def acknowledge(self, kind: int, packet_id: int, reason: Reason) -> None:
        """See `Peer`."""
        if self._must_not_acknowledge(reason):
            self.close(reason)
        else:
            self._replies.end(PUBACK, packet_id, reason)

    def confirm_received(self, kind: int, packet_id: int, reason: Reason) -> None:
        """See `Peer`."""
        if self._must_not_acknowledge(reason):
            self.close(reason)
        elif reason >= FIRST_REFUSAL:
            self._replies.end(PUBREC, packet_id, reason)
        else:
            self._replies.go_on(PUBREC, packet_id, reason)

    def _must_not_acknowledge(self, reason: Reason) -> bool:
        """3.1.1 has no word for "not now", and an acknowledgement would say the opposite: the client is to retry."""
        return reason is Reason.QUOTA_EXCEEDED and self._version == mqtt.VERSION_3_1_1

    def confirm(self, packet_id: int, qos: int, outcome: Outcome) -> None:
        """See `Peer`. What waits for the subscribers is the first packet that answers PUBLISH, as in E-MQTT."""
        if qos == 1:
            self._replies.end(PUBACK, packet_id, Reason.SUCCESS, outcome)
        else:
            self._replies.go_on(PUBREC, packet_id, Reason.SUCCESS, outcome)

    def confirm_completed(self, kind: int, packet_id: int, reason: Reason, outcome: Outcome | None = None) -> None:
        """See `Peer`. The outcome is said again: many libraries show their users the last packet only."""
        self._replies.end(PUBCOMP, packet_id, reason, outcome)

    def release(self, kind: int, packet_id: int) -> None:
        """See `Peer`."""
        if kind == Kind.REQUEST:
            self._outlets.request_ids.add(packet_id)
        self._replies.release(packet_id)

    def ask_type(self, query_id: int, topic: str) -> None:
        """See `Peer`. MQTT has no words for it: the question ends at its deadline."""

    # --- packets --------------------------------------------------------------------------------------

    @property
    def dialect(self) -> str:
        """See `DialectConnection`."""
        return DIALECTS.get(self._version, "mqtt")

    def lane_of(self, topic: str, target: Target | None) -> Lane | None:
        """See `DialectConnection`."""
        return self._outlets.lane_of(target)

    def _new_reader(self) -> mqtt.MQTTFrameReader:
        return mqtt.MQTTFrameReader(self._limits.max_packet_bytes, version=self._version)

    def _take(self, items: Iterable[mqtt.Item], lane_id: int, now: float) -> None:
        for item in items:
            if item.__class__ is mqtt.Publish and self.state is State.OPEN:
                self._on_message(item, lane_id, now)
            elif self.state is State.CLOSED:
                return
            elif self.state is State.CONNECTING:
                self._on_first_packet(item, lane_id, now)
            else:
                self._on_packet(item, lane_id, now)

    def _is_message(self, item: object) -> bool:
        return isinstance(item, mqtt.Publish | mqtt.PayloadStarted)

    def _is_droppable(self, item: object) -> bool:
        # One with an alias may be what later ones go by.
        return (
            isinstance(item, mqtt.Publish)
            and not (item.qos or item.retain)
            and (item.properties is None or item.properties.topic_alias is None)
        )

    def _on_first_packet(self, item: mqtt.Item, lane_id: int, now: float) -> None:
        match item:
            case mqtt.Connect() if self._connect is None and lane_id == CONTROL:
                self._on_connect(item, now)
            case mqtt.Auth() if self._connect is not None:
                self._on_auth(item, now)
            case mqtt.Disconnect() if self._connect is not None:
                self._note_end(Reason.SUCCESS)
                self._leave(with_will=False, now=now)
                self._end(Reason.SUCCESS)
            case _:
                raise RemoteProtocolError(f"{type(item).__name__} on lane {lane_id} before the connection is accepted")

    def _on_packet(self, item: mqtt.Item, lane_id: int, now: float) -> None:
        match item:
            case mqtt.PayloadStarted():
                self._on_payload_started(item.packet, item.size, lane_id)
            case mqtt.PayloadChunk():
                self._on_payload_chunk(item, lane_id)
            case mqtt.PayloadEnded():
                self._on_payload_ended(lane_id, now)
            case mqtt.PubAck():
                self._on_puback(item, now)
            case mqtt.PubRec():
                self._on_pubrec(item, lane_id, now)
            case mqtt.PubRel():
                self._on_pubrel(item, lane_id)
            case mqtt.PubComp():
                self._on_pubcomp(item, now)
            case mqtt.Subscribe():
                self._on_subscribe(item, lane_id, now)
            case mqtt.Unsubscribe():
                self._on_unsubscribe(item, lane_id)
            case mqtt.PingReq():
                self._replies.send(mqtt.PingResp(), lane_id)
            case mqtt.Disconnect() if lane_id == CONTROL:
                self._on_disconnect(item, now)
            case mqtt.Auth() if lane_id == CONTROL:
                self._on_auth(item, now)
            case _:
                raise RemoteProtocolError(f"{type(item).__name__} on lane {lane_id} is not for a client to send now")

    # --- connecting -----------------------------------------------------------------------------------

    def _on_connect(self, packet: mqtt.Connect, now: float) -> None:
        self._connect = packet
        self._version = self._outlets.version = self._replies.version = packet.version
        self._traffic = self._outlets.traffic = self._broker.figures.traffic.of(self._link.transport, self.dialect)
        try:
            self._terms = terms = agree(packet, self._limits, self._new_client_id)
            self._outlets.max_packet_bytes = self._replies.max_packet_bytes = terms.max_packet_bytes
            self._replies.receive_maximum = terms.receive_maximum
            self._replies.wants_reasons = terms.wants_reasons
            self._login = Login(self._environment.authenticator, packet)
            self._proceed(now)
        except RequestRefused as error:
            self._refuse(error)

    def _on_auth(self, packet: mqtt.Auth, now: float) -> None:
        if self._login is None or self._login.method is None:
            raise RemoteProtocolError("Auth on a connection whose Connect named no authentication method")
        try:
            self._login.take(packet, is_open=self.state is State.OPEN)
            self._proceed(now)
        except RequestRefused as error:
            if self.state is State.CONNECTING:
                self._refuse(error)
            else:
                raise RemoteProtocolError(str(error), Reason(error.reason)) from None

    def _proceed(self, now: float) -> None:
        """Go on with the login: ask for its next step, or let the client in."""
        assert self._login is not None
        if not self._login.is_complete:
            self._replies.send(mqtt.Auth(Reason.CONTINUE_AUTHENTICATION, self._login.properties()))
        elif self.state is State.CONNECTING:
            self._accept(now)
        else:
            self._replies.send(mqtt.Auth(Reason.SUCCESS, self._login.properties()))

    def _accept(self, now: float) -> None:
        packet, terms, login = self._connect, self._terms, self._login
        assert packet is not None
        assert login is not None
        sessions = self._broker.sessions
        resumes = terms.resume and sessions.get(terms.client_id) is not None
        session, is_present = sessions.connect(
            terms.client_id,
            resume=terms.resume,
            is_persistent=None if resumes else terms.expiry_s > 0,
            expiry_s=terms.expiry_s,
            initial_will=None,
            last_will=terms.will,
            now=now,
            user=login.user,
        )
        self._session = session
        self._topics = MQTTTopics(self._broker, session)
        self._expiry_s = terms.expiry_s
        self._let_in(session)
        if terms.keep_alive_s:
            self._timer = self._broker.timers.at(now + terms.keep_alive_s * 1.5, self._on_keep_alive)
        properties = granted(packet, terms, self._limits)
        if properties is not None and login.method is not None:
            login.tell(properties)
        self._replies.send(mqtt.ConnAck(is_present, Reason.SUCCESS, properties))
        self._outlets.alias_maximum = terms.alias_maximum
        self._outlets.begin(self.dialect, terms.client_id)
        sessions.start(session, self, now, terms.window)

    def _refuse(self, error: RequestRefused) -> None:
        self._note_end(Reason(error.reason))
        self._broker.figures.refused_sessions += error.reason == Reason.QUOTA_EXCEEDED
        self._say_goodbye(Reason(error.reason), str(error))
        self._end(Reason(error.reason), str(error))

    # --- messages of the client -----------------------------------------------------------------------

    def _on_message(self, packet: mqtt.Publish, lane_id: int, now: float) -> None:
        session = self._session
        assert session is not None
        if packet.qos or packet.properties is not None:
            self._on_full_message(packet, session, lane_id, now)
        elif packet.topic in self._topics.allowed or self._topics.may_publish(packet.topic):
            message = Message(packet.topic, packet.payload, 0, packet.retain, session.client_id, received_at=now)
            self._broker.publish(session, message, 0, now)
        else:
            self._on_forbidden(packet, session, packet.topic, now)

    def _on_full_message(self, packet: mqtt.Publish, session: Session, lane_id: int, now: float) -> None:
        """A PUBLISH that is acknowledged, or has properties."""
        topic = self._topics.topic(packet, lane_id)
        if packet.qos:
            self._replies.begin(packet.packet_id, lane_id)
        message = Message(topic, packet.payload, packet.qos, packet.retain, session.client_id, received_at=now)
        properties = packet.properties
        wanted: Wanted | None = None
        if properties is not None:
            _check(properties)
            message.properties = from_wire(properties)
            if properties.message_expiry_interval is not None:
                message.expires_at = now + properties.message_expiry_interval
            if properties.payload_format_indicator and not is_text(packet.payload):
                self._refuse_message(packet, session, Reason.PAYLOAD_FORMAT_INVALID)
                return
            try:
                wanted = self._wanted(packet.qos, properties)
            except RequestRefused as error:
                self._refuse_message(packet, session, Reason(error.reason))
                return
        if wanted is not None and self._topics.may_publish(topic):
            message.qos = 1 if packet.qos == 1 else 3
            self._broker.publish_confirmed(session, message, packet.packet_id, wanted, now, dup=packet.dup)
        elif self._topics.may_publish(topic):
            self._broker.publish(session, message, packet.packet_id, now)
        elif (request := request_id(topic)) is not None:
            self._broker.respond(session, message, packet.packet_id, request, now)
        else:
            self._refuse_message(packet, session, Reason.NOT_AUTHORIZED)

    def _wanted(self, qos: int, properties: mqtt.Properties) -> Wanted | None:
        """The confirmations a PUBLISH asks for; one that is not acknowledged can be told none."""
        wanted = wanted_of(properties) if qos else None
        if wanted is not None and not self._replies.wants_reasons:
            # Only PUBLISH may bring it user properties [MQTT-3.1.2-29].
            raise RequestRefused("moq-confirm without problem information", Reason.IMPLEMENTATION_SPECIFIC_ERROR)
        return wanted

    def _on_forbidden(self, packet: mqtt.Publish, session: Session, topic: str, now: float) -> None:
        """QoS 0 where the client may not publish: a response, or dropped because no refusal can be told."""
        if (request := request_id(topic)) is not None:
            message = Message(topic, packet.payload, publisher=session.client_id, received_at=now)
            self._broker.respond(session, message, 0, request, now)
        else:
            self._refuse_message(packet, session, Reason.NOT_AUTHORIZED)

    def _refuse_message(self, packet: mqtt.Publish, session: Session, reason: Reason) -> None:
        if reason is Reason.NOT_AUTHORIZED and (not packet.qos or self._version == mqtt.VERSION_3_1_1):
            # Nothing tells the client: 3.1.1 acknowledges what it does not take, too.
            self._broker.figures.dropped_not_authorized += 1
        if packet.qos == 2:
            self._broker.refuse(session, Kind.PUBLISH, packet.packet_id, reason)
        elif packet.qos:
            self.acknowledge(Kind.PUBLISH, packet.packet_id, reason)
        elif reason is not Reason.NOT_AUTHORIZED:
            raise RemoteProtocolError("Publish.payload is not UTF-8, as its payload format says", reason)

    def _on_pubrel(self, packet: mqtt.PubRel, lane_id: int) -> None:
        assert self._session is not None
        self._replies.begin(packet.packet_id, lane_id)
        self._broker.release(self._session, Kind.PUBLISH, packet.packet_id)

    # --- answers of the client ------------------------------------------------------------------------

    def _on_puback(self, packet: mqtt.PubAck, now: float) -> None:
        self._on_end(packet.packet_id, packet.reason, "PubAck", now, reply_of(packet.properties))

    def _on_pubcomp(self, packet: mqtt.PubComp, now: float) -> None:
        # Whatever its reason, PUBCOMP ends the exchange: 0x92 says that the client had ended it before.
        self._on_end(packet.packet_id, Reason.SUCCESS, "PubComp", now)

    def _on_end(self, packet_id: int, reason: int, what: str, now: float, reply: bytes | None = None) -> None:
        assert self._session is not None
        self._replies.note_ended(packet_id)
        kind = self._kind(packet_id)
        self._outlets.request_ids.discard(packet_id)
        if reason >= FIRST_REFUSAL:
            self._broker.on_received(self._session, kind, packet_id, reason, now)
        elif not self._broker.on_acknowledged(self._session, kind, packet_id, now, reply):
            raise RemoteProtocolError(f"{what} of packet identifier {packet_id}, which is of QoS 2 and not received")

    def _on_pubrec(self, packet: mqtt.PubRec, lane_id: int, now: float) -> None:
        assert self._session is not None
        packet_id = packet.packet_id
        self._replies.note_received(packet_id, lane_id)
        kind = self._kind(packet_id)
        if packet.reason >= FIRST_REFUSAL:
            self._outlets.request_ids.discard(packet_id)
        reply = reply_of(packet.properties)
        if not self._broker.on_received(self._session, kind, packet_id, packet.reason, now, reply):
            raise RemoteProtocolError(f"PubRec of packet identifier {packet_id}, which is not of QoS 2")

    def _kind(self, packet_id: int) -> Kind:
        return Kind.REQUEST if packet_id in self._outlets.request_ids else Kind.PUBLISH

    # --- subscriptions --------------------------------------------------------------------------------

    def _on_subscribe(self, packet: mqtt.Subscribe, lane_id: int, now: float) -> None:
        reasons = bytearray()
        replayed = []
        words: list[str] = []
        for asked in packet.subscriptions:
            try:
                made = self._topics.subscribe(asked, packet.properties, now)
            except RequestRefused as error:
                made = Reason(error.reason)
                words.append(str(error))
            if isinstance(made, Reason):
                self._broker.figures.refused_subscriptions += made is Reason.QUOTA_EXCEEDED
                reasons.append(made if self._version == mqtt.VERSION_5 else Reason.UNSPECIFIED_ERROR)
                continue
            subscription, sends_retained = made
            reasons.append(subscription.qos)
            self._outlets.lanes.pop((subscription.filter, subscription.group), None)
            if lane_id != CONTROL:
                self._outlets.lanes[subscription.filter, subscription.group] = lane_id
            if sends_retained:
                replayed.append(subscription)
        assert self._session is not None
        answer = mqtt.SubAck(packet.packet_id, self._explained(words), bytes(reasons))
        self._broker.when_safe(self._session, lambda: self._answer_subscribe(answer, lane_id, replayed))

    def _answer_subscribe(self, answer: mqtt.SubAck, lane_id: int, replayed: list[Subscription]) -> None:
        if self.state is State.OPEN:
            self._replies.send(answer, lane_id)
            for subscription in replayed:
                self._broker.send_retained(subscription, self._environment.now)

    def _explained(self, words: list[str]) -> mqtt.Properties | None:
        """Why subscriptions of one packet were refused, where the client is to be told [MQTT-3.1.2-29]."""
        is_told = self._version == mqtt.VERSION_5 and self._replies.wants_reasons
        return explained("; ".join(words)[:MAX_WORDS]) if is_told else None

    def _on_unsubscribe(self, packet: mqtt.Unsubscribe, lane_id: int) -> None:
        reasons = bytes(self._topics.unsubscribe(filter_) for filter_ in packet.filters)
        for filter_ in packet.filters:
            if (found := parse_filter(filter_)) is not None:
                self._outlets.lanes.pop(found, None)
        is_5 = self._version == mqtt.VERSION_5
        assert self._session is not None
        answer = mqtt.UnsubAck(packet.packet_id, None, reasons if is_5 else b"")
        self._broker.when_safe(self._session, lambda: self._replies.send(answer, lane_id))

    # --- the end --------------------------------------------------------------------------------------

    def lane_finished(self, lane_id: int, now: float) -> None:
        """The client ended a lane; answers and messages still go back on it while a subscription is bound to it."""
        super().lane_finished(lane_id, now)
        if self.state is State.OPEN and lane_id != CONTROL:
            self._topics.forget_lane(lane_id)
            if lane_id not in self._outlets.lanes.values():
                self._link.reply_lane(lane_id).finish()

    def _on_disconnect(self, packet: mqtt.Disconnect, now: float) -> None:
        asked = packet.properties.session_expiry_interval if packet.properties is not None else None
        if asked is not None:
            if asked and not self._expiry_s:
                raise RemoteProtocolError(f"session expiry is {asked} in Disconnect and was 0 in Connect (3.14.2.2.2)")
            self._expiry_s = bounded_expiry(asked, self._limits)
        self._note_end(Reason.SUCCESS)
        self._leave(with_will=packet.reason != Reason.SUCCESS, now=now)
        self._end(Reason.SUCCESS)

    def _on_keep_alive(self, now: float) -> None:
        """Give up a client that was silent for one and a half of its keep-alive [MQTT-3.1.2-22]."""
        due = self._heard_at(now) + self._terms.keep_alive_s * 1.5
        if now < due:
            self._timer = self._broker.timers.at(due, self._on_keep_alive)
        else:
            self._violated(RemoteProtocolError("the client is silent", Reason.KEEP_ALIVE_TIMEOUT), now)

    def _leave(self, *, with_will: bool, now: float, keeps_session: bool = False) -> None:
        # A broker that stops loses its clients: their wills are for that too.
        self._give_back(with_will=with_will or keeps_session, expiry_s=self._expiry_s, now=now)

    def _say_goodbye(self, reason: Reason, message: str = "") -> None:
        version = self._version or self._heard_version()
        if self.state is State.CONNECTING:
            self._say_refused(reason, message, version)
        elif version == mqtt.VERSION_5:
            self._replies.send(mqtt.Disconnect(told(reason), explained(message)))

    def _say_where_to(self, server_reference: str) -> None:
        if not server_reference or (self._version or self._heard_version()) != mqtt.VERSION_5:
            self._say_goodbye(Reason.SERVER_SHUTTING_DOWN)
            return
        where = mqtt.Properties(server_reference=server_reference)
        self._replies.version = mqtt.VERSION_5
        if self.state is State.CONNECTING:
            self._replies.send(mqtt.ConnAck(False, Reason.USE_ANOTHER_SERVER, where))
        else:
            self._replies.send(mqtt.Disconnect(Reason.USE_ANOTHER_SERVER, where))

    def _say_refused(self, reason: Reason, message: str, version: int) -> None:
        if version == mqtt.VERSION_5:
            reason = CONNACK_REASONS.get(reason, reason)
            self._replies.version = version
            self._replies.send(mqtt.ConnAck(False, reason, explained(message)))
        elif reason is Reason.UNSUPPORTED_PROTOCOL_VERSION or (version and reason in RETURN_CODES):
            self._replies.send(mqtt.ConnAck(False, RETURN_CODES[reason]))

    def _heard_version(self) -> int:
        """The version that a CONNECT which broke the protocol asked for."""
        reader = self._readers.get(CONTROL)
        return reader.version if isinstance(reader, mqtt.MQTTFrameReader) else 0

    def is_awaited(self, lane_id: int) -> bool:
        """See `Slowable`. Acknowledgements come on the lane of their message."""
        return super().is_awaited(CONTROL)

    def _answers(self, lane_id: int) -> Lane:
        return self._replies.lane(lane_id)


def _check(properties: mqtt.Properties) -> None:
    """Refuse what a client may not say in PUBLISH."""
    if properties.subscription_identifiers:
        raise RemoteProtocolError("Publish has subscription identifiers; a client sends none [MQTT-3.3.4-6]")
    topic = properties.response_topic
    if topic is not None and (not topic or has_wildcard(topic)):
        raise RemoteProtocolError(f"response topic is {topic!r}; it is a topic name [MQTT-3.3.2-14]")
