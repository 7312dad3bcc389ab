"""A disk that is full or broken: nobody is acknowledged falsely, the broker says so, and goes on when it is mended."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

import moq
from moq.client.connection import Reconnect
from moq.errors import RequestRefused
from tests.crash.absent import return_and_collect, subscribe_and_leave
from tests.crash.disks import disk_without_syncs, disk_without_writes, full_disk
from tests.crash.looking import get, until
from tests.crash.processes import FaultyBroker, choose_ports

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from moq.client import Client
    from tests.crash.disks import Disk

    MakeDisk = Callable[[Path], AbstractContextManager[Disk]]

TOPIC = "lamp"
MESSAGES = 60
PADDING = "." * 3000
"""Enough that what is published on a full disk does not fit what its last file has room for."""

DISKS = pytest.mark.parametrize("make_disk", [full_disk, disk_without_writes, disk_without_syncs])


@dataclass(slots=True)
class Publishing:
    """What became of each message, by its number; QoS 1 and 2 in turn."""

    client: Client
    acknowledged: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self, count: int) -> None:
        """Publish some more."""
        first = len(self.tasks)
        self.tasks += [asyncio.create_task(self._publish(number)) for number in range(first, first + count)]

    async def finish(self) -> None:
        """Wait until every message is acknowledged or refused."""
        await asyncio.gather(*self.tasks)

    async def _publish(self, number: int) -> None:
        try:
            await self.client.publish(TOPIC, f"{number} {PADDING}", qos=1 + number % 2)
        except RequestRefused:
            self.refused.add(number)
        else:
            self.acknowledged.add(number)

    def check(self, arrived: list[bytes]) -> None:
        """Everything acknowledged is there, in order, and once at QoS 2."""
        numbers = [int(payload.split()[0]) for payload in arrived]
        firsts = list(dict.fromkeys(numbers))
        assert self.acknowledged <= set(firsts)
        assert firsts == sorted(firsts)
        assert len([number for number in numbers if number % 2]) == len([number for number in firsts if number % 2])


class Scene:
    """A broker on a disk, at the same ports over its restarts."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self._ports = choose_ports()

    def start(self) -> FaultyBroker:
        """The broker, also the one after a kill."""
        disk = self.disk
        return FaultyBroker(disk.path, ports=self._ports, prefix=disk.prefix, environment=disk.environment)


def publisher_of(broker: FaultyBroker) -> Client:
    """A client that survives the broker."""
    reconnect = Reconnect(first_s=0.05, longest_s=0.2)
    return moq.connect(broker.url("tcp"), "publisher", persistent=True, reconnect=reconnect)


async def is_ready(broker: FaultyBroker, status: int) -> None:
    async def has_status() -> bool:
        return (await get(broker, "/readyz"))[0] == status

    await until(f"/readyz to say {status}", has_status)


async def break_disk_under(publishing: Publishing, broker: FaultyBroker, disk: Disk) -> None:
    """Publish while all is well, break the disk, go on publishing until the broker admits it."""
    publishing.start(MESSAGES)
    await publishing.finish()
    disk.break_()
    publishing.start(MESSAGES)
    await is_ready(broker, 503)
    _, reason = await get(broker, "/readyz")
    assert "broker.db" in reason
    assert (await get(broker, "/healthz"))[0] == 200


@DISKS
async def test_a_broken_disk_is_said_and_work_goes_on_when_it_is_mended(tmp_path: Path, make_disk: MakeDisk) -> None:
    with make_disk(tmp_path) as disk, Scene(disk).start() as broker:
        await subscribe_and_leave(broker, TOPIC)
        async with (
            publisher_of(broker) as client,
            moq.connect(broker.url("tcp")) as other,
            other.subscribe("best-effort") as subscription,
        ):
            await other.publish("best-effort", "before")
            publishing = Publishing(client)
            await break_disk_under(publishing, broker, disk)
            async with other.subscribe("new") as new:
                await other.publish("new", "here")
                assert (await anext(new)).payload == b"here"
            await other.publish("best-effort", "meanwhile")
            assert [(await anext(subscription)).payload for _ in range(2)] == [b"before", b"meanwhile"]
            disk.mend()
            await is_ready(broker, 200)
            publishing.start(MESSAGES)
            await publishing.finish()
        publishing.check(await return_and_collect(broker, TOPIC))
        assert len(publishing.acknowledged) >= 2 * MESSAGES


@DISKS
async def test_what_was_acknowledged_on_a_broken_disk_survives_a_kill(tmp_path: Path, make_disk: MakeDisk) -> None:
    with make_disk(tmp_path) as disk, ExitStack() as brokers:
        scene = Scene(disk)
        broker = brokers.enter_context(scene.start())
        await subscribe_and_leave(broker, TOPIC)
        async with publisher_of(broker) as client:
            publishing = Publishing(client)
            await break_disk_under(publishing, broker, disk)
            broker.kill()
            disk.mend()
            broker = brokers.enter_context(scene.start())
            await publishing.finish()
        publishing.check(await return_and_collect(broker, TOPIC))
        assert len(publishing.acknowledged) >= MESSAGES
