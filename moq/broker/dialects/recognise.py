"""Which dialect a client speaks: what its link has agreed on tells, or else its first bytes."""

from __future__ import annotations

from typing import Final

from moq.broker.dialects.mmqp import Connection
from moq.broker.dialects.mqtt import MQTTConnection
from moq.wire.mqtt import starts_like_mqtt

Dialect = type[Connection] | type[MQTTConnection]

DEFAULT: Final = Connection
"""Whoever speaks neither is answered in this one, and closed."""

BY_ALPN: Final[dict[str, Dialect]] = {"mmqp": Connection, "mqtt": MQTTConnection}


def recognise(alpn: str, first: bytes) -> Dialect | None:
    """The dialect of a link with this ALPN, or without any the one that begins like this; None: more is needed."""
    if alpn:
        return BY_ALPN[alpn]
    is_mqtt = starts_like_mqtt(first)
    if is_mqtt is None:
        return None
    return MQTTConnection if is_mqtt else Connection
