"""aiomqtt, MQTT 3.1.1 and 5, against the broker."""

from __future__ import annotations

import asyncio

import aiomqtt
import pytest
from aiomqtt import ProtocolVersion

PATIENCE_S = 15
VERSIONS = (ProtocolVersion.V311, ProtocolVersion.V5)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_is_published_arrives(port: int, topic: str, version: ProtocolVersion, qos: int) -> None:
    async with (
        aiomqtt.Client("localhost", port, protocol=version) as subscriber,
        aiomqtt.Client("localhost", port, protocol=version) as publisher,
        asyncio.timeout(PATIENCE_S),
    ):
        await subscriber.subscribe(f"{topic}/+/temperature", qos)
        for room in range(50):
            await publisher.publish(f"{topic}/{room}/temperature", f"{room}", qos)
        rooms = [await take(subscriber) for _ in range(50)]
    assert rooms == [(f"{topic}/{room}/temperature", str(room).encode(), qos) for room in range(50)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_retained_message_awaits_later_subscribers(port: int, topic: str, version: ProtocolVersion) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async with aiomqtt.Client("localhost", port, protocol=version) as publisher:
            await publisher.publish(topic, b"kept", 1, retain=True)
        async with aiomqtt.Client("localhost", port, protocol=version) as subscriber:
            await subscriber.subscribe(f"{topic}/#", 1)
            message = await anext(subscriber.messages)
    assert (message.payload, message.retain) == (b"kept", True)


async def test_a_session_keeps_messages_while_its_client_is_away(port: int, topic: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async with aiomqtt.Client("localhost", port, identifier=topic, clean_session=False) as subscriber:
            await subscriber.subscribe(topic, 2)
        async with aiomqtt.Client("localhost", port) as publisher:
            await publisher.publish(topic, b"while away", 2)
        async with aiomqtt.Client("localhost", port, identifier=topic, clean_session=False) as subscriber:
            assert await take(subscriber) == (topic, b"while away", 2)


async def take(subscriber: aiomqtt.Client) -> tuple[str, object, int]:
    message = await anext(subscriber.messages)
    return str(message.topic), message.payload, message.qos
