"""A QUIC listener and clients of it, which end with the test."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.transports.wires import Recorder
from transports import quic

if TYPE_CHECKING:
    from certs.authority import CertificatePaths
    from moq.broker.link import Link
    from transports.quic import QUICOptions


class Bench:
    """A listener and clients of it; ends them all with the test."""

    def __init__(self, certificates: CertificatePaths, engine: str) -> None:
        self.certificates = certificates
        self.engine = engine
        self.accepted: asyncio.Queue[Recorder] = asyncio.Queue()
        self.recorders: list[Recorder] = []
        self.listeners: list[quic.Listener] = []

    def record(self, link: Link) -> Recorder:
        self.recorders.append(Recorder(link))
        return self.recorders[-1]

    def accept(self, link: Link) -> Recorder:
        recorder = self.record(link)
        self.accepted.put_nowait(recorder)
        return recorder

    async def serve(self, options: QUICOptions | None = None, *, host: str = "127.0.0.1") -> quic.Listener:
        listener = await quic.serve(
            host,
            0,
            self.accept,
            certificate=self.certificates.server,
            private_key=self.certificates.server_key,
            options=options,
            engine=self.engine,
        )
        self.listeners.append(listener)
        return listener

    async def connect(
        self,
        port: int,
        options: QUICOptions | None = None,
        *,
        host: str = "127.0.0.1",
        server_name: str = "localhost",
        **more: object,
    ) -> Recorder:
        link = await quic.connect(
            host,
            port,
            self.record,
            ca=self.certificates.ca,
            server_name=server_name,
            options=options,
            engine=self.engine,
            **more,  # type: ignore[arg-type]
        )
        return next(recorder for recorder in self.recorders if recorder.link is link)

    async def open(
        self, server_options: QUICOptions | None = None, client_options: QUICOptions | None = None
    ) -> tuple[Recorder, Recorder]:
        listener = await self.serve(server_options)
        client = await self.connect(listener.port, client_options or server_options)
        server = await self.accepted.get()
        return client, server

    async def stop(self) -> None:
        for recorder in self.recorders:
            if not recorder.closings:
                recorder.link.abort()
        for recorder in self.recorders:
            await recorder.closed_once()
        for listener in self.listeners:
            await listener.close()
