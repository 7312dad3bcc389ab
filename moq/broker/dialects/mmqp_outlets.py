"""Messages from the core to MMQP bytes on the lanes of one connection: aliases, TOP, encoding.

Each topic has an outlet: its lane, its alias, and whether the client has been told on that lane what the alias
means. An alias the client chose is known to it; one the broker assigned (0x8000 and above) is sent together with
the topic the first time it is used on a lane, because lanes overtake each other.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from moq.broker.message import NEVER, Kind
from moq.broker.peer import CONGESTED, SENT, UNDELIVERABLE
from moq.topics import MAX_TOPIC_BYTES
from moq.wire import FIRST_BROKER_ALIAS, Property, PublishExtension, PubReq, encode

if TYPE_CHECKING:
    from moq.broker.environment import Environment
    from moq.broker.link import Lane, Link
    from moq.broker.message import Message, Properties, Run, Target
    from moq.broker.traffic import Traffic

LAST_ALIAS = 0xFFFF

MAX_STRING_BYTES = MAX_PROPERTIES = 0xFF
"""Strings and counts have one byte for their size."""

CONTENT_TYPE = "content-type"
"""The name under which a media type of another dialect is told."""

DEFAULT_PRIORITY = 128

JOIN_BELOW = 8192
"""Header and payload of a smaller message are joined: copying it costs less than a second piece to write."""

_SHORT = struct.Struct(">BBBHH")
_LONG = struct.Struct(">BHBHH")
_LARGE = struct.Struct(">BIBHH")

_PUBREQ = 7 << 4
_FIELDS = 5  # flag byte, packet identifier, alias
_MAX_SHORT = 0xFF - _FIELDS
_MAX_LONG = 0xFFFF - _FIELDS
_MAX_TTL_MS = 0xFFFFFFFF


class Outlet:
    """Where the messages of one topic leave."""

    __slots__ = ("alias", "is_announced", "lane")

    def __init__(self, lane: Lane, alias: int, is_announced: bool) -> None:
        self.lane = lane
        self.alias = alias
        self.is_announced = is_announced


class Outlets:
    """The outlets of one connection, by topic."""

    def __init__(self, link: Link, environment: Environment, aliases: dict[str, int], traffic: Traffic) -> None:
        self._link = link
        self._environment = environment
        self._figures = environment.figures
        self._messages_out, self._bytes_out = traffic.messages_out, traffic.bytes_out
        self._aliases = aliases  # topic → alias the client chose; shared with the connection, which adds to it
        self._assigned: dict[str, int] = {}
        self._outlets: dict[str, Outlet] = {}

    def begin(self, dialect: str, client_id: str) -> None:
        """The client has been let in; messages follow."""

    def send(self, message: Message, target: Target | None, qos: int, packet_id: int, dup: bool) -> int:
        """Encode a message onto its topic's lane."""
        outlet = self._outlets.get(message.topic)
        if outlet is None:
            if len(message.topic.encode()) > MAX_TOPIC_BYTES:
                self._figures.dropped_undeliverable += 1
                return UNDELIVERABLE
            outlet = self._open(message.topic, target)
        lane = outlet.lane
        if lane.congested:
            return CONGESTED
        payload = message.payload
        self._messages_out[qos] += 1
        self._bytes_out[qos] += len(payload)
        if not outlet.is_announced or message.expires_at != NEVER:
            lane.write(self._encode_fully(message, outlet, qos, packet_id, dup))
            return SENT
        flags = message.retain << 7 | dup << 6 | qos << 4
        key = (message.kind << 8 | flags) << 32 | packet_id << 16 | outlet.alias
        if message.frame_key == key:
            # Another recipient knows the topic by the same alias: it gets the very same bytes.
            lane.write(message.frame)
            return SENT
        if message.properties is not None:
            frame = self._encode_fully(message, outlet, qos, packet_id, dup)
            if len(payload) < JOIN_BELOW:
                message.frame_key, message.frame = key, frame
            lane.write(frame)
            return SENT
        header = _header(message.kind, flags, packet_id, outlet.alias, len(payload))
        if len(payload) < JOIN_BELOW:
            frame = header + payload
            message.frame_key = key
            message.frame = frame
            lane.write(frame)
        else:
            lane.write(header)
            lane.write(payload)
        return SENT

    def send_run(self, run: Run, target: Target) -> int:
        """Encode a run of messages onto its topic's lane; returns how many were dropped."""
        outlet = self._outlets.get(run.topic)
        if outlet is None or not outlet.is_announced:
            outcomes = [self.send(message, target, 0, 0, False) for message in run.messages()]
            return outcomes.count(CONGESTED)
        if outlet.lane.congested:
            return len(run.payloads)
        if run.frame_key != outlet.alias:
            run.frame = _frames(run.payloads, outlet.alias)
            run.frame_key = outlet.alias
        outlet.lane.write(run.frame)
        self._messages_out[0] += len(run.payloads)
        self._bytes_out[0] += run.size
        return 0

    def lane_of(self, topic: str) -> Lane | None:
        """The lane of a topic, if it is open."""
        outlet = self._outlets.get(topic)
        return None if outlet is None else outlet.lane

    def forget_lane(self, lane: Lane) -> None:
        """A lane has closed: the next message of its topics opens another."""
        self._outlets = {topic: outlet for topic, outlet in self._outlets.items() if outlet.lane is not lane}

    def _open(self, topic: str, target: Target | None) -> Outlet:
        priority = target.priority if target is not None else DEFAULT_PRIORITY
        alias = self._aliases.get(topic)
        is_announced = alias is not None
        if alias is None:
            alias = self._assign(topic)
        outlet = Outlet(self._link.lane(alias, priority), alias, is_announced)
        if alias:  # there are only so many aliases, but no end of topics without one
            self._outlets[topic] = outlet
        return outlet

    def _assign(self, topic: str) -> int:
        """An alias of the broker's, or 0 when all are taken: such topics are named in full every time."""
        alias = self._assigned.get(topic)
        if alias is None:
            alias = FIRST_BROKER_ALIAS + len(self._assigned)
            if alias > LAST_ALIAS:
                return 0
            self._assigned[topic] = alias
        return alias

    def _encode_fully(self, message: Message, outlet: Outlet, qos: int, packet_id: int, dup: bool) -> bytes:
        topic = None if outlet.is_announced else message.topic
        outlet.is_announced = outlet.alias != 0
        extension = self._extension(message)
        waited = message.properties.waited if qos == 3 and message.properties is not None else None
        packet = PubReq(
            message.kind, message.retain, dup, qos, packet_id, outlet.alias, topic, waited, extension, message.payload
        )
        return encode(packet)

    def _extension(self, message: Message) -> PublishExtension | None:
        properties = message.properties
        ttl_ms: int | None = None
        if message.expires_at != NEVER and message.kind == Kind.PUBLISH:
            ttl_ms = min(max(int((message.expires_at - self._environment.now) * 1000), 1), _MAX_TTL_MS)
        if properties is None:
            return PublishExtension(ttl_ms=ttl_ms) if ttl_ms is not None else None
        extension = PublishExtension(
            ttl_ms=ttl_ms,
            timestamp_ns=properties.timestamp_ns,
            group_start=properties.group_start,
            encrypted=properties.encrypted,
            type_id=properties.type_id,
            properties=_to_wire(properties) or None,
        )
        return None if extension == PublishExtension() else extension


