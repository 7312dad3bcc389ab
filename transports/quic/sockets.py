"""A UDP socket that moves many datagrams per system call, where the kernel can, and one where it cannot.

GSO (`UDP_SEGMENT`) sends a run of equally long datagrams in one call, GRO (`UDP_GRO`) receives one. A system call
costs more than a packet's share of everything else: with both, the same engine moved half as much again.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transports.quic.engine import Address

SOL_UDP = 17
UDP_SEGMENT = 103
UDP_GRO = 104
MAX_SEGMENTS = 64
MAX_SEND_BYTES = 65_000
"""What the kernel takes in one GSO call: 64 segments and what fits a UDP length with its headers."""

_U16 = struct.Struct("=H")
_I32 = struct.Struct("=i")
_CONTROL_BYTES = socket.CMSG_SPACE(_I32.size)
_READ_BYTES = 65_536

LOST = (errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EPERM, errno.EMSGSIZE, errno.EADDRNOTAVAIL)
"""Errors of one datagram or one path: it counts as lost, as if the network had dropped it."""

NO_GSO = (errno.EINVAL, errno.EIO, errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.EMSGSIZE)

Datagrams = list[tuple[bytes, "Address"]]


class UDPSocket:
    """A non-blocking UDP socket. Errors of single datagrams are losses, never exceptions."""

    def __init__(self, sock: socket.socket, buffer_bytes: int) -> None:
        self.is_refused = False
        """Set when the peer's port was found closed; the owner clears it."""
        self._sock = sock
        self._can_segment = True
        self._buffer = bytearray(_READ_BYTES)
        self._view = memoryview(self._buffer)
        sock.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, buffer_bytes)
        with contextlib.suppress(OSError):  # a kernel without GRO: then each read gives one datagram
            sock.setsockopt(SOL_UDP, UDP_GRO, 1)

    def fileno(self) -> int:
        """For the event loop."""
        return self._sock.fileno()

    def close(self) -> None:
        """Give the port back."""
        self._view.release()
        self._sock.close()

    def read(self) -> tuple[list[bytes], Address] | None:
        """The datagrams of one read, all from one address; None when there are no more."""
        try:
            size, control, _, address = self._sock.recvmsg_into((self._buffer,), _CONTROL_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            # A connected socket reports here that an earlier datagram did not arrive.
            self.is_refused |= error.errno == errno.ECONNREFUSED
            return [], ()
        segment = size
        for level, kind, value in control:
            if level == SOL_UDP and kind == UDP_GRO:
                segment = _I32.unpack_from(value)[0]
        if segment >= size:
            return [bytes(self._view[:size])], address
        data = bytes(self._view[:size])
        return [data[start : start + segment] for start in range(0, size, segment)], address

    def send(self, datagrams: Datagrams) -> int:
        """Send from the first on; returns how many are dealt with, fewer than all if the socket is full."""
        done = 0
        for run in _runs(datagrams) if self._can_segment else ([entry] for entry in datagrams):
            try:
                self._send_run(run)
            except (BlockingIOError, InterruptedError):
                return done
            except OSError as error:
                if len(run) > 1 and error.errno in NO_GSO:
                    self._can_segment = False
                    return done + self.send(datagrams[done:])
                if error.errno == errno.ENOBUFS:
                    return done
                if error.errno not in LOST:
                    raise
                self.is_refused |= error.errno == errno.ECONNREFUSED
            done += len(run)
        return done

    def _send_run(self, run: Datagrams) -> None:
        data, address = run[0]
        target = address or None
        if len(run) == 1:
            self._sock.sendmsg((data,), (), 0, target)
        else:
            segment = [(SOL_UDP, UDP_SEGMENT, _U16.pack(len(data)))]
            self._sock.sendmsg([data for data, _ in run], segment, 0, target)


def _runs(datagrams: Datagrams) -> Iterator[Datagrams]:
    """Cut into runs one GSO call can send: one address, all as long as the first but for a shorter last."""
    total = len(datagrams)
    start = 0
    while start < total:
        data, address = datagrams[start]
        size = len(data)
        limit = min(total, start + min(MAX_SEGMENTS, max(1, MAX_SEND_BYTES // size)))
        stop = start + 1
        while stop < limit:
            length = len(datagrams[stop][0])
            if length > size or datagrams[stop][1] != address:
                break
            stop += 1
            if length < size:
                break
        yield datagrams[start:stop]
        start = stop
