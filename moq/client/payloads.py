"""From a program's values to packet fields: payloads as bytes, seconds as the wire's units, only what is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.client.typed import is_typed, to_json
from moq.errors import LocalProtocolError
from moq.wire.mmqp import Property, PublishExtension, SubscribeExtension

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import DataclassInstance

    Payload = str | bytes | bytearray | memoryview | DataclassInstance


def to_bytes(payload: Payload) -> bytes:
    """A payload as it travels; raises LocalProtocolError for what has no form as bytes."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    if is_typed(payload):
        return to_json(payload)
    raise LocalProtocolError(f"a payload is text, bytes or a dataclass instance, not {type(payload).__name__}")


def extension_of(
    ttl: float | None = None,
    timestamp_ns: int | None = None,
    properties: Mapping[str, str] | None = None,
    group_start: bool = False,
    deadline: float | None = None,
    subscribers: tuple[str, ...] = (),
) -> PublishExtension | None:
    """The extension of PUBREQ, or None if there is nothing to say."""
    extension = PublishExtension(
        ttl_ms=_units("ttl", ttl, 1000),
        timestamp_ns=timestamp_ns,
        subscribers=list(subscribers) or None,
        group_start=group_start,
        deadline_ms=_units("timeout", deadline, 1000),
        properties=[Property(name, value) for name, value in properties.items()] if properties else None,
    )
    return None if extension == PublishExtension() else extension


def subscribe_extension_of(
    period: float | None = None, priority: int | None = None, deadline: float | None = None
) -> SubscribeExtension | None:
    """The extension of SUBSCRIBE, or None if there is nothing to say; a period of 0 is none."""
    period = period or None
    if period is None and priority is None and deadline is None:
        return None
    return SubscribeExtension(
        period=_units("period", period, 100), priority=priority, deadline=_units("deadline", deadline, 100)
    )


def _units(name: str, seconds: float | None, per_second: int) -> int | None:
    """Seconds in whole units, at least one: rounding must not turn a short time into none."""
    if seconds is None:
        return None
    if seconds <= 0:
        raise LocalProtocolError(f"{name} is {seconds} s; it must be greater than 0")
    return max(1, round(seconds * per_second))
