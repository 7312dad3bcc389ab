"""One accepted link: finds out which dialect its peer speaks, and gives that the link's events, with the time.

Where ALPN or a sub-protocol has told the dialect there is nothing to find out. Elsewhere a link is MMQP's, with its
time limit for the first packet running, until its first bytes prove to be MQTT's; six of them are enough for that.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

from moq.broker.admission import host_of
from moq.broker.dialects.recognise import DEFAULT, recognise

if TYPE_CHECKING:
    from moq.broker.link import Lane, Link, LinkState
    from moq.server.server import Server

logger = logging.getLogger(__name__)


class ServedLink:
    """A handler of one link."""

    __slots__ = ("_accepted_at", "_first", "_server", "connection", "host", "link", "seen")

    def __init__(self, server: Server, link: Link) -> None:
        self._server = server
        self.link = link
        self.seen: LinkState | None = None
        """What of the link's counters the server's have already."""
        self.host = host_of(link.peer)
        self._accepted_at = server.clock()
        dialect = recognise(link.alpn, b"")
        self.connection = (dialect or DEFAULT)(server.broker, link, new_client_id, self._accepted_at)
        self._first = b"" if dialect is None else None
        """What has come while it does not tell the dialect; None once that is known."""

    def data_received(self, lane_id: int, data: bytes) -> None:
        """See `LinkHandler`."""
        server = self._server
        if self._first is not None:
            data = self._recognise(self._first + data)
        traffic, before = server.traffic, server.traffic.sent()
        server.latencies.deferred = 0
        now = server.clock()
        self.connection.receive_data(lane_id, data, now)
        sent = traffic.sent() - before
        if sent:
            server.latencies.on_read(sent, server.clock() - now)
        server.arm()
        server.watch.look()

    def _recognise(self, data: bytes) -> bytes:
        """Keep what has come, or give it to the right connection."""
        server = self._server
        dialect = recognise("", data)
        if dialect is None:
            self._first = data
            return b""
        self._first = None
        if dialect is not DEFAULT:
            self.connection.closed(server.clock())
            self.connection = dialect(server.broker, self.link, new_client_id, self._accepted_at)
        return data

    def lane_finished(self, lane_id: int) -> None:
        """See `LinkHandler`."""
        self.connection.lane_finished(lane_id, self._server.clock())
        self._server.arm()

    def lane_reset(self, lane_id: int, reason: int) -> None:
        """See `LinkHandler`."""
        self.connection.lane_reset(lane_id, reason)

    def lane_writable(self, lane: Lane) -> None:
        """See `LinkHandler`."""
        self.connection.lane_writable(lane, self._server.clock())
        self._server.arm()

    def closed(self, reason: int | None, message: str) -> None:
        """See `LinkHandler`."""
        logger.info("%s %s closed: %s", self.link.transport, self.link.peer, message)
        self._server.links.fold(self)
        self.connection.closed(self._server.clock())
        self._server.forget(self)
        # They refer to each other, and the link to this: without the knot they go at once, and a storm of connections
        # leaves nothing for the garbage collector, which would stop everybody for a tenth of a second.
        del self.connection, self.link


def new_client_id() -> str:
    """An identifier for a client that brought none: not to be guessed, because it is all a resume needs."""
    return f"moq-{secrets.token_hex(12)}"
