"""The wire: bytes to packets and back, nothing else. No I/O, no clock, no meaning."""

import struct

from moq.errors import LocalProtocolError
from moq.wire._mmqp import ENCODERS
from moq.wire.codec import out_of_range
from moq.wire.frames import PayloadChunk, PayloadEnded
from moq.wire.header import MAX_FIELDS_BYTES
from moq.wire.mmqp import (
    FIRST_BROKER_ALIAS,
    NEVER,
    PACKETS,
    PROTOCOL_NAME,
    VERSION_MOQ_1,
    Authen,
    Authentication,
    ConAck,
    ConEnd,
    Confirmation,
    ConfirmSyn,
    ConReq,
    ConSyn,
    Packet,
    Property,
    PubAck,
    PublishExtension,
    PublishKind,
    PubReq,
    PubSyn,
    PubType,
    Query,
    QueryAck,
    Register,
    RetentionMode,
    Settings,
    Subscribe,
    SubscribeExtension,
    TopAck,
    TopicRequest,
    TopReq,
    TypeFormat,
    TypeReq,
    Unsubscribe,
    Will,
)
from moq.wire.mmqp_frames import FrameReader, Item, PayloadStarted

__all__ = [
    "FIRST_BROKER_ALIAS",
    "MAX_FIELDS_BYTES",
    "NEVER",
    "PACKETS",
    "PROTOCOL_NAME",
    "VERSION_MOQ_1",
    "Authen",
    "Authentication",
    "ConAck",
    "ConEnd",
    "ConReq",
    "ConSyn",
    "ConfirmSyn",
    "Confirmation",
    "FrameReader",
    "Item",
    "Packet",
    "PayloadChunk",
    "PayloadEnded",
    "PayloadStarted",
    "Property",
    "PubAck",
    "PubReq",
    "PubSyn",
    "PubType",
    "PublishExtension",
    "PublishKind",
    "Query",
    "QueryAck",
    "Register",
    "RetentionMode",
    "Settings",
    "Subscribe",
    "SubscribeExtension",
    "TopAck",
    "TopReq",
    "TopicRequest",
    "TypeFormat",
    "TypeReq",
    "Unsubscribe",
    "Will",
    "encode",
]


def encode(packet: Packet) -> bytes:
    """The packet's bytes, fixed header included.

    Raises:
        LocalProtocolError: a value does not fit its field, or the packet breaks a rule.
    """
    try:
        return ENCODERS[type(packet)](packet)
    except struct.error as error:
        raise out_of_range(packet) or LocalProtocolError(f"{type(packet).__name__}: {error}") from None
