"""What the server knows for `$SYS/top` and the core does not: its process, and the state of links by transport."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.broker.inspection import LinkState, ProcessState
from transports.quic.lane import QUICLane
from transports.quic.link import QUICLink

if TYPE_CHECKING:
    from moq.broker.link import Lane, Link
    from moq.server.server import Server

_MEMORY: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class ServerInspector:
    """Looks at one server; see `Inspector`."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def process(self) -> ProcessState:
        """See `Inspector`."""
        return ProcessState(self._server.connections, time.process_time(), _rss_bytes())

    def link(self, link: Link) -> LinkState:
        """See `Inspector`."""
        streams = link.outgoing_streams if isinstance(link, QUICLink) else 1
        state = link.state()
        if state is None:
            return LinkState(streams)
        return LinkState(
            streams, state.round_trip_s, state.congestion_window_bytes, state.bytes_in_flight, state.losses
        )

    def stream_id(self, lane: Lane) -> int:
        """See `Inspector`."""
        return lane.stream_id if isinstance(lane, QUICLane) else 0


def _rss_bytes() -> int:
    """Memory of this process; where nothing tells the present size, the largest it has been."""
    try:
        return int(_MEMORY.read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return largest if sys.platform == "darwin" else largest * 1024
