"""New connections wait for each other, and established ones for none of them."""

from __future__ import annotations

import asyncio
import selectors
import socket
from typing import TYPE_CHECKING

import pytest

from transports import fair, tcp
from transports.fair import EVENTS_PER_TURN, FairLoop, FairSelector
from transports.options import TransportOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from moq.broker.link import Lane, Link


@pytest.fixture
def selector() -> Iterator[FairSelector]:
    with FairSelector() as chosen:
        yield chosen


@pytest.fixture
def ready(selector: FairSelector) -> Iterator[list[socket.socket]]:
    """Ten sockets that have something to read."""
    pairs = [socket.socketpair() for _ in range(10)]
    for near, far in pairs:
        far.send(b"x")
        selector.register(near, selectors.EVENT_READ)
    yield [near for near, _ in pairs]
    for pair in pairs:
        for end in pair:
            end.close()


def reported(selector: FairSelector) -> list[int]:
    return [key.fd for key, _ in selector.select(0)]


def test_established_ones_are_reported_all_and_new_ones_a_few(
    selector: FairSelector, ready: list[socket.socket]
) -> None:
    old, new = ready[:3], ready[3:]
    for each in new:
        selector.mark_new(each.fileno())
    for _ in range(20):
        found = reported(selector)
        assert set(found) >= {each.fileno() for each in old}
        assert len(found) == len(old) + EVENTS_PER_TURN


def test_every_new_one_has_its_turn(selector: FairSelector, ready: list[socket.socket]) -> None:
    for each in ready:
        selector.mark_new(each.fileno())
    turns = len(ready) // EVENTS_PER_TURN
    seen = [descriptor for _ in range(turns) for descriptor in reported(selector)]
    assert sorted(seen) == sorted(each.fileno() for each in ready)


def test_few_new_ones_wait_for_nothing(selector: FairSelector, ready: list[socket.socket]) -> None:
    for each in ready[:EVENTS_PER_TURN]:
        selector.mark_new(each.fileno())
    assert len(reported(selector)) == len(ready)


def test_nobody_is_new_for_long(
    selector: FairSelector, ready: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair, "NEW_FOR_S", -1.0)
    for each in ready:
        selector.mark_new(each.fileno())
    assert len(reported(selector)) == len(ready)


def test_a_number_used_again_is_not_new_because_it_once_was(selector: FairSelector, ready: list[socket.socket]) -> None:
    for each in ready:
        selector.mark_new(each.fileno())
        selector.unregister(each)
        selector.register(each, selectors.EVENT_READ)
    assert len(reported(selector)) == len(ready)


class Silent:
    """A handler that counts the turns of the loop in which links were made."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def data_received(self, lane_id: int, data: bytes) -> None: ...
    def lane_finished(self, lane_id: int) -> None: ...
    def lane_reset(self, lane_id: int, reason: int) -> None: ...
    def lane_writable(self, lane: Lane) -> None: ...
    def closed(self, reason: int | None, message: str) -> None: ...


@pytest.mark.parametrize("per_turn", [1, 3])
def test_a_listener_accepts_a_few_connections_per_turn(per_turn: int) -> None:
    most = 0

    async def accept_all() -> None:
        nonlocal most
        links: list[Link] = []

        def accept(link: Link) -> Silent:
            links.append(link)
            return Silent(link)

        listener = await tcp.serve("127.0.0.1", 0, accept, options=TransportOptions(accepts_per_turn=per_turn))
        callers = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(20)]
        while len(links) < len(callers):
            before = len(links)
            await asyncio.sleep(0)
            most = max(most, len(links) - before)
        for caller in callers:
            caller.close()
        for link in links:
            link.abort()
        await listener.close()

    with asyncio.Runner(loop_factory=FairLoop) as runner:
        runner.run(accept_all())
    assert most == per_turn
