"""Plain MQTT 3.1.1 and 5 on the wire, to be named with its module: `from moq.wire import mqtt`, then `mqtt.Publish`."""

import struct
from typing import Final

from moq.errors import LocalProtocolError
from moq.wire.codec import out_of_range
from moq.wire.frames import PayloadChunk, PayloadEnded
from moq.wire.mqtt import _mqtt4, _mqtt5
from moq.wire.mqtt.frames import Item, MQTTFrameReader, PayloadStarted
from moq.wire.mqtt.header import (
    MAX_FIELDS_BYTES,
    MAX_HEADER_BYTES,
    MAX_REMAINING,
    VERSION_3_1_1,
    VERSION_5,
    starts_like_mqtt,
)
from moq.wire.mqtt.packets import (
    PACKETS,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)
from moq.wire.mqtt.properties import Properties
from moq.wire.mqtt.publish import encode_plain

__all__ = [
    "MAX_FIELDS_BYTES",
    "MAX_HEADER_BYTES",
    "MAX_REMAINING",
    "PACKETS",
    "VERSION_3_1_1",
    "VERSION_5",
    "Auth",
    "ConnAck",
    "Connect",
    "Disconnect",
    "Item",
    "MQTTFrameReader",
    "Packet",
    "PayloadChunk",
    "PayloadEnded",
    "PayloadStarted",
    "PingReq",
    "PingResp",
    "Properties",
    "PubAck",
    "PubComp",
    "PubRec",
    "PubRel",
    "Publish",
    "SubAck",
    "Subscribe",
    "Subscription",
    "UnsubAck",
    "Unsubscribe",
    "Will",
    "encode",
    "starts_like_mqtt",
]

_ENCODERS: Final = {VERSION_3_1_1: _mqtt4.ENCODERS, VERSION_5: _mqtt5.ENCODERS}
_NO_PROPERTIES: Final = {VERSION_3_1_1: b"", VERSION_5: b"\0"}


def encode(packet: Packet, version: int) -> bytes:
    """The packet's bytes, fixed header included; `version` is 4 for MQTT 3.1.1, 5 for MQTT 5.

    Raises:
        LocalProtocolError: a value does not fit its field, the version has no such packet or field, or the packet
            breaks a rule.
    """
    kind = type(packet)
    if version not in _ENCODERS:
        raise LocalProtocolError(f"version is {version}; expected 4 (MQTT 3.1.1) or 5")
    if isinstance(packet, Publish):
        data = encode_plain(packet, _NO_PROPERTIES[version])
        if data is not None:
            return data
    elif isinstance(packet, Connect) and packet.version != version:
        raise LocalProtocolError(f"Connect.version is {packet.version}; it is encoded for version {version}")
    encoder = _ENCODERS[version].get(kind)
    if encoder is None:
        raise LocalProtocolError(f"{kind.__name__} is no packet of version {version}")
    try:
        return encoder(packet)
    except struct.error as error:
        raise out_of_range(packet) or LocalProtocolError(f"{kind.__name__}: {error}") from None
