"""eclipse-zenoh: a router as a process, and clients through its Python library, over TCP or QUIC.

The library comes from a virtual environment of its own and is imported from there by the generator. It calls back on
threads of its own, where the time is taken; the books are kept on the event loop. Its publishers block where they would
otherwise drop, which is what the other contenders do.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import socket
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certs import authority
from moq.bench.brokers import free_port, ready_line, started, usage
from moq.bench.clients import make_payload
from moq.bench.dialects import BODY, topic
from moq.bench.rivals import zenoh_router
from moq.bench.rivals.install import INSTALL, installed_version, python_of, site_packages
from moq.bench.speech import REPLIES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from moq.bench.brokers import ClientEngines, Usage
    from moq.bench.clients import Ears
    from moq.bench.scenarios import FlowPlan
    from moq.bench.sites import Site


class ZenohClient:
    """One session."""

    unsent = 0
    unanswered = 0
    failure = None
    """It does not tell."""

    def __init__(self, zenoh: Any, settings: dict[str, object], ears: Ears) -> None:
        self._zenoh = zenoh
        self._session = zenoh.open(_config(zenoh, settings))
        self._ears = ears
        self._loop = asyncio.get_running_loop()
        self._publishers: dict[int, Any] = {}
        self._subscribers: list[Any] = []
        self._arrived: deque[tuple[int, bytes]] = deque()
        self._answers_requests = False
        self._is_closed = False

    @property
    def lanes(self) -> int:
        """Its streams are its own business."""
        return 1

    async def announce(self, flows: Sequence[FlowPlan]) -> None:
        """Declare publishers, and subscribers to responses."""
        for flow in flows:
            self._declare_publisher(flow.index)
            if flow.is_request:
                self._declare_subscriber(flow.index + REPLIES)

    async def subscribe(self, flows: Sequence[FlowPlan]) -> None:
        """Declare subscribers."""
        for flow in flows:
            self._declare_subscriber(flow.index)
            if flow.is_request:
                self._answers_requests = True
                self._declare_publisher(flow.index + REPLIES)

    def _declare_publisher(self, index: int) -> None:
        blocking = self._zenoh.CongestionControl.BLOCK
        self._publishers[index] = self._session.declare_publisher(topic(index), congestion_control=blocking)

    def _declare_subscriber(self, index: int) -> None:
        self._subscribers.append(self._session.declare_subscriber(topic(index), self._on_sample))

    def start(self) -> None:
        """Declarations travel by themselves; the warm-up gives them time."""

    def publish(self, flow: FlowPlan, seq: int, due_ns: int) -> None:
        """Put a value."""
        self._publishers[flow.index].put(make_payload(flow.index, seq, due_ns, flow.size(seq)))

    def _on_sample(self, sample: Any) -> None:
        """Runs on a thread of zenoh."""
        self._arrived.append((time.perf_counter_ns(), sample.payload.to_bytes()))
        if not self._is_closed:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        while self._arrived:
            now_ns, payload = self._arrived.popleft()
            index, seq, due_ns = BODY.unpack_from(payload)
            if self._answers_requests:
                self._publishers[index + REPLIES].put(payload)
            else:
                self._ears.delivered(index, seq, due_ns, now_ns, len(payload))

    def close(self) -> None:
        """End the session."""
        self._is_closed = True
        self._session.close()


@dataclass(frozen=True, slots=True)
class ZenohServer:
    """A router that accepts sessions."""

    pid: int
    settings: dict[str, object]

    async def connect(self, client_id: str, ears: Ears, is_publisher: bool) -> ZenohClient:
        """Open a session."""
        return ZenohClient(_library(), self.settings, ears)

    def usage(self) -> Usage:
        """Processor time and memory of the router."""
        return usage(self.pid)


@dataclass(frozen=True, slots=True)
class Zenoh:
    """A router between publisher and subscriber."""

    name: str
    scheme: str
    max_qos: int = 0
    """It is reliable or not, and knows no acknowledgement of the receiver's."""
    how_to_install: str = f"{INSTALL} zenoh"

    def version(self) -> str | None:
        """What its environment holds."""
        return installed_version("zenoh", "eclipse-zenoh")

    @contextlib.asynccontextmanager
    async def run(self, site: Site, engines: ClientEngines) -> AsyncIterator[ZenohServer]:
        """Start a router, stop it at the end."""
        with tempfile.TemporaryDirectory(prefix="moq-bench-") as name:
            directory, made = Path(name), authority.ensure(Path(name))
            port = free_port(socket.SOCK_DGRAM if self.scheme == "quic" else socket.SOCK_STREAM)
            endpoint = f"{self.scheme}/{site.host}:{port}"
            listening: dict[str, object] = {
                **_common(),
                "mode": "router",
                "listen/endpoints": [endpoint],
                "transport/link/tls/listen_certificate": str(made.server),
                "transport/link/tls/listen_private_key": str(made.server_key),
            }
            connecting: dict[str, object] = {
                **_common(),
                "mode": "client",
                "connect/endpoints": [endpoint],
                "transport/link/tls/root_ca_certificate": str(made.ca),
                # The certificate is for loopback, the router may be in a lab.
                "transport/link/tls/verify_name_on_connect": False,
            }
            # -P: this directory has a module named zenoh, too.
            command = [str(python_of("zenoh")), "-P", zenoh_router.__file__, json.dumps(listening)]
            async with started(site.command(command), directory) as process:
                await ready_line(process, directory)
                yield ZenohServer(process.pid, connecting)


def _common() -> dict[str, object]:
    """Nobody is to be found by accident."""
    return {"scouting/multicast/enabled": False, "scouting/gossip/enabled": False}


def _config(zenoh: Any, settings: dict[str, object]) -> Any:
    config = zenoh.Config()
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    return config


def _library() -> Any:
    path = site_packages("zenoh")
    if path is not None and str(path) not in sys.path:
        sys.path.append(str(path))
    return importlib.import_module("zenoh")
