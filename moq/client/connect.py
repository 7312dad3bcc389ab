"""`connect`: from a URL to a client. The composition root: here the client meets the transports.

`auto://host` starts a QUIC and a TCP connection at the same moment and keeps one. TCP means TLS if a certificate
authority is known or the host is not this machine: a password never leaves it in the clear. The first connection
that stands wins, except that QUIC, whose handshake does more, may come a moment later (`QUIC_PREFERENCE_S`): without
that, plain TCP would win every race it could run. `auto://host?quic=14567&tcp=1883&tls=8883` names the ports.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import transports
from moq.client.client import Client
from moq.client.connection import Reconnect
from moq.client.session import ClientSession, SessionOptions
from moq.config import LOOPBACK_HOSTS, QUIC_ENGINES
from moq.errors import ConfigError, ConnectFailed
from moq.trace.client import ClientTrace
from moq.trace.clock import now_ns
from moq.trace.schema import CLIENT
from moq.trace.writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.broker.link import Link, LinkHandler
    from moq.client.messages import Will
    from transports import Target

    MakeHandler = Callable[[Link], LinkHandler]

AUTO = "auto"

QUIC_PREFERENCE_S = 0.25
"""How long a TCP connection that stands waits for QUIC: RFC 8305's delay between attempts."""

RECONNECT_EXPIRY_S = 300
"""How long the broker is asked to keep the session of a client that will come back."""


def connect(
    url: str,
    client_id: str | None = None,
    *,
    user_name: str | None = None,
    password: str | bytes | None = None,
    resume: bool = False,
    persistent: bool = False,
    expiry_s: int | None = None,
    keep_alive_s: int = 60,
    initial_will: Will | None = None,
    last_will: Will | None = None,
    ca: str | Path | None = None,
    server_name: str | None = None,
    data_dir: str | Path | None = None,
    quic_engine: str = "aioquic",
    reconnect: bool | Reconnect = True,
    connect_timeout_s: float = 10.0,
    window: int = 1000,
    max_packet_bytes: int = 16 * 1024 * 1024,
    stamp: bool = False,
    trace: str | Path | None = None,
    trace_sample: float = 1.0,
    qlog: str | Path | None = None,
) -> Client:
    """A client of the broker at a URL: `async with moq.connect("quic://localhost") as client:`.

    Args:
        url: `quic://`, `tcp://`, `tls://` or `auto://`, a host and, unless it is the default, a port.
        client_id: the name of the session; without one the broker assigns it.
        user_name: login.
        password: login.
        resume: continue the session the broker has kept under `client_id`.
        persistent: the session shall survive a restart of the broker.
        expiry_s: seconds the session outlives a connection that was lost; unless given, long enough to reconnect. Only
            a persistent session outlives a connection that was closed.
        keep_alive_s: how often the broker asks whether we are there.
        initial_will: published by the broker when we connect.
        last_will: published by the broker when we vanish.
        ca: trust the authorities in this file.
        server_name: the name the broker's certificate is for, if it is not the host.
        data_dir: where the broker's development authority is found; `MOQ_DATA_DIR` or `.moq` unless given.
        quic_engine: `aioquic` or `qh3`.
        reconnect: connect again when the connection is lost; a `Reconnect` says how patiently.
        connect_timeout_s: for each attempt, login included.
        window: messages sent and not yet acknowledged.
        max_packet_bytes: largest message accepted.
        stamp: give each message the time at which it was published; `trace` does so too.
        trace: record what is sent and received in this directory, as Parquet; needs the `[trace]` extra.
        trace_sample: the probability with which a message is recorded.
        qlog: write a qlog file of each QUIC connection into this directory.

    Raises:
        ConfigError: the URL or a setting cannot be used. (Entering the client raises ConnectFailed if nobody answers.)
    """
    if quic_engine not in QUIC_ENGINES:
        raise ConfigError(f"quic_engine is {quic_engine!r}; known are {', '.join(QUIC_ENGINES)}")
    if expiry_s is None and reconnect and not persistent:
        expiry_s = RECONNECT_EXPIRY_S
    authority = find_authority(ca, data_dir)
    dialler = Dialler(parse_targets(url, authority), url, authority, server_name, quic_engine, _options(qlog))
    options = SessionOptions(
        user_name=user_name,
        password=password,
        persistent=persistent,
        keep_alive_s=keep_alive_s,
        expiry_s=expiry_s,
        initial_will=initial_will,
        last_will=last_will,
        window=window,
        max_packet_bytes=max_packet_bytes,
    )
    if reconnect is True:
        reconnect = Reconnect()
    return Client(
        dialler.dial,
        ClientSession(client_id, resume=resume),
        options,
        where=url,
        reconnect=reconnect or None,
        connect_timeout_s=connect_timeout_s,
        tracer=None if trace is None else ClientTrace(TraceWriter(Path(trace), CLIENT, sample=trace_sample)),
        stamp_ns=now_ns if stamp or trace is not None else None,
    )


