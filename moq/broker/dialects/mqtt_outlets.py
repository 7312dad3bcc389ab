"""Messages from the core to MQTT bytes on the lanes of one connection: encoding, topic aliases, the client's limits.

Most messages have no properties and go to many: such a frame is made once and shared by all recipients that need the
same bytes. Everything else goes through the codec.

A request becomes a PUBLISH with a response topic of the broker's making and the packet identifier as correlation
data; what is published to that topic is the response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moq.broker.dialects.mqtt_properties import to_wire
from moq.broker.message import NEVER, Kind
from moq.broker.peer import CONGESTED, SENT, UNDELIVERABLE
from moq.broker.traffic import Traffic
from moq.errors import LocalProtocolError
from moq.wire import mqtt

if TYPE_CHECKING:
    from moq.broker.environment import Environment
    from moq.broker.link import Lane, Link
    from moq.broker.message import Message, Target

RESPONSE_TOPICS: Final = "$moq/response/"
"""A request is answered here, under the number its responder was given for it."""

MAX_KNOWN_TOPICS: Final = 10_000
"""Topics whose encoding a connection keeps; past it they are encoded anew."""

JOIN_BELOW: Final = 8192
"""Header and payload of a smaller message are joined: copying it costs less than a second piece to write."""

_PUBLISH: Final = 0x30
_NO_TOPIC: Final = b"\0\0"
_NO_PROPERTIES: Final = {mqtt.VERSION_3_1_1: b"", mqtt.VERSION_5: b"\0"}


class Outlet:
    """How the messages of one topic begin, without properties of their own."""

    __slots__ = ("alias", "name", "properties")

    def __init__(self, name: bytes, properties: bytes, alias: int) -> None:
        self.name = name
        self.properties = properties
        self.alias = alias


class MQTTOutlets:
    """What one connection sends, once its CONNECT has told the version and the client's limits."""

    def __init__(self, link: Link, environment: Environment) -> None:
        self._link = link
        self._environment = environment
        self._figures = environment.figures
        self.traffic = Traffic()
        """Where what is sent is counted, once CONNECT has told the version."""
        self.version = mqtt.VERSION_3_1_1
        self.max_packet_bytes = mqtt.MAX_REMAINING + mqtt.MAX_HEADER_BYTES
        self.alias_maximum = 0
        self.lanes: dict[tuple[str, str | None], int] = {}
        """Subscriptions (filter, group) made on other lanes than control: their messages go there."""
        self.request_ids: set[int] = set()
        """Packet identifiers of requests of QoS 1 and 2 that the client has not acknowledged."""
        self._outlets: dict[str, Outlet] = {}
        self._aliases: dict[str, int] = {}

    def begin(self, dialect: str, client_id: str) -> None:
        """The client has been let in; messages follow."""

    def send(self, message: Message, target: Target | None, qos: int, packet_id: int, dup: bool) -> int:
        """Encode a message onto the lane of its subscription."""
        lane = self._link.control if not self.lanes else self.lane_of(target)
        if lane.congested:
            return CONGESTED
        if message.kind:
            return self._send_request(message, target, qos, packet_id, dup, lane)
        # A session may have subscribed with QoS 3 in the other dialect: here that is QoS 2.
        control = _PUBLISH | dup << 3 | (qos if qos < 3 else 2) << 1 | message.retain
        is_plain = self.version == mqtt.VERSION_3_1_1 or (
            message.properties is None
            and message.expires_at == NEVER
            and not (target is not None and target.identifiers)
        )
        outlet = self._outlets.get(message.topic)
        if outlet is None and is_plain and not self._alias(message.topic, lane):
            outlet = self._open(message.topic)
        if outlet is None or not is_plain or (outlet.alias and lane is not self._link.control):
            return self._send_fully(message, target, control, qos, packet_id, lane)
        # Keys below zero are ours: other dialects count theirs from zero up.
        key = -((packet_id << 16 | outlet.alias) << 10 | control << 4 | self.version)
        if message.frame_key != key:
            payload = message.payload
            if len(payload) > self.max_packet_bytes:
                return self._drop()
            head = _head(control, outlet, packet_id, len(payload))
            if len(payload) >= JOIN_BELOW:
                return self._write(lane, head, payload, len(payload), qos)
            message.frame_key = key
            message.frame = head + payload
        # Another recipient that needs the very same bytes shares them.
        frame = message.frame
        if len(frame) > self.max_packet_bytes:
            return self._drop()
        lane.write(frame)
        traffic = self.traffic
        traffic.messages_out[qos] += 1
        traffic.bytes_out[qos] += len(message.payload)
        return SENT

    def _write(self, lane: Lane, head: bytes, payload: bytes, payload_bytes: int, qos: int) -> int:
        if len(head) + len(payload) > self.max_packet_bytes:
            return self._drop()
        lane.write(head)
        if payload:
            lane.write(payload)
        traffic = self.traffic
        traffic.messages_out[qos] += 1
        traffic.bytes_out[qos] += payload_bytes
        return SENT

    def _drop(self) -> int:
        """The client is not to get this one [MQTT-3.1.2-25]."""
        self._figures.dropped_undeliverable += 1
        return UNDELIVERABLE

    def lane_of(self, target: Target | None) -> Lane:
        """The lane on which messages for a subscription go out."""
        if target is None:
            return self._link.control
        subscription = target.subscription
        lane_id = self.lanes.get((subscription.filter, subscription.group))
        if lane_id is None:
            return self._link.control
        lane = self._link.reply_lane(lane_id)
        return self._link.control if lane.is_closed else lane

    def _open(self, topic: str) -> Outlet:
        if len(self._outlets) >= MAX_KNOWN_TOPICS:
            self._outlets.clear()
        name = topic.encode()
        outlet = Outlet(len(name).to_bytes(2, "big") + name, _NO_PROPERTIES[self.version], 0)
        self._outlets[topic] = outlet
        return outlet

    # --- through the codec ----------------------------------------------------------------------------

    def _send_fully(
        self, message: Message, target: Target | None, control: int, qos: int, packet_id: int, lane: Lane
    ) -> int:
        identifiers = target.identifiers if target is not None else ()
        topic = message.topic
        alias = self._alias(topic, lane)
        key = (control, identifiers) if not packet_id and not alias and message.expires_at == NEVER else None
        if key is not None and message.frame_key == key:
            return self._write(lane, message.frame, b"", len(message.payload), qos)
        properties = to_wire(message, identifiers, self._environment.now)
        is_announced = alias and self._aliases.get(topic) == alias
        if alias:
            properties.topic_alias = alias
        name = "" if is_announced else topic
        frame = self._encoded(message, control, name, packet_id, properties)
        if frame is None:
            return self._drop()
        if key is not None:
            message.frame_key, message.frame = key, frame
        outcome = self._write(lane, frame, b"", len(message.payload), qos)
        if alias and outcome == SENT:
            self._aliases[topic] = alias
            self._outlets[topic] = Outlet(_NO_TOPIC, b"\x03\x23" + alias.to_bytes(2, "big"), alias)
        return outcome

    def _alias(self, topic: str, lane: Lane) -> int:
        """The number a topic has or may get, while there are any; lanes overtake each other, so on control alone."""
        if not self.alias_maximum or lane is not self._link.control:
            return 0
        alias = self._aliases.get(topic)
        if alias is None and len(self._aliases) < self.alias_maximum:
            return len(self._aliases) + 1
        return alias or 0

    def _send_request(
        self, message: Message, target: Target | None, qos: int, packet_id: int, dup: bool, lane: Lane
    ) -> int:
        if message.kind != Kind.REQUEST or self.version != mqtt.VERSION_5:
            return self._drop()
        properties = to_wire(message, target.identifiers if target is not None else (), self._environment.now)
        if properties.response_topic is None:
            properties.response_topic = f"{RESPONSE_TOPICS}{packet_id}"
            properties.correlation_data = packet_id.to_bytes(2, "big")
        control = _PUBLISH | dup << 3 | qos << 1
        frame = self._encoded(message, control, message.topic, packet_id if qos else 0, properties)
        if frame is None:
            return self._drop()
        outcome = self._write(lane, frame, b"", len(message.payload), qos)
        if qos and outcome == SENT:
            self.request_ids.add(packet_id)
        return outcome

    def _encoded(
        self, message: Message, control: int, topic: str, packet_id: int, properties: mqtt.Properties
    ) -> bytes | None:
        """The frame of a message, or None if its properties are more than a packet holds."""
        packet = mqtt.Publish(
            dup=bool(control & 8),
            qos=control >> 1 & 3,
            retain=bool(control & 1),
            topic=topic,
            packet_id=packet_id,
            properties=None if properties == mqtt.Properties() else properties,
            payload=message.payload,
        )
        try:
            return mqtt.encode(packet, self.version)
        except LocalProtocolError:
            return None


def _head(control: int, outlet: Outlet, packet_id: int, payload_bytes: int) -> bytes:
    """Everything before the payload."""
    fields = outlet.name + packet_id.to_bytes(2, "big") if packet_id else outlet.name
    fields += outlet.properties
    remaining = len(fields) + payload_bytes
    if remaining < 0x80:
        return bytes((control, remaining)) + fields
    if remaining < 0x4000:
        return bytes((control, remaining & 0x7F | 0x80, remaining >> 7)) + fields
    if remaining < 0x20_0000:
        return bytes((control, remaining & 0x7F | 0x80, remaining >> 7 & 0x7F | 0x80, remaining >> 14)) + fields
    length = (remaining & 0x7F | 0x80, remaining >> 7 & 0x7F | 0x80, remaining >> 14 & 0x7F | 0x80, remaining >> 21)
    return bytes((control, *length)) + fields
