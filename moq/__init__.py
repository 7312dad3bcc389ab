"""MoQ, MQTT over QUIC: a QUIC/TCP dual-stack publish/subscribe broker and client.

async with moq.connect("quic://localhost") as client:
await client.publish("room/light", "on")
"""

from __future__ import annotations

from moq.client import (
    Client,
    Confirmation,
    Confirmations,
    FirstConfirmation,
    Message,
    NotConfirmed,
    PayloadError,
    Reconnect,
    Request,
    Requests,
    RetentionMode,
    Subscription,
    TopicType,
    TypeFormat,
    Will,
    connect,
)
from moq.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    LocalProtocolError,
    MoqError,
    ProtocolError,
    RemoteProtocolError,
    RequestRefused,
)
from moq.reasons import Reason
from moq.version import __version__

__all__ = [
    "Client",
    "ConfigError",
    "Confirmation",
    "Confirmations",
    "ConnectFailed",
    "ConnectionLost",
    "FirstConfirmation",
    "LocalProtocolError",
    "Message",
    "MoqError",
    "NotConfirmed",
    "PayloadError",
    "ProtocolError",
    "Reason",
    "Reconnect",
    "RemoteProtocolError",
    "Request",
    "RequestRefused",
    "Requests",
    "RetentionMode",
    "Subscription",
    "TopicType",
    "TypeFormat",
    "Will",
    "__version__",
    "connect",
]
