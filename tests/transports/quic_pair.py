"""Two engines and the network between them, in one process and on one simulated clock: no socket, no sleep."""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from transports.quic.engine import (
    Closed,
    ConnectionIdIssued,
    ConnectionIdRetired,
    HandshakeCompleted,
    StreamData,
    StreamReset,
    StreamStopped,
    Terminated,
    load_engine,
)
from transports.quic.options import QUICOptions
from transports.quic.tickets import TicketStore

if TYPE_CHECKING:
    from certs.authority import CertificatePaths
    from transports.quic.engine import Address, Engine

CLIENT_ADDRESS: Address = ("127.0.0.1", 40000)
SERVER_ADDRESS: Address = ("127.0.0.1", 14567)


@dataclass
class Conditions:
    """How the network treats datagrams."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_s: float = 0.005
    damage: float = 0.0
    """A bit of the datagram is turned over."""
    jitter_s: float = 0.0
    """Up to this much is added to each datagram's delay, so that later ones overtake earlier ones."""


@dataclass
class Side:
    """One engine, what it heard, and whether its reader consumes."""

    engine: Engine
    is_consuming: bool = True
    received: dict[int, bytearray] = field(default_factory=lambda: defaultdict(bytearray))
    finished: set[int] = field(default_factory=set)
    resets: dict[int, int] = field(default_factory=dict)
    stopped: dict[int, int] = field(default_factory=dict)
    handshake: HandshakeCompleted | None = None
    closed: Closed | None = None
    is_terminated: bool = False
    held: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def take_events(self) -> None:
        for event in self.engine.events():
            match event:
                case StreamData():
                    self._take_data(event)
                case StreamReset():
                    self.resets[event.stream_id] = event.code
                    self.held.pop(event.stream_id, None)
                case StreamStopped():
                    self.stopped[event.stream_id] = event.code
                case HandshakeCompleted():
                    self.handshake = event
                case Closed():
                    self.closed = event
                case Terminated():
                    self.is_terminated = True
                case ConnectionIdIssued() | ConnectionIdRetired():
                    pass

    def _take_data(self, event: StreamData) -> None:
        assert event.stream_id not in self.finished, "data after the end of a stream"
        self.received[event.stream_id] += event.data
        if event.is_finished:
            self.finished.add(event.stream_id)
        if self.is_consuming:
            self.engine.consume(event.stream_id, len(event.data))
        else:
            self.held[event.stream_id] += len(event.data)

    def consume_held(self) -> None:
        self.is_consuming = True
        for stream_id, size in self.held.items():
            self.engine.consume(stream_id, size)
        self.held.clear()


class Pair:
    """A client and a server joined by a simulated network."""

    def __init__(
        self,
        certificates: CertificatePaths,
        engine: str = "aioquic",
        options: QUICOptions | None = None,
        conditions: Conditions | None = None,
        seed: int = 0,
        server_engine: str | None = None,
    ) -> None:
        self.options = options or QUICOptions()
        self.conditions = replace(conditions) if conditions else Conditions()
        self.now = 1000.0
        self.client_address = CLIENT_ADDRESS
        self.datagrams = 0
        self._random = random.Random(seed)
        self._flight: list[tuple[float, int, bool, bytes, Address]] = []
        client = load_engine(engine).client_engine(
            self.options, server_name="localhost", ca=certificates.ca, session_ticket=None, on_session_ticket=None
        )
        self.client = Side(client)
        engines = load_engine(server_engine or engine).server_engines(
            self.options,
            certificate=certificates.server,
            private_key=certificates.server_key,
            tickets=TicketStore(16),
        )
        self._engines = engines
        self._server: Side | None = None

    def connect(self) -> Pair:
        self.client.engine.connect(SERVER_ADDRESS, self.now)
        self._send(self.client)
        self.run(lambda: self.is_connected)
        return self

    @property
    def server(self) -> Side:
        assert self._server is not None, "it is made by the client's first packet"
        return self._server

    @property
    def is_connected(self) -> bool:
        return bool(self._server is not None and self.client.handshake and self._server.handshake)

    def run(self, until: object, limit_s: float = 60.0) -> None:
        """Let time pass until the condition holds; fails after `limit_s` simulated seconds."""
        deadline = self.now + limit_s
        assert callable(until)
        self.flush()
        while not until():
            assert self.now < deadline, "the condition never came true"
            assert self.step(), "nothing is left to happen"

    def run_for(self, seconds: float) -> None:
        deadline = self.now + seconds
        self.flush()
        while (at := self._next_time()) is not None and at <= deadline:
            self.step()
        self.now = deadline

    def flush(self) -> None:
        for side in self._sides():
            self._send(side)

    def step(self) -> bool:
        """Go to the next arrival or timer."""
        at = self._next_time()
        if at is None:
            return False
        # A timer computed as `sent + delay` may round to just before `now - delay`: no real clock stands still.
        self.now = max(self.now, at) + 1e-6
        self._arrive_due()
        for side in self._sides():
            timer = side.engine.timer()
            if timer is not None and timer <= self.now:
                side.engine.handle_timer(self.now)
            side.take_events()
        self.flush()
        return True

    def _sides(self) -> list[Side]:
        return [side for side in (self.client, self._server) if side is not None and not side.is_terminated]

    def _next_time(self) -> float | None:
        times = [side.engine.timer() for side in self._sides()]
        times += [self._flight[0][0]] if self._flight else []
        return min((time for time in times if time is not None), default=None)

    def _arrive_due(self) -> None:
        """Deliver what is due, as one read per side and source, for that is how a socket gives it."""
        reads: dict[tuple[bool, Address], list[bytes]] = defaultdict(list)
        while self._flight and self._flight[0][0] <= self.now:
            _, _, to_client, datagram, source = heapq.heappop(self._flight)
            reads[to_client, source].append(datagram)
        for (to_client, source), datagrams in reads.items():
            if not to_client and self._server is None:
                first = datagrams[0]
                self._server = Side(self._engines(first[6 : 6 + first[5]], None))
            side = self.client if to_client else self.server
            side.engine.receive(datagrams, source, self.now)
            side.take_events()

    def _send(self, side: Side) -> None:
        is_client = side is self.client
        source = self.client_address if is_client else SERVER_ADDRESS
        while datagrams := side.engine.datagrams_to_send(self.now):
            for datagram, _ in datagrams:
                self._launch(not is_client, datagram, source)
        side.engine.drained()

    def _launch(self, to_client: bool, datagram: bytes, source: Address) -> None:
        if self._random.random() < self.conditions.loss:
            return
        if self._random.random() < self.conditions.damage:
            damaged = bytearray(datagram)
            damaged[self._random.randrange(len(damaged))] ^= 1 << self._random.randrange(8)
            datagram = bytes(damaged)
        copies = 2 if self._random.random() < self.conditions.duplication else 1
        for _ in range(copies):
            self.datagrams += 1
            at = self.now + self.conditions.delay_s + self._random.random() * self.conditions.jitter_s
            heapq.heappush(self._flight, (at, self.datagrams, to_client, datagram, source))
