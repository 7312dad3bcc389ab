"""A TLS connection that is gone leaves nothing for the garbage collector: its buffers are large, and storms happen."""

from __future__ import annotations

import asyncio
import gc
import socket
from asyncio import sslproto
from typing import TYPE_CHECKING

import pytest

import certs
from tests.server.wire_client import PATIENCE_S, until
from transports import tcp, tls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from moq.broker.link import Lane, Link


class Handler:
    """Hears of nothing but the end."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.is_over = asyncio.Event()

    def data_received(self, lane_id: int, data: bytes) -> None: ...
    def lane_finished(self, lane_id: int) -> None: ...
    def lane_reset(self, lane_id: int, reason: int) -> None: ...
    def lane_writable(self, lane: Lane) -> None: ...
    def closed(self, reason: int | None, message: str) -> None:
        self.is_over.set()


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def connections() -> int:
    return sum(isinstance(each, sslproto.SSLProtocol) for each in gc.get_objects())


@pytest.mark.usefixtures("uncollected")
async def test_a_link_that_is_gone_keeps_no_tls_buffer(tmp_path: Path) -> None:
    where = certs.ensure(tmp_path)
    handlers: list[Handler] = []

    def accept(link: Link) -> Handler:
        handlers.append(Handler(link))
        return handlers[-1]

    context = tls.server_context(where.server, where.server_key)
    listener = await tcp.serve("127.0.0.1", 0, accept, tls=context)
    before = connections()
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(5):
            link = await tcp.connect(
                "127.0.0.1", listener.port, Handler, tls=tls.client_context(where.ca), server_name="localhost"
            )
            link.abort()
            await until(lambda: bool(handlers))
            await handlers.pop().is_over.wait()
        await until(lambda: connections() == before)
    await listener.close()


@pytest.mark.usefixtures("uncollected")
async def test_a_handshake_that_failed_keeps_no_tls_buffer(tmp_path: Path) -> None:
    where = certs.ensure(tmp_path)
    context = tls.server_context(where.server, where.server_key)
    listener = await tcp.serve("127.0.0.1", 0, Handler, tls=context)
    before = connections()
    for words in (b"", b"this is no TLS"):
        caller = socket.create_connection(("127.0.0.1", listener.port))
        await until(lambda: connections() > before)
        caller.send(words)
        caller.close()
        await until(lambda: connections() == before)
    await listener.close()
