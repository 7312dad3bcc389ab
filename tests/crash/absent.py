"""A subscriber with a persistent session that is away when it matters, and comes back to see what was kept for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import moq

if TYPE_CHECKING:
    from tests.running import Broker

CLIENT_ID: Final = "absent"
LAST: Final = b"that was all"


async def subscribe_and_leave(broker: Broker, topic: str) -> None:
    """Make the session and its subscription, and go."""
    async with moq.connect(broker.url("tcp"), CLIENT_ID, persistent=True) as client:
        subscription = await client.subscribe(topic, qos=2).ready()
    assert not subscription.queued  # to let go of it earlier would have been to unsubscribe


async def return_and_collect(broker: Broker, topic: str) -> list[bytes]:
    """Come back; everything up to a last message, which is published now."""
    arrived: list[bytes] = []
    async with (
        moq.connect(broker.url("tcp"), CLIENT_ID, persistent=True, resume=True) as client,
        moq.connect(broker.url("tcp")) as publisher,
    ):
        assert client.session_present
        subscription = await client.subscribe(topic, qos=2).ready()
        await publisher.publish(topic, LAST, qos=2)
        async for message in subscription:
            if message.payload == LAST:
                break
            arrived.append(message.payload)
    return arrived
