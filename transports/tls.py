"""TLS of both sides of a `tls` link: version 1.2 or newer, the certificate shown, the authorities trusted."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from moq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def server_context(certificate: Path, private_key: Path) -> ssl.SSLContext:
    """Present this certificate.

    Raises:
        ConfigError: a file cannot be read, or the two do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, private_key)
    except OSError as error:
        raise ConfigError(f"certificate {certificate} with private key {private_key}: {_why(error)}") from error
    return context


def read_certificate(context: ssl.SSLContext, certificate: Path, private_key: Path) -> Callable[[], None]:
    """Try another certificate; what is returned makes this context present it to connections to come.

    Raises:
        ConfigError: as above.
    """
    chosen = server_context(certificate, private_key)

    def choose(connection: ssl.SSLObject, name: str | None, initial: ssl.SSLContext) -> None:
        connection.context = chosen

    # Not by reading the files into the context: they may have changed since, and this must not fail half-way.
    return lambda: setattr(context, "sni_callback", choose)


def client_context(ca: Path | None = None) -> ssl.SSLContext:
    """Trust the authorities in this file, or the system's without one.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise ConfigError(f"certificate authority {ca}: {_why(error)}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _why(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)
