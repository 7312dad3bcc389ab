"""What a transport may buffer and wait for: one frozen dataclass shared by every transport."""

from __future__ import annotations

from dataclasses import dataclass

from moq.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions:
    """Bounds of one link; the defaults suit a broker with many links."""

    high_water_bytes: int = 1024 * 1024
    """A lane holding more unsent bytes than this is congested: what a peer that does not read can make us keep."""
    low_water_bytes: int = 256 * 1024
    """A congested lane is writable again at this level: high enough that the network does not run dry meanwhile."""
    read_bytes: int = 256 * 1024
    """Most that one read takes: large enough to spread its cost over thousands of small packets, small enough that
    one busy link does not hold up the others for more than a few milliseconds."""
    connect_timeout_s: float = 10.0
    """From the first packet to an open link, handshake included, on either side."""
    close_timeout_s: float = 5.0
    """How long an ending link waits for a peer that does not take what is left; then it is aborted."""
    linger_s: float = 0.25
    """How long a peer that has all we said may take to end its side too: a round trip round the world. Then the
    connection is closed, whether it does or not."""
    backlog: int = 1024
    """Connections the kernel keeps for us between two accepts: a fleet that reconnects at once is not refused."""
    accepts_per_turn: int = 1
    """Connections begun in one turn of the loop, a millisecond of work each: the others wait their turn, so that a
    storm of connections holds nobody else up for longer than that."""

    def __post_init__(self) -> None:
        """Refuse values no link could run with."""
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if value <= 0:
                raise ConfigError(f"{name} is {value}; it must be greater than 0")
        if self.low_water_bytes >= self.high_water_bytes:
            raise ConfigError(
                f"low_water_bytes is {self.low_water_bytes}; "
                f"it must be less than high_water_bytes, which is {self.high_water_bytes}"
            )


DEFAULTS = TransportOptions()
