"""`moq broker --check-config`: what would keep a broker with these settings from starting, or from reading them again.

Nothing is made or changed: the broker may be running meanwhile.
"""

from __future__ import annotations

import os
import tomllib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import certs
from moq.errors import ConfigError
from moq.security.access import load_rules
from moq.security.users import load_users
from moq.trace.writer import EXTRA
from transports.tls import server_context

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from moq.config import BrokerConfig

TCP_PORTS: Final = ("tcp_port", "tls_port", "http_port", "websocket_port", "wss_port")
"""Those that exclude each other; QUIC has its own, of UDP."""


def complaints(config: BrokerConfig, args: argparse.Namespace) -> list[str]:
    """Everything that is wrong with settings that are well-formed: file, setting, value and rule of each."""
    in_file = set() if args.config is None else tomllib.loads(args.config.read_text()).keys()
    found = []
    for check in (_check_ports, _check_files, _check_directories, _check_certificate):
        for name, complaint in check(config):
            is_from_file = name in in_file and getattr(args, name) is None
            found.append(f"{args.config}: {complaint}" if is_from_file else complaint)
    return found


def _check_ports(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    taken: dict[int, str] = {}
    for name in TCP_PORTS:
        port = getattr(config, name)
        if not port:  # any free one
            continue
        if port in taken:
            yield name, f"{name} is {port}, which is {taken[port]} too; each listener needs a port of its own"
        taken.setdefault(port, name)


def _check_files(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    readers: tuple[tuple[str, Callable[[Path], object]], ...] = (
        ("users_file", load_users),
        ("access_file", load_rules),
    )
    for name, load in readers:
        path: Path | None = getattr(config, name)
        try:
            if path is not None:
                load(path)
        except ConfigError as error:
            yield name, f"{name} is {str(path)!r}: {error}"


def _check_directories(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    for name in ("data_dir", "trace", "qlog"):
        path: Path | None = getattr(config, name)
        if path is None:
            continue
        nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
        if not nearest.is_dir():
            yield name, f"{name} is {str(path)!r}: {nearest} is not a directory"
        elif not os.access(nearest, os.W_OK | os.X_OK):
            yield name, f"{name} is {str(path)!r}: {nearest} cannot be written to"
    if config.trace is not None and find_spec("pyarrow") is None:
        yield "trace", f"trace is {str(config.trace)!r}: it needs Arrow; install it with {EXTRA}"


def _check_certificate(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """Look at a certificate that is there; where there is none the broker makes one."""
    where = certs.paths(config.data_dir)
    try:
        if where.server.exists():
            server_context(where.server, where.server_key)
    except ConfigError as error:
        yield "data_dir", f"data_dir is {str(config.data_dir)!r}: {error}"
