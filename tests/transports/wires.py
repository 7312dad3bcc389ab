"""What the transport tests share: a handler that records, and one way to open a link over each transport."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from websockets.client import ClientProtocol
from websockets.http11 import Response
from websockets.uri import parse_uri

from transports import tcp, tls, websocket
from transports.memory import MemoryNetwork
from transports.options import TransportOptions
from transports.quic import QUICOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from websockets.protocol import Event

    from certs.authority import CertificatePaths
    from moq.broker.link import Lane, Link, LinkHandler
    from transports import Listener

OPTIONS = TransportOptions(
    high_water_bytes=256 * 1024, low_water_bytes=64 * 1024, connect_timeout_s=5.0, close_timeout_s=0.3
)
PATIENCE_S = 20.0
QUIET = logging.getLogger("tests.websocket")
QUIET.setLevel(logging.WARNING)


class Recorder:
    """A handler that keeps all it is told, and lets a test wait for it."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.data: dict[int, bytearray] = defaultdict(bytearray)
        self.reads = 0
        self.finished: list[int] = []
        self.resets: list[tuple[int, int]] = []
        self.writable: list[Lane] = []
        self.closings: list[tuple[int | None, str]] = []
        self.is_reentered = False
        self.on_data: Callable[[int, bytes], None] | None = None
        self.on_writable: Callable[[Lane], None] = lambda lane: None
        self.on_closed: Callable[[int | None, str], None] = lambda reason, message: None
        self._is_called = False
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what the handler is told to make the condition true."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def received(self, count: int, lane_id: int = 0) -> bytes:
        await self.until(lambda: len(self.data[lane_id]) >= count)
        return bytes(self.data[lane_id])

    async def lane_with(self, data: bytes) -> int:
        """The id of the lane on which exactly this has come so far."""
        await self.until(lambda: data in self.data.values())
        return next(lane_id for lane_id, received in self.data.items() if received == data)

    async def closed_once(self) -> tuple[int | None, str]:
        await self.until(lambda: bool(self.closings))
        assert len(self.closings) == 1
        return self.closings[0]

    def _note(self, change: Callable[[], None]) -> None:
        self.is_reentered = self.is_reentered or self._is_called
        self._is_called = True
        try:
            change()
        finally:
            self._is_called = False
            self._changed.set()

    def data_received(self, lane_id: int, data: bytes) -> None:
        def change() -> None:
            self.data[lane_id] += data
            self.reads += 1
            if self.on_data is not None:
                self.on_data(lane_id, data)

        self._note(change)

    def lane_finished(self, lane_id: int) -> None:
        self._note(lambda: self.finished.append(lane_id))

    def lane_reset(self, lane_id: int, reason: int) -> None:
        self._note(lambda: self.resets.append((lane_id, reason)))

    def lane_writable(self, lane: Lane) -> None:
        def change() -> None:
            self.writable.append(lane)
            self.on_writable(lane)

        self._note(change)

    def closed(self, reason: int | None, message: str) -> None:
        def change() -> None:
            self.closings.append((reason, message))
            self.on_closed(reason, message)

        self._note(change)


class Wire(Protocol):
    """One transport: a server that is up, and clients of it."""

    carries_reason: bool
    """The code given to `close` reaches the peer by itself."""

    async def start(self, accept: Callable[[Link], LinkHandler]) -> None: ...
    async def connect(self, make_handler: Callable[[Link], LinkHandler]) -> Link: ...
    async def stop(self) -> None: ...


class MemoryWire:
    carries_reason = True

    def __init__(self, *, has_lanes: bool) -> None:
        self._network = MemoryNetwork(has_lanes=has_lanes, options=OPTIONS, loop=asyncio.get_running_loop())

    async def start(self, accept: Callable[[Link], LinkHandler]) -> None:
        self._accept = accept

    async def connect(self, make_handler: Callable[[Link], LinkHandler]) -> Link:
        client, _ = self._network.connect(self._accept, make_handler)
        return client

    async def stop(self) -> None:
        pass


class TCPWire:
    carries_reason = False

    def __init__(self, certificates: CertificatePaths | None) -> None:
        self._certificates = certificates

    async def start(self, accept: Callable[[Link], LinkHandler]) -> None:
        made = self._certificates
        context = tls.server_context(made.server, made.server_key) if made else None
        self._listener: Listener = await tcp.serve("127.0.0.1", 0, accept, tls=context, options=OPTIONS)

    async def connect(self, make_handler: Callable[[Link], LinkHandler]) -> Link:
        context = tls.client_context(self._certificates.ca) if self._certificates else None
        return await tcp.connect("127.0.0.1", self._listener.port, make_handler, tls=context, options=OPTIONS)

    async def stop(self) -> None:
        await self._listener.close()


