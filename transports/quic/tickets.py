"""TLS session tickets a listener has issued, so that a returning client need not shake hands in full."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from transports.figures import TransportFigures


class Ticket(Protocol):
    """What every engine's tickets have in common."""

    @property
    def ticket(self) -> bytes:
        """The identity the client presents."""


class TicketStore:
    """The newest tickets in memory; each can be used once.

    Once only, because a ticket presented twice may be a replay; the client gets a new one with each handshake.
    """

    def __init__(self, limit: int, figures: TransportFigures | None = None) -> None:
        self._limit = limit
        self._figures = figures or TransportFigures()
        self._tickets: OrderedDict[bytes, Ticket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tickets)

    def add(self, ticket: Ticket) -> None:
        """Remember a ticket, forgetting the oldest past the limit."""
        self._tickets[ticket.ticket] = ticket
        if len(self._tickets) > self._limit:
            self._tickets.popitem(last=False)

    def take(self, identity: bytes) -> Ticket | None:
        """The ticket a client presents, if we issued it and it was not used yet."""
        ticket = self._tickets.pop(identity, None)
        # Every ticket of ours lets its client send early data, so one that brings an unknown one has sent some in vain.
        self._figures.early_data_refused += ticket is None
        return ticket
