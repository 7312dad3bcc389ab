"""The in-memory transport under a test's control: one step at a time, without an event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.transports.wires import OPTIONS, Recorder
from transports.memory import MemoryLink, MemoryNetwork

if TYPE_CHECKING:
    from moq.broker.link import Link


class Pair:
    """A connection whose handlers record."""

    def __init__(self, network: MemoryNetwork) -> None:
        recorders: list[Recorder] = []

        def record(link: Link) -> Recorder:
            recorders.append(Recorder(link))
            return recorders[-1]

        self.network = network
        self.client_link, self.server_link = network.connect(record, record)
        self.client, self.server = recorders


@pytest.fixture
def pair() -> Pair:
    return Pair(MemoryNetwork(options=OPTIONS))


def test_nothing_arrives_before_it_is_delivered(pair: Pair) -> None:
    pair.client_link.control.write(b"hello")
    assert pair.server.data == {}
    assert pair.client_link.unsent == 5
    assert pair.network.deliver() == 1
    assert pair.server.data == {0: b"hello"}
    assert pair.network.deliver() == 0


def test_a_piece_can_be_as_small_as_one_byte(pair: Pair) -> None:
    pair.client_link.control.write(b"abc")
    (lane,) = pair.network.ready()
    pair.network.step(lane, 1)
    assert pair.server.data[0] == b"a"
    assert pair.server.reads == 1


def test_lanes_can_be_delivered_in_any_order(pair: Pair) -> None:
    pair.client_link.lane(1, priority=10).write(b"first")
    pair.client_link.lane(2, priority=5).write(b"second")
    urgent, patient = pair.network.ready()
    assert (urgent.priority, patient.priority) == (5, 10)
    pair.network.step(patient)
    assert list(pair.server.data.values()) == [b"first"]


def test_a_stalled_lane_waits_while_others_move(pair: Pair) -> None:
    stalled = pair.client_link.lane(1)
    stalled.write(b"waiting")
    pair.client_link.lane(2).write(b"moving")
    pair.client_link.lanes()[1].is_stalled = True
    pair.network.deliver()
    assert list(pair.server.data.values()) == [b"moving"]
    assert stalled.unsent == 7
    pair.client_link.lanes()[1].is_stalled = False
    pair.network.deliver()
    assert list(pair.server.data.values()) == [b"moving", b"waiting"]


def test_a_finished_lane_that_is_stalled_still_arrives_later(pair: Pair) -> None:
    lane = pair.client_link.lane(1)
    lane.write(b"late")
    lane.finish()
    pair.client_link.lanes()[1].is_stalled = True
    pair.client_link.lane(1).write(b"new lane")
    pair.network.deliver()
    assert pair.server.finished == []
    for waiting in pair.client_link.lanes():
        waiting.is_stalled = False
    pair.network.deliver()
    assert pair.server.data == {1: b"late", 2: b"new lane"}
    assert pair.server.finished == [1]
    assert len(pair.client_link.lanes()) == 2


def test_keys_past_the_limit_share_the_overflow_lane() -> None:
    pair = Pair(MemoryNetwork(max_lanes=2))
    lanes = [pair.client_link.lane(key) for key in range(4)]
    assert lanes[2] is lanes[3]
    assert len(set(map(id, lanes))) == 3
    lanes[2].finish()
    assert not lanes[3].is_closed


def test_a_lost_connection_loses_what_was_in_flight(pair: Pair) -> None:
    pair.client_link.control.write(b"never seen")
    pair.network.lose(pair.client_link)
    pair.network.deliver()
    assert pair.server.data == {}
    assert pair.client.closings == [(None, "connection lost")]
    assert pair.server.closings == [(None, "connection lost")]


def test_a_lane_opened_on_a_link_that_is_gone_is_closed(pair: Pair) -> None:
    pair.network.lose(pair.client_link)
    pair.network.deliver()
    assert pair.client_link.lane(4).is_closed


def test_a_handler_that_fails_as_the_link_closes_changes_nothing(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    def fail(reason: int | None, message: str) -> None:
        raise ZeroDivisionError("a bug")

    pair.server.closed = fail  # type: ignore[method-assign]
    pair.client_link.close(0)
    pair.network.deliver()
    assert pair.client.closings == [(None, "closed by this side: success (0x00)")]
    assert "a bug" in caplog.text


async def test_on_an_event_loop_it_runs_by_itself() -> None:
    pair = Pair(MemoryNetwork(loop=asyncio.get_running_loop()))
    pair.client_link.control.write(b"hello")
    assert await pair.server.received(5) == b"hello"
    assert isinstance(pair.server_link, MemoryLink)


# --- lanes that go both ways ---


@pytest.fixture
def two_way() -> Pair:
    return Pair(MemoryNetwork(two_way=True, alpn="mqtt"))


def test_a_two_way_lane_is_answered_on_itself(two_way: Pair) -> None:
    two_way.client_link.lane(7).write(b"request")
    two_way.server_link.lane(7).write(b"news")
    two_way.network.deliver()
    assert two_way.server.data == {1: b"request"}
    two_way.server_link.reply_lane(1).write(b"answer")
    two_way.network.deliver()
    assert two_way.client.data == {2: b"news", 1: b"answer"}
    assert two_way.server_link.alpn == two_way.client_link.alpn == "mqtt"


def test_a_finished_reply_lane_is_not_opened_again(two_way: Pair) -> None:
    two_way.client_link.lane(7).write(b"request")
    two_way.network.deliver()
    lane = two_way.server_link.reply_lane(1)
    lane.write(b"answer")
    lane.finish()
    two_way.network.deliver()
    assert two_way.client.finished == [1]
    assert two_way.server_link.reply_lane(1) is lane
    assert lane.is_closed


def test_a_reply_lane_of_a_link_that_is_gone_is_closed(two_way: Pair) -> None:
    two_way.server_link.close(0)
    assert two_way.server_link.reply_lane(1).is_closed
    two_way.network.deliver()
    assert two_way.server_link.reply_lane(3).is_closed
