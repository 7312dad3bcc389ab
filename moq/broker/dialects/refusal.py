"""What a client that is not let in is told, in its own dialect, from the first few bytes it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moq.broker.dialects.mqtt import MQTTConnection
from moq.broker.dialects.mqtt_connect import CONNACK_REASONS, RETURN_CODES
from moq.broker.dialects.recognise import recognise
from moq.errors import ProtocolError
from moq.wire import ConAck, encode, mqtt
from moq.wire.mqtt.header import protocol_version, read_header

if TYPE_CHECKING:
    from moq.reasons import Reason

ENOUGH_BYTES: Final = 12
"""Of a CONNECT up to its version: a longest header, the protocol name, one byte."""


def refusal_words(alpn: str, first: bytes, reason: Reason) -> bytes | None:
    """The packet that refuses a client with this reason; None: more of what it says is needed.

    Empty if the client would not understand any.
    """
    dialect = recognise(alpn, first)
    if dialect is None:
        return None
    if dialect is not MQTTConnection:
        return encode(ConAck(False, reason))
    if len(first) < ENOUGH_BYTES:
        return None
    header = read_header(first, 0)
    assert header is not None, "it was recognised by what comes after"
    try:
        version = protocol_version(first, *header)
    except ProtocolError:
        return b""
    code = CONNACK_REASONS.get(reason, reason) if version == mqtt.VERSION_5 else RETURN_CODES[reason]
    return mqtt.encode(mqtt.ConnAck(False, code), version)
