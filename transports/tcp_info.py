"""What the Linux kernel tells of a TCP connection (`struct tcp_info`), in the words of `LinkState`."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final, Protocol

from moq.broker.link import LinkState

if TYPE_CHECKING:
    from collections.abc import Sequence

TCP_INFO: Final = struct.Struct("=8x24I4Q2I")
"""As far as we read it: from `tcpi_rto` to `tcpi_segs_in`, which kernels have had since 4.2."""

SND_MSS, UNACKED, RTT_US, SND_CWND, TOTAL_RETRANS, SEGS_OUT, SEGS_IN = 2, 4, 15, 18, 23, 28, 29
"""Places of the fields."""


class Socket(Protocol):
    """What asyncio gives out as the socket of a transport."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes:
        """An option's value."""


def read_state(sock: Socket) -> LinkState | None:
    """Ask the kernel; None if it does not know, or the socket is closed."""
    try:
        data = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO.size)
    except (OSError, AttributeError):
        return None
    return None if len(data) < TCP_INFO.size else to_state(TCP_INFO.unpack(data))


def to_state(fields: Sequence[int]) -> LinkState:
    """The kernel counts in segments."""
    segment = fields[SND_MSS]
    return LinkState(
        round_trip_s=fields[RTT_US] / 1e6,
        congestion_window_bytes=fields[SND_CWND] * segment,
        bytes_in_flight=fields[UNACKED] * segment,
        packets_sent=fields[SEGS_OUT],
        packets_received=fields[SEGS_IN],
        losses=fields[TOTAL_RETRANS],
        open_streams=None,
    )
