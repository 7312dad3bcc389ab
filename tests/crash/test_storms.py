"""Connections that come all at once, vanish, or never say a word: the others notice nothing, and nothing is left."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import moq
from moq.wire import mqtt
from tests.crash.looking import descriptors, figure, until
from tests.running import Broker

if TYPE_CHECKING:
    from pathlib import Path

    from moq.client import Client

STORM = 300
WAVES = 3
MESSAGES = 50
CONNECT_TIMEOUT_S = 1.0


async def one_of_the_storm(broker: Broker, number: int) -> None:
    """Connect as everybody does after an outage, subscribe, and break off in the middle of it all."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports["tcp"])
    packets = (mqtt.Connect(5, client_id=f"storm-{number}"), mqtt.Subscribe(1, None, [mqtt.Subscription("#", 2)]))
    writer.write(b"".join(mqtt.encode(packet, 5) for packet in packets))
    await reader.readexactly(4)
    writer.transport.abort()


async def exchange(publisher: Client, subscriber: Client) -> None:
    """Messages of a pair that has nothing to do with it."""
    async with subscriber.subscribe("lamp", qos=2) as lamp:
        for number in range(MESSAGES):
            await publisher.publish("lamp", str(number), qos=2)
            assert (await anext(lamp)).payload == str(number).encode()


async def test_a_storm_of_connections_that_break_off_leaves_others_and_the_broker_alone(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        url = broker.url("tcp")
        async with moq.connect(url) as publisher, moq.connect(url) as subscriber:
            await exchange(publisher, subscriber)
            before = descriptors(broker)
            for _ in range(WAVES):
                storm = asyncio.gather(*(one_of_the_storm(broker, number) for number in range(STORM)))
                await exchange(publisher, subscriber)
                await storm

            async def is_over() -> bool:
                return await figure(broker, "moq_links_open") == 2 and descriptors(broker) <= before

            await until("the storm's links and descriptors to be gone", is_over)
            await exchange(publisher, subscriber)


@pytest.mark.parametrize("first_bytes", [b"", b"\x10\x10\x00\x04MQ"], ids=["nothing", "half-a-packet"])
async def test_connections_that_never_say_who_they_are_are_closed_and_hold_up_nobody(
    tmp_path: Path, first_bytes: bytes
) -> None:
    with Broker(tmp_path, "--limit", f"connect_timeout_s={CONNECT_TIMEOUT_S}") as broker:
        silent = [await asyncio.open_connection("127.0.0.1", broker.ports["tcp"]) for _ in range(STORM)]
        for _, writer in silent:
            writer.write(first_bytes)
        async with moq.connect(broker.url("tcp")) as publisher, moq.connect(broker.url("tcp")) as subscriber:
            await exchange(publisher, subscriber)
            for reader, writer in silent:
                await reader.read()  # whatever the broker says, then the end
                writer.close()

            async def are_gone() -> bool:
                return await figure(broker, "moq_links_open") == 2

            await until("the silent links to be gone", are_gone)
