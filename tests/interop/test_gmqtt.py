"""gmqtt, MQTT 3.1.1 and 5, against the broker."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import gmqtt
import pytest
from gmqtt.mqtt.constants import MQTTv50, MQTTv311

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATIENCE_S = 15
Message = tuple[str, bytes, int, dict[str, Any]]


@asynccontextmanager
async def connected(
    port: int, client_id: str, version: int, **properties: int
) -> AsyncIterator[tuple[gmqtt.Client, asyncio.Queue[Message]]]:
    client = gmqtt.Client(client_id, clean_session=not properties, **properties)
    messages: asyncio.Queue[Message] = asyncio.Queue()

    async def on_message(_client: object, topic: str, payload: bytes, qos: int, properties: dict[str, Any]) -> int:
        messages.put_nowait((topic, payload, qos, properties))
        return 0

    client.on_message = on_message
    await client.connect("localhost", port, version=version)
    try:
        yield client, messages
    finally:
        await client.disconnect()


async def subscribe(client: gmqtt.Client, topic: str, qos: int) -> None:
    done = asyncio.Event()
    client.on_subscribe = lambda *_: done.set()
    client.subscribe(topic, qos)
    await done.wait()


@pytest.mark.parametrize("version", [MQTTv311, MQTTv50], ids=("3.1.1", "5"))
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_is_published_arrives(port: int, topic: str, version: int, qos: int) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        connected(port, f"{topic}/s", version) as (subscriber, messages),
        connected(port, f"{topic}/p", version) as (publisher, _),
    ):
        await subscribe(subscriber, topic, qos)
        for number in range(50):  # one by one: gmqtt raises OverflowError when its own few identifiers are taken
            publisher.publish(topic, str(number), qos=qos)
            assert (await messages.get())[:3] == (topic, str(number).encode(), qos)


async def test_properties_are_passed_on_unchanged(port: int, topic: str) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        connected(port, f"{topic}/s", MQTTv50) as (subscriber, messages),
        connected(port, f"{topic}/p", MQTTv50) as (publisher, _),
    ):
        await subscribe(subscriber, topic, 1)
        publisher.publish(topic, "x", qos=1, content_type="text/plain", user_property=[("b", "2"), ("a", "1")])
        *_, properties = await messages.get()
    assert properties["content_type"] == ["text/plain"]
    assert properties["user_property"] == [("b", "2"), ("a", "1")]


async def test_a_session_keeps_messages_while_its_client_is_away(port: int, topic: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async with connected(port, f"{topic}/s", MQTTv50, session_expiry_interval=600) as (subscriber, _):
            await subscribe(subscriber, topic, 2)
        async with (
            connected(port, f"{topic}/p", MQTTv50) as (publisher, confirmations),
            connected(port, f"{topic}/w", MQTTv50) as (witness, seen),
        ):
            await subscribe(witness, topic, 2)
            publisher.publish(topic, "while away", qos=2)
            await seen.get()
            assert confirmations.empty()
        async with connected(port, f"{topic}/s", MQTTv50, session_expiry_interval=600) as (_, messages):
            assert (await messages.get())[:3] == (topic, b"while away", 2)