def _to_wire(properties: Properties) -> list[Property]:
    """The user properties that fit: names and values of other dialects may be longer, and more."""
    pairs = properties.user
    if properties.content_type is not None:
        pairs = (*pairs, (CONTENT_TYPE, properties.content_type))
    fitting = [pair for pair in pairs if max(len(pair[0].encode()), len(pair[1].encode())) <= MAX_STRING_BYTES]
    return [Property(name, value) for name, value in fitting[:MAX_PROPERTIES]]


def _frames(payloads: list[bytes], alias: int) -> bytes:
    """Plain messages of QoS 0, one after the other."""
    parts: list[bytes] = []
    size, header = -1, b""
    for payload in payloads:
        if len(payload) != size:  # most messages of a topic are alike
            size = len(payload)
            header = _header(Kind.PUBLISH, 0, 0, alias, size)
        parts.append(header)
        parts.append(payload)
    return b"".join(parts)


def _header(kind: int, flags: int, packet_id: int, alias: int, size: int) -> bytes:
    if size <= _MAX_SHORT:
        return _SHORT.pack(_PUBREQ | kind, size + _FIELDS, flags, packet_id, alias)
    if size <= _MAX_LONG:
        return _LONG.pack(_PUBREQ | 1 << 2 | kind, size + _FIELDS, flags, packet_id, alias)
    if size + _FIELDS <= 0xFFFFFF:
        # Three bytes of length have no struct code: take the last three of four.
        return bytes((_PUBREQ | 2 << 2 | kind,)) + _LARGE.pack(0, size + _FIELDS, flags, packet_id, alias)[2:]
    return _LARGE.pack(_PUBREQ | 3 << 2 | kind, size + _FIELDS, flags, packet_id, alias)
