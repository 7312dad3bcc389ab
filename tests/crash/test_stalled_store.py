"""A disk that hangs: the store's thread waits for it, and with it only those who need it, in bounded memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import moq
from tests.crash.absent import return_and_collect, subscribe_and_leave
from tests.crash.looking import resident_bytes
from tests.crash.processes import FaultyBroker
from tests.crash.shim import Shim

if TYPE_CHECKING:
    from pathlib import Path

    from moq.client import Client

TOPIC = "lamp"
PUBLISHERS = 4
MESSAGES = 600
"""Of each publisher: less than its window, so that all are offered at once."""
PAYLOAD = bytes(32 * 1024)
UNSTORED = 200
LIMITS = ("--limit", f"max_unstored_changes={UNSTORED}", "--limit", "max_queued_bytes=1000000000")
ALLOWED_BYTES = 56 * 1024 * 1024
"""What arrives in the twentieth of a second before the broker looks how far behind its store is, and its copies: 28 to
44 MB by the speed of the machine. A broker that does not stop its publishers holds the 79 MB that are offered."""
STEP_BYTES = 256 * 1024
"""Growing by less than that is standing still."""
QUESTIONS = 20


async def exchange_best_effort(client: Client) -> None:
    """QoS 0 needs no disk."""
    async with client.subscribe("best-effort") as subscription:
        for number in range(QUESTIONS):
            await client.publish("best-effort", str(number))
            assert (await anext(subscription)).payload == str(number).encode()


async def settled_bytes(broker: FaultyBroker, client: Client) -> int:
    """The broker's memory once it grows no more, while best effort goes on."""
    before, now = 0, resident_bytes(broker)
    while now > before + STEP_BYTES:
        await exchange_best_effort(client)
        before, now = now, resident_bytes(broker)
    return now


async def test_while_the_disk_hangs_publishers_wait_memory_is_bounded_and_best_effort_goes_on(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with Shim(tmp_path, data_dir) as shim, FaultyBroker(data_dir, *LIMITS, environment=shim.environment) as broker:
        url = broker.url("tcp")
        await subscribe_and_leave(broker, TOPIC)
        clients = [moq.connect(url) for _ in range(PUBLISHERS)]
        async with moq.connect(url) as other, clients[0], clients[1], clients[2], clients[3]:
            await exchange_best_effort(other)
            before = resident_bytes(broker)
            shim.set(sync_hangs=True)
            waiting = [
                asyncio.create_task(client.publish(TOPIC, PAYLOAD, qos=1))
                for _ in range(MESSAGES)
                for client in clients
            ]
            await exchange_best_effort(other)
            grown = await settled_bytes(broker, other) - before
            assert not any(task.done() and task.exception() is None for task in waiting)
            shim.set()
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert grown < ALLOWED_BYTES
        # A disk that hangs for seconds is one that fails: what comes then is refused. What was taken waits for it.
        refused = [outcome for outcome in outcomes if isinstance(outcome, moq.RequestRefused)]
        assert all(outcome is None or isinstance(outcome, moq.RequestRefused) for outcome in outcomes)
        assert len(await return_and_collect(broker, TOPIC)) == len(outcomes) - len(refused)
