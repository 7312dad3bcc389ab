"""Which connections are looked at: all in turn, and none after it is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.broker.link import LinkState
from moq.trace.connections import MAX_LOOKS, Connections
from moq.trace.offsets import estimate
from moq.trace.schema import BROKER
from moq.trace.writer import TraceWriter
from tests.broker.desk import DeskLink
from tests.trace.reading import rows

if TYPE_CHECKING:
    from pathlib import Path


class StatefulLink(DeskLink):
    """A link that knows of a network below it."""

    def __init__(self) -> None:
        super().__init__(has_lanes=True, high_water=None)
        self.looks = 0

    def state(self) -> LinkState:
        self.looks += 1
        return LinkState(0.0015, 12_000, 1_200, 7, 8, 1, 3)


def test_many_connections_take_turns(tmp_path: Path) -> None:
    connections = Connections(TraceWriter(tmp_path, BROKER))
    links = [StatefulLink() for _ in range(MAX_LOOKS + 50)]
    for link in links:
        connections.add(link, "mmqp", "c")
    connections.look()
    assert sum(link.looks for link in links) == MAX_LOOKS
    connections.look()
    assert {link.looks for link in links} == {1}


def test_a_link_that_is_gone_is_not_looked_at(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, BROKER).open()
    connections = Connections(writer)
    first, second = StatefulLink(), StatefulLink()
    for link in (first, second):
        connections.add(link, "mmqp", "c")
    connections.remove(first)
    connections.remove(first)
    connections.look()
    writer.close()
    assert (first.looks, second.looks) == (0, 1)
    (state,) = rows(tmp_path, "connections")
    assert (state["connection"], state["round_trip_ns"], state["open_streams"]) == (2, 1_500_000, 3)


def test_a_link_without_a_network_below_has_no_state(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, BROKER).open()
    connections = Connections(writer)
    connections.add(DeskLink(has_lanes=True, high_water=None), "mmqp", "c")
    connections.look()
    writer.close()
    assert list((tmp_path / "connections").iterdir()) == []


def test_a_clock_that_is_ahead_is_found_to_be_so() -> None:
    # Ours asks at 1000; theirs, 500 ahead, reads at 1600 (100 later), takes 30, and the answer needs 100 again.
    found = estimate(1000, 1600, 1630, 1230)
    assert (found.offset_ns, found.round_trip_ns) == (500, 200)
    # A way back that takes 60 longer is off by half of that, and never by more than half the round trip.
    late = estimate(1000, 1600, 1630, 1290)
    assert (late.offset_ns, late.round_trip_ns) == (470, 260)
