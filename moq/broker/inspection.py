"""What the core cannot know about the process it runs in and the links it runs over: asked of whoever does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from moq.broker.link import Lane, Link


@dataclass(slots=True)
class ProcessState:
    """The process at one moment."""

    links: int
    """Connections that are open, those included that have not said who they are."""
    cpu_s: float
    """Processor time since it started."""
    rss_bytes: int
    """Its memory."""


@dataclass(slots=True)
class LinkState:
    """A link at one moment; None is what its transport does not tell."""

    streams_out: int = 1
    rtt_s: float | None = None
    congestion_window_bytes: int | None = None
    bytes_in_flight: int | None = None
    lost: int | None = None
    """QUIC: frames of streams that were lost and sent again; TCP: segments sent again."""


class Inspector(Protocol):
    """Looks at process and links."""

    def process(self) -> ProcessState:
        """How the process is."""

    def link(self, link: Link) -> LinkState:
        """How a link is."""

    def stream_id(self, lane: Lane) -> int:
        """The number a lane has on the network; 0 for the only one there is."""
