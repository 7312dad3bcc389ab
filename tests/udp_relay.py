"""A UDP relay on loopback between one QUIC client and a server: it loses datagrams, and can change its address."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable


class _Side(asyncio.DatagramProtocol):
    def __init__(self, arrived: Callable[[bytes, tuple[str, int]], None]) -> None:
        self._arrived = arrived

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._arrived(data, addr)


class UDPRelay:
    """`async with UDPRelay(port) as relay`: clients connect to `relay.port`."""

    def __init__(self, server_port: int, *, loses_every: int = 0) -> None:
        """`loses_every` so many datagrams of each direction one is lost, from the moment `is_lossy` is set."""
        self.port = 0
        self.lost = 0
        self.is_lossy = False
        self._server_port = server_port
        self._loses_every = loses_every
        self._passed = 0
        self._client: tuple[str, int] | None = None
        self._transports: list[asyncio.DatagramTransport] = []

    async def __aenter__(self) -> Self:
        self._front = await self._open(self._from_client)
        self.port = self._front.get_extra_info("sockname")[1]
        self._back = await self._open(self._from_server)
        return self

    async def __aexit__(self, *_: object) -> None:
        for transport in self._transports:
            transport.close()

    async def move(self) -> None:
        """Go on from another port, as a client does whose network has changed."""
        self._back = await self._open(self._from_server)

    async def _open(self, arrived: Callable[[bytes, tuple[str, int]], None]) -> asyncio.DatagramTransport:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: _Side(arrived), local_addr=("127.0.0.1", 0))
        self._transports.append(transport)
        return transport

    def _from_client(self, data: bytes, address: tuple[str, int]) -> None:
        self._client = address
        if not self._is_lost():
            self._back.sendto(data, ("127.0.0.1", self._server_port))

    def _from_server(self, data: bytes, address: tuple[str, int]) -> None:
        if self._client is not None and not self._is_lost():
            self._front.sendto(data, self._client)

    def _is_lost(self) -> bool:
        if not (self.is_lossy and self._loses_every):
            return False
        self._passed += 1
        is_lost = self._passed % self._loses_every == 0
        self.lost += is_lost
        return is_lost
