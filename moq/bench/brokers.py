"""The brokers under test: each started as a process of its own on free ports, watched through /proc, and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import transports
from certs import authority
from moq.bench.dialects import MMQP, MQTT
from moq.errors import ConfigError, ConnectFailed
from transports import Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from moq.bench.dialects import Dialect
    from moq.broker.link import Link, LinkHandler

START_TIMEOUT_S: Final = 20.0
STOP_TIMEOUT_S: Final = 10.0

LOOPBACK: Final = "127.0.0.1"

MOSQUITTO: Final = "mosquitto"
MOSQUITTO_CONFIG: Final = """\
listener {port} {host}
allow_anonymous true
log_dest none
set_tcp_nodelay true
max_queued_messages 0
max_inflight_messages 1000
"""
"""No log, and no queue so short that it drops what the window allows."""

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

LOG: Final = "broker.log"

QH3_STREAMS: Final = 100
"""qh3 lets its peer open about so many streams at once; a subscriber to more topics needs the other engine."""

BROKER_CPU: Final = 0
GENERATOR_CPU: Final = 1


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used so far."""

    cpu_s: float
    user_s: float
    """The part of it outside the kernel."""
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class ClientEngines:
    """The QUIC engines of the generator."""

    publisher: str
    subscriber: str

    @classmethod
    def choose(cls, wanted: str | None, streams: int) -> ClientEngines:
        """The faster engine where it is there and does: the generator should not be what limits a QUIC broker."""
        fast = wanted or ("qh3" if importlib.util.find_spec("qh3") else "aioquic")
        return cls(fast, fast if wanted or streams <= QH3_STREAMS else "aioquic")


@dataclass(frozen=True, slots=True)
class Running:
    """A broker that accepts connections."""

    pid: int
    dialect: Dialect
    target: Target
    ca: Path | None
    engines: ClientEngines
    http_port: int | None = None
    """Where a broker of ours tells its figures."""

    async def connect_publisher(self, make_handler: Callable[[Link], LinkHandler]) -> Link:
        """Open a connection that publishes."""
        return await self._connect(make_handler, self.engines.publisher)

    async def connect_subscriber(self, make_handler: Callable[[Link], LinkHandler]) -> Link:
        """Open a connection that subscribes."""
        return await self._connect(make_handler, self.engines.subscriber)

    async def _connect(self, make_handler: Callable[[Link], LinkHandler], engine: str) -> Link:
        return await transports.connect(
            self.target, make_handler, ca=self.ca, server_name="localhost", quic_engine=engine
        )

    def usage(self) -> Usage:
        """Processor time and memory of the broker."""
        return usage(self.pid)


WAYS: Final = ("tcp", "tls", "quic", "mqtt")
"""How to reach a broker of ours: MMQP over each transport, or plain MQTT 3.1.1 over TCP."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A broker and the way to reach it."""

    name: str
    way: str
    engine: str = "aioquic"
    profile: Path | None = None
    """Where to write what cProfile sees of a broker of ours."""
    options: tuple[str, ...] = ()
    """Of `moq broker`."""

    @contextlib.asynccontextmanager
    async def run(self, engines: ClientEngines) -> AsyncIterator[Running]:
        """Start it, stop it at the end."""
        with tempfile.TemporaryDirectory(prefix="moq-bench-") as name:
            directory = Path(name)
            profiler = ["-m", "cProfile", "-o", str(self.profile)] if self.profile else []
            options = ("--quic-engine", self.engine, *self.options)
            async with started(broker_command(directory, *options, python=profiler), directory) as process:
                ready = await ready_line(process, directory)
                dialect, scheme = (MQTT(), "tcp") if self.way == "mqtt" else (MMQP(), self.way)
                target = Target(scheme, LOOPBACK, ready[scheme])
                ca = authority.paths(directory).ca
                yield Running(process.pid, dialect, target, ca, engines, ready["http"])


