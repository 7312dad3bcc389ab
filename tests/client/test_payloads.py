"""From a program's values to packet fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from moq.client.messages import Request
from moq.client.payloads import extension_of, subscribe_extension_of, to_bytes
from moq.errors import LocalProtocolError
from moq.wire import Property, PublishExtension, SubscribeExtension


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("payload", "expected"),
    [("ü", b"\xc3\xbc"), (b"\0", b"\0"), (bytearray(b"a"), b"a"), (memoryview(b"a"), b"a"), (Point(1), b'{"x":1}')],
)
def test_payloads_become_bytes(payload: Any, expected: bytes) -> None:
    assert to_bytes(payload) == expected


@pytest.mark.parametrize("payload", [None, 3, ["a"]])
def test_what_is_no_payload_is_refused_with_its_type(payload: Any) -> None:
    with pytest.raises(LocalProtocolError, match=type(payload).__name__):
        to_bytes(payload)


def test_an_extension_says_only_what_is_given() -> None:
    assert extension_of() is None
    assert extension_of(ttl=1.5) == PublishExtension(ttl_ms=1500)
    assert extension_of(properties={"a": "b"}, group_start=True) == PublishExtension(
        group_start=True, properties=[Property("a", "b")]
    )
    assert subscribe_extension_of() is None
    assert subscribe_extension_of(period=0) is None
    assert subscribe_extension_of(period=0.25, priority=1) == SubscribeExtension(period=25, priority=1)


def test_a_short_time_does_not_become_none() -> None:
    assert subscribe_extension_of(deadline=0.001) == SubscribeExtension(deadline=1)
    with pytest.raises(LocalProtocolError, match="ttl is 0 s"):
        extension_of(ttl=0)


async def test_a_request_that_came_from_nowhere_cannot_be_answered() -> None:
    with pytest.raises(LocalProtocolError, match="does not come from a client's subscription"):
        await Request("t", b"").respond("x")
