"""The words of the core: messages, subscriptions, registrations, wills.

Dialects translate packets into these and back; the core knows nothing else. Numbers whose meaning belongs to a
dialect (a client's alias for a topic, its number for a subscription) are carried and never looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from moq.broker.operators.plan import PERIOD_UNIT_S
from moq.topics import MAX_TOPIC_BYTES

if TYPE_CHECKING:
    from moq.broker.operators import Plan
    from moq.broker.session import Session
    from moq.broker.subscriptions import Group

NEVER: Final = float("inf")


class Kind(IntEnum):
    """What a message is for."""

    PUBLISH = 0
    REQUEST = 1
    RESPONSE = 2


class Mode(IntEnum):
    """How a topic keeps its retained messages, and in which order a new subscriber gets them."""

    OVERRIDE = 0  # the last one only
    FIFO = 1  # all, in the order of arrival
    LIFO = 2  # all, newest first


@dataclass(slots=True)
class Properties:
    """What only some messages carry; passed on in order, not interpreted, except the response topic."""

    timestamp_ns: int | None = None
    group_start: bool = False
    encrypted: bool = False
    type_id: int | None = None
    user: tuple[tuple[str, str], ...] = ()
    content_type: str | None = None
    payload_format: int | None = None
    """0: bytes, 1: UTF-8 text; the dialect has checked it."""
    response_topic: str | None = None
    """Where an answer is to be published. A subscriber to requests gets such a message as a request."""
    correlation_data: bytes | None = None
    """Goes with the answer, so that who asked knows which question it belongs to."""
    waited: int | None = None
    """How many confirmations its publisher waits for."""
    collection: int = 0
    """The number under which they are collected."""


class Message:
    """One message inside the broker, shared by all its recipients: nobody changes it once it is routed.

    A plain slotted class: it is built for every message received, and a dataclass with as many defaults costs
    twice as much. `frame_key` and `frame` belong to whichever dialect encoded the message last: recipients
    that need the same bytes share them. `stored_as` belongs to the store: its number for the message, 0 until it
    has one. QoS 3 is delivered as QoS 2 is, and its confirmations are collected (`confirmations.py`).
    """

    __slots__ = (
        "expires_at",
        "frame",
        "frame_key",
        "kind",
        "payload",
        "properties",
        "publisher",
        "qos",
        "received_at",
        "retain",
        "stored_as",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        publisher: str = "",
        expires_at: float = NEVER,
        properties: Properties | None = None,
        kind: int = Kind.PUBLISH,
        received_at: float = 0.0,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.publisher = publisher
        self.expires_at = expires_at
        self.properties = properties
        self.kind = kind
        self.received_at = received_at
        """When its last bytes were read, on the clock of `now`; 0 if no client sent it to this broker."""
        self.frame_key: object = None
        self.frame = b""
        self.stored_as = 0

    def __repr__(self) -> str:
        return f"Message({self.topic!r}, {len(self.payload)} bytes, qos={self.qos}, kind={self.kind})"


class Run:
    """Messages of QoS 0 that a publisher sent one after the other on one topic, with nothing but their payloads.

    A busy publisher's reads are full of them, and what is done once per run need not be done per message. Like a
    message it carries the bytes of whichever dialect encoded it last.
    """

    __slots__ = ("frame", "frame_key", "payloads", "publisher", "received_at", "size", "topic")

    def __init__(self, topic: str, payloads: list[bytes], publisher: str, received_at: float = 0.0) -> None:
        self.topic = topic
        self.received_at = received_at
        self.payloads = payloads
        self.publisher = publisher
        self.size = sum(map(len, payloads))
        self.frame_key: object = None
        self.frame = b""

    def messages(self) -> list[Message]:
        """The same, one by one."""
        return [
            Message(self.topic, payload, 0, False, self.publisher, received_at=self.received_at)
            for payload in self.payloads
        ]


@dataclass(slots=True)
class Subscription:
    """What one session wants to receive."""

    session: Session
    filter: str
    qos: int = 0
    group: str | None = None
    accepts_requests: bool = False
    no_local: bool = False
    """Not what this very client published."""
    alias: int = 0
    """What its client calls the topic."""
    priority: int = 128
    retain_as_published: bool = False
    """Live messages keep the mark that they were to be retained; otherwise only old ones have it."""
    identifier: int = 0
    """The client's number for this subscription, told with each message that matched it."""
    answers_by_topic: bool = False
    """It can publish to a message's response topic itself: such a message is not made a request for it."""
    period: int = 0
    """At most one message per topic in this time, in units of 10 ms; 0 is no bound."""
    repeats_names: bool = False
    """What operators make of many topics is named after those that took part."""
    plan: Plan | None = None
    """What the operators in front of its filter ask for, once they have been read."""
    is_dormant: bool = False
    """It was recovered and cannot be served: what its operators ask for is not there any more."""

    @property
    def source(self) -> str:
        """The plain filter whose messages it is for, without operators."""
        return self.filter if self.plan is None else self.plan.sources[0]

    @property
    def is_computed(self) -> bool:
        """True if it asks for something made of messages, or for those that satisfy a rule."""
        return self.plan is not None and self.plan.operators != ""

    @property
    def max_name_bytes(self) -> int:
        """How long a topic may be in the dialect of its client: that of clients without response topics is MMQP."""
        return 0xFFFF if self.answers_by_topic else MAX_TOPIC_BYTES

    @property
    def period_s(self) -> float:
        """The longer of the periods asked for beside the filter and in front of it."""
        return max(self.period, self.plan.period or 0 if self.plan is not None else 0) * PERIOD_UNIT_S


