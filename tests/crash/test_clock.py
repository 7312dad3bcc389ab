"""The wall clock jumping an hour, either way: what expires does so after its time, neither sooner nor later."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import moq
from tests.crash.absent import return_and_collect, subscribe_and_leave
from tests.crash.processes import FaultyBroker
from tests.crash.shim import Shim

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "lamp"
HOUR_S = 3600.0
LASTING_S = 600.0
BRIEF_S = 1.0
MARGIN_S = 0.3


async def publish_lasting_and_brief(broker: FaultyBroker) -> None:
    async with moq.connect(broker.url("tcp")) as client:
        await client.publish(TOPIC, "lasting", qos=1, ttl=LASTING_S)
        await client.publish(TOPIC, "brief", qos=1, ttl=BRIEF_S)


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S], ids=["forward", "back"])
async def test_expiry_is_honoured_whatever_the_wall_clock_does(tmp_path: Path, jump_s: float) -> None:
    data_dir = tmp_path / "data"
    with Shim(tmp_path, data_dir) as shim:
        with FaultyBroker(data_dir, environment=shim.environment) as broker:
            await subscribe_and_leave(broker, TOPIC)
            await publish_lasting_and_brief(broker)
            shim.set(clock_s=jump_s)
            await asyncio.sleep(BRIEF_S + MARGIN_S)
            assert await return_and_collect(broker, TOPIC) == [b"lasting"]
            await publish_lasting_and_brief(broker)
            broker.kill()
        shim.set(clock_s=2 * jump_s)
        await asyncio.sleep(BRIEF_S + MARGIN_S)
        with FaultyBroker(data_dir, environment=shim.environment) as broker:
            assert await return_and_collect(broker, TOPIC) == [b"lasting"]
