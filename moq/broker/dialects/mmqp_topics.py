"""The topics of one MMQP connection: what its aliases mean, what it may publish on, and its topic requests.

An alias is bound by its first mention and keeps its meaning for the connection, because messages under it may be on
their way on any lane. A resumed session brings the aliases of its earlier connections with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.broker.access import Action
from moq.broker.message import Mode, Registration, Subscription
from moq.broker.system import CLOCK
from moq.errors import RemoteProtocolError, RequestRefused
from moq.reasons import Reason
from moq.topics import filter_error, has_wildcard, matches, name_error
from moq.wire import FIRST_BROKER_ALIAS, PubReq, Query, Register, Subscribe, TopicRequest, Unsubscribe
from moq.wire import NEVER as NEVER_EXPIRES

if TYPE_CHECKING:
    from moq.broker.core import Broker
    from moq.broker.session import Session

MAX_KNOWN_NAMES = 10_000
"""Topics published through a wildcard registration that a connection remembers having checked."""


class ClientTopics:
    """What one connected client calls its topics, and what it asked for."""

    def __init__(self, broker: Broker, session: Session, aliases: dict[str, int]) -> None:
        """Begin with what aliases meant on earlier connections, as long as this one does not say otherwise.

        A client that has kept its session may use them; one that has lost it may choose anew. So the broker itself
        sends only under those that this connection has confirmed, which are put into `aliases`.
        """
        self._broker = broker
        self._session = session
        self._aliases = aliases
        self._topics: dict[int, str] = {}  # alias → topic, for both directions
        self._registered: dict[int, str] = {}  # the aliases among them that are registered
        self.published: dict[int, str] = {}  # the aliases among those that the client may publish on
        self._known_names: dict[str, Reason] = {}
        self.clock_alias = 0
        """Under which the client asks what time it is, if it may."""
        for subscription in session.subscriptions.values():
            if subscription.alias:
                self._topics[subscription.alias] = subscription.filter
        for registration in session.registrations.values():
            if registration.alias:
                self._topics[registration.alias] = registration.filter
                self._registered[registration.alias] = registration.filter
        self._remembered = set(self._topics)  # those known from earlier connections of the session only
        self.judge_again()

    def knows(self, alias: int) -> bool:
        """True if the alias has a meaning."""
        return alias in self._topics

    def judge_again(self) -> None:
        """The rules of access have changed, or the session is from a time when they were others."""
        allows = self._broker.environment.access.allows
        self._known_names.clear()
        self.published = {
            alias: topic for alias, topic in self._registered.items() if allows(self._session, Action.PUBLISH, topic)
        }

    # --- topic requests -------------------------------------------------------------------------------

    def answer(self, request: TopicRequest, now: float) -> Reason:
        """Do what a topic request asks for, and say how it went."""
        topic = self.resolve(request)
        if isinstance(topic, Reason):
            return topic
        match request:
            case Subscribe():
                return self._subscribe(request, topic, now)
            case Register() if topic == CLOCK:
                return self._register_clock(request)
            case Register():
                return self._register(request, topic)
            case Unsubscribe():
                return self._unsubscribe(request, topic)
            case Query():
                return Reason.PROTOCOL_ERROR  # it needs a QUERY answer of its own: it stands alone in a TOPREQ

    def resolve(self, request: TopicRequest) -> str | Reason:
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

    def _bind(self, alias: int, topic: str) -> None:
        if alias in self._remembered:
            self._remembered.discard(alias)
            if self._topics[alias] != topic:
                self._registered.pop(alias, None)
                self.published.pop(alias, None)
        self._topics[alias] = topic
        self._aliases.setdefault(topic, alias)

    def _subscribe(self, request: Subscribe, topic: str, now: float) -> Reason:
        extension = request.extension
        if extension is not None and extension.deadline:
            return Reason.IMPLEMENTATION_SPECIFIC_ERROR
        subscription = Subscription(
            self._session,
            topic,
            request.qos,
            request.group,
            request.accepts_requests,
            alias=request.alias,
        )
        if extension is not None:
            subscription.period = extension.period or 0
            subscription.repeats_names = extension.repeat_name
            if extension.priority is not None:
                subscription.priority = extension.priority
        try:
            reason = self._broker.subscribe(subscription, now)
        except RequestRefused as error:
            reason = Reason(error.reason)
        self._broker.figures.refused_subscriptions += reason is Reason.QUOTA_EXCEEDED
        return reason

    def _register(self, request: Register, topic: str) -> Reason:
        registration = Registration(topic, Mode(request.mode), seconds(request.expiry_s), request.alias)
        reason = self._broker.register(self._session, registration)
        self._broker.figures.refused_registrations += reason is Reason.QUOTA_EXCEEDED
        if reason is Reason.SUCCESS:
            self._known_names.clear()
            if request.alias:
                self._registered[request.alias] = self.published[request.alias] = topic
        return reason

    def _register_clock(self, request: Register) -> Reason:
        """Let the client ask the broker for the time; that is to read one of its topics, and to publish on none."""
        environment = self._broker.environment
        if environment.wall_clock is None or not environment.access.allows(self._session, Action.SUBSCRIBE, CLOCK):
            return Reason.NOT_AUTHORIZED
        self.clock_alias = request.alias
        return Reason.SUCCESS

    def _unsubscribe(self, request: Unsubscribe, topic: str) -> Reason:
        if request.registration:
            self._known_names.clear()
            self._registered = {alias: name for alias, name in self._registered.items() if name != topic}
            self.published = {alias: name for alias, name in self.published.items() if name != topic}
            return self._broker.unregister(self._session, topic)
        groups = [group for filter_, group in self._session.subscriptions if filter_ == topic]
        for group in groups:
            self._broker.unsubscribe(self._session, topic, group)
        return Reason.SUCCESS if groups else Reason.NO_SUBSCRIPTION_EXISTED

    # --- topics of messages ---------------------------------------------------------------------------

    def named(self, packet: PubReq) -> str | None:
        """The topic of a PUBREQ that spells it out: one that a wildcard registration covers."""
        topic = packet.topic
        assert topic is not None
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

    def refusal(self, packet: PubReq) -> Reason:
        """Why a message may not be published on its topic."""
        if packet.topic is None:
            return Reason.NOT_AUTHORIZED if packet.alias in self._registered else Reason.TOPIC_NOT_REGISTERED
        return self._known_names.get(packet.topic, Reason.TOPIC_NOT_REGISTERED)

    def _check_name(self, topic: str) -> Reason:
        for registration in self._session.registrations.values():
            if matches(registration.filter, topic):
                return self._broker.adopt(self._session, topic, registration)
        return Reason.TOPIC_NOT_REGISTERED


def seconds(expiry_s: int | None) -> int | None:
    """An expiry of the wire in the core's words, where None is never."""
    return None if expiry_s == NEVER_EXPIRES else expiry_s
