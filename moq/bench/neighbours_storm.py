"""A connection storm as a process of its own: `python -m moq.bench.neighbours_storm URL CA CONNECTIONS`, until killed.

It keeps many connections under way at once, says who it is on each, hears the answer and leaves. It runs at the lowest
priority: what is measured beside it is what the broker makes of the storm, not who gets the processor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import transports
from moq.errors import MoqError
from moq.wire import ConReq, encode

if TYPE_CHECKING:
    from moq.broker.link import Lane, Link


class Caller:
    """Says who it is, and leaves when it hears anything."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.is_over = asyncio.Event()
        link.control.write(encode(ConReq()))

    def data_received(self, lane_id: int, data: bytes) -> None:
        """That is enough."""
        self.link.abort()

    def lane_finished(self, lane_id: int) -> None:
        """So is this."""
        self.link.abort()

    def lane_reset(self, lane_id: int, reason: int) -> None:
        """The link's end follows."""

    def lane_writable(self, lane: Lane) -> None:
        """Nothing more is written."""

    def closed(self, reason: int | None, message: str) -> None:
        """The next one may begin."""
        self.is_over.set()


async def call(target: transports.Target, ca: Path, has_begun: asyncio.Event) -> None:
    """Connect again and again."""
    callers: list[Caller] = []

    def make(link: Link) -> Caller:
        callers.append(Caller(link))
        return callers[-1]

    while True:
        callers.clear()
        with contextlib.suppress(MoqError):
            await transports.connect(target, make, ca=ca)
            await callers.pop().is_over.wait()
            has_begun.set()


async def storm(url: str, ca: Path, connections: int) -> None:
    """Keep connections under way until killed; say when the first was answered."""
    target, has_begun = transports.parse_url(url), asyncio.Event()
    calls = asyncio.gather(*(call(target, ca, has_begun) for _ in range(connections)))
    await has_begun.wait()
    print("storming", flush=True)
    await calls


if __name__ == "__main__":
    os.nice(19)
    asyncio.run(storm(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
