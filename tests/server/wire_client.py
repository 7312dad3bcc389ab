"""Clients of a few lines on real sockets: packets out, packets in."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Self

from moq.reasons import Reason
from moq.wire import ConAck, ConReq, FrameReader, Packet, Register, Subscribe, TopAck, TopReq, encode

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

PATIENCE_S = 20
"""How long one thing may take; only a broken server takes as long."""


class WireClient:
    """One connection; `read` gives the next packet, or None once the server has closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader(1 << 24)
        self._packets: list[Packet] = []

    async def ask(self, request: Subscribe | Register) -> None:
        self.send(TopReq(1, [request]))
        assert await self.read() == TopAck(1, bytes((Reason.SUCCESS,)))

    def send(self, *packets: Packet) -> None:
        self.send_bytes(b"".join(encode(packet) for packet in packets))

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def read(self) -> Packet | None:
        async with asyncio.timeout(PATIENCE_S):
            while not self._packets:
                data = await self._reader.read(65536)
                if not data:
                    return None
                for item in self._frames.feed(data):
                    assert isinstance(item, Packet)
                    self._packets.append(item)
        return self._packets.pop(0)

    async def read_to_the_end(self) -> list[Packet]:
        """Everything until the server closes; then this side closes too."""
        packets: list[Packet] = []
        while (packet := await self.read()) is not None:
            packets.append(packet)
        await self.close()
        return packets

    def abort(self) -> None:
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):  # the server may have been faster
            await self._writer.wait_closed()


class Wires:
    """The clients of one test: `async with Wires() as wires`, which closes them all."""

    def __init__(self) -> None:
        self._clients: list[WireClient] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.close()

    async def open(self, port: int, tls: ssl.SSLContext | None = None) -> WireClient:
        """A connection on which nothing was said."""
        hostname = "localhost" if tls is not None else None
        streams = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=hostname)
        self._clients.append(WireClient(*streams))
        return self._clients[-1]

    async def connect(self, port: int, client_id: str, tls: ssl.SSLContext | None = None) -> WireClient:
        """A client that was accepted."""
        client = await self.open(port, tls)
        client.send(ConReq(client_id=client_id))
        assert await client.read() == ConAck(False, Reason.SUCCESS)
        return client


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what a server shows only in its figures."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - figures have no event to wait for
            await asyncio.sleep(0)
