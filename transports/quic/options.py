"""Every setting of the QUIC transport, with its default and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from moq.errors import ConfigError
from transports.options import TransportOptions

if TYPE_CHECKING:
    from pathlib import Path

SMALLEST_MAX_DATAGRAM_BYTES = 1200
"""RFC 9000 section 14: what every path that carries QUIC carries."""

LARGEST_MAX_DATAGRAM_BYTES = 16_000
"""A STREAM frame announces its length in a two-byte integer, which ends at 16,383."""

CONGESTION_CONTROLS = ("reno", "cubic")


@dataclass(frozen=True, slots=True, kw_only=True)
class QUICOptions(TransportOptions):
    """How connections of one listener, or one outgoing connection, behave."""

    alpn: tuple[str, ...] = ("mmqp",)
    """Application protocols, the preferred one first; a peer with none in common is refused in the handshake."""
    link_high_water_bytes: int = 16 * 1024 * 1024
    """All lanes of a link together; past it every lane written to is congested. Many slow topics cost no more."""
    link_low_water_bytes: int = 8 * 1024 * 1024
    """Congested lanes are writable again once their link holds no more than this."""
    stream_window_bytes: int = 1024 * 1024
    """What a peer may send on one stream ahead of our reading: 100 Mbit/s on one topic over an 80 ms path."""
    connection_window_bytes: int = 8 * 1024 * 1024
    """The same for all its streams together: what a paused or flooding peer can make us hold."""
    max_incoming_streams: int = 4096
    """Topic streams a peer may have open at once, about 2 kB each; further topics share its overflow lane."""
    max_bidirectional_streams: int = 128
    """Of the same cost, the control stream among them: MQTT clients may open some and are answered on each."""
    idle_timeout_s: float = 60.0
    """A peer not heard of for this long is gone; bindings for UDP in home routers commonly last as long."""
    keep_alive_s: float = 20.0
    """A client that has heard nothing for this long asks: a third of the idle timeout, so two answers may be lost."""
    idle_lane_s: float = 60.0
    """A topic stream without a write for this long is finished, so that quiet topics cost the peer nothing."""
    max_handshakes: int = 1024
    """Unfinished handshakes held at once, about 70 kB each: a flood of first packets costs no more than that."""
    retry: bool = False
    """Ask every new client to prove its address first: one more round trip, worth it only under attack."""
    congestion_control: str = "reno"
    """aioquic's `cubic` was measured slower than its `reno` on a loaded machine."""
    max_datagram_bytes: int = 1232
    """UDP payload that fits the smallest MTU IPv6 allows, 1280, and so any path: aioquic cannot discover a larger."""
    ack_packets: int = 8
    """Acknowledge after this many packets, or a millisecond, or a gap: fewer acknowledgements, fewer wake-ups."""
    single_stream: bool = False
    """Send all topics on the control stream, as TCP does: to measure what streams of their own are worth."""
    max_session_tickets: int = 4096
    """Tickets a listener remembers, about 1 kB each; the oldest is forgotten and its client shakes hands in full."""
    qlog: Path | None = None
    """Where a qlog file of each connection goes; aioquic's fast path is off meanwhile."""
    socket_buffer_bytes: int = 4 * 1024 * 1024
    """Room for the bursts of many peers while one loop turn computes; the kernel caps it by `net.core.rmem_max`."""

    def __post_init__(self) -> None:
        """Refuse what no connection could run with, naming the setting, its value and the rule."""
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
                raise ConfigError(f"{name} is {value}; it must be greater than 0")
        for low, high in (("low_water_bytes", "high_water_bytes"), ("link_low_water_bytes", "link_high_water_bytes")):
            if getattr(self, low) >= getattr(self, high):
                raise ConfigError(
                    f"{low} is {getattr(self, low)}; it must be less than {high}, which is {getattr(self, high)}"
                )
        if not self.alpn or not all(0 < len(name.encode()) < 256 for name in self.alpn):
            raise ConfigError(f"alpn is {self.alpn!r}; it must name at least one protocol, each of 1 to 255 bytes")
        if not SMALLEST_MAX_DATAGRAM_BYTES <= self.max_datagram_bytes <= LARGEST_MAX_DATAGRAM_BYTES:
            raise ConfigError(
                f"max_datagram_bytes is {self.max_datagram_bytes}; "
                f"it must be {SMALLEST_MAX_DATAGRAM_BYTES} to {LARGEST_MAX_DATAGRAM_BYTES}"
            )
        if self.congestion_control not in CONGESTION_CONTROLS:
            raise ConfigError(
                f"congestion_control is {self.congestion_control!r}; known are {', '.join(CONGESTION_CONTROLS)}"
            )

    @classmethod
    def of(cls, options: TransportOptions) -> QUICOptions:
        """The options every transport shares, with defaults for those of QUIC."""
        if isinstance(options, QUICOptions):
            return options
        return cls(**{name: getattr(options, name) for name in TransportOptions.__dataclass_fields__})
