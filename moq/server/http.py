"""Health and metrics over HTTP: `/healthz`, `/readyz` and `/metrics`, nothing else.

`/healthz` is 200 while the event loop turns: one that does not cannot say so, and whoever asks runs into a time limit.
`/readyz` is 200 while clients should be sent here, and else 503 with the reason. The port is the first to open and the
last to close, so that it can tell of starting and draining too.

A dozen lines of HTTP/1.0 instead of a framework: three fixed answers to GET, each on a connection of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import fields
from typing import TYPE_CHECKING, Self

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from moq.server.phase import Phase
from moq.server.processing import function_figures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from moq.server.server import Server

REQUEST_TIMEOUT_S = 5.0
"""A client that sends its request slower than this is cut off: it holds a connection for nothing."""


class BrokerCollector(Collector):
    """The core's plain integers, read when somebody scrapes."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        """Yield every figure as Prometheus knows it."""
        server = self._server
        yield GaugeMetricFamily("moq_ready", "1 while clients should be sent here", int(server.obstacle is None))
        if server.phase is Phase.STARTING:
            return
        reloads = CounterMetricFamily("moq_reloads", "Times the files were read again", labels=["outcome"])
        reloads.add_metric(["done"], server.reloader.done)
        reloads.add_metric(["failed"], server.reloader.failed)
        yield reloads
        broker = server.broker
        yield GaugeMetricFamily("moq_links_open", "Links that are open now", self._server.connections)
        yield GaugeMetricFamily("moq_sessions", "Sessions, connected or not", len(broker.sessions))
        yield GaugeMetricFamily("moq_subscriptions", "Subscriptions of all sessions", broker.subscriptions.count)
        yield GaugeMetricFamily("moq_computations", "Different subscriptions with operators", len(broker.stages))
        yield GaugeMetricFamily("moq_topics", "Topic names known", len(broker.topics))
        yield GaugeMetricFamily("moq_retained_messages", "Messages retained", broker.topics.retained_count)
        yield GaugeMetricFamily("moq_retained_bytes", "Payload bytes retained", broker.topics.retained_bytes)
        pressure = broker.environment.pressure
        yield GaugeMetricFamily("moq_held_bytes", "What is held for clients, of the watermark", pressure.held_bytes)
        yield GaugeMetricFamily(
            "moq_pressure_level", "0 calm, 1 publishers slowed, 2 QoS 0 dropped, 3 connections refused", pressure.level
        )
        yield GaugeMetricFamily("moq_lanes_slowed", "Lanes of publishers that wait for their turn", pressure.slowed)
        outbounds = [session.outbound for session in broker.sessions]
        yield GaugeMetricFamily(
            "moq_messages_waiting", "Messages in queues, in memory and in the store", sum(o.waiting for o in outbounds)
        )
        yield GaugeMetricFamily("moq_messages_inflight", "Sent, not acknowledged", sum(o.inflight for o in outbounds))
        yield from self._store_figures()
        yield from function_figures(server.functions)
        drops = CounterMetricFamily("moq_messages_dropped", "Messages not delivered, by reason", labels=["reason"])
        refusals = CounterMetricFamily("moq_refused", "What was refused, by the limit it ran into", labels=["limit"])
        for field in fields(broker.figures):
            value = getattr(broker.figures, field.name)
            if field.name.startswith("dropped_"):
                drops.add_metric([field.name.removeprefix("dropped_")], value)
            elif field.name.startswith("refused_"):
                refusals.add_metric([field.name.removeprefix("refused_")], value)
            else:
                yield CounterMetricFamily(f"moq_{field.name}", field.name.replace("_", " "), value)
        yield drops
        yield refusals

    def _store_figures(self) -> Iterator[Metric]:
        store = self._server.storage.store
        yield GaugeMetricFamily("moq_store_pending", "Changes that are not safe yet", store.last - store.durable)
        yield GaugeMetricFamily("moq_store_failing", "1 while nothing can be made safe", int(store.failure is not None))
        if self._server.storage.sqlite is None:
            return
        figures = self._server.storage.sqlite.figures
        for name, what in (
            ("batches", "Transactions committed"),
            ("changes", "Changes made safe, those that cancelled each other included"),
            ("rows", "Rows written, altered or removed for them"),
            ("commit_seconds", "Time spent in transactions"),
            ("failures", "Transactions that failed and were tried again"),
            ("spooled_bytes", "Bytes of payloads written to files of their own"),
        ):
            yield CounterMetricFamily(f"moq_store_{name}", what, getattr(figures, name))


class HTTPListener:
    """The HTTP port of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._registry = CollectorRegistry()
        self._registry.register(BrokerCollector(server))
        self._listener: asyncio.Server | None = None
        self.port = 0

    @classmethod
    async def open(cls, host: str, port: int, server: Server) -> Self:
        """Listen; port 0 takes a free one."""
        listener = cls(server)
        listener._listener = await asyncio.start_server(listener._serve, host, port, limit=8192)
        listener.port = listener._listener.sockets[0].getsockname()[1]
        return listener

    async def close(self) -> None:
        """Accept no more."""
        if self._listener is not None:
            self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(request))
                await writer.drain()
        writer.close()

    def _answer(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0]
        if method != b"GET":
            return _response("405 Method Not Allowed", b"only GET\n")
        if path == b"/healthz":
            return _response("200 OK", b"ok\n")
        if path == b"/readyz":
            if (obstacle := self._server.obstacle) is None:
                return _response("200 OK", b"ready\n")
            return _response("503 Service Unavailable", f"{obstacle}\n".encode())
        if path == b"/metrics":
            return _response("200 OK", generate_latest(self._registry), "text/plain; version=0.0.4; charset=utf-8")
        return _response("404 Not Found", b"known are /healthz, /readyz, /metrics\n")


def _response(status: str, body: bytes, content_type: str = "text/plain; charset=utf-8") -> bytes:
    head = f"HTTP/1.0 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
