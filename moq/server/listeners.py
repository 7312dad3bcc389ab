"""The ports a broker listens on: one for each transport, with the certificate and the bounds of its configuration."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import certs
import transports
from moq.config import WEBSOCKET_PORT, WSS_PORT
from moq.errors import ConfigError
from transports.quic import QUICOptions
from transports.websocket import WebSocketOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from moq.broker.link import Link, LinkHandler
    from moq.config import BrokerConfig

logger = logging.getLogger(__name__)

SETTINGS: Final = {
    "tcp": "tcp_port",
    "tls": "tls_port",
    "quic": "quic_port",
    "ws": "websocket_port",
    "wss": "wss_port",
}
"""The setting that has the port of each scheme."""

DEFAULT_PORTS: Final = {"ws": WEBSOCKET_PORT, "wss": WSS_PORT}
"""Tried where no port is set; a free one is taken if that is not to be had."""

MIN_FRAME_BYTES: Final = 1024 * 1024
"""However small packets must be, a WebSocket client may put many of them into one frame."""


async def open_listeners(
    config: BrokerConfig, accept: Callable[[Link], LinkHandler], refusal: Callable[[str], str | None]
) -> AsyncIterator[tuple[str, transports.Listener]]:
    """Open them one by one: what was given is the caller's to close, also if the next one fails.

    Raises:
        ConfigError: A port is taken or cannot be bound; the message begins with its setting.
    """
    where = certs.ensure(config.data_dir)
    options = _options(config)
    origins = [origin for text in config.websocket_origins.split(",") if (origin := text.strip())]

    async def serve(scheme: str, port: int) -> transports.Listener:
        try:
            return await transports.serve(
                scheme,
                config.host,
                port,
                accept,
                certificate=where.server,
                private_key=where.server_key,
                options=options[scheme],
                quic_engine=config.quic_engine,
                web_origins=origins,
                refusal=refusal,
            )
        except (OSError, ConfigError) as error:
            raise ConfigError(f"{SETTINGS[scheme]} is {port}: {error}") from error

    for scheme, setting in SETTINGS.items():
        port: int | None = getattr(config, setting)
        if port is not None:
            yield scheme, await serve(scheme, port)
            continue
        try:
            listener = await serve(scheme, DEFAULT_PORTS[scheme])
        except ConfigError as error:
            listener = await serve(scheme, 0)
            logger.warning("%s; port %d is used instead", error, listener.port)
        yield scheme, listener


def _options(config: BrokerConfig) -> dict[str, transports.TransportOptions]:
    limits = config.limits
    high, low = limits.max_unsent_bytes, limits.max_unsent_bytes // 4
    plain = transports.TransportOptions(high_water_bytes=high, low_water_bytes=low)
    framed = WebSocketOptions(
        high_water_bytes=high, low_water_bytes=low, max_frame_bytes=max(limits.max_packet_bytes, MIN_FRAME_BYTES)
    )
    quic = QUICOptions(
        high_water_bytes=high,
        low_water_bytes=low,
        alpn=("mmqp", "mqtt"),
        single_stream=config.quic_streams == "single",
        qlog=config.qlog,
    )
    return {"tcp": plain, "tls": plain, "quic": quic, "ws": framed, "wss": framed}
