"""Packets of our own through the lab: round trips one by one, and floods.

Both ends are sockets of this process, so there is one clock, and each direction is timed by itself.
"""

from __future__ import annotations

import contextlib
import select
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from moq.errors import LabError
from moq.lab import namespaces
from moq.lab.profiles import DIRECTIONS, UP

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self

    from moq.lab.namespaces import End

HEADERS_BYTES: Final = 14 + 20 + 8
"""Ethernet, IP and UDP: what netem counts besides the payload."""
SMALL_BYTES: Final = HEADERS_BYTES + 12
LARGE_BYTES: Final = HEADERS_BYTES + 1472

NUMBER: Final = struct.Struct("!IQ")
"""The number of a flood or of a round trip, and that of the packet in it."""

BUFFER_BYTES: Final = 8 * 1024 * 1024
TICK_S: Final = 0.001
OPENING_S: Final = 0.1
MAX_BATCH: Final = 32
"""Packets sent before somebody looks whether any have arrived: what waits in the sockets stays short."""


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """How long one packet took each way."""

    up_ms: float
    down_ms: float

    @property
    def rtt_ms(self) -> float:
        """Both together."""
        return self.up_ms + self.down_ms


@dataclass(slots=True)
class Flow:
    """What became of the packets that were sent one way."""

    frame_bytes: int
    sent: int = 0
    received: int = 0
    repeated: int = 0
    disordered: int = 0
    """Arrived right after a packet that was sent later: one that overtakes hundreds counts once."""
    _times: list[float] = field(default_factory=list, repr=False)
    _seen: set[int] = field(default_factory=set, repr=False)
    _previous: int = -1

    @property
    def lost(self) -> int:
        """Never arrived."""
        return self.sent - self.received

    @property
    def rate_bit_s(self) -> float:
        """At which they arrived, as netem counts it, once the queue was filling."""
        settled = len(self._times) // 10
        took_s = self._times[-1] - self._times[settled] if len(self._times) > 1 else 0.0
        return (len(self._times) - 1 - settled) * self.frame_bytes * 8 / took_s if took_s > 0 else 0.0

    def joined(self, later: Flow) -> Flow:
        """The counts of two floods; when packets arrived is forgotten."""
        return Flow(self.frame_bytes, **{name: getattr(self, name) + getattr(later, name) for name in COUNTS})

    def on_received(self, number: int, now: float) -> None:
        """Count one."""
        if number in self._seen:
            self.repeated += 1
            return
        self._seen.add(number)
        self._times.append(now)
        self.received += 1
        self.disordered += number < self._previous
        self._previous = number


COUNTS: Final = ("sent", "received", "repeated", "disordered")


class Probes:
    """A socket at each end, inside `with`."""

    def __init__(self, client: End, server: End) -> None:
        self._ends = (client, server)
        self._batch = 0
        self._client: socket.socket
        self._server: socket.socket

    def __enter__(self) -> Self:
        self._client, self._server = (namespaces.udp_socket(end, BUFFER_BYTES) for end in self._ends)
        self._client.connect(self._server.getsockname())
        self._server.connect(self._client.getsockname())
        for opened in (self._client, self._server):
            opened.setblocking(False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()
        self._server.close()

    def wait_until_open(self, timeout_s: float) -> None:
        """Send packets until one comes back: a network that has just been built takes a moment.

        Raises:
            LabError: none does.
        """
        deadline = time.perf_counter() + timeout_s
        while not self.round_trips(1, 0, OPENING_S):
            if time.perf_counter() > deadline:
                raise LabError(f"no packet has come back through the network within {timeout_s:g} s")

    def round_trips(self, count: int, interval_s: float, patience_s: float) -> list[RoundTrip]:
        """Send packets at intervals and back, and wait for the last; those that were lost are not in the answer."""
        self._batch += 1
        sent_at: dict[int, float] = {}
        up_s: dict[int, float] = {}
        trips: list[RoundTrip] = []
        due = time.perf_counter()
        deadline = due + count * interval_s + patience_s
        while len(trips) < count and (now := time.perf_counter()) < deadline:
            if len(sent_at) < count and now >= due:
                sent_at[len(sent_at)] = now
                self._send(self._client, len(sent_at) - 1, SMALL_BYTES)
                due += interval_s
            until = due if len(sent_at) < count else deadline
            ready = select.select([self._client, self._server], [], [], max(until - time.perf_counter(), 0))[0]
            now = time.perf_counter()
            if self._server in ready:
                for number in self._arrived(self._server):
                    up_s[number] = now - sent_at[number]
                    self._send(self._server, number, SMALL_BYTES)
            if self._client in ready:
                for number in self._arrived(self._client):
                    if number in up_s:
                        trip_s = now - sent_at[number]
                        trips.append(RoundTrip(up_s[number] * 1e3, (trip_s - up_s.pop(number)) * 1e3))
        return trips

    def flood(
        self, directions: Iterable[str], packets: int, per_s: float, frame_bytes: int, patience_s: float
    ) -> dict[str, Flow]:
        """Send packets at a steady rate in each direction, and wait until none has arrived for a while.

        Args:
            directions: which ways.
            packets: in each direction.
            per_s: in each direction.
            frame_bytes: size of a packet, headers included.
            patience_s: how long to wait after the last one.
        """
        self._batch += 1
        flows = {direction: Flow(frame_bytes) for direction in directions}
        began = time.perf_counter()
        while any(flow.sent < packets for flow in flows.values()):
            now = time.perf_counter()
            due = min(int((now - began) * per_s) + 1, packets)
            is_behind = False
            for direction, flow in flows.items():
                batch = min(due - flow.sent, MAX_BATCH)
                for _ in range(batch):
                    self._send(self._sender(direction), flow.sent, frame_bytes)
                    flow.sent += 1
                is_behind |= due > flow.sent
            self._receive(flows, 0 if is_behind else TICK_S)
        while self._receive(flows, patience_s):
            pass
        return flows

    def _receive(self, flows: dict[str, Flow], wait_s: float) -> bool:
        """Count what has arrived; False if nothing did in this time."""
        receivers = {self._receiver(direction): flow for direction, flow in flows.items()}
        ready = select.select([*receivers], [], [], wait_s)[0]
        for opened in ready:
            now = time.perf_counter()
            for number in self._arrived(opened):
                receivers[opened].on_received(number, now)
        return bool(ready)

    def _sender(self, direction: str) -> socket.socket:
        return self._client if direction == UP else self._server

    def _receiver(self, direction: str) -> socket.socket:
        return self._server if direction == UP else self._client

    def _send(self, opened: socket.socket, number: int, frame_bytes: int) -> None:
        payload = NUMBER.pack(self._batch, number).ljust(frame_bytes - HEADERS_BYTES, b"\0")
        # A full queue of the device is a packet lost before the path: seen, and told by the counts.
        with contextlib.suppress(BlockingIOError):
            opened.send(payload)

    def _arrived(self, opened: socket.socket) -> list[int]:
        """The numbers of the packets that are there; those of an earlier batch are late and not counted."""
        numbers: list[int] = []
        while len(numbers) < MAX_BATCH:
            try:
                batch, number = NUMBER.unpack_from(opened.recv(2048))
            except BlockingIOError:
                break
            if batch == self._batch:
                numbers.append(number)
        return numbers


__all__ = ["DIRECTIONS", "LARGE_BYTES", "SMALL_BYTES", "Flow", "Probes", "RoundTrip"]