def _options(qlog: str | Path | None) -> transports.TransportOptions:
    if qlog is None:
        return transports.TransportOptions()
    from transports.quic import QUICOptions  # a client that uses TCP starts without it

    return QUICOptions(qlog=Path(qlog))


def find_authority(ca: str | Path | None, data_dir: str | Path | None) -> Path | None:
    """The certificate authority to trust: the one given, else the development one if there is one, else None."""
    if ca is not None:
        path = Path(ca)
        if not path.is_file():
            raise ConfigError(f"ca is {str(path)!r}; there is no such file")
        return path
    root = Path(data_dir if data_dir is not None else os.environ.get("MOQ_DATA_DIR", ".moq"))
    development = root / "certs" / "ca.pem"
    return development if development.is_file() else None


def parse_targets(url: str, authority: Path | None) -> tuple[Target, ...]:
    """The addresses to try, in order of preference."""
    parts = urlsplit(url)
    if parts.scheme != AUTO:
        return (transports.parse_url(url),)
    host = transports.parse_url(parts._replace(query="").geturl()).host
    if parts.port is not None:
        raise ConfigError(f"url {url!r} names one port; auto:// takes one each: auto://{host}?quic=...&tcp=...")
    ports = dict(transports.DEFAULT_PORTS)
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in ports or not value.isdigit() or not 0 < int(value) <= 65535:
            raise ConfigError(f"url {url!r} says {name}={value}; auto:// takes quic, tcp and tls ports of 1 to 65535")
        ports[name] = int(value)
    fallback = "tcp" if authority is None and host in LOOPBACK_HOSTS else "tls"
    return tuple(transports.Target(scheme, host, ports[scheme]) for scheme in ("quic", fallback))


@dataclass(frozen=True, slots=True)
class Dialler:
    """Opens links to a broker, to whichever of its addresses answers."""

    targets: tuple[Target, ...]
    url: str
    authority: Path | None
    server_name: str | None
    quic_engine: str
    options: transports.TransportOptions

    async def dial(self, make_handler: MakeHandler) -> Link:
        """A new link.

        Raises:
            ConnectFailed: no address answers.
        """
        if len(self.targets) == 1:
            try:
                return await self._open(self.targets[0], make_handler)
            except ConnectFailed as error:
                raise self._nobody([error]) from error
        return await self._race(make_handler)

    async def _open(self, target: Target, make_handler: MakeHandler) -> Link:
        return await transports.connect(
            target,
            make_handler,
            ca=self.authority,
            server_name=self.server_name,
            quic_engine=self.quic_engine,
            options=self.options,
        )

    async def _race(self, make_handler: MakeHandler) -> Link:
        """Open all at once, keep one, give up the others."""
        attempts = [asyncio.create_task(self._open(target, make_handler)) for target in self.targets]
        kept: asyncio.Task[Link] | None = None
        try:
            kept = await _first_open(attempts)
        finally:
            await _give_up([attempt for attempt in attempts if attempt is not kept])
        if kept is None:
            raise self._nobody([attempt.exception() for attempt in attempts])
        return kept.result()

    def _nobody(self, errors: list[BaseException | None]) -> ConnectFailed:
        reasons = "; ".join(str(error) for error in errors)
        return ConnectFailed(f"no broker answers at {self.url} (is `scripts/broker` running?): {reasons}")


async def _first_open(attempts: list[asyncio.Task[Link]]) -> asyncio.Task[Link] | None:
    """The first attempt to succeed, or the preferred one if that follows within its grace; None if all fail."""
    preferred = attempts[0]
    waiting = set(attempts)
    first: asyncio.Task[Link] | None = None
    while first is None and waiting:
        _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        first = next((attempt for attempt in attempts if _is_open(attempt)), None)
    if not preferred.done():
        await asyncio.wait([preferred], timeout=QUIC_PREFERENCE_S)
    return preferred if _is_open(preferred) else first


def _is_open(attempt: asyncio.Task[Link]) -> bool:
    return attempt.done() and not attempt.cancelled() and attempt.exception() is None


async def _give_up(attempts: list[asyncio.Task[Link]]) -> None:
    """End the attempts that are not wanted, also those that have succeeded meanwhile."""
    for attempt in attempts:
        attempt.cancel()
    await asyncio.wait(attempts)
    for attempt in attempts:
        if _is_open(attempt):
            attempt.result().abort()
