"""A listener that is given another certificate shows it to new peers and keeps the links it has."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

import transports
from certs import authority
from moq.errors import ConfigError, ConnectFailed
from tests.transports.wires import PATIENCE_S, Recorder
from transports import tls
from transports.quic import QUICOptions
from transports.websocket import WebSocketOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from certs.authority import CertificatePaths
    from moq.broker.link import Link
    from transports import Listener

SERVED = [("tls", "aioquic"), ("quic", "aioquic"), ("quic", "qh3")]
OPTIONS = {"tls": transports.TransportOptions(), "quic": QUICOptions(), "wss": WebSocketOptions()}


class Served:
    """A listener of one scheme, and the handlers of the links it accepted."""

    def __init__(self, scheme: str, engine: str) -> None:
        self.scheme = scheme
        self.engine = engine
        self.accepted: list[Recorder] = []
        self.listener: Listener

    def accept(self, link: Link) -> Recorder:
        self.accepted.append(Recorder(link))
        return self.accepted[-1]

    async def connect(self, ca: Path) -> Recorder:
        handlers: list[Recorder] = []

        def make(link: Link) -> Recorder:
            handlers.append(Recorder(link))
            return handlers[-1]

        target = transports.Target(self.scheme, "localhost", self.listener.port)
        await transports.connect(target, make, ca=ca, options=OPTIONS[self.scheme], quic_engine=self.engine)
        return handlers[0]


@asynccontextmanager
async def serving(scheme: str, engine: str, made: CertificatePaths) -> AsyncIterator[Served]:
    served = Served(scheme, engine)
    served.listener = await transports.serve(
        scheme,
        "localhost",
        0,
        served.accept,
        certificate=made.server,
        private_key=made.server_key,
        options=OPTIONS[scheme],
        quic_engine=engine,
    )
    try:
        yield served
    finally:
        await served.listener.close()
        for handler in served.accepted:
            handler.link.abort()


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> CertificatePaths:
    return authority.ensure(tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> CertificatePaths:
    return authority.ensure(tmp_path_factory.mktemp("new"))


@pytest.mark.parametrize(("scheme", "engine"), SERVED)
async def test_new_peers_are_shown_the_new_certificate_and_old_links_go_on(
    scheme: str, engine: str, old: CertificatePaths, new: CertificatePaths
) -> None:
    async with serving(scheme, engine, old) as served:
        before = await served.connect(old.ca)
        use = served.listener.read_certificate(new.server, new.server_key)
        still_old = await served.connect(old.ca)
        use()
        after = await served.connect(new.ca)
        with pytest.raises(ConnectFailed, match="not trusted"):
            await served.connect(old.ca)
        for client in (before, still_old, after):
            client.link.control.write(b"here")
        for handler in served.accepted:
            assert await handler.received(4) == b"here"
            handler.link.control.write(b"there")
        for client in (before, still_old, after):
            assert await client.received(5) == b"there"
            client.link.close(0)


async def test_a_websocket_listener_shows_the_new_certificate_too(old: CertificatePaths, new: CertificatePaths) -> None:
    async with serving("wss", "aioquic", old) as served, asyncio.timeout(PATIENCE_S):
        served.listener.read_certificate(new.server, new.server_key)()
        _, writer = await asyncio.open_connection("localhost", served.listener.port, ssl=tls.client_context(new.ca))
        writer.close()


@pytest.mark.parametrize(("scheme", "engine"), [*SERVED, ("wss", "aioquic")])
async def test_a_certificate_that_cannot_be_used_changes_nothing(
    scheme: str, engine: str, old: CertificatePaths, new: CertificatePaths, tmp_path: Path
) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    async with serving(scheme, engine, old) as served:
        for certificate, key in (
            (new.server, old.server_key),
            (garbage, new.server_key),
            (new.server, garbage),
            (tmp_path / "missing.pem", new.server_key),
        ):
            with pytest.raises(ConfigError, match=f"certificate {certificate} with private key {key}"):
                served.listener.read_certificate(certificate, key)
        if scheme != "wss":
            (await served.connect(old.ca)).link.close(0)


async def test_a_listener_without_a_certificate_has_nothing_to_replace(tmp_path: Path) -> None:
    listener = await transports.serve("tcp", "localhost", 0, Recorder)
    listener.read_certificate(tmp_path / "missing.pem", tmp_path / "missing.key")()
    await listener.close()
