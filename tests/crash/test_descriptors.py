"""No descriptor left: the broker serves those it has, waits without spinning, and accepts again when there is one."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import moq
from tests.crash.looking import cpu_s, descriptors, until
from tests.crash.processes import FaultyBroker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

DESCRIPTORS = 64
LIMITED = ("sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh")
OBSERVED_S = 1.5
SPINNING = 0.5
"""Of one processor: a loop that accepts in vain takes all of it, a broker that waits nearly nothing."""


@asynccontextmanager
async def every_descriptor_taken(broker: FaultyBroker) -> AsyncIterator[None]:
    """Hold idle connections, more than the broker can have: the rest wait in the kernel to be accepted."""
    opened = [await asyncio.open_connection("127.0.0.1", broker.ports["tcp"]) for _ in range(2 * DESCRIPTORS)]

    async def is_exhausted() -> bool:
        return descriptors(broker) >= DESCRIPTORS

    await until("the last descriptor to be taken", is_exhausted)
    try:
        yield
    finally:
        for _, writer in opened:
            writer.transport.abort()


async def test_a_broker_without_descriptors_serves_who_is_there_and_later_who_comes(tmp_path: Path) -> None:
    with FaultyBroker(tmp_path, prefix=LIMITED) as broker:
        url = broker.url("tcp")
        async with (
            moq.connect(url) as publisher,
            moq.connect(url) as subscriber,
            subscriber.subscribe("lamp", qos=2) as lamp,
        ):
            await publisher.publish("lamp", "before", qos=2)
            async with every_descriptor_taken(broker):
                spent = cpu_s(broker)
                await asyncio.sleep(OBSERVED_S)
                assert cpu_s(broker) - spent < SPINNING * OBSERVED_S
                await publisher.publish("lamp", "meanwhile", qos=2)
                assert [(await anext(lamp)).payload for _ in range(2)] == [b"before", b"meanwhile"]
            async with moq.connect(url) as newcomer:
                await newcomer.publish("lamp", "after", qos=2)
            assert (await anext(lamp)).payload == b"after"


async def test_a_quic_client_is_welcome_when_there_is_no_descriptor_for_a_tcp_one(tmp_path: Path) -> None:
    with FaultyBroker(tmp_path, prefix=LIMITED) as broker:
        async with every_descriptor_taken(broker), moq.connect(broker.url("quic"), data_dir=tmp_path) as client:
            await client.publish("lamp", "on", qos=2)
