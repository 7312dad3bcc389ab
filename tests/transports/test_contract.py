"""What every transport promises: one suite over all of them."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import TYPE_CHECKING

import pytest

from certs import authority
from tests.transports.wires import OPTIONS, Bench, MemoryWire, QUICWire, TCPWire, WebSocketWire, Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from certs.authority import CertificatePaths
    from moq.broker.link import Lane, Link, LinkHandler
    from tests.transports.wires import Recorder

MEGABYTE = 1_000_000
MOST_BYTES_IN_FLIGHT = 32 * MEGABYTE
"""What a peer that does not read may make kernel, engine and outbox hold together; far less than what is offered."""

needs_qh3 = pytest.mark.skipif(importlib.util.find_spec("qh3") is None, reason="the qh3 package is not installed")
LANED = ("memory", "quic-aioquic", pytest.param("quic-qh3", marks=needs_qh3))
SINGLE = ("memory-one-lane", "tcp", "tls", "ws", "wss", "quic-single-stream")


def over(wires: Sequence[object]) -> pytest.MarkDecorator:
    """Run a test over some of the transports only."""
    return pytest.mark.parametrize("bench", wires, indirect=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificatePaths:
    return authority.ensure(tmp_path_factory.mktemp("data"))


def make_wire(name: str, certificates: CertificatePaths) -> Wire:
    match name:
        case "memory":
            return MemoryWire(has_lanes=True)
        case "memory-one-lane":
            return MemoryWire(has_lanes=False)
        case "tcp":
            return TCPWire(None)
        case "tls":
            return TCPWire(certificates)
        case "ws":
            return WebSocketWire(None)
        case "wss":
            return WebSocketWire(certificates)
        case "quic-single-stream":
            return QUICWire(certificates, "aioquic", single_stream=True)
        case _:
            return QUICWire(certificates, name.removeprefix("quic-"))


@pytest.fixture(params=[*LANED, *SINGLE])
async def bench(request: pytest.FixtureRequest, certificates: CertificatePaths) -> AsyncIterator[Bench]:
    bench = Bench(make_wire(request.param, certificates))
    await bench.wire.start(lambda link: bench.accept(link))
    yield bench
    await bench.stop()


def numbered(count: int) -> bytes:
    """Bytes in which every position is recognisable."""
    return b"".join(number.to_bytes(4, "big") for number in range(count // 4))


async def write_until_congested(lane: Lane) -> bytes:
    """Offer a lane more than any network takes, as fast as the loop turns; what was written."""
    written = bytearray()
    piece = numbered(64 * 1024)
    while not lane.congested:
        lane.write(piece)
        written += piece
        assert len(written) <= MOST_BYTES_IN_FLIGHT, "the lane takes bytes that nobody reads without end"
        await asyncio.sleep(0)
    return bytes(written)


def fail(*_: object) -> None:
    raise ZeroDivisionError("a bug")


# --- bytes ---------------------------------------------------------------------------------------------


async def test_bytes_arrive_in_order_both_ways(bench: Bench) -> None:
    client, server = await bench.open()
    data = numbered(100_000)
    for start in range(0, len(data), 777):
        client.link.control.write(data[start : start + 777])
        server.link.control.write(data[start : start + 777])
    assert await server.received(len(data)) == data
    assert await client.received(len(data)) == data


async def test_a_megabyte_in_one_write_arrives_whole(bench: Bench) -> None:
    client, server = await bench.open()
    data = numbered(MEGABYTE)
    client.link.control.write(data)
    server.link.control.write(data)
    client.link.control.write(b"end")
    assert await server.received(len(data) + 3) == data + b"end"
    assert await client.received(len(data)) == data


async def test_small_writes_of_one_turn_travel_together(bench: Bench) -> None:
    client, server = await bench.open()
    for _ in range(10_000):
        client.link.control.write(b"twenty bytes of data")
    await server.received(200_000)
    assert server.reads < 500


async def test_what_is_written_in_a_handler_is_sent(bench: Bench) -> None:
    client, server = await bench.open()
    server.on_data = lambda _, data: server.link.control.write(data.upper())
    client.link.control.write(b"hello")
    assert await client.received(5) == b"HELLO"


async def test_nothing_is_unsent_once_the_peer_has_it(bench: Bench) -> None:
    client, server = await bench.open()
    client.link.control.write(bytes(1000))
    assert client.link.unsent >= 1000
    await server.received(1000)
    # The answer to a second message shows that the client has heard of the first: QUIC acknowledges with it.
    server.on_data = lambda _, data: server.link.control.write(data)
    client.link.control.write(b"and?")
    await client.received(4)
    assert client.link.unsent <= 4


# --- lanes ---------------------------------------------------------------------------------------------


async def test_a_key_names_one_lane_while_that_is_open(bench: Bench) -> None:
    client, _ = await bench.open()
    link = client.link
    assert link.lane(5) is link.lane(5)
    assert (link.lane(5) is link.lane(6)) == (not link.has_lanes)
    assert (link.lane(5) is link.control) == (not link.has_lanes)


@over(LANED)
async def test_each_lane_keeps_its_order(bench: Bench) -> None:
    client, server = await bench.open()
    for number in range(200):
        for key in (1, 2, 3):
            client.link.lane(key).write(bytes([key, number]))
            server.link.lane(key).write(bytes([key, number]))
    expected = {key: b"".join(bytes([key, number]) for number in range(200)) for key in (1, 2, 3)}
    for side in (client, server):
        for data in expected.values():
            await side.until(lambda side=side, data=data: data in side.data.values())  # type: ignore[misc]
        assert len(side.data) == 3


@over(LANED)
async def test_a_finished_lane_ends_after_its_bytes_and_its_key_opens_another(bench: Bench) -> None:
    client, server = await bench.open()
    first = server.link.lane(9)
    first.write(b"first")
    first.finish()
    assert first.is_closed
    second = server.link.lane(9)
    assert second is not first
    second.write(b"second")
    lane_id = await client.lane_with(b"first")
    await client.until(lambda: client.finished == [lane_id])
    assert await client.lane_with(b"second") != lane_id


@over(LANED)
async def test_a_reset_lane_tells_the_reason(bench: Bench) -> None:
    client, server = await bench.open()
    lane = server.link.lane(9)
    lane.write(b"begin")
    lane_id = await client.lane_with(b"begin")
    lane.reset(0x97)
    assert lane.is_closed
    await client.until(lambda: client.resets == [(lane_id, 0x97)])


@over(SINGLE)
async def test_finishing_a_shared_lane_does_nothing(bench: Bench) -> None:
    client, server = await bench.open()
    client.link.lane(9).finish()
    client.link.lane(9).reset(0x80)
    client.link.lane(9).write(b"still open")
    assert await server.received(10) == b"still open"


@over(LANED)
async def test_a_paused_lane_does_not_hold_up_another(bench: Bench) -> None:
    client, server = await bench.open()
    server.link.lane(1).write(b"slow")
    slow_id = await client.lane_with(b"slow")
    client.link.pause_reading(slow_id)
    await write_until_congested(server.link.lane(1))
    server.link.lane(2).write(b"quick")
    await client.lane_with(b"quick")
    server.link.control.write(b"control")
    assert await client.received(7) == b"control"
    assert not server.link.lane(2).congested


async def test_what_comes_on_control_is_answered_on_control(bench: Bench) -> None:
    client, server = await bench.open()
    server.on_data = lambda lane_id, data: server.link.reply_lane(lane_id).write(data.upper())
    client.link.control.write(b"hello")
    assert await client.received(5) == b"HELLO"
    assert server.link.reply_lane(0) is server.link.control


async def test_a_lane_that_goes_one_way_is_answered_on_control(bench: Bench) -> None:
    client, server = await bench.open()
    server.on_data = lambda lane_id, data: server.link.reply_lane(lane_id).write(data.upper())
    client.link.lane(1).write(b"hello")
    assert await client.received(5) == b"HELLO"


# --- backpressure --------------------------------------------------------------------------------------


async def test_a_peer_that_does_not_read_congests_the_lane_and_resuming_loses_nothing(bench: Bench) -> None:
    client, server = await bench.open()
    server.link.pause_reading(0)
    lane = client.link.control
    written = await write_until_congested(lane)
    assert OPTIONS.low_water_bytes < lane.unsent <= OPTIONS.high_water_bytes + 64 * 1024
    assert client.writable == []
    server.link.resume_reading(0)
    assert await server.received(len(written)) == written
    await client.until(lambda: client.writable == [lane])
    assert not lane.congested


async def test_a_write_larger_than_the_network_takes_waits_with_its_writer(bench: Bench) -> None:
    client, server = await bench.open()
    server.link.pause_reading(0)
    data = numbered(MEGABYTE) * 20
    client.link.control.write(data)
    assert client.link.control.congested
    # A second link that answers shows that the loop has turned often enough for all that the network takes.
    other, other_server = await bench.open()
    other_server.link.control.write(data[:MEGABYTE])
    await other.received(MEGABYTE)
    assert client.link.control.congested
    assert client.link.unsent > OPTIONS.low_water_bytes
    server.link.resume_reading(0)
    assert await server.received(len(data)) == data
    await client.until(lambda: client.writable == [client.link.control])


async def test_pausing_within_a_handler_stops_the_peer(bench: Bench) -> None:
    client, server = await bench.open()
    server.on_data = lambda lane_id, _: server.link.pause_reading(lane_id)
    written = await write_until_congested(client.link.control)
    assert server.reads <= 1
    server.on_data = None
    server.link.resume_reading(0)
    assert await server.received(len(written)) == written


async def test_one_stuck_peer_does_not_slow_another(bench: Bench) -> None:
    stuck, stuck_server = await bench.open()
    stuck.link.pause_reading(0)
    await write_until_congested(stuck_server.link.control)
    other, other_server = await bench.open()
    data = numbered(MEGABYTE)
    other_server.link.control.write(data)
    assert await other.received(len(data)) == data


# --- ends ----------------------------------------------------------------------------------------------


async def test_close_sends_what_was_written_and_carries_the_reason(bench: Bench) -> None:
    client, server = await bench.open()
    client.link.control.write(b"last words")
    client.link.close(0x8B, "going down")
    reason, message = await server.closed_once()
    assert server.data[0] == b"last words"
    assert reason == (0x8B if bench.wire.carries_reason else None)
    assert not bench.wire.carries_reason or "going down" in message
    await client.closed_once()
    assert client.link.control.is_closed


async def test_last_words_reach_a_peer_that_is_still_sending(bench: Bench) -> None:
    client, server = await bench.open()
    server.link.pause_reading(0)
    await write_until_congested(client.link.control)
    server.link.control.write(b"last words")
    server.link.close(0x97, "too much")
    await client.closed_once()
    assert client.data[0] == b"last words"


async def test_closing_does_not_wait_for_ever_for_a_peer_that_does_not_read(bench: Bench) -> None:
    client, server = await bench.open()
    server.link.pause_reading(0)
    await write_until_congested(client.link.control)
    client.link.close(0)
    await client.closed_once()
    assert client.link.unsent == 0


async def test_abort_ends_both_sides_without_a_reason(bench: Bench) -> None:
    client, server = await bench.open()
    client.link.abort()
    await client.closed_once()
    reason, message = await server.closed_once()
    assert not reason
    assert message


async def test_a_closed_link_takes_and_keeps_nothing(bench: Bench) -> None:
    client, server = await bench.open()
    client.link.close(0)
    client.link.control.write(b"too late")
    client.link.close(0)
    client.link.abort()
    await client.closed_once()
    await server.closed_once()
    client.link.control.write(b"far too late")
    client.link.lane(3).write(b"far too late")
    assert client.link.unsent == 0
    assert not any(server.data.values())


async def test_closing_within_a_handler_ends_the_link_after_the_call(bench: Bench) -> None:
    client, server = await bench.open()
    server.on_data = lambda _, data: server.link.close(0x81, "malformed")
    client.link.control.write(b"nonsense")
    await client.closed_once()
    await server.closed_once()


async def test_a_failing_handler_loses_only_its_own_link(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    client, server = await bench.open()
    other, other_server = await bench.open()
    server.on_data = fail
    client.link.control.write(b"trigger")
    await client.closed_once()
    await server.closed_once()
    assert "a bug" in caplog.text
    other.link.control.write(b"still here")
    assert await other_server.received(10) == b"still here"


async def test_a_handler_that_fails_when_told_of_room_loses_its_link(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    client, server = await bench.open()
    client.on_writable = fail
    server.link.pause_reading(0)
    await write_until_congested(client.link.control)
    server.link.resume_reading(0)
    await client.closed_once()
    await server.closed_once()
    assert "a bug" in caplog.text


async def test_a_handler_that_fails_when_told_of_the_end_is_only_logged(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    client, server = await bench.open()
    other, other_server = await bench.open()
    server.on_closed = fail
    client.link.close(0)
    await server.closed_once()
    await client.closed_once()
    assert "a bug" in caplog.text
    other.link.control.write(b"still here")
    assert await other_server.received(10) == b"still here"


async def test_a_failing_acceptor_loses_only_that_link(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    accept = bench.accept
    kept, kept_server = await bench.open()
    failures = []

    def refuse(link: Link) -> LinkHandler:
        failures.append(link)
        raise ZeroDivisionError("no handler")

    bench.accept = refuse  # type: ignore[method-assign]
    client = await bench.wire.connect(bench.record)
    client.control.write(b"?")
    recorder: Recorder = bench.recorders[-1]
    await recorder.closed_once()
    assert len(failures) == 1
    assert "no handler" in caplog.text
    bench.accept = accept  # type: ignore[method-assign]
    kept.link.control.write(b"still here")
    assert await kept_server.received(10) == b"still here"
