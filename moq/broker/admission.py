"""Who is let in, and how fast one client may publish: counts and a token bucket. Pure: the time is an argument.

Each refusal is counted in `Figures` under the limit it is due to, and has a reason the client is told.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

from moq.reasons import Reason

if TYPE_CHECKING:
    from moq.broker.figures import Figures
    from moq.broker.pressure import Pressure
    from moq.config import Limits

BURST_S: Final = 3.0
"""A client may publish as much at once as the rate allows in this time: devices send in bursts."""

SHARED_BITS: Final = 64
"""One host commonly has a whole IPv6 network of this prefix to choose addresses from."""


def host_of(peer: str) -> str:
    """What connections are counted by, of a link's `peer`: an IPv4 address, or the network of an IPv6 address."""
    host = peer.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ip_address(host)
    except ValueError:
        return host or peer
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> SHARED_BITS << SHARED_BITS))


class Admission:
    """Places for connections: `max_connections` of them, `max_connections_per_address` for each host."""

    def __init__(self, limits: Limits, figures: Figures, pressure: Pressure) -> None:
        self._limits = limits
        self._figures = figures
        self._pressure = pressure
        self._hosts: dict[str, int] = {}
        self.connections = 0

    def refusal(self, host: str) -> Reason | None:
        """Why one more connection from this host is refused, or None; a refusal is counted."""
        limits, figures = self._limits, self._figures
        if self._pressure.refuses:
            figures.refused_memory += 1
            return Reason.SERVER_BUSY
        if self.connections >= limits.max_connections:
            figures.refused_connections += 1
            return Reason.SERVER_BUSY
        if self._hosts.get(host, 0) >= limits.max_connections_per_address:
            figures.refused_connections_per_address += 1
            return Reason.QUOTA_EXCEEDED
        return None

    def enter(self, host: str) -> None:
        """A connection has taken a place; `leave` gives it back."""
        self.connections += 1
        self._hosts[host] = self._hosts.get(host, 0) + 1

    def leave(self, host: str) -> None:
        """A connection is gone."""
        self.connections -= 1
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]


class TokenBucket:
    """Lets `rate` through per second on average, and `BURST_S` seconds' worth at once."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._burst = max(rate * BURST_S, 1.0)
        self._tokens = self._burst
        self._at = now

    def take(self, now: float) -> bool:
        """One more; False if that is too many."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
