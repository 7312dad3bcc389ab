"""The contenders of `moq bench run`: brokers and ways to reach them, each started on free ports, pinned and stopped.

    Contender.run(site, engines) ──► Server ── connect ──► Client
                                           └── usage       processor time and memory through /proc

Rivals are in `moq.bench.rivals`, a file each. Which are installed is found out without starting any.
"""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import transports
from certs import authority
from moq.bench.brokers import broker_command, ready_line, started, usage
from moq.bench.clients import LinkClient
from moq.bench.speech import SpeaksMMQP, SpeaksMQTT
from moq.errors import ConfigError
from moq.version import __version__
from transports import Target
from transports.quic import QUICOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from moq.bench.brokers import ClientEngines, Usage
    from moq.bench.clients import Client, Ears
    from moq.bench.sites import Site
    from moq.bench.speech import Speech
    from moq.broker.link import Link

SERVER_NAME: Final = "localhost"
"""The one in the development certificates, wherever the server really is."""


class Server(Protocol):
    """A broker that accepts connections."""

    async def connect(self, client_id: str, ears: Ears, is_publisher: bool) -> Client:
        """Open a client."""

    def usage(self) -> Usage:
        """Processor time and memory of the broker."""


class Contender(Protocol):
    """A broker and the way to reach it."""

    @property
    def name(self) -> str:
        """As the results call it."""

    @property
    def max_qos(self) -> int:
        """Higher ones it is spared."""

    @property
    def how_to_install(self) -> str:
        """A command."""

    def version(self) -> str | None:
        """What is installed, or None."""

    def run(self, site: Site, engines: ClientEngines) -> AbstractAsyncContextManager[Server]:
        """Start it, stop it at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkServer:
    """A broker reached over a link of ours."""

    pid: int
    target: Target
    speech: Speech
    engines: ClientEngines
    ca: Path | None = None
    options: transports.TransportOptions = transports.options.DEFAULTS

    async def connect(self, client_id: str, ears: Ears, is_publisher: bool) -> LinkClient:
        """Open a client."""
        made: list[LinkClient] = []

        def make_handler(link: Link) -> LinkClient:
            made.append(LinkClient(self.speech, link, ears))
            return made[0]

        engine = self.engines.publisher if is_publisher else self.engines.subscriber
        await transports.connect(
            self.target,
            make_handler,
            ca=self.ca,
            server_name=SERVER_NAME,
            options=self.options,
            quic_engine=engine,
        )
        await made[0].ask(self.speech.hello(client_id))
        return made[0]

    def usage(self) -> Usage:
        """Processor time and memory of the broker."""
        return usage(self.pid)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoQ:
    """Our broker."""

    name: str
    scheme: str
    is_mqtt: bool = False
    is_single_stream: bool = False
    engine: str = "aioquic"
    """Of the broker."""
    trace: Path | None = None
    """Where the broker records deliveries, if it does."""
    how_to_install: str = "it is this program"

    @property
    def max_qos(self) -> int:
        """Confirmed publishing is part of MMQP."""
        return 2 if self.is_mqtt else 3

    def version(self) -> str:
        """It is here."""
        return __version__

    @contextlib.asynccontextmanager
    async def run(self, site: Site, engines: ClientEngines) -> AsyncIterator[LinkServer]:
        """Start it, stop it at the end."""
        with tempfile.TemporaryDirectory(prefix="moq-bench-") as name:
            directory = Path(name)
            streams = "single" if self.is_single_stream else "topic"
            options = ("--quic-engine", self.engine, "--quic-streams", streams, *site.broker_options)
            if self.trace is not None:
                options += ("--trace", str(self.trace.absolute()))
            command = site.command(broker_command(directory, *options, host=site.host))
            async with started(command, directory) as process:
                ready = await ready_line(process, directory)
                yield LinkServer(
                    pid=process.pid,
                    target=Target(self.scheme, site.host, ready[self.scheme]),
                    speech=SpeaksMQTT() if self.is_mqtt else SpeaksMMQP(is_stamped=self.trace is not None),
                    engines=engines,
                    ca=authority.paths(directory).ca,
                    options=QUICOptions(single_stream=self.is_single_stream),
                )


def all_contenders(engine: str = "aioquic", trace: Path | None = None) -> Mapping[str, Contender]:
    """Every one there is, installed or not, in the order of the tables."""
    from moq.bench.rivals import RIVALS

    ours = (
        MoQ(name="moq quic", scheme="quic", engine=engine, trace=trace),
        MoQ(name="moq quic single-stream", scheme="quic", engine=engine, is_single_stream=True, trace=trace),
        MoQ(name="moq tcp", scheme="tcp", trace=trace),
        MoQ(name="moq tls", scheme="tls", trace=trace),
        MoQ(name="moq mqtt", scheme="tcp", is_mqtt=True, trace=trace),
    )
    contenders: list[Contender] = [*ours, *RIVALS]
    return {contender.name: contender for contender in contenders}


def choose(names: Sequence[str] | None, contenders: Mapping[str, Contender]) -> tuple[list[Contender], list[Contender]]:
    """Those to measure, and those left out because they are not installed.

    Raises:
        ConfigError: One that was asked for by name is unknown or not installed.
    """
    for name in names or ():
        if name not in contenders:
            raise ConfigError(f"contender {name!r} is unknown; known are {', '.join(contenders)}")
        if contenders[name].version() is None:
            raise ConfigError(f"contender {name!r} is not installed; to install it: {contenders[name].how_to_install}")
    wanted = [contenders[name] for name in names] if names is not None else list(contenders.values())
    there = [contender for contender in wanted if contender.version() is not None]
    return there, [contender for contender in wanted if contender not in there]
