"""What happens on the links of one listener that is no link's state: plain integers, added to as it happens."""

from __future__ import annotations


class TransportFigures:
    """Of one listener, since it was opened."""

    __slots__ = (
        "early_data_accepted",
        "early_data_refused",
        "handshakes_failed",
        "handshakes_resumed",
        "lanes_ended",
        "lanes_opened",
        "migrations",
    )

    def __init__(self) -> None:
        self.handshakes_failed = {"tls": 0, "timeout": 0, "other": 0}
        """Connections that did not come about: for want of agreement on TLS, of time, or of anything else."""
        self.handshakes_resumed = 0
        """Handshakes shortened by a session ticket."""
        self.early_data_accepted = 0
        """Handshakes whose client sent data before they were complete, which was taken."""
        self.early_data_refused = 0
        """Those whose client brought a ticket that was not ours, or not any more: its early data was not taken."""
        self.migrations = 0
        """Times that a client went on from another address."""
        self.lanes_opened = 0
        """Lanes that this side opened."""
        self.lanes_ended = {"finished": 0, "reset": 0, "stopped": 0, "link": 0}
        """How they ended: finished or reset by this side, stopped by the peer, or with the link."""

    @property
    def lanes_open(self) -> int:
        """Lanes of this side that are open now."""
        return self.lanes_opened - sum(self.lanes_ended.values())
