"""A real broker on free ports, in the test's own event loop, and clients of it over every transport."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

import moq
from moq.config import BrokerConfig
from moq.server import Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SCHEMES = ("tcp", "tls", "quic")


class Brokers:
    """Starts brokers, again on the same ports if asked to, and connects clients; all end with the test."""

    def __init__(self, data_dir: Path, stack: AsyncExitStack) -> None:
        self._data_dir = data_dir
        self._stack = stack
        self._running: AsyncExitStack | None = None
        self.ports = dict.fromkeys((*SCHEMES, "http"), 0)

    async def start(self) -> Server:
        config = BrokerConfig(
            **{f"{name}_port": port for name, port in self.ports.items()},  # type: ignore[arg-type]
            data_dir=self._data_dir,
            sys_interval_s=0,
        )
        self._running = AsyncExitStack()
        server = await self._running.enter_async_context(Server(config))
        self._stack.push_async_callback(self.stop)
        self.ports = {name: server.ports[name] for name in self.ports}
        return server

    async def stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.aclose()

    def url(self, scheme: str) -> str:
        return f"{scheme}://localhost:{self.ports[scheme]}"

    def client(self, scheme: str, client_id: str | None = None, **options: Any) -> moq.Client:
        options.setdefault("reconnect", moq.Reconnect(first_s=0.01, longest_s=0.1))
        return moq.connect(self.url(scheme), client_id, data_dir=self._data_dir, **options)

    async def connect(self, scheme: str, client_id: str | None = None, **options: Any) -> moq.Client:
        return await self._stack.enter_async_context(self.client(scheme, client_id, **options))


@pytest.fixture
async def brokers(data_dir: Path) -> AsyncIterator[Brokers]:
    async with AsyncExitStack() as stack:
        brokers = Brokers(data_dir, stack)
        await brokers.start()
        yield brokers


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)
