"""What CONNECT asks for and CONNACK grants: identity, session, will, keep-alive, and the limits of either side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moq.broker.dialects.mqtt_properties import from_wire, is_text
from moq.broker.message import Will
from moq.errors import RequestRefused
from moq.reasons import Reason
from moq.wire import mqtt

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.config import Limits

NEVER_EXPIRES: Final = 0xFFFF_FFFF

MAX_CLIENT_ID_BYTES: Final = 255
"""Other dialects tell client identifiers in strings with a one-byte length; the standard asks for 23."""

MAX_TOPIC_ALIASES: Final = 1_000
"""Topic aliases a client may set: bounds a table of every connection."""

MAX_PACKET_ID: Final = 0xFFFF

RETURN_CODES: Final = {
    Reason.UNSUPPORTED_PROTOCOL_VERSION: 1,
    Reason.CLIENT_IDENTIFIER_NOT_VALID: 2,
    Reason.SERVER_UNAVAILABLE: 3,
    Reason.SERVER_BUSY: 3,
    Reason.SERVER_SHUTTING_DOWN: 3,
    Reason.QUOTA_EXCEEDED: 3,
    Reason.BAD_USER_NAME_OR_PASSWORD: 4,
    Reason.NOT_AUTHORIZED: 5,
    Reason.BAD_AUTHENTICATION_METHOD: 5,
}
"""The codes of CONNACK in MQTT 3.1.1; where there is none the connection is closed without a word [MQTT-3.2.2-6]."""

CONNACK_REASONS: Final = {
    Reason.SERVER_SHUTTING_DOWN: Reason.SERVER_UNAVAILABLE,
    Reason.KEEP_ALIVE_TIMEOUT: Reason.UNSPECIFIED_ERROR,
}
"""Reasons that CONNACK of MQTT 5 has other words for."""


@dataclass(slots=True)
class Terms:
    """What a connection was granted."""

    client_id: str
    resume: bool
    expiry_s: float
    keep_alive_s: float
    """The longest silence; 0: any."""
    window: int
    """Messages of QoS 1 and 2 the client takes before it acknowledges."""
    receive_maximum: int
    """Messages of QoS 1 and 2 the broker takes before it acknowledges."""
    max_packet_bytes: int
    alias_maximum: int
    wants_reasons: bool
    will: Will | None


def agree(packet: mqtt.Connect, limits: Limits, new_client_id: Callable[[], str]) -> Terms:
    """Decide on what a CONNECT asks for.

    Raises:
        RequestRefused: It cannot be granted.
    """
    if len(packet.client_id.encode()) > MAX_CLIENT_ID_BYTES:
        raise RequestRefused("client identifier", Reason.CLIENT_IDENTIFIER_NOT_VALID)
    is_5 = packet.version == mqtt.VERSION_5
    if not packet.client_id and not is_5 and not packet.clean_start:
        # A session that cannot be named cannot be resumed [MQTT-3.1.3-8].
        raise RequestRefused("client identifier", Reason.CLIENT_IDENTIFIER_NOT_VALID)
    asked = packet.properties or mqtt.Properties()
    keep_alive_s = packet.keep_alive
    if is_5 and not 0 < keep_alive_s <= limits.max_keep_alive_s:
        keep_alive_s = limits.max_keep_alive_s
    largest = mqtt.MAX_REMAINING + mqtt.MAX_HEADER_BYTES
    return Terms(
        client_id=packet.client_id or new_client_id(),
        resume=not packet.clean_start,
        expiry_s=_expiry(packet, limits),
        keep_alive_s=float(keep_alive_s),
        window=asked.receive_maximum or MAX_PACKET_ID,
        receive_maximum=min(limits.max_inflight, MAX_PACKET_ID) if is_5 else MAX_PACKET_ID,
        max_packet_bytes=min(asked.maximum_packet_size or largest, largest),
        alias_maximum=asked.topic_alias_maximum or 0,
        wants_reasons=asked.request_problem_information is not False,
        will=_to_will(packet),
    )


def granted(packet: mqtt.Connect, terms: Terms, limits: Limits) -> mqtt.Properties | None:
    """What CONNACK tells of the terms: where they differ from what was asked for, or from the standard's defaults."""
    if packet.version != mqtt.VERSION_5:
        return None
    properties = mqtt.Properties(
        receive_maximum=terms.receive_maximum,
        maximum_packet_size=min(limits.max_packet_bytes, mqtt.MAX_REMAINING + mqtt.MAX_HEADER_BYTES),
        topic_alias_maximum=MAX_TOPIC_ALIASES,
    )
    asked = packet.properties or mqtt.Properties()
    if terms.expiry_s != (asked.session_expiry_interval or 0):
        properties.session_expiry_interval = int(terms.expiry_s)
    if terms.keep_alive_s != packet.keep_alive:
        properties.server_keep_alive = int(terms.keep_alive_s)
    if not packet.client_id:
        properties.assigned_client_identifier = terms.client_id
    return properties


def bounded_expiry(expiry_s: int, limits: Limits) -> float:
    """A session expiry interval as far as the broker goes along with it."""
    return float(min(expiry_s, limits.max_session_expiry_s))


def _expiry(packet: mqtt.Connect, limits: Limits) -> float:
    if packet.version == mqtt.VERSION_5:
        asked = packet.properties.session_expiry_interval if packet.properties is not None else None
        return bounded_expiry(asked or 0, limits)
    return 0.0 if packet.clean_start else bounded_expiry(NEVER_EXPIRES, limits)


def _to_will(packet: mqtt.Connect) -> Will | None:
    will = packet.will
    if will is None:
        return None
    asked = will.properties or mqtt.Properties()
    if asked.payload_format_indicator and not is_text(will.payload):
        raise RequestRefused("will payload", Reason.PAYLOAD_FORMAT_INVALID)
    return Will(
        will.topic,
        will.payload,
        packet.will_qos,
        packet.will_retain,
        asked.message_expiry_interval,
        asked.will_delay_interval or 0,
        from_wire(asked),
    )
