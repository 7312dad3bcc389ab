"""Accept QUIC connections on a UDP port."""

from __future__ import annotations

import asyncio
import logging
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

from moq.errors import ConfigError
from moq.reasons import Reason
from transports.figures import TransportFigures
from transports.quic.connection import HANDSHAKE_TIMED_OUT, Connection
from transports.quic.endpoint import Endpoint
from transports.quic.engine import load_engine
from transports.quic.link import QUICLink, format_address
from transports.quic.options import QUICOptions
from transports.quic.packets import SMALLEST_INITIAL, encode_version_negotiation
from transports.quic.refusal import encode_refusal
from transports.quic.retry import Retry
from transports.quic.sockets import UDPSocket
from transports.quic.tickets import TicketStore
from transports.tls import server_context

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from moq.broker.link import Link, LinkHandler
    from transports.options import TransportOptions
    from transports.quic.engine import Address, Closed, EngineModule, HandshakeCompleted, ServerEngines
    from transports.quic.packets import LongHeader

logger = logging.getLogger(__name__)


class Listener:
    """A port that accepts links until it is closed."""

    def __init__(
        self,
        engine: EngineModule,
        accept: Callable[[Link], LinkHandler],
        options: QUICOptions,
        refusal: Callable[[str], str | None],
    ) -> None:
        """It needs a certificate, by `read_certificate`, and an address, by `bind`."""
        self.port = 0
        self.figures = TransportFigures()
        self._engine = engine
        self._engines: ServerEngines
        self._accept = accept
        self._refusal = refusal
        self._options = options
        self._retry = Retry() if options.retry else None
        self._endpoints: list[Endpoint] = []
        self._links: dict[Connection, QUICLink] = {}
        self._handshakes: set[Connection] = set()
        self._is_closing = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def bind(self, info: tuple[Any, ...], port: int) -> None:
        """Listen on one more address."""
        family, kind, protocol, _, address = info
        sock = socket.socket(family, kind, protocol)
        try:
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address[0], port, *address[2:]))
            self.port = sock.getsockname()[1]
            udp = UDPSocket(sock, self._options.socket_buffer_bytes)
        except OSError:
            sock.close()
            raise
        loop = asyncio.get_running_loop()
        self._endpoints.append(Endpoint(loop, udp, self._options.read_bytes, self._greet))

    def read_certificate(self, certificate: Path, private_key: Path) -> Callable[[], None]:
        """See `transports.Listener`."""
        # With tickets of its own: a client that resumes is shown no certificate, and would go on trusting the old one.
        tickets = TicketStore(self._options.max_session_tickets, self.figures)
        server_context(certificate, private_key)  # the engines do not look whether the two belong together
        try:
            engines = self._engine.server_engines(
                self._options, certificate=certificate, private_key=private_key, tickets=tickets
            )
        except (OSError, ValueError, IndexError, TypeError) as error:
            raise ConfigError(
                f"certificate {certificate} with private key {private_key} cannot be used: {error}"
            ) from error
        return partial(setattr, self, "_engines", engines)

    async def close(self) -> None:
        """Accept no more links, close those that are open, and give the port back."""
        self._is_closing = True
        for link in list(self._links.values()):
            link.close(Reason.SERVER_SHUTTING_DOWN)
        for connection in list(self._handshakes):
            connection.end(None, "the server is shutting down")
        await self._is_idle.wait()
        for endpoint in self._endpoints:
            endpoint.close()

    def _greet(self, endpoint: Endpoint, header: LongHeader, datagram: bytes, address: Address) -> Connection | None:
        """Make a connection of a stranger's first packet, or answer it without remembering anything."""
        if len(datagram) < SMALLEST_INITIAL or header.is_version_negotiation or self._is_closing:
            return None
        if header.version not in self._engines.versions:
            endpoint.send([(encode_version_negotiation(header, self._engines.versions), address)])
            return None
        if len(self._handshakes) >= self._options.max_handshakes:
            return None
        original_cid, retry_cid = header.destination_cid, None
        if self._retry is not None:
            validated = self._retry.validate(datagram, header, address)
            if isinstance(validated, bytes):
                endpoint.send([(validated, address)] if validated else [])
                return None
            original_cid, retry_cid = validated.original_cid, header.destination_cid
        if (reason := self._refusal(format_address(address))) is not None:
            endpoint.send([(encode_refusal(header, reason), address)])
            return None
        return self._admit(endpoint, header, original_cid, retry_cid, address)

    def _admit(
        self, endpoint: Endpoint, header: LongHeader, original_cid: bytes, retry_cid: bytes | None, address: Address
    ) -> Connection:
        engine = self._engines(original_cid, retry_cid)
        connection = Connection(
            endpoint,
            engine,
            address,
            options=self._options,
            on_open=self._open,
            on_failed=lambda closed: self._failed(connection, closed),
            figures=self.figures,
        )
        endpoint.add_cid(connection, header.destination_cid)
        endpoint.add_cid(connection, engine.connection_id)
        self._handshakes.add(connection)
        return connection

    def _failed(self, connection: Connection, closed: Closed) -> None:
        self._handshakes.discard(connection)
        is_late = closed.message == HANDSHAKE_TIMED_OUT
        self.figures.handshakes_failed["tls" if closed.alert is not None else "timeout" if is_late else "other"] += 1
        logger.info("the quic handshake with %s failed: %s", connection.address, closed.message)

    def _open(self, connection: Connection, event: HandshakeCompleted) -> QUICLink:
        self._handshakes.discard(connection)
        self.figures.handshakes_resumed += event.is_resumed
        self.figures.early_data_accepted += event.is_early
        link = QUICLink(
            connection,
            self._options,
            event.alpn,
            is_client=False,
            is_resumed=event.is_resumed,
            figures=self.figures,
        )
        link.start(self._accept(link), on_gone=partial(self._gone, connection))
        self._links[connection] = link
        self._is_idle.clear()
        return link

    def _gone(self, connection: Connection) -> None:
        del self._links[connection]
        if not self._links:
            self._is_idle.set()


async def serve(
    host: str,
    port: int,
    accept: Callable[[Link], LinkHandler],
    *,
    certificate: Path,
    private_key: Path,
    options: TransportOptions | None = None,
    engine: str = "aioquic",
    refusal: Callable[[str], str | None] = lambda peer: None,
) -> Listener:
    """Accept QUIC links on every address of `host`; port 0 takes a free one.

    `accept` is called for each link whose handshake is complete and gives it its handler. Before the handshake
    `refusal` says, for the address of a client, why it is refused, if it is.

    Raises:
        ConfigError: the certificate, the address or the engine cannot be used.
    """
    chosen = QUICOptions.of(options) if options is not None else QUICOptions()
    listener = Listener(load_engine(engine), accept, chosen, refusal)
    listener.read_certificate(certificate, private_key)()
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )
        for info in infos:
            listener.bind(info, listener.port or port)
    except OSError as error:
        await listener.close()
        raise ConfigError(f"cannot listen on quic://{host}:{port}: {error.strerror or error}") from error
    return listener
