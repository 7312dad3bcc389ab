"""What a topic remembers: its retained messages, how it keeps them, and its type.

Topics are found by name through a dictionary and by filter through a trie of names, so that a wildcard
subscription visits the topics it matches and not all there are.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from moq.broker.message import NEVER, Message, Mode, TopicType
from moq.broker.records import message_from, message_record
from moq.broker.store import Table, TopicRecord
from moq.topics import matches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from moq.broker.environment import Environment
    from moq.broker.timers import Timer


class Topic:
    """One topic name the broker knows."""

    __slots__ = ("expiry_s", "mode", "name", "next_number", "publishers", "retained", "sweep", "type")

    def __init__(self, name: str) -> None:
        self.name = name
        self.mode = Mode.OVERRIDE
        self.expiry_s: int | None = None
        self.type: TopicType | None = None
        self.publishers: set[str] = set()
        """Client ids of the sessions that registered this very name."""
        self.retained: deque[tuple[int, Message]] = deque()
        self.next_number = 0
        self.sweep: Timer | None = None
        """Set while a retained message will expire."""

    @property
    def is_forgettable(self) -> bool:
        """True if nothing would be lost by not knowing this topic."""
        return not (self.publishers or self.retained or self.type)

    @property
    def is_only_typed(self) -> bool:
        """True if all that would be lost is what an absent publisher once said of it."""
        return self.type is not None and not (self.publishers or self.retained)


class _Node:
    __slots__ = ("children", "topic")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.topic: Topic | None = None


class Topics:
    """Every topic name the broker knows, at most `max_topics` of them."""

    def __init__(self, environment: Environment) -> None:
        self._store = environment.store
        self._limits = environment.limits
        self._epoch = environment.epoch
        self._figures = environment.figures
        self._timers = environment.timers
        self._topics: dict[str, Topic] = {}
        self._root = _Node()
        self._only_typed: dict[str, Topic] = {}
        """Topics that may have to make room for others, those left by their publishers longest ago first."""
        self.retained_count = 0
        self.retained_bytes = 0

    def __len__(self) -> int:
        return len(self._topics)

    def get(self, name: str) -> Topic | None:
        """The topic of this name, if it is known."""
        return self._topics.get(name)

    def know(self, name: str) -> Topic | None:
        """The topic of this name, made if need be; None if there are too many."""
        topic = self._topics.get(name)
        if topic is None and (len(self._topics) < self._limits.max_topics or self._make_room()):
            topic = self._topics[name] = Topic(name)
            node = self._root
            for level in name.split("/"):
                node = node.children.setdefault(level, _Node())
            node.topic = topic
        return topic

    def forget_if_idle(self, topic: Topic) -> None:
        """Drop a topic that nothing refers to, and the branches that led to it alone."""
        if topic.is_only_typed:
            self._only_typed[topic.name] = topic
        if not topic.is_forgettable or self._topics.pop(topic.name, None) is None:
            return
        if topic.sweep is not None:
            topic.sweep.cancel()
        if _is_kept(topic.name):
            self._store.delete(Table.TOPIC, topic.name)
        levels = topic.name.split("/")
        path = [self._root]
        for level in levels:
            path.append(path[-1].children[level])
        path[-1].topic = None
        for level, parent, child in zip(reversed(levels), reversed(path[:-1]), reversed(path[1:]), strict=True):
            if child.children or child.topic is not None:
                break
            del parent.children[level]

    def _make_room(self) -> bool:
        """Forget the type of a topic nobody publishes on any more; False if there is none."""
        while self._only_typed:
            topic = self._only_typed.pop(next(iter(self._only_typed)))
            if topic.is_only_typed and topic.name in self._topics:
                topic.type = None
                self.forget_if_idle(topic)
                return True
        return False

    def forget_idle(self) -> None:
        """Drop every topic that nothing refers to: a broker that crashed had no time for it."""
        for topic in list(self._topics.values()):
            self.forget_if_idle(topic)

    def matching(self, filter_: str) -> list[Topic]:
        """The topics a filter matches, in no particular order."""
        return [topic for topic in self._walk(filter_) if matches(filter_, topic.name)]

    def _walk(self, filter_: str) -> Iterator[Topic]:
        """A superset of the matching topics: `$` names are left to `matches`."""
        nodes = [self._root]
        for level in filter_.split("/"):
            if level == "#":
                yield from _below(nodes)
                return
            if level == "+":
                nodes = [child for node in nodes for child in node.children.values()]
            else:
                nodes = [node.children[level] for node in nodes if level in node.children]
        for node in nodes:
            if node.topic is not None:
                yield node.topic

    def set_mode(self, topic: Topic, mode: Mode, expiry_s: int | None) -> None:
        """How this topic keeps its messages from now on; the latest registration decides."""
        if (topic.mode, topic.expiry_s) == (mode, expiry_s):
            return
        topic.mode, topic.expiry_s = mode, expiry_s
        self._save(topic)
        if mode is Mode.OVERRIDE:
            while len(topic.retained) > 1:
                self._drop_oldest(topic)

    def set_type(self, topic: Topic, type_: TopicType) -> None:
        """Remember a topic's type."""
        topic.type = type_
        self._save(topic)

    def retain(self, message: Message, now: float) -> None:
        """Keep a message for later subscribers, by the topic's mode. An empty payload clears the topic instead."""
        if not message.payload:
            if (known := self.get(message.topic)) is not None:
                self.clear(known)
            return
        topic = self.know(message.topic)
        if topic is None:
            self._figures.dropped_no_room_to_retain += 1
            return
        if topic.mode is Mode.OVERRIDE:
            self._clear(topic)
        if self.retained_bytes + len(message.payload) > self._limits.max_retained_bytes:
            self._figures.dropped_no_room_to_retain += 1
            self.forget_if_idle(topic)
            return
        if len(topic.retained) >= self._limits.max_retained_per_topic:
            self._drop_oldest(topic)
        if topic.expiry_s is not None:
            message = _expiring(message, now + topic.expiry_s)
        topic.retained.append((topic.next_number, message))
        self._schedule_sweep(topic, message.expires_at)
        if _is_kept(topic.name):
            self._store.put(Table.RETAINED, (topic.name, topic.next_number), message_record(message, self._epoch))
        topic.next_number += 1
        self.retained_count += 1
        self.retained_bytes += len(message.payload)

    def clear(self, topic: Topic) -> None:
        """Forget a topic's retained messages."""
        self._clear(topic)
        self.forget_if_idle(topic)

    def retained(self, topic: Topic, now: float) -> list[Message]:
        """A topic's retained messages in the order a subscriber gets them."""
        messages = [message for _, message in topic.retained if message.expires_at > now]
        return messages[::-1] if topic.mode is Mode.LIFO else messages

    def _schedule_sweep(self, topic: Topic, expires_at: float) -> None:
        """Drop what has expired when its time comes: one timer per topic, however many messages it has."""
        if topic.sweep is None and expires_at != NEVER:
            topic.sweep = self._timers.at(expires_at, lambda now: self._sweep(topic, now))

    def _sweep(self, topic: Topic, now: float) -> None:
        topic.sweep = None
        for entry in [entry for entry in topic.retained if entry[1].expires_at <= now]:
            topic.retained.remove(entry)
            self._note_dropped(topic, entry)
        self._schedule_sweep(topic, min((message.expires_at for _, message in topic.retained), default=NEVER))
        self.forget_if_idle(topic)

    def recover(self, now: float) -> None:
        """Read back what an earlier broker knew."""
        for key, record in self._store.load(Table.TOPIC):
            assert isinstance(key, str)
            assert isinstance(record, TopicRecord)
            topic = self.know(key)
            if topic is not None:
                topic.mode, topic.expiry_s = Mode(record.mode), record.expiry_s
                if record.format is not None:
                    topic.type = TopicType(record.format, record.media_type, record.schema, record.type_id)
        for key, record in self._store.load(Table.RETAINED):
            assert isinstance(key, tuple)
            name, number = key
            message = message_from(record, self._epoch)
            topic = self.know(name)
            if topic is None or message.expires_at <= now:
                self._store.delete(Table.RETAINED, key)
                continue
            topic.retained.append((number, message))
            self._schedule_sweep(topic, message.expires_at)
            topic.next_number = max(topic.next_number, number + 1)
            self.retained_count += 1
            self.retained_bytes += len(message.payload)

    def _clear(self, topic: Topic) -> None:
        while topic.retained:
            self._drop_oldest(topic)

    def _drop_oldest(self, topic: Topic) -> None:
        self._note_dropped(topic, topic.retained.popleft())

    def _note_dropped(self, topic: Topic, entry: tuple[int, Message]) -> None:
        number, message = entry
        self.retained_count -= 1
        self.retained_bytes -= len(message.payload)
        if _is_kept(topic.name):
            self._store.delete(Table.RETAINED, (topic.name, number))

    def _save(self, topic: Topic) -> None:
        type_ = topic.type or TopicType(0, "", b"")
        format_ = None if topic.type is None else type_.format
        record = TopicRecord(topic.mode, topic.expiry_s, format_, type_.media_type, type_.schema, type_.type_id)
        self._store.put(Table.TOPIC, topic.name, record)


def _is_kept(name: str) -> bool:
    """False for what the broker says of itself, which it says anew when it starts."""
    return not name.startswith("$")


def _below(nodes: list[_Node]) -> Iterator[Topic]:
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node.topic is not None:
            yield node.topic
        stack.extend(node.children.values())


def _expiring(message: Message, at: float) -> Message:
    """The message with an earlier end, if it has a later one: recipients of now keep the original."""
    if message.expires_at <= at or at == NEVER:
        return message
    return Message(
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.publisher,
        at,
        message.properties,
        received_at=message.received_at,
    )
