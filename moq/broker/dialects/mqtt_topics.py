"""Topics of one MQTT connection: aliases the client set, names it may publish on, and its subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moq.broker.access import Action
from moq.broker.dialects.mqtt_connect import MAX_TOPIC_ALIASES
from moq.broker.dialects.mqtt_outlets import RESPONSE_TOPICS
from moq.broker.message import Subscription
from moq.errors import RemoteProtocolError
from moq.reasons import Reason
from moq.topics import filter_error, has_operators, name_error

if TYPE_CHECKING:
    from moq.broker.core import Broker
    from moq.broker.session import Session
    from moq.wire import mqtt

MAX_KNOWN_NAMES: Final = 10_000
"""Topics a connection remembers having been allowed to publish on."""

SHARED: Final = "$share/"

REQUESTS: Final = ("moq-requests", "1")
"""The user property of a SUBSCRIBE that asks for requests too."""

_SEND_RETAINED_IF_NEW: Final = 1
_SEND_NO_RETAINED: Final = 2


class MQTTTopics:
    """What one connected client publishes on and subscribes to."""

    def __init__(self, broker: Broker, session: Session) -> None:
        self._broker = broker
        self._session = session
        self._access = broker.environment.access
        self._aliases: dict[tuple[int, int], str] = {}  # by lane and alias: lanes overtake each other
        self.allowed: set[str] = set()

    # --- topics of messages ---------------------------------------------------------------------------

    def topic(self, packet: mqtt.Publish, lane_id: int) -> str:
        """The topic of a PUBLISH, by name or by the alias that stands for it; a name with an alias sets that."""
        alias = packet.properties.topic_alias if packet.properties is not None else None
        if alias is None:
            return packet.topic
        if alias > MAX_TOPIC_ALIASES:
            raise RemoteProtocolError(
                f"topic alias is {alias}; at most {MAX_TOPIC_ALIASES} was granted", Reason.TOPIC_ALIAS_INVALID
            )
        if packet.topic:
            self._aliases[lane_id, alias] = packet.topic
            return packet.topic
        topic = self._aliases.get((lane_id, alias))
        if topic is None:
            raise RemoteProtocolError(f"topic alias is {alias}, which was not set on this connection")
        return topic

    def forget_lane(self, lane_id: int) -> None:
        """An incoming lane has ended, and with it what its aliases meant."""
        self._aliases = {key: topic for key, topic in self._aliases.items() if key[0] != lane_id}

    def may_publish(self, topic: str) -> bool:
        """True if the client may publish here; what is not a topic name at all ends the connection."""
        if topic in self.allowed:
            return True
        if (error := name_error(topic)) is not None:
            raise RemoteProtocolError(error, Reason.TOPIC_NAME_INVALID)
        if not self._access.allows(self._session, Action.PUBLISH, topic):
            return False
        if len(self.allowed) >= MAX_KNOWN_NAMES:
            self.allowed.clear()
        self.allowed.add(topic)
        return True

    def judge_again(self) -> None:
        """The rules of access have changed."""
        self.allowed.clear()

    # --- subscriptions --------------------------------------------------------------------------------

    def subscribe(
        self, asked: mqtt.Subscription, properties: mqtt.Properties | None, now: float
    ) -> tuple[Subscription, bool] | Reason:
        """Make a subscription. Returns it and whether retained messages follow, or why it is refused.

        Raises:
            RequestRefused: The same, in words.
        """
        found = parse_filter(asked.filter)
        if found is None:
            return Reason.TOPIC_FILTER_INVALID
        filter_, group = found
        if asked.no_local and group is not None:
            raise RemoteProtocolError(f"no local is set for {asked.filter!r}, which is shared [MQTT-3.8.3-4]")
        identifiers = properties.subscription_identifiers if properties is not None else None
        users = properties.user_properties if properties is not None else None
        is_new = (filter_, group) not in self._session.subscriptions
        subscription = Subscription(
            self._session,
            filter_,
            asked.qos,
            group,
            accepts_requests=REQUESTS in (users or ()),
            no_local=asked.no_local,
            retain_as_published=asked.retain_as_published,
            identifier=identifiers[0] if identifiers else 0,
            answers_by_topic=True,
        )
        reason = self._broker.subscribe(subscription, now, sends_retained=False)
        if reason is not Reason.SUCCESS:
            return reason
        handling = asked.retain_handling
        return subscription, handling != _SEND_NO_RETAINED and (is_new or handling != _SEND_RETAINED_IF_NEW)

    def unsubscribe(self, filter_: str) -> Reason:
        """Undo a subscription."""
        found = parse_filter(filter_)
        return Reason.TOPIC_FILTER_INVALID if found is None else self._broker.unsubscribe(self._session, *found)


def parse_filter(text: str) -> tuple[str, str | None] | None:
    """The filter and, of a shared subscription, the group; None if it is neither [MQTT-4.8.2-1], [MQTT-4.8.2-2]."""
    if not text.startswith(SHARED) and text != SHARED[:-1]:
        return (text, None) if _is_filter(text) else None
    group, _, filter_ = text[len(SHARED) :].partition("/")
    if not group or "+" in group or "#" in group or not _is_filter(filter_):
        return None
    return filter_, group


def _is_filter(text: str) -> bool:
    """True if it can be subscribed to, as far as MQTT can tell: of operators the core knows more."""
    return has_operators(text) or filter_error(text) is None


def request_id(topic: str) -> int | None:
    """The request that a response topic of the broker's making belongs to, or None if it is any other topic."""
    if not topic.startswith(RESPONSE_TOPICS):
        return None
    number = topic[len(RESPONSE_TOPICS) :]
    return int(number) if number.isascii() and number.isdigit() and len(number) <= 5 else None
