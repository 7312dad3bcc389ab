"""The connections of a traced process: how the network below each does, looked at every 100 ms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moq.trace.clock import now_ns
from moq.trace.records import UNKNOWN, Origin

if TYPE_CHECKING:
    from moq.broker.link import Link, LinkState
    from moq.trace.writer import TraceWriter

MAX_LOOKS: Final = 200
"""Connections looked at in one tick, some microseconds each; with more, they take turns."""


class Traced:
    """One connection: its number, and what its records say of it."""

    __slots__ = ("link", "number", "origin")

    def __init__(self, link: Link, number: int, origin: Origin) -> None:
        self.link = link
        self.number = number
        self.origin = origin


class Connections:
    """All that are open."""

    def __init__(self, writer: TraceWriter) -> None:
        self._writer = writer
        self._open: dict[Link, Traced] = {}
        self._numbers: dict[int, Traced] = {}
        self._turns: list[int] = []

    def add(self, link: Link, dialect: str, client_id: str) -> Traced:
        """A connection begins; a link that had one has begun anew."""
        origin = Origin(client_id, link.transport, dialect, link.peer)
        self.remove(link)
        traced = self._open[link] = Traced(link, self._writer.next_connection(), origin)
        self._numbers[traced.number] = traced
        return traced

    def remove(self, link: Link) -> None:
        """A link is gone: nothing here refers to it any more."""
        traced = self._open.pop(link, None)
        if traced is not None:
            del self._numbers[traced.number]

    def look(self) -> None:
        """Record the state of those whose turn it is."""
        if not self._turns:
            self._turns = list(self._numbers)
        turns, self._turns = self._turns[:MAX_LOOKS], self._turns[MAX_LOOKS:]
        for traced in [self._numbers[number] for number in turns if number in self._numbers]:
            read = getattr(traced.link, "state", None)  # transports without a network below have none
            state: LinkState | None = None if read is None else read()
            if state is not None:
                self._writer.state(traced.number, traced.origin, now_ns(), _figures(state, traced.link.unsent))


def _figures(state: LinkState, unsent_bytes: int) -> tuple[int, ...]:
    return (
        int(state.round_trip_s * 1e9),
        state.congestion_window_bytes,
        state.bytes_in_flight,
        state.packets_sent,
        state.packets_received,
        state.losses,
        UNKNOWN if state.open_streams is None else state.open_streams,
        unsent_bytes,
    )
