"""Transports by URL scheme: `tcp`, `tls`, `quic`, and `auto`, which stands for QUIC and TCP tried together.

Each module offers `serve` and `connect` of its own; the two functions here choose among them. QUIC is imported when
it is first asked for, so that a TCP client starts without it. `ws` and `wss` are served only: WebSocket is for clients
that speak MQTT, which ours do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from moq.errors import ConfigError
from transports.options import DEFAULTS, TransportOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from moq.broker.link import Link, LinkHandler
    from transports.figures import TransportFigures

__all__ = ["DEFAULT_PORTS", "Listener", "Target", "TransportOptions", "connect", "parse_url", "serve"]

DEFAULT_PORTS: Final = {"tcp": 1883, "tls": 8883, "quic": 14567}
SERVED_SCHEMES: Final = (*DEFAULT_PORTS, "ws", "wss")
AUTO: Final = "auto"
AUTO_SCHEMES: Final = ("quic", "tcp")


class Listener(Protocol):
    """A port that accepts links until it is closed."""

    port: int
    figures: TransportFigures

    async def close(self) -> None:
        """Accept no more links."""

    def read_certificate(self, certificate: Path, private_key: Path) -> Callable[[], None]:
        """Read another certificate. What is returned puts it to use, for links to come; those that are open go on.

        Raises:
            ConfigError: It cannot be used.
        """


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URL points to."""

    scheme: str
    host: str
    port: int | None
    """None only for `auto` without a port: each scheme then has its own default."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port is None else f":{self.port}")

    def candidates(self) -> tuple[Target, ...]:
        """The targets to try: those of `auto`, or this one."""
        if self.scheme != AUTO:
            return (self,)
        return tuple(Target(scheme, self.host, self.port or DEFAULT_PORTS[scheme]) for scheme in AUTO_SCHEMES)


def parse_url(url: str) -> Target:
    """Take `scheme://host[:port]` apart.

    Raises:
        ConfigError: it has another form, names an unknown scheme or an impossible port.
    """
    parts = urlsplit(url)
    scheme = parts.scheme
    if scheme != AUTO and scheme not in DEFAULT_PORTS:
        known = ", ".join(f"{name}://" for name in (*DEFAULT_PORTS, AUTO))
        raise ConfigError(f"url {url!r} must begin with one of {known}")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ConfigError(f"url {url!r} has a port that is not a number from 1 to 65535")
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None:
        raise ConfigError(f"url {url!r} has more than a scheme, a host and a port")
    if not parts.hostname:
        raise ConfigError(f"url {url!r} names no host")
    return Target(scheme, parts.hostname, port or DEFAULT_PORTS.get(scheme))


async def connect(
    target: Target,
    make_handler: Callable[[Link], LinkHandler],
    *,
    ca: Path | None = None,
    server_name: str | None = None,
    options: TransportOptions = DEFAULTS,
    quic_engine: str = "aioquic",
) -> Link:
    """Open a link to one of `Target.candidates()`.

    Raises:
        ConnectFailed: no connection could be made; the message says to where and why.
    """
    if target.port is None:
        raise ConfigError(f"url {str(target)!r} stands for several targets; connect to one of its candidates")
    if target.scheme == "quic":
        from transports import quic

        return await quic.connect(
            target.host,
            target.port,
            make_handler,
            ca=ca,
            server_name=server_name,
            options=options,
            engine=quic_engine,
        )
    from transports import tcp, tls

    context = tls.client_context(ca) if target.scheme == "tls" else None
    return await tcp.connect(
        target.host, target.port, make_handler, tls=context, server_name=server_name, options=options
    )


async def serve(
    scheme: str,
    host: str,
    port: int,
    accept: Callable[[Link], LinkHandler],
    *,
    certificate: Path | None = None,
    private_key: Path | None = None,
    options: TransportOptions = DEFAULTS,
    quic_engine: str = "aioquic",
    web_origins: Sequence[str] = (),
    refusal: Callable[[str], str | None] = lambda peer: None,
) -> Listener:
    """Accept links of one scheme; `tls`, `wss` and `quic` need a certificate and its key.

    Where a handshake is long and a refusal short, on QUIC, `refusal` is asked first: for the address of a client it
    says why it is refused, or None. Elsewhere refusing is for `accept`.

    Raises:
        ConfigError: the scheme, the certificate or the address cannot be used.
    """
    from transports import tcp, tls

    if scheme not in SERVED_SCHEMES:
        raise ConfigError(f"scheme {scheme!r} cannot be served; known are {', '.join(SERVED_SCHEMES)}")
    if scheme == "tcp":
        return await tcp.serve(host, port, accept, options=options)
    if scheme == "ws":
        from transports import websocket

        return await websocket.serve(host, port, accept, origins=web_origins, options=options)
    if certificate is None or private_key is None:
        raise ConfigError(f"{scheme} on {host} port {port} needs a certificate and a private key")
    if scheme == "quic":
        from transports import quic

        return await quic.serve(
            host,
            port,
            accept,
            certificate=certificate,
            private_key=private_key,
            options=options,
            engine=quic_engine,
            refusal=refusal,
        )
    context = tls.server_context(certificate, private_key)
    if scheme == "tls":
        return await tcp.serve(host, port, accept, tls=context, options=options)
    from transports import websocket

    return await websocket.serve(host, port, accept, tls=context, origins=web_origins, options=options)
