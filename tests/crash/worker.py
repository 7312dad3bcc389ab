"""One process of clients: `python -m tests.crash.worker SETTINGS`, told what to do on stdin, counting on stdout.

    stdin     publish · stop · end
    stdout    a line of JSON several times a second: what this process has acknowledged, received, and waits for

At the end it writes its ledger to the file named in its settings. The load is paced (`rate`) so that subscribers keep
up and a run compares the same amount of work on every machine.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.crash.clients import Place, Publisher, Subscriber, make_client
from tests.crash.ledger import Ledger, Sent
from tests.crash.plan import Plan

TICK_S: Final = 0.01
STATUS_TICKS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one process does."""

    index: int
    processes: int
    groups: int
    ports: dict[str, int]
    data_dir: str
    ledger: str
    rate: float
    """Messages per second of this process."""
    window: int
    """Messages of one publisher that are not acknowledged."""


@dataclass(slots=True)
class Status:
    """What a process says of itself."""

    is_ready: bool = False
    acknowledged: int = 0
    refused: int = 0
    new: int = 0
    """Messages that arrived, without repetitions."""
    unfinished: int = 0


class Worker:
    """The clients of one process."""

    def __init__(self, settings: Settings) -> None:
        plan = Plan.of_groups(settings.groups).share(settings.index, settings.processes)
        place = Place(settings.ports, Path(settings.data_dir))
        self._settings = settings
        self._ledger = Ledger({flow.number: Sent() for flow in plan.flows})
        complain = self._ledger.complaints.append
        self._publishers = [
            Publisher(make_client(name, place, complain), flows, self._ledger, settings.window)
            for name, flows in plan.publishers.items()
        ]
        self._subscribers = [Subscriber(name, self._ledger) for name in plan.subscribers]
        self._clients = [publisher.client for publisher in self._publishers] + [
            make_client(one.name, place, complain, plan.subscribers[one.name], one.on_message)
            for one in self._subscribers
        ]
        self._is_publishing = False
        self._credit = 0.0
        self._first = 0
        self._end = asyncio.Event()

    async def run(self) -> None:
        """Serve the commands until the last."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read_commands, args=(loop,), daemon=True).start()
        tasks = [asyncio.create_task(client.run()) for client in self._clients]
        ticks = asyncio.create_task(self._tick())
        ended = asyncio.create_task(self._end.wait())
        done, _ = await asyncio.wait([ticks, ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {ended}:
            task.result()  # a client that gave up says why
        self._ledger.save(Path(self._settings.ledger))
        for task in (*tasks, ticks, ended):
            task.cancel()
        await asyncio.wait([*tasks, ticks, ended])

    def status(self) -> Status:
        """How far it has come."""
        return Status(
            is_ready=sum(client.is_ready for client in self._clients) == len(self._clients),
            acknowledged=sum(publisher.acknowledged for publisher in self._publishers),
            refused=sum(publisher.refused for publisher in self._publishers),
            new=sum(subscriber.new for subscriber in self._subscribers),
            unfinished=sum(client.unfinished for client in self._clients),
        )

    async def _tick(self) -> None:
        last = time.monotonic()
        count = 0
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            if self._is_publishing:
                self._publish(now - last)
            last = now
            count += 1
            if count % STATUS_TICKS == 0:
                print(json.dumps(asdict(self.status())), flush=True)

    def _publish(self, elapsed_s: float) -> None:
        """Spend what time has earned, everybody in turn, and beginning with another each time."""
        publishers = self._publishers
        self._credit = min(self._credit + elapsed_s * self._settings.rate, self._settings.rate)
        self._first = (self._first + 1) % len(publishers)
        each = -(-int(self._credit) // len(publishers))
        for publisher in publishers[self._first :] + publishers[: self._first]:
            self._credit -= publisher.send(min(each, int(self._credit)))

    def _read_commands(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(self._obey, line.strip())
        loop.call_soon_threadsafe(self._end.set)  # whoever started this process is gone

    def _obey(self, command: str) -> None:
        self._is_publishing = command == "publish"
        if command == "end":
            self._end.set()


if __name__ == "__main__":
    asyncio.run(Worker(Settings(**json.loads(sys.argv[1]))).run())