class Target:
    """One recipient of one topic's messages: a session and the strongest of its subscriptions that match."""

    __slots__ = (
        "group",
        "identifiers",
        "label",
        "no_local",
        "period_s",
        "priority",
        "qos",
        "retain_as_published",
        "session",
        "subscription",
        "takes_requests",
    )

    def __init__(self, session: Session, subscription: Subscription, group: Group | None = None) -> None:
        self.session = session
        self.subscription = subscription
        self.qos = subscription.qos
        self.no_local = subscription.no_local
        self.priority = subscription.priority
        self.group = group
        self.label = group.key if group is not None else subscription.filter if subscription.is_computed else None
        """Which subscription of the session it is, where it is not all plain ones that match: the store knows it."""
        self.period_s = subscription.period_s
        self.retain_as_published = subscription.retain_as_published
        self.identifiers: tuple[int, ...] = (subscription.identifier,) if subscription.identifier else ()
        self.takes_requests = subscription.accepts_requests and not subscription.answers_by_topic

    def merge(self, subscription: Subscription, topic: str) -> None:
        """Another subscription of the same session matches: one copy for both, at the highest QoS of them.

        An exact subscription names the delivery, because its alias is the one its client chose for the topic.
        """
        self.qos = max(self.qos, subscription.qos)
        self.no_local = self.no_local and subscription.no_local
        self.priority = min(self.priority, subscription.priority)
        # Of two periods the shorter one, and none is the shortest: neither subscription gets less than it asked for.
        self.period_s = min(self.period_s, subscription.period_s)
        self.retain_as_published = self.retain_as_published or subscription.retain_as_published
        self.takes_requests |= subscription.accepts_requests and not subscription.answers_by_topic
        if subscription.identifier:
            self.identifiers += (subscription.identifier,)
        if subscription.filter == topic:
            self.subscription = subscription


@dataclass(slots=True)
class Registration:
    """What one session intends to publish, and how the broker shall keep it."""

    filter: str
    mode: Mode = Mode.OVERRIDE
    expiry_s: int | None = None
    alias: int = 0
    """What its client calls the topic."""


@dataclass(slots=True)
class Will:
    """A message the broker publishes for a client: when it arrives (initial) or when it is lost (last)."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    expiry_s: int | None = None
    delay_s: int = 0
    properties: Properties | None = None


@dataclass(slots=True)
class TopicType:
    """The type of a topic's payloads, as its publisher announced it."""

    format: int
    media_type: str
    schema: bytes
    type_id: int = 0