@dataclass(frozen=True, slots=True)
class Mosquitto:
    """The rival, spoken to in MQTT 3.1.1 over TCP."""

    name: str = MOSQUITTO
    settings: str = "persistence false\n"
    """Lines of its configuration, besides those every run has; `{directory}` is one of its own."""

    @contextlib.asynccontextmanager
    async def run(self, engines: ClientEngines) -> AsyncIterator[Running]:
        """Start it, stop it at the end."""
        program = find_mosquitto()
        if program is None:
            raise ConfigError(
                "mosquitto is not installed (Debian: apt install mosquitto), or leave it out: --rival none"
            )
        with tempfile.TemporaryDirectory(prefix="moq-bench-") as name:
            directory, port = Path(name), free_port()
            config = directory / "mosquitto.conf"
            config.write_text(
                MOSQUITTO_CONFIG.format(host=LOOPBACK, port=port) + self.settings.format(directory=directory)
            )
            async with started([program, "-c", str(config)], directory) as process:
                await accepting(LOOPBACK, port)
                yield Running(process.pid, MQTT(), Target("tcp", LOOPBACK, port), None, engines)


def broker_command(directory: Path, *options: str, python: Sequence[str] = (), host: str = LOOPBACK) -> list[str]:
    """Runs a broker of ours on free ports, with this data directory."""
    command = [sys.executable, *python, "-m", "moq.cli", "broker", "--data-dir", str(directory), "--host", host]
    for port in ("tcp", "tls", "quic", "websocket", "wss", "http"):
        command += [f"--{port}-port", "0"]
    return [*command, *options]


def usage(pid: int) -> Usage:
    """Processor time and memory of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user_s, system_s = int(fields[11]) / TICKS_PER_S, int(fields[12]) / TICKS_PER_S
    return Usage(user_s + system_s, user_s, int(fields[21]) * os.sysconf("SC_PAGE_SIZE"))


def machine_user_s() -> float:
    """Processor time of all processes outside the kernel: what others use, they take from a measurement."""
    user, nice = Path("/proc/stat").read_text().split(maxsplit=3)[1:3]
    return (int(user) + int(nice)) / TICKS_PER_S


def pin_generator() -> None:
    """Keep this process off the broker's processor, where there are two: otherwise the scheduler decides the result."""
    if len(os.sched_getaffinity(0)) > GENERATOR_CPU:
        os.sched_setaffinity(0, {GENERATOR_CPU})


def pin_broker() -> None:
    """Give the broker a processor of its own."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {BROKER_CPU})


def find_mosquitto() -> str | None:
    """Debian puts it where an ordinary user's path does not lead."""
    return shutil.which(MOSQUITTO) or shutil.which(MOSQUITTO, path="/usr/sbin:/usr/local/sbin")


@contextlib.asynccontextmanager
async def started(command: list[str], directory: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program on the broker's processor, its log in the directory; terminate it at the end."""
    with (directory / LOG).open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, preexec_fn=pin_broker
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()


async def ready_line(
    process: asyncio.subprocess.Process, directory: Path, timeout_s: float = START_TIMEOUT_S
) -> dict[str, int]:
    """The ports in the line a broker of ours prints when it accepts connections."""
    assert process.stdout is not None
    async with asyncio.timeout(timeout_s):
        while line := await process.stdout.readline():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if event.get("event") == "ready":
                    return dict(event)
        code = await process.wait()
    said = (directory / LOG).read_text(errors="replace").strip().rpartition("\n")[2]
    raise ConnectFailed(f"the broker ended before it was ready, with exit code {code}: {said}")


async def accepting(host: str, port: int) -> None:
    """Wait until somebody accepts connections there."""
    async with asyncio.timeout(START_TIMEOUT_S):
        while True:
            try:
                _, writer = await asyncio.open_connection(host, port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return


def free_port(kind: int = socket.SOCK_STREAM) -> int:
    """A port nobody listens on just now."""
    with socket.socket(type=kind) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
