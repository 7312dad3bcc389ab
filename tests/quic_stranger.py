"""A QUIC client that is not ours, for tests: aioquic as shipped, with any protocol name and any streams."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, QuicEvent, StreamDataReceived

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

PATIENCE_S = 20.0


class Stranger(QuicConnectionProtocol):
    """Keeps what arrives on each stream; a test may open streams of any kind."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.streams: dict[int, bytes] = {}
        self.finished: set[int] = set()
        self.is_closed = False
        self._changed = asyncio.Event()

    def open_stream(self) -> int:
        """The next bidirectional stream; the first is 0."""
        stream_id = self._quic.get_next_available_stream_id()
        self._quic.send_stream_data(stream_id, b"")
        return stream_id

    def send(self, stream_id: int, data: bytes, *, is_last: bool = False) -> None:
        self._quic.send_stream_data(stream_id, data, is_last)
        self.transmit()

    def reset(self, stream_id: int, code: int) -> None:
        self._quic.reset_stream(stream_id, code)
        self.transmit()

    def stop(self, stream_id: int, code: int) -> None:
        self._quic.stop_stream(stream_id, code)
        self.transmit()

    async def received(self, stream_id: int, count: int) -> bytes:
        await self.until(lambda: len(self.streams.get(stream_id, b"")) >= count)
        return self.streams[stream_id]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived):
            self.streams[event.stream_id] = self.streams.get(event.stream_id, b"") + event.data
            if event.end_stream:
                self.finished.add(event.stream_id)
        self.is_closed |= isinstance(event, ConnectionTerminated)
        self._changed.set()


@asynccontextmanager
async def stranger(port: int, alpn: str, ca: Path) -> AsyncIterator[Stranger]:
    """A connection that is open, until the context ends."""
    trust = QuicConfiguration(alpn_protocols=[alpn], cafile=str(ca), server_name="localhost")
    async with connect("127.0.0.1", port, configuration=trust, create_protocol=Stranger) as peer:
        assert isinstance(peer, Stranger)
        yield peer
