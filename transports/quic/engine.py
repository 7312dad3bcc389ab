"""The seam between our endpoint and a QUIC library: one connection without I/O, and the events it reports.

    datagrams ──> receive ──┐                      ┌── events() ──> link ──> consume
                            ├── Engine (no socket, ├── datagrams_to_send(now) ──> endpoint
    clock ──> handle_timer ─┘    no clock, no loop)└── timer() ──> when to call handle_timer

Endpoint, connection and link know this file only; what they ask of a library is all here. The one surprising
call is `consume`: received bytes open the peer's window when their reader has taken them, not when they arrive,
so a reader that stops makes the peer stop.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from moq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from transports.quic.options import QUICOptions
    from transports.quic.tickets import TicketStore

Address = tuple[Any, ...]
"""A socket address as the operating system gives it: host, port and, for IPv6, flow and scope."""

CONTROL_PRIORITY = -1
"""Stream 0 goes before every lane: the priorities of lanes start at 0."""


@dataclass(slots=True)
class HandshakeCompleted:
    """Keys are agreed and the peer proved to hold them: streams may be opened."""

    alpn: str
    is_resumed: bool
    is_early: bool = False
    """True if data that came before was taken."""


@dataclass(slots=True)
class StreamData:
    """Bytes of a stream, in order; the receiver answers with `consume` once it has taken them."""

    stream_id: int
    data: bytes
    is_finished: bool


@dataclass(slots=True)
class StreamReset:
    """The peer abandoned a stream it was sending on; nothing of it is to be consumed any more."""

    stream_id: int
    code: int


@dataclass(slots=True)
class StreamStopped:
    """The peer does not want what we send on this stream; the engine has reset it."""

    stream_id: int
    code: int


@dataclass(slots=True)
class ConnectionIdIssued:
    """Datagrams to this connection id belong here too from now on."""

    connection_id: bytes


@dataclass(slots=True)
class ConnectionIdRetired:
    """The peer will not use this connection id again."""

    connection_id: bytes


@dataclass(slots=True)
class Closed:
    """The connection ended; nothing follows but `Terminated`.

    `code` is the application's error code if the peer gave one, else None; `alert` the TLS alert of a failed
    handshake, else None.
    """

    code: int | None
    message: str
    is_by_peer: bool
    alert: int | None = None


@dataclass(slots=True)
class Terminated:
    """Late packets need no absorbing any more: the engine can be forgotten."""


Event = (
    HandshakeCompleted
    | StreamData
    | StreamReset
    | StreamStopped
    | ConnectionIdIssued
    | ConnectionIdRetired
    | Closed
    | Terminated
)


@dataclass(slots=True)
class EngineStats:
    """What one connection has done, for metrics, traces and tests."""

    packets_sent: int
    packets_received: int
    packets_lost: int
    frames_lost: int
    """STREAM frames declared lost and sent again."""
    streams_visited: int
    """Streams looked at while building packets: the work that must not grow with the number of open ones."""
    open_streams: int
    congestion_window: int
    bytes_in_flight: int
    round_trip_s: float


class Engine(Protocol):
    """One QUIC connection, sans I/O. Every call may queue something: ask `datagrams_to_send` afterwards."""

    connection_id: bytes
    """The id the peer addresses first; more follow as `ConnectionIdIssued`."""

    def connect(self, address: Address, now: float) -> None:
        """Start the handshake of a client."""

    def receive(self, datagrams: list[bytes], address: Address, now: float) -> None:
        """Take datagrams of one peer address, as they came from one read."""

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Address]]:
        """What may leave now: bounded, so call again after sending it if `drained` lists streams to refill."""

    def timer(self) -> float | None:
        """When `handle_timer` wants to be called."""

    def handle_timer(self, now: float) -> None:
        """The time given by `timer` has come."""

    def events(self) -> list[Event]:
        """What happened since the last call, in order."""

    def streams_left(self) -> int:
        """How many unidirectional streams the peer lets us open now."""

    def open_stream(self, priority: int) -> int:
        """Open a unidirectional stream; only while `streams_left` is not 0."""

    def can_send(self, stream_id: int) -> bool:
        """True if a stream is open in our direction: not finished, reset, stopped by the peer, or over."""

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        """Append to a stream. The engine keeps the data until acknowledged: bound what you hand over."""

    def unsent(self, stream_id: int) -> int:
        """Bytes handed over that have not been in a packet yet."""

    def is_acknowledged(self, stream_id: int) -> bool:
        """True if the peer has all that was handed over."""

    def drained(self) -> list[int]:
        """Streams that had data and now have little left unsent, since the last call."""

    def consume(self, stream_id: int, size: int) -> None:
        """Bytes of `StreamData` were taken: let the peer send as many more."""

    def reset(self, stream_id: int, code: int) -> None:
        """Abandon sending on a stream."""

    def stop(self, stream_id: int, code: int) -> None:
        """Ask the peer to stop sending on a stream."""

    def ping(self) -> None:
        """Make the peer answer, so that both sides know the other is there."""

    def close(self, code: int | None, message: str) -> None:
        """End the connection with an application code, or without one: then the peer sees it vanish."""

    def release(self) -> None:
        """Let go of everything: the connection is over and nothing else is called any more."""

    def stats(self) -> EngineStats:
        """A snapshot for metrics, traces and tests."""


class ServerEngines(Protocol):
    """Makes the engine of each connection a listener accepts."""

    versions: tuple[int, ...]
    """QUIC versions spoken, for version negotiation."""

    def __call__(self, original_cid: bytes, retry_cid: bytes | None) -> Engine:
        """An engine for the client whose first packet was addressed to `original_cid`."""


class EngineModule(Protocol):
    """What `aioquic_engine` and `qh3_engine` offer."""

    def client_engine(
        self,
        options: QUICOptions,
        *,
        server_name: str,
        ca: Path | None,
        session_ticket: object | None,
        on_session_ticket: Callable[[object], None] | None,
    ) -> Engine:
        """The engine of one outgoing connection; `connect` starts it."""

    def server_engines(
        self, options: QUICOptions, *, certificate: Path, private_key: Path, tickets: TicketStore
    ) -> ServerEngines:
        """Load certificate and key once, for all connections of a listener."""


def load_engine(name: str) -> EngineModule:
    """The engine called `aioquic` or `qh3`; ConfigError if there is none of that name or it is not installed."""
    if name not in ("aioquic", "qh3"):
        raise ConfigError(f"quic engine is {name!r}; known are aioquic, qh3")
    try:
        return cast("EngineModule", import_module(f"transports.quic.{name}_engine"))
    except ImportError as error:
        extra = "; install it with the extra: pip install 'moq-broker[fast]'" if name == "qh3" else ""
        raise ConfigError(f"quic engine {name!r} cannot be loaded ({error}){extra}") from error