class ClientWebSocket(websocket.WebSocketLink):
    """The client's side, which only tests need: the library's own client over a link of ours."""

    def __init__(self, stream: Link, make_handler: Callable[[Link], LinkHandler], opened: asyncio.Event) -> None:
        protocol = ClientProtocol(
            parse_uri("ws://localhost/mqtt"), subprotocols=[websocket.SUBPROTOCOL], max_size=None, logger=QUIET
        )
        super().__init__(stream, protocol)
        self._handler = make_handler(self)
        self._opened = opened
        protocol.send_request(protocol.connect())
        self._lane.flush()

    def _shake_hands(self, event: Event) -> None:
        assert isinstance(event, Response)
        assert event.status_code == 101
        self._opened.set()

    def closed(self, reason: int | None, message: str) -> None:
        self._opened.set()
        super().closed(reason, message)


class WebSocketWire:
    carries_reason = False

    def __init__(self, certificates: CertificatePaths | None) -> None:
        self._certificates = certificates

    async def start(self, accept: Callable[[Link], LinkHandler]) -> None:
        made = self._certificates
        context = tls.server_context(made.server, made.server_key) if made else None
        self._listener: Listener = await websocket.serve("127.0.0.1", 0, accept, tls=context, options=OPTIONS)

    async def connect(self, make_handler: Callable[[Link], LinkHandler]) -> Link:
        context = tls.client_context(self._certificates.ca) if self._certificates else None
        opened = asyncio.Event()
        links: list[ClientWebSocket] = []

        def wrap(stream: Link) -> ClientWebSocket:
            links.append(ClientWebSocket(stream, make_handler, opened))
            return links[-1]

        await tcp.connect("127.0.0.1", self._listener.port, wrap, tls=context, options=OPTIONS)
        await opened.wait()
        return links[0]

    async def stop(self) -> None:
        await self._listener.close()


class QUICWire:
    carries_reason = True

    def __init__(self, certificates: CertificatePaths, engine: str, *, single_stream: bool = False) -> None:
        self._certificates = certificates
        self._engine = engine
        self._options = replace(QUICOptions.of(OPTIONS), single_stream=single_stream)

    async def start(self, accept: Callable[[Link], LinkHandler]) -> None:
        from transports import quic

        self._listener: Listener = await quic.serve(
            "127.0.0.1",
            0,
            accept,
            certificate=self._certificates.server,
            private_key=self._certificates.server_key,
            options=self._options,
            engine=self._engine,
        )

    async def connect(self, make_handler: Callable[[Link], LinkHandler]) -> Link:
        from transports import quic

        return await quic.connect(
            "127.0.0.1",
            self._listener.port,
            make_handler,
            ca=self._certificates.ca,
            server_name="localhost",
            options=self._options,
            engine=self._engine,
        )

    async def stop(self) -> None:
        await self._listener.close()


class Bench:
    """Opens links over one wire and ends them with the test."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.recorders: list[Recorder] = []
        self.accepted: asyncio.Queue[Recorder] = asyncio.Queue()

    def record(self, link: Link) -> Recorder:
        recorder = Recorder(link)
        self.recorders.append(recorder)
        return recorder

    def accept(self, link: Link) -> LinkHandler:
        recorder = self.record(link)
        self.accepted.put_nowait(recorder)
        return recorder

    async def open(self) -> tuple[Recorder, Recorder]:
        """A connection: what its client and what its server hears."""
        link = await self.wire.connect(self.record)
        client = next(recorder for recorder in self.recorders if recorder.link is link)
        # On QUIC the server learns of stream 0 with its first byte.
        link.control.write(b"?")
        async with asyncio.timeout(PATIENCE_S):
            server = await self.accepted.get()
        await server.received(1)
        server.data.clear()
        server.reads = 0
        return client, server

    async def stop(self) -> None:
        for recorder in self.recorders:
            if not recorder.closings:
                recorder.link.abort()
        for recorder in self.recorders:
            await recorder.closed_once()
        await self.wire.stop()
        assert not any(recorder.is_reentered for recorder in self.recorders)
