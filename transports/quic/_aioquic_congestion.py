"""aioquic's congestion controllers, which here do not grow a window that nobody fills.

A connection that sends a small message now and then acknowledges one packet after the other; counting those as proof
of capacity, as aioquic does, ends in a window of megabytes and a burst of as much when a large message comes
(RFC 9002 section 7.8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioquic.quic.congestion.base import QuicCongestionControl, register_congestion_control
from aioquic.quic.congestion.cubic import CubicCongestionControl
from aioquic.quic.congestion.reno import RenoCongestionControl

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioquic.quic.packet_builder import QuicSentPacket


class Measured(QuicCongestionControl):
    """Acknowledgements count only for packets sent up to a moment when the window was at least half full.

    To be mixed in before a controller, which is what `super()` is here. Whoever sends calls `on_burst_sent`: to look
    at every packet would cost a twentieth of all the work there is.
    """

    _filled_by = -1
    """The last packet that was sent when it was."""

    packets_lost = 0

    def on_burst_sent(self, last_packet_number: int) -> None:
        """Note whether the window is being used."""
        if self.bytes_in_flight * 2 >= self.congestion_window:
            self._filled_by = last_packet_number

    def on_packets_lost(self, *, now: float, packets: Iterable[QuicSentPacket]) -> None:
        """Count them."""
        lost = list(packets)
        self.packets_lost += len(lost)
        super().on_packets_lost(now=now, packets=lost)  # type: ignore[safe-super]

    def on_packet_acked(self, *, now: float, packet: QuicSentPacket) -> None:
        """Let the window grow if it was used."""
        if packet.packet_number <= self._filled_by:
            super().on_packet_acked(now=now, packet=packet)  # type: ignore[safe-super]
        else:
            self.bytes_in_flight -= packet.sent_bytes


class MeasuredReno(Measured, RenoCongestionControl):
    """New Reno."""


class MeasuredCubic(Measured, CubicCongestionControl):
    """CUBIC."""


NAMES = {"reno": "moq-reno", "cubic": "moq-cubic"}
"""Under which aioquic finds them."""

register_congestion_control(NAMES["reno"], MeasuredReno)
register_congestion_control(NAMES["cubic"], MeasuredCubic)
