"""mqttv5, a broker in Rust: MQTT over QUIC with a stream per topic both ways, where `cargo install` has built it.

It opens a bidirectional stream for each topic it delivers, which begins with a flow header of its own (type 0x13, flow
identifier and expiry as QUIC's variable-length integers, flags), and reads acknowledgements on the same stream. Streams
of the publisher need no header.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from certs import authority
from moq.bench.brokers import accepting, free_port, started
from moq.bench.contenders import LinkServer
from moq.bench.rivals.install import INSTALL, rivals_directory
from moq.bench.speech import SpeaksMQTT
from transports import Target
from transports.quic import QUICOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from moq.bench.brokers import ClientEngines
    from moq.bench.sites import Site
    from moq.bench.speech import Packet

SERVER_DATA: Final = 0x13
"""The type of a server's flow header; no packet of a server begins so."""


class SpeaksMQTTInFlows(SpeaksMQTT):
    """MQTT 3.1.1 whose streams begin with a flow header."""

    def packets(self, buf: bytearray) -> Iterator[Packet]:
        """Skip the header at the beginning of a stream, then go on as ever."""
        if buf[:1] == bytes([SERVER_DATA]):
            end = _header_end(buf)
            if end is None:
                return
            del buf[:end]
        yield from super().packets(buf)


@dataclass(frozen=True, slots=True)
class MQTTv5:
    """Without persistence, a stream for each topic."""

    name: str = "mqttv5 quic"
    max_qos: int = 2
    how_to_install: str = f"{INSTALL} mqttv5 (it needs cargo)"

    def version(self) -> str | None:
        """What it says of itself."""
        program = _find()
        return None if program is None else _version(program)

    @contextlib.asynccontextmanager
    async def run(self, site: Site, engines: ClientEngines) -> AsyncIterator[LinkServer]:
        """Start it, stop it at the end."""
        program = _find()
        assert program is not None, "the contenders are chosen among those that are installed"
        with tempfile.TemporaryDirectory(prefix="moq-bench-") as name:
            directory, made = Path(name), authority.ensure(Path(name))
            tcp, quic = free_port(), free_port(socket.SOCK_DGRAM)
            command = [program, "broker", "--non-interactive", "--allow-anonymous", "--storage-backend", "memory"]
            command += ["--host", f"{site.host}:{tcp}", "--quic-host", f"{site.host}:{quic}"]
            command += ["--quic-delivery-strategy", "per-topic"]
            command += ["--tls-cert", str(made.server), "--tls-key", str(made.server_key)]
            async with started(site.command(command), directory) as process:
                await accepting(site.host, tcp)
                yield LinkServer(
                    pid=process.pid,
                    target=Target("quic", site.host, quic),
                    speech=SpeaksMQTTInFlows(),
                    engines=engines,
                    ca=made.ca,
                    options=QUICOptions(alpn=("mqtt",)),
                )


def _find() -> str | None:
    built = rivals_directory() / "mqttv5" / "bin" / "mqttv5"
    return str(built) if built.exists() else shutil.which("mqttv5")


@cache
def _version(program: str) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return said.strip().rpartition(" ")[2] or "unknown"


def _header_end(buf: bytearray) -> int | None:
    """Where a flow header ends, or None while it is not whole."""
    pos = 0
    for _ in ("type", "flow", "expiry"):
        if pos >= len(buf):
            return None
        pos += 1 << (buf[pos] >> 6)
    return pos + 1 if pos < len(buf) else None
