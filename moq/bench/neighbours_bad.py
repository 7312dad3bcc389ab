"""Bad neighbours, all at once: a subscriber that stops reading, one that reads a byte a second, and a storm."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import transports
from moq.errors import ConnectFailed
from moq.wire import ConReq, FrameReader, Subscribe, TopAck, encode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from moq.broker.link import Lane, Link
    from transports import Target

LOAD_TOPIC: Final = "load"
WANTED: Final = Subscribe(qos=1, accepts_requests=False, alias=0, topic=LOAD_TOPIC)
START_TIMEOUT_S: Final = 30.0


class Deaf:
    """Subscribes to the load, and reads no more once that has been granted."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.subscribed = asyncio.Event()
        self._reader = FrameReader(1 << 24)

    def data_received(self, lane_id: int, data: bytes) -> None:
        """Wait for the answer, then take as little as there is."""
        if self.subscribed.is_set():
            self.rest(lane_id)
        elif any(isinstance(item, TopAck) for item in self._reader.feed(data)):
            self.subscribed.set()

    def rest(self, lane_id: int) -> None:
        """For ever."""
        self.link.pause_reading(lane_id)

    def lane_finished(self, lane_id: int) -> None:
        """Nobody listens."""

    def lane_reset(self, lane_id: int, reason: int) -> None:
        """Nobody listens."""

    def lane_writable(self, lane: Lane) -> None:
        """Nothing more is written."""

    def closed(self, reason: int | None, message: str) -> None:
        """The broker may end it for good reason."""


class PieceBySecond(Deaf):
    """Over QUIC: takes one packet's worth, and the next a second later."""

    def rest(self, lane_id: int) -> None:
        """For a second."""
        super().rest(lane_id)
        asyncio.get_running_loop().call_later(1.0, self.link.resume_reading, lane_id)


class ByteBySecond(threading.Thread):
    """Over TCP and TLS: takes one byte a second from the smallest buffer there is."""

    def __init__(self, target: Target, ca: Path) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()
        plain = socket.create_connection((target.host, target.port))
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        self._socket = plain
        if target.scheme == "tls":
            self._socket = ssl.create_default_context(cafile=str(ca)).wrap_socket(plain, server_hostname="localhost")
        self._socket.sendall(encode(ConReq(client_id="byte by second", topics=[WANTED])))

    def run(self) -> None:
        """Read, slowly, until the broker has had enough."""
        while not self._ended.wait(1.0) and self._socket.recv(1):
            pass

    def end(self) -> None:
        """Leave."""
        self._ended.set()
        self.join()
        self._socket.close()


@asynccontextmanager
async def bad_neighbours(url: str, ca: Path, storm_connections: int) -> AsyncIterator[None]:
    """All three, until the block ends."""
    target = transports.parse_url(url)
    stuck = await _join(target, ca, "stuck", Deaf)
    try:
        async with _slow_reader(target, ca), _storm(url, ca, storm_connections):
            yield
    finally:
        stuck.link.abort()


@asynccontextmanager
async def _slow_reader(target: Target, ca: Path) -> AsyncIterator[None]:
    if target.scheme == "quic":
        slow = await _join(target, ca, "slow", PieceBySecond)
        try:
            yield
        finally:
            slow.link.abort()
        return
    reader = await asyncio.to_thread(ByteBySecond, target, ca)
    reader.start()
    try:
        yield
    finally:
        await asyncio.to_thread(reader.end)


@asynccontextmanager
async def _storm(url: str, ca: Path, connections: int) -> AsyncIterator[None]:
    command = [sys.executable, "-m", "moq.bench.neighbours_storm", url, str(ca), str(connections)]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            if not await process.stdout.readline():
                raise ConnectFailed(f"the storm on {url} ended before it began")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _join(target: Target, ca: Path, client_id: str, kind: type[Deaf]) -> Deaf:
    joined: list[Deaf] = []

    def make(link: Link) -> Deaf:
        joined.append(kind(link))
        return joined[0]

    await transports.connect(target, make, ca=ca)
    joined[0].link.control.write(encode(ConReq(client_id=client_id, topics=[WANTED])))
    async with asyncio.timeout(START_TIMEOUT_S):
        await joined[0].subscribed.wait()
    return joined[0]
