"""What the server knows of its links together: how many came, and how their networks are doing.

Links count for themselves, from their start. Here is what all of them have counted, those that are gone included: a
link is looked at now and then and once more as it ends, and what it has counted since the last look is added. So no
number ever falls, and a scrape looks at a bounded number of links however many there are.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from moq.broker.traffic import end_reason
from moq.histogram import BYTES, Histogram

if TYPE_CHECKING:
    from collections.abc import Collection

    from moq.reasons import Reason
    from moq.server.served import ServedLink

MAX_SAMPLED: Final = 500
"""Links looked at per scrape, at ten microseconds and more each, during which messages wait; others have their turn."""


class Network:
    """The links of one transport."""

    def __init__(self) -> None:
        self.accepted = 0
        self.refused: dict[str, int] = {}
        """By reason: those that were turned away before they could say who they are."""
        self.packets_sent = 0
        self.packets_received = 0
        self.packets_lost = 0
        self.round_trip_s = Histogram()
        self.congestion_window = Histogram(BYTES)
        self.bytes_in_flight = Histogram(BYTES)
        self.unsent_bytes = Histogram(BYTES)


class LinkTally:
    """All links of one server."""

    def __init__(self) -> None:
        self.by_transport: dict[str, Network] = {}
        self._next = 0

    def accept(self, transport: str) -> None:
        """A link has come."""
        self._of(transport).accepted += 1

    def refuse(self, transport: str, reason: Reason) -> None:
        """A link has come and is turned away."""
        refused = self._of(transport).refused
        why = end_reason(reason)
        refused[why] = refused.get(why, 0) + 1

    def fold(self, served: ServedLink) -> None:
        """Add what a link has counted since it was last looked at."""
        state, seen = served.link.state(), served.seen
        if state is None:
            return
        network = self._of(served.link.transport)
        network.packets_sent += state.packets_sent - (seen.packets_sent if seen is not None else 0)
        network.packets_received += state.packets_received - (seen.packets_received if seen is not None else 0)
        network.packets_lost += state.losses - (seen.losses if seen is not None else 0)
        served.seen = state

    def sample(self, links: Collection[ServedLink]) -> None:
        """Look at links, at most `MAX_SAMPLED` of them: their counters, and their state as it is now."""
        count = len(links)
        if self._next >= count:
            self._next = 0
        first, self._next = self._next, self._next + MAX_SAMPLED
        chosen = list(islice(links, first, first + MAX_SAMPLED)) if count > MAX_SAMPLED else list(links)
        for served in chosen:
            self.fold(served)
            network = self._of(served.link.transport)
            network.unsent_bytes.add(served.link.unsent)
            if served.seen is not None:
                network.round_trip_s.add(served.seen.round_trip_s)
                network.congestion_window.add(served.seen.congestion_window_bytes)
                network.bytes_in_flight.add(served.seen.bytes_in_flight)

    def _of(self, transport: str) -> Network:
        network = self.by_transport.get(transport)
        if network is None:
            network = self.by_transport[transport] = Network()
        return network
