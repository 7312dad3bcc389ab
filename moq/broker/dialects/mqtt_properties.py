"""Properties of MQTT 5 messages into the core's and back.

What MMQP tells of a message in fields of its own reaches an MQTT 5 subscriber as user properties, after those of the
publisher, which stay as they are and in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moq.broker.dialects.mqtt_confirmations import CONFIRM
from moq.broker.message import NEVER, Properties
from moq.wire import mqtt

if TYPE_CHECKING:
    from moq.broker.message import Message

TIMESTAMP: Final = "moq-timestamp-ns"
GROUP_START: Final = "moq-group-start"
ENCRYPTED: Final = "moq-encrypted"
TYPE_ID: Final = "moq-type-id"

MAX_EXPIRY_S: Final = 0xFFFF_FFFF
MAX_STAMP_NS: Final = (1 << 64) - 1
MAX_STAMP_DIGITS: Final = 20


def from_wire(properties: mqtt.Properties) -> Properties | None:
    """What a message keeps of the properties of its PUBLISH, or of the will in CONNECT."""
    user = tuple(properties.user_properties or ())
    kept = Properties(
        timestamp_ns=_stamp(user),
        encrypted=(ENCRYPTED, "1") in user,
        user=user,
        content_type=properties.content_type,
        payload_format=properties.payload_format_indicator,
        response_topic=properties.response_topic,
        correlation_data=properties.correlation_data,
    )
    return None if kept == Properties() else kept


def _stamp(user: tuple[tuple[str, str], ...]) -> int | None:
    """When the publisher says it sent the message; what is no such time says nothing."""
    for name, value in user:
        is_number = len(value) <= MAX_STAMP_DIGITS and value.isascii() and value.isdigit()
        if name == TIMESTAMP and is_number and int(value) <= MAX_STAMP_NS:
            return int(value)
    return None


def to_wire(message: Message, identifiers: tuple[int, ...], now: float) -> mqtt.Properties:
    """The properties of a PUBLISH to a subscriber with these subscription identifiers."""
    wire = mqtt.Properties()
    if identifiers:
        wire.subscription_identifiers = list(identifiers)
    if message.expires_at != NEVER:
        # What remains of it [MQTT-3.3.2-6].
        wire.message_expiry_interval = min(max(round(message.expires_at - now), 0), MAX_EXPIRY_S)
    properties = message.properties
    if properties is None:
        return wire
    wire.payload_format_indicator = properties.payload_format
    wire.content_type = properties.content_type
    wire.response_topic = properties.response_topic
    wire.correlation_data = properties.correlation_data
    wire.user_properties = [*properties.user, *_foreign(properties)] or None
    return wire


def _foreign(properties: Properties) -> list[tuple[str, str]]:
    told = []
    if properties.timestamp_ns is not None and all(name != TIMESTAMP for name, _ in properties.user):
        told.append((TIMESTAMP, str(properties.timestamp_ns)))
    if properties.group_start:
        told.append((GROUP_START, "1"))
    if properties.encrypted and (ENCRYPTED, "1") not in properties.user:
        told.append((ENCRYPTED, "1"))
    if properties.type_id is not None:
        told.append((TYPE_ID, str(properties.type_id)))
    if properties.waited is not None and all(name != CONFIRM for name, _ in properties.user):
        told.append((CONFIRM, str(properties.waited)))
    return told


def is_text(payload: bytes) -> bool:
    """True if a payload is what payload format 1 promises: well-formed UTF-8."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
