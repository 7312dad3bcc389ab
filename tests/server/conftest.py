"""A server on free ports of the loopback, with certificates of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from moq.config import BrokerConfig
from moq.server import Server
from tests.server.wire_client import Wires

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
def config(data_dir: Path) -> BrokerConfig:
    return BrokerConfig(
        tcp_port=0, tls_port=0, quic_port=0, http_port=0, websocket_port=0, wss_port=0, data_dir=data_dir
    )


@pytest.fixture
async def server(config: BrokerConfig) -> AsyncIterator[Server]:
    async with Server(config) as running:
        yield running


@pytest.fixture
async def wires() -> AsyncIterator[Wires]:
    async with Wires() as clients:
        yield clients
