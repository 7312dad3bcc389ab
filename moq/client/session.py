"""A client's session: all that survives the connection it began on.

A plain object that is handed from one `ClientCore` to the next. Whoever has kept it can go on where the last
connection stopped: resend what was not acknowledged, recognise what was already received, subscribe again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from moq.client.inbox import Inbox
from moq.client.operators import brings
from moq.client.pending import PacketIds
from moq.client.topics import TopicTable
from moq.errors import ConfigError

if TYPE_CHECKING:
    from moq.client.inbox import Delivery, Filter
    from moq.client.messages import TopicType, Will
    from moq.client.pending import Exchange, Operation
    from moq.errors import ConnectionLost

MAX_U16 = 0xFFFF
MAX_CACHED_ROUTES = 10_000
"""Bounds the memory a broker can take by inventing topic names; past it the cache starts anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """What a client says of itself in CONREQ, and the bounds it keeps."""

    user_name: str | None = None
    password: str | bytes | None = None
    persistent: bool = False
    keep_alive_s: int = 60
    expiry_s: int | None = None
    initial_will: Will | None = None
    last_will: Will | None = None
    window: int = 1000
    """Messages sent and not yet acknowledged; past it `publish` waits."""
    max_packet_bytes: int = 16 * 1024 * 1024
    """Largest packet accepted from the broker."""
    chunk_bytes: int = 64 * 1024
    """Payloads above it arrive in pieces and are put together here, up to `max_packet_bytes`."""

    def __post_init__(self) -> None:
        """Refuse what CONREQ cannot carry."""
        for name, lowest in (("keep_alive_s", 1), ("expiry_s", 0)):
            value = getattr(self, name)
            if value is not None and not lowest <= value <= MAX_U16:
                raise ConfigError(f"{name} is {value}; it must be {lowest} to {MAX_U16}")
        if not 0 < self.window < MAX_U16:
            raise ConfigError(f"window is {self.window}; it must be 1 to {MAX_U16 - 1}, one identifier per message")


@dataclass(slots=True)
class ClientSession:
    """State of one client identifier."""

    client_id: str | None = None
    resume: bool = False
    """Ask for the session the broker has kept; true from the first successful connection on."""
    connections: int = 0
    """Connections begun so far."""
    is_established: bool = False
    """A broker has accepted it at least once."""
    is_foreign: bool = False
    """The broker's session was begun by another program run: it may send what no subscription here asked for."""
    topics: TopicTable = field(default_factory=TopicTable)
    ids: PacketIds = field(default_factory=PacketIds)
    outgoing: dict[tuple[int, int], Exchange] = field(default_factory=dict)
    """By kind and packet identifier, in the order of sending: every exchange with packets still to come."""
    received: set[tuple[int, int]] = field(default_factory=set)
    """QoS 2 messages taken and not yet released by the broker: another of the same identifier is a duplicate."""
    unanswered: dict[tuple[int, int], Delivery] = field(default_factory=dict)
    """Of these, messages of QoS 3 that the program has still to confirm."""
    replies: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """Of these, what the program replied: said again if the message is repeated."""
    operations: dict[Operation, None] = field(default_factory=dict)
    """Asked and not answered, in order."""
    filters: dict[str, Filter] = field(default_factory=dict)
    types: dict[str, TopicType] = field(default_factory=dict)
    """Types this client has announced, and answers TYPEREQ with."""
    unclaimed: Inbox = field(default_factory=lambda: Inbox("#", limit=0, accepts_requests=True))
    """What a resumed session brought before the program subscribed again: withheld until it does."""
    _routes: dict[str, tuple[Inbox, ...]] = field(default_factory=dict)

    def route(self, topic: str) -> tuple[Inbox, ...]:
        """The inboxes whose filter matches a topic, remembered until a subscription changes."""
        route = self._routes.get(topic)
        if route is None:
            if len(self._routes) >= MAX_CACHED_ROUTES:
                self._routes.clear()
            found = [entry for name, entry in self.filters.items() if brings(name, topic)]
            route = self._routes[topic] = tuple(inbox for entry in found for inbox in entry.inboxes)
        return route

    def subscriptions_changed(self) -> None:
        """Every remembered route may be wrong now."""
        self._routes.clear()

    def end(self, error: ConnectionLost, inbox_error: ConnectionLost | None) -> None:
        """No connection will follow: everything unsettled fails, every subscription ends."""
        waiting = [exchange for topic in self.topics.all() for exchange in topic.waiting]
        for pending in [*self.outgoing.values(), *waiting, *self.operations]:
            pending.settle(error)
        for entry in self.filters.values():
            for inbox in entry.inboxes:
                inbox.end(inbox_error)
