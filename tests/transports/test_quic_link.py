"""Links over real QUIC sockets: streams as the wire has them, limits, idle lanes, ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from certs import authority
from tests.transports.quic_bench import Bench
from transports import quic
from transports.quic import QUICLink, QUICOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from certs.authority import CertificatePaths
    from moq.broker.link import Link
    from tests.transports.wires import Recorder

ENGINES = ["aioquic", "qh3"]
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificatePaths:
    return authority.ensure(tmp_path_factory.mktemp("quic"))


@pytest.fixture(params=ENGINES)
async def bench(request: pytest.FixtureRequest, certificates: CertificatePaths) -> AsyncIterator[Bench]:
    bench = Bench(certificates, request.param)
    yield bench
    await bench.stop()


# --- streams -------------------------------------------------------------------------------------------


async def test_fifty_topics_use_fifty_unidirectional_streams_of_the_server(bench: Bench) -> None:
    client, server = await bench.open()
    for key in range(1, 51):
        server.link.lane(key).write(b"topic %d" % key)
    await client.until(lambda: len(client.data) == 50)
    # RFC 9000 section 2.1: the two lowest bits of a stream id say who opened it and that it goes one way.
    assert sorted(client.data) == [4 * number + 3 for number in range(50)]


async def test_control_is_stream_0_and_topics_are_streams_of_the_client(bench: Bench) -> None:
    client, server = await bench.open()
    client.link.control.write(b"control")
    client.link.lane(1).write(b"topic")
    await server.until(lambda: dict(server.data) == {0: b"control", 2: b"topic"})


async def test_what_the_server_says_first_waits_for_the_control_stream(bench: Bench) -> None:
    client, server = await bench.open()
    server.link.control.write(b"welcome")
    client.link.control.write(b"hello")
    assert await client.received(7) == b"welcome"


async def test_links_know_their_protocol_and_peer(bench: Bench) -> None:
    client, server = await bench.open(QUICOptions(alpn=("mqtt", "mmqp")), QUICOptions(alpn=("mmqp",)))
    assert isinstance(client.link, QUICLink)
    assert isinstance(server.link, QUICLink)
    assert (client.link.alpn, server.link.alpn) == ("mmqp", "mmqp")
    assert client.link.peer.startswith("127.0.0.1:")
    assert server.link.transport == "quic"


async def test_topics_past_the_stream_limit_share_one_lane_and_lose_nothing(bench: Bench) -> None:
    client, server = await bench.open(QUICOptions(max_incoming_streams=5))
    limit = 5 if bench.engine == "aioquic" else 103
    lanes = [client.link.lane(key) for key in range(1, limit + 21)]
    assert len({id(lane) for lane in lanes}) == limit
    assert client.link.lane(limit + 5) is client.link.lane(limit + 6)
    overflow = client.link.lane(limit + 5)
    overflow.finish()
    overflow.reset(0x80)
    assert not overflow.is_closed
    for key, lane in enumerate(lanes, 1):
        lane.write(b"%4d" % key)
    await server.until(lambda: sum(map(len, server.data.values())) == 4 * len(lanes))
    assert len(server.data) == limit
    received = {bytes(data[at : at + 4]) for data in server.data.values() for at in range(0, len(data), 4)}
    assert received == {b"%4d" % key for key in range(1, len(lanes) + 1)}


async def test_a_finished_lane_makes_room_for_another(bench: Bench) -> None:
    client, server = await bench.open(QUICOptions(max_incoming_streams=5))
    for key in range(1, 301):
        lane = client.link.lane(key)
        assert isinstance(lane, quic.QUICLane)
        lane.write(b"x")
        lane.finish()
        if not lane.is_closed:  # shared: wait until the peer has forgotten some of the finished ones
            await server.until(lambda key=key: sum(map(len, server.data.values())) == key)  # type: ignore[misc]
    await server.until(lambda: sum(map(len, server.data.values())) == 300)


async def test_a_lane_the_peer_stops_is_closed_and_its_key_opens_another(bench: Bench) -> None:
    client, server = await bench.open()
    lane = client.link.lane(1)
    lane.write(b"first")
    stream_id = await server.lane_with(b"first")
    assert isinstance(server.link, QUICLink)
    server.link._engine.stop(stream_id, 0x97)
    server.link._connection.schedule_flush()
    await client.until(lambda: client.writable == [lane])
    assert lane.is_closed
    client.link.lane(1).write(b"second")
    assert await server.lane_with(b"second") != stream_id


# --- idle lanes ----------------------------------------------------------------------------------------


async def test_an_idle_lane_is_finished_and_reopened_in_order(bench: Bench) -> None:
    client, server = await bench.open(QUICOptions(idle_lane_s=0.05))
    for number in range(3):
        lane = client.link.lane(7)
        lane.write(b"%4d" % number)
        await server.until(lambda number=number: len(server.finished) == number + 1)  # type: ignore[misc]
        assert lane.is_closed
    assert server.finished == sorted(server.data)
    assert b"".join(bytes(server.data[lane_id]) for lane_id in server.finished) == b"   0   1   2"


async def test_a_lane_with_unread_data_is_not_idle(bench: Bench) -> None:
    options = QUICOptions(idle_lane_s=0.05, stream_window_bytes=16_384, connection_window_bytes=65_536)
    client, server = await bench.open(options)
    lane = client.link.lane(7)
    lane.write(b"begin")
    lane_id = await server.lane_with(b"begin")
    server.link.pause_reading(lane_id)
    lane.write(bytes(500_000))
    if bench.engine == "aioquic":  # with qh3 a paused lane holds up the others
        client.link.lane(8).write(b"other")
        await server.until(lambda: len(server.finished) == 1)
    assert not lane.is_closed
    server.link.resume_reading(lane_id)
    await server.received(500_005, lane_id)


# --- bounds --------------------------------------------------------------------------------------------


async def test_all_lanes_together_are_bound(bench: Bench) -> None:
    options = QUICOptions(
        stream_window_bytes=16_384,
        connection_window_bytes=65_536,
        link_high_water_bytes=500_000,
        link_low_water_bytes=100_000,
    )
    client, server = await bench.open(options)
    client.link.lane(1).write(b"first")
    await server.lane_with(b"first")
    server.on_data = lambda lane_id, _: server.link.pause_reading(lane_id)
    lanes = [client.link.lane(key) for key in range(1, 51)]
    written = 0
    while not all(lane.congested for lane in lanes):
        for lane in lanes:
            if not lane.congested:
                lane.write(bytes(4096))
                written += 4096
        await asyncio.sleep(0)
    assert client.link.unsent <= 500_000 + 50 * 4096 + 50 * 65_536
    assert written <= 4 * MEGABYTE
    server.on_data = None
    for lane_id in list(server.data):
        server.link.resume_reading(lane_id)
    await client.until(lambda: len(client.writable) == 50)
    await server.until(lambda: sum(map(len, server.data.values())) == written + 5)


async def test_a_reset_of_a_paused_lane_is_told(bench: Bench) -> None:
    client, server = await bench.open()
    lane = client.link.lane(1)
    lane.write(b"begin")
    lane_id = await server.lane_with(b"begin")
    server.link.pause_reading(lane_id)
    lane.reset(0x97)
    await server.until(lambda: server.resets == [(lane_id, 0x97)])
    server.link.resume_reading(lane_id)


async def test_the_end_of_a_paused_lane_comes_after_its_data(bench: Bench) -> None:
    client, server = await bench.open()
    server.on_data = lambda lane_id, _: server.link.pause_reading(lane_id)
    lane = client.link.lane(1)
    lane.write(b"begin")
    lane_id = await server.lane_with(b"begin")
    lane.write(b" middle")
    lane.finish()
    client.link.control.write(b"?")
    await server.received(1)
    assert server.finished == []
    server.on_data = None
    server.link.resume_reading(lane_id)
    await server.until(lambda: server.finished == [lane_id])
    assert server.data[lane_id] == b"begin middle"


# --- ends ----------------------------------------------------------------------------------------------


async def test_closing_the_listener_closes_its_links(bench: Bench) -> None:
    client, server = await bench.open()
    await bench.listeners[0].close()
    assert server.closings
    reason, _ = await client.closed_once()
    assert reason == 0x8B


async def test_data_written_before_a_close_arrives_on_every_lane(bench: Bench) -> None:
    client, server = await bench.open()
    for key in (1, 2, 3):
        client.link.lane(key).write(b"last words")
    client.link.close(0, "done")
    await server.closed_once()
    assert list(server.data.values()) == [b"last words"] * 3


async def test_a_link_survives_while_the_other_side_of_a_listener_ends(bench: Bench) -> None:
    listener = await bench.serve()
    first = await bench.connect(listener.port)
    second = await bench.connect(listener.port)
    servers = [await bench.accepted.get(), await bench.accepted.get()]
    first.link.close(0)
    await first.closed_once()
    second.link.control.write(b"still here")
    await asyncio.gather(*(server.until(lambda s=server: bool(s.closings or s.data)) for server in servers))  # type: ignore[misc]
    assert sum(bool(server.closings) for server in servers) == 1


async def test_a_server_may_refuse_a_link_as_it_accepts_it(bench: Bench) -> None:
    accept = bench.accept

    def refuse(link: Link) -> Recorder:
        link.pause_reading(0)
        link.close(0x89, "too many")
        return accept(link)

    bench.accept = refuse  # type: ignore[method-assign]
    client, server = await bench.open()
    reason, message = await client.closed_once()
    assert (reason, message) == (0x89, "too many")
    await server.closed_once()


# --- tickets -------------------------------------------------------------------------------------------


async def test_a_session_ticket_shortens_the_next_handshake_once(bench: Bench) -> None:
    listener = await bench.serve()
    tickets: asyncio.Queue[object] = asyncio.Queue()
    first = await bench.connect(listener.port, on_session_ticket=tickets.put_nowait)
    assert isinstance(first.link, QUICLink)
    assert not first.link.is_resumed
    ticket = await asyncio.wait_for(tickets.get(), 5)
    for is_resumed in (True, False):
        again = await bench.connect(listener.port, session_ticket=ticket)
        assert isinstance(again.link, QUICLink)
        assert again.link.is_resumed == is_resumed
    figures = listener.figures
    assert figures.handshakes_resumed == figures.early_data_accepted == 1
    assert figures.early_data_refused == 1, "the ticket was used before"
