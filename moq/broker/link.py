"""What a transport offers to whoever speaks a protocol over it: a link to one peer, made of ordered lanes.

    Link ── control          lane 0, both ways: QUIC stream 0, or the one byte stream of TCP
         ├─ lane(key)        outgoing, one per topic: a unidirectional QUIC stream; on TCP the control lane again
         ├─ incoming lanes   numbered by the transport; data arrives as `data_received(lane_id, data)`
         └─ reply_lane(id)   the way back of an incoming lane: a bidirectional QUIC stream's, else the control lane

Writing never blocks and never fails: bytes go to the lane's outbox and leave once per turn of the event loop, in
order. A lane that holds more than its high-water mark is `congested`; whoever writes looks at that flag first and
keeps, drops or stops. When it has drained the handler hears `lane_writable`.

Reading is by consumption: bytes handed to `data_received` count as consumed when the call returns. A handler
that cannot take more pauses the lane; the transport then gives the peer no further credit (QUIC: the stream's
window stays closed; TCP: the socket is not read), so the peer stops instead of our memory growing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

CONTROL = 0
"""The lane id of the control lane, in both directions."""


@dataclass(slots=True)
class LinkState:
    """How the network below a link does, where its transport knows."""

    round_trip_s: float
    """0 while it is not measured."""
    congestion_window_bytes: int
    bytes_in_flight: int
    packets_sent: int
    packets_received: int
    losses: int
    """QUIC: packets declared lost; TCP: segments sent again."""
    open_streams: int | None
    """None where there are none."""


class Lane(Protocol):
    """One ordered flow of bytes to the peer."""

    @property
    def stream_id(self) -> int:
        """The number of its QUIC stream; 0 where there is but one stream. For people, metrics and traces."""

    @property
    def congested(self) -> bool:
        """True from the moment the outbox passes the high-water mark until it has drained below the low one."""

    @property
    def unsent(self) -> int:
        """Bytes written here that the network has not taken yet."""

    @property
    def is_closed(self) -> bool:
        """True once finished, reset, stopped by the peer, or the link is gone: ask the link for a new one."""

    def write(self, data: bytes) -> None:
        """Queue bytes. A closed lane discards them: the link's end is reported through the handler."""

    def finish(self) -> None:
        """No more will be written. On a lane shared with others this does nothing."""

    def reset(self, reason: int) -> None:
        """Abandon what is unsent. On a lane shared with others this does nothing."""


class Link(Protocol):
    """A connection to one peer."""

    transport: str
    """`quic`, `tcp`, `tls`, `ws`, `wss` or `memory`: for people and metrics; no decision depends on it."""

    alpn: str
    """The application protocol agreed as the link was made (ALPN on QUIC, the sub-protocol of WebSocket), or empty
    where nothing but the first bytes can tell."""

    peer: str
    """The peer's address, for people and limits per address."""

    control: Lane

    @property
    def unsent(self) -> int:
        """Bytes on all lanes that the network has not taken yet."""

    @property
    def outgoing_streams(self) -> int:
        """Streams that are open in our direction, the control lane's among them."""

    @property
    def has_lanes(self) -> bool:
        """True if topics get lanes of their own; False if every lane is the control lane."""

    def lane(self, key: int, priority: int = 128) -> Lane:
        """Open the lane of a topic: the same key gives the same lane while that is open.

        Past the peer's stream limit several keys share one overflow lane. Lower priority numbers go first; the
        control lane goes before all.
        """

    def reply_lane(self, lane_id: int) -> Lane:
        """Give the lane on which answers to an incoming lane go: the same one each time while that is open.

        It is the control lane for `CONTROL`, for lanes that go one way, and on transports without lanes. Otherwise it
        stays open after the peer has finished the incoming lane, until it is finished here: a peer may open new lanes
        only as old ones have ended both ways.
        """

    def pause_reading(self, lane_id: int) -> None:
        """Hand over no more data of this incoming lane; on TCP this pauses the whole link."""

    def resume_reading(self, lane_id: int) -> None:
        """Go on handing over this lane's data."""

    def close(self, reason: int, message: str = "") -> None:
        """Send what was written to the control lane, then end the link; `closed` follows."""

    def abort(self) -> None:
        """End the link at once, sending nothing more; `closed` follows."""

    def state(self) -> LinkState | None:
        """How the network does, for metrics and traces, also while `closed` is being told; None if nobody knows."""


class LinkHandler(Protocol):
    """What a transport calls as things happen on one link, from the event loop, never re-entrantly."""

    def data_received(self, lane_id: int, data: bytes) -> None:
        """Bytes arrived on a lane, in order."""

    def lane_finished(self, lane_id: int) -> None:
        """The peer ended this lane after the data already handed over; lane 0 finishing ends the link."""

    def lane_reset(self, lane_id: int, reason: int) -> None:
        """The peer abandoned this lane: what it had sent of an unfinished packet will not be completed."""

    def lane_writable(self, lane: Lane) -> None:
        """A congested outgoing lane has drained, or has closed: write again, or open a new one."""

    def closed(self, reason: int | None, message: str) -> None:
        """The link is gone; `reason` is the code the peer gave, or None if it vanished. Called exactly once."""
