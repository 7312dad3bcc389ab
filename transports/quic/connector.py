"""Open a QUIC connection to a server."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any

from cryptography import x509

from moq.errors import ConfigError, ConnectFailed
from transports.quic.connection import HANDSHAKE_TIMED_OUT, Connection
from transports.quic.endpoint import Endpoint
from transports.quic.engine import load_engine
from transports.quic.link import QUICLink
from transports.quic.options import QUICOptions
from transports.quic.sockets import UDPSocket

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from moq.broker.link import Link, LinkHandler
    from transports.options import TransportOptions
    from transports.quic.engine import Closed, Engine, HandshakeCompleted

NO_APPLICATION_PROTOCOL = 120
CERTIFICATE_ALERTS = frozenset((42, 43, 44, 45, 46, 48))
"""TLS alerts about a certificate: bad, unsupported, revoked, expired, unknown, of an unknown authority."""


class _Attempt:
    """The handshake with one address of the server."""

    def __init__(
        self,
        url: str,
        engine: Engine,
        make_handler: Callable[[Link], LinkHandler],
        options: QUICOptions,
        local_host: str | None,
    ) -> None:
        self._url = url
        self._engine = engine
        self._make_handler = make_handler
        self._options = options
        self._local_host = local_host
        self._opened: asyncio.Future[QUICLink] = asyncio.get_running_loop().create_future()

    async def run(self, info: tuple[Any, ...]) -> QUICLink:
        """The link, or ConnectFailed saying why not."""
        endpoint = Endpoint(asyncio.get_running_loop(), self._socket(info), self._options.read_bytes)
        address = info[4]
        connection = Connection(
            endpoint,
            self._engine,
            address,
            options=self._options,
            on_open=self._open,
            on_failed=self._failed,
        )
        endpoint.add_cid(connection, self._engine.connection_id)
        self._engine.connect(address, time.monotonic())
        connection.schedule_flush()
        try:
            return await self._opened
        except BaseException:
            connection.end(None, "not wanted any more")
            endpoint.close()
            raise

    def _socket(self, info: tuple[Any, ...]) -> UDPSocket:
        family, kind, protocol, _, address = info
        sock = socket.socket(family, kind, protocol)
        try:
            if self._local_host is not None:
                sock.bind((self._local_host, 0))
            # Connected, so that the kernel tells us when nobody listens there.
            sock.connect(address)
            return UDPSocket(sock, self._options.socket_buffer_bytes)
        except OSError:
            sock.close()
            raise

    def _open(self, connection: Connection, event: HandshakeCompleted) -> QUICLink:
        link = QUICLink(connection, self._options, event.alpn, is_client=True, is_resumed=event.is_resumed)
        try:
            link.start(self._make_handler(link))
        except Exception as error:
            if not self._opened.done():
                self._opened.set_exception(error)
            raise
        if not self._opened.done():
            self._opened.set_result(link)
        return link

    def _failed(self, closed: Closed) -> None:
        if not self._opened.done():
            self._opened.set_exception(ConnectFailed(self._explain(closed)))

    def _explain(self, closed: Closed) -> str:
        if closed.message == HANDSHAKE_TIMED_OUT:
            return f"{self._url} did not answer within {self._options.connect_timeout_s:g} s"
        if closed.alert == NO_APPLICATION_PROTOCOL:
            return f"{self._url} speaks none of our protocols ({', '.join(self._options.alpn)})"
        if closed.alert in CERTIFICATE_ALERTS and not closed.is_by_peer:
            return f"the certificate of {self._url} is not trusted: {closed.message}"
        alert = "" if closed.alert is None else f" (TLS alert {closed.alert})"
        return f"no connection to {self._url}: {closed.message or 'it was closed'}{alert}"


def _require_certificates(ca: Path | None) -> None:
    """Say what is wrong with the file of authorities now: within the handshake it would end as an internal error."""
    if ca is None:
        return
    try:
        x509.load_pem_x509_certificates(ca.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"ca file {ca} cannot be used: {getattr(error, 'strerror', None) or error}") from error


async def connect(
    host: str,
    port: int,
    make_handler: Callable[[Link], LinkHandler],
    *,
    ca: Path | None,
    server_name: str | None = None,
    options: TransportOptions | None = None,
    engine: str = "aioquic",
    session_ticket: object | None = None,
    on_session_ticket: Callable[[object], None] | None = None,
    local_host: str | None = None,
) -> QUICLink:
    """Open a QUIC link; `make_handler` gives it its handler once the handshake is complete.

    The addresses of `host` are tried one after the other until one answers. `ca` is a file of certificates to
    trust instead of the system's. A ticket from an earlier connection's `on_session_ticket` shortens the handshake.
    With `local_host` the connection comes from that address of this machine.

    Raises:
        ConnectFailed: no connection could be made; the message names host, port and cause.
        ConfigError: the engine or the certificate file cannot be used.
    """
    chosen = QUICOptions.of(options) if options is not None else QUICOptions()
    module = load_engine(engine)
    _require_certificates(ca)
    url = f"quic://[{host}]:{port}" if ":" in host else f"quic://{host}:{port}"
    failures: list[str] = []
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise ConnectFailed(f"no connection to {url}: {error.strerror or error}") from error
    for info in infos:
        attempt = _Attempt(
            url,
            module.client_engine(
                chosen,
                server_name=server_name or host,
                ca=ca,
                session_ticket=session_ticket,
                on_session_ticket=on_session_ticket,
            ),
            make_handler,
            chosen,
            local_host,
        )
        try:
            return await attempt.run(info)
        except ConnectFailed as error:
            failures.append(str(error))
        except OSError as error:
            failures.append(f"no connection to {url}: {error.strerror or error}")
    raise ConnectFailed("; ".join(dict.fromkeys(failures)))
