"""Mosquitto, from Debian's packages: MQTT 3.1.1 over TCP or TLS."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from certs import authority
from moq.bench.brokers import MOSQUITTO_CONFIG, accepting, find_mosquitto, free_port, started
from moq.bench.contenders import LinkServer
from moq.bench.speech import SpeaksMQTT
from transports import Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from moq.bench.brokers import ClientEngines
    from moq.bench.sites import Site

SETTINGS: Final = "persistence false\n"
TLS_SETTINGS: Final = "cafile {ca}\ncertfile {certificate}\nkeyfile {key}\n"
AS_ROOT: Final = "user root\n"
"""Otherwise it gives up its rights before it reads a key that is for its owner alone."""


@dataclass(frozen=True, slots=True)
class Mosquitto:
    """Without persistence, logging or limits on its queues."""

    name: str
    is_encrypted: bool = False
    max_qos: int = 2
    how_to_install: str = "apt install mosquitto"

    def version(self) -> str | None:
        """What it says of itself."""
        program = find_mosquitto()
        return None if program is None else _version(program)

    @contextlib.asynccontextmanager
    async def run(self, site: Site, engines: ClientEngines) -> AsyncIterator[LinkServer]:
        """Start it, stop it at the end."""
        program = find_mosquitto()
        assert program is not None, "the contenders are chosen among those that are installed"
        with tempfile.TemporaryDirectory(prefix="moq-bench-") as name:
            directory, port = Path(name), free_port()
            settings = MOSQUITTO_CONFIG.format(host=site.host, port=port) + SETTINGS
            made = authority.ensure(directory)
            if self.is_encrypted:
                settings += TLS_SETTINGS.format(ca=made.ca, certificate=made.server, key=made.server_key)
                settings += AS_ROOT if os.geteuid() == 0 else ""
            config = directory / "mosquitto.conf"
            config.write_text(settings)
            async with started(site.command([program, "-c", str(config)]), directory) as process:
                await accepting(site.host, port)
                yield LinkServer(
                    pid=process.pid,
                    target=Target("tls" if self.is_encrypted else "tcp", site.host, port),
                    speech=SpeaksMQTT(),
                    engines=engines,
                    ca=made.ca if self.is_encrypted else None,
                )


@cache
def _version(program: str) -> str:
    said = subprocess.run([program, "-h"], capture_output=True, text=True, check=False).stdout
    return said.partition("version ")[2].partition("\n")[0] or "unknown"
