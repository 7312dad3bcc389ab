"""amqtt, a broker in Python: MQTT 3.1.1 over TCP, from a virtual environment of its own."""

from __future__ import annotations

import contextlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from moq.bench.brokers import accepting, free_port, started
from moq.bench.contenders import LinkServer
from moq.bench.rivals.install import INSTALL, installed_version, rivals_directory
from moq.bench.speech import SpeaksMQTT
from transports import Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from moq.bench.brokers import ClientEngines
    from moq.bench.sites import Site


@dataclass(frozen=True, slots=True)
class AMQTT:
    """With no plug-in but the one that lets everybody in."""

    name: str = "amqtt"
    max_qos: int = 2
    how_to_install: str = f"{INSTALL} amqtt"

    def version(self) -> str | None:
        """What its environment holds."""
        return installed_version("amqtt", "amqtt")

    @contextlib.asynccontextmanager
    async def run(self, site: Site, engines: ClientEngines) -> AsyncIterator[LinkServer]:
        """Start it, stop it at the end."""
        with tempfile.TemporaryDirectory(prefix="moq-bench-") as name:
            directory, port = Path(name), free_port()
            config = directory / "amqtt.yaml"
            # YAML takes JSON for what it is.
            config.write_text(json.dumps(_settings(site.host, port)))
            program = rivals_directory() / "amqtt" / "bin" / "amqtt"
            async with started(site.command([str(program), "-c", str(config)]), directory) as process:
                await accepting(site.host, port)
                yield LinkServer(
                    pid=process.pid, target=Target("tcp", site.host, port), speech=SpeaksMQTT(), engines=engines
                )


def _settings(host: str, port: int) -> dict[str, object]:
    return {
        "listeners": {"default": {"type": "tcp", "bind": f"{host}:{port}", "max_connections": 10_000}},
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    }
