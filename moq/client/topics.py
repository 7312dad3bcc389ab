"""The topics of one session: the alias of each, and whether the broker knows that we publish there.

An alias names a topic for as long as the session lives and is never given to another topic: a message still on
its way when a subscription ends can then not be taken for one of something else. When all 32,767 are given out,
further topics are published under a registration of `#`, with the name in every PUBREQ.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING

from moq.topics import has_wildcard, matches
from moq.wire.mmqp import FIRST_BROKER_ALIAS, RetentionMode

if TYPE_CHECKING:
    from moq.broker.link import Lane
    from moq.client.pending import Exchange, Operation


class Registration(Enum):
    """What the broker on this connection knows of our intent to publish."""

    UNKNOWN = auto()
    ASKED = auto()
    GRANTED = auto()


class Topic:
    """One topic, or the filter of a wildcard registration."""

    __slots__ = (
        "alias",
        "expiry_s",
        "is_explicit",
        "lane",
        "mode",
        "name",
        "operation",
        "registration",
        "sends_requests",
        "waiting",
        "wants_requests",
    )

    def __init__(self, name: str, alias: int) -> None:
        self.name = name
        self.alias = alias  # 0: none; the name travels with every packet
        self.mode = RetentionMode.OVERRIDE
        self.expiry_s: int | None = None
        self.sends_requests = False  # the registration granted says so
        self.wants_requests = False  # the next one will
        self.is_explicit = False  # registered by the program, not by its first message: restored on every connection
        self.registration = Registration.UNKNOWN
        self.operation: Operation | None = None  # the REGISTER on its way
        self.waiting: deque[Exchange] = deque()
        self.lane: Lane | None = None

    def forget_connection(self) -> None:
        """The link is gone: what its broker knew must be said again."""
        self.registration = Registration.UNKNOWN
        self.sends_requests = False
        self.lane = None


class TopicTable:
    """Every topic this session has published on, registered or subscribed to by its exact name."""

    def __init__(self, aliases: int = FIRST_BROKER_ALIAS - 1) -> None:
        self._aliases = aliases
        self._topics: dict[str, Topic] = {}
        self._names: dict[int, str] = {}
        self._wildcards: list[Topic] = []

    def all(self) -> list[Topic]:
        """Every topic, in the order of first use."""
        return list(self._topics.values())

    def find(self, name: str) -> Topic:
        """The topic of this name, with an alias of its own while there are any; wildcards have none."""
        topic = self._topics.get(name)
        if topic is None:
            is_wildcard = has_wildcard(name)
            alias = 0 if is_wildcard or len(self._names) >= self._aliases else len(self._names) + 1
            topic = self._topics[name] = Topic(name, alias)
            if alias:
                self._names[alias] = name
        return topic

    def name(self, alias: int) -> str | None:
        """The topic this alias names, if it is one of ours."""
        return self._names.get(alias)

    def add_wildcard(self, topic: Topic) -> None:
        """Topics that match it and are not registered themselves are published under it from now on."""
        if topic not in self._wildcards:
            self._wildcards.append(topic)

    def remove_wildcard(self, topic: Topic) -> None:
        """The registration was refused or dropped."""
        if topic in self._wildcards:
            self._wildcards.remove(topic)

    def registrar(self, topic: Topic) -> Topic:
        """The topic whose registration allows publishing on this one: itself, or a wildcard's."""
        if topic.is_explicit or topic.registration is not Registration.UNKNOWN:
            return topic
        for wildcard in self._wildcards:
            if matches(wildcard.name, topic.name):
                return wildcard
        if topic.alias == 0:
            fallback = self.find("#")
            fallback.is_explicit = True
            self.add_wildcard(fallback)
            return fallback
        return topic
