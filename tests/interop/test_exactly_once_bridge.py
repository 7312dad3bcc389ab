"""From MQTT 3.1.1 over TCP to MMQP over QUIC, exactly once, while either side loses its connection at random.

`MOQ_EXACTLY_ONCE_SECONDS=60` goes on for longer, `MOQ_EXACTLY_ONCE_SEED` repeats a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
from typing import TYPE_CHECKING

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

import moq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS = float(os.environ.get("MOQ_EXACTLY_ONCE_SECONDS", "4"))
SEED = os.environ.get("MOQ_EXACTLY_ONCE_SEED", "0")
PATIENCE_S = 60
PUBLISH_EVERY_S = 0.005
CUT_EVERY_S = (0.02, 0.4)
END = -1


@pytest.fixture
def device(port: int, topic: str) -> Iterator[paho.Client]:
    """A device that connects again by itself and keeps its session."""
    client = paho.Client(CallbackAPIVersion.VERSION2, topic, clean_session=False)
    client.reconnect_delay_set(0, 1)
    client.max_queued_messages_set(0)
    client.connect("localhost", port)
    client.loop_start()
    yield client
    client.disconnect()
    client.loop_stop()


def cut_device(device: paho.Client) -> None:
    with contextlib.suppress(OSError, AttributeError):  # between two connections there is nothing to cut
        device.socket().shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]


def cut_subscriber(subscriber: moq.Client) -> None:
    if subscriber._connection is not None:
        subscriber._connection.core.link.abort()


@pytest.mark.timeout(SECONDS + PATIENCE_S + 30)
async def test_a_device_is_heard_exactly_once_while_either_side_reconnects(
    device: paho.Client, mmqp: Callable[..., moq.Client], topic: str
) -> None:
    chance = random.Random(SEED)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SECONDS
    cuts = {"device": 0, "subscriber": 0}
    published = 0
    received: list[int] = []
    acknowledged = asyncio.Semaphore(0)

    def on_publish(*_: object) -> None:
        loop.call_soon_threadsafe(acknowledged.release)

    device.on_publish = on_publish

    async def publish() -> None:
        nonlocal published
        while loop.time() < deadline:
            device.publish(topic, str(published), 2)
            published += 1
            await asyncio.sleep(PUBLISH_EVERY_S)
        for _ in range(published):
            await acknowledged.acquire()
        device.publish(topic, str(END), 2)

    async def disturb() -> None:
        while loop.time() < deadline:
            await asyncio.sleep(chance.uniform(*CUT_EVERY_S))
            side = chance.choice(list(cuts))
            cuts[side] += 1
            if side == "device":
                cut_device(device)
            else:
                cut_subscriber(subscriber)

    async def collect() -> None:
        async for message in messages:
            if int(message.payload) == END:
                return
            received.append(int(message.payload))

    reconnect = moq.Reconnect(first_s=0.01, longest_s=0.1)
    async with (
        asyncio.timeout(SECONDS + PATIENCE_S),
        mmqp("quic", f"{topic}/dashboard", reconnect=reconnect) as subscriber,
        subscriber.subscribe(topic, 2) as messages,
        asyncio.TaskGroup() as group,
    ):
        for work in (publish, disturb, collect):
            group.create_task(work())
    assert min(cuts.values()) > 0
    # Not in order: a device that is back may send what is new before it repeats what was not acknowledged.
    assert sorted(received) == list(range(published))
