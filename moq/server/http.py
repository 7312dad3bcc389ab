"""Health and metrics over HTTP: `/healthz`, `/readyz` and `/metrics`, nothing else.

`/healthz` is 200 while the event loop turns: one that does not cannot say so, and whoever asks runs into a time limit.
`/readyz` is 200 while clients should be sent here, and else 503 with the reason. The port is the first to open and the
last to close, so that it can tell of starting and draining too.

A dozen lines of HTTP/1.0 instead of a framework: three fixed answers to GET, each on a connection of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Self

from moq.server.metrics import Metrics
from moq.server.metrics.exposition import CONTENT_TYPE

if TYPE_CHECKING:
    from moq.server.server import Server

REQUEST_TIMEOUT_S = 5.0
"""A client that sends its request slower than this is cut off: it holds a connection for nothing."""


class HTTPListener:
    """The HTTP port of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._metrics = Metrics(server)
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
            return _response("200 OK", self._metrics.exposition(), CONTENT_TYPE)
        return _response("404 Not Found", b"known are /healthz, /readyz, /metrics\n")


def _response(status: str, body: bytes, content_type: str = "text/plain; charset=utf-8") -> bytes:
    head = f"HTTP/1.0 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
