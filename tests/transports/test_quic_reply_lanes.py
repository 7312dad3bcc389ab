"""Bidirectional streams of a client that is not ours: answers go back on the stream the request came on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from certs import authority
from tests.quic_stranger import Stranger, stranger
from tests.transports.quic_bench import Bench
from transports.quic import QUICOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from certs.authority import CertificatePaths
    from tests.transports.wires import Recorder

ENGINES = ["aioquic", "qh3"]
OPTIONS = QUICOptions(
    alpn=("mmqp", "mqtt"), high_water_bytes=256 * 1024, low_water_bytes=64 * 1024, max_bidirectional_streams=5
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificatePaths:
    return authority.ensure(tmp_path_factory.mktemp("quic"))


@pytest.fixture(params=ENGINES)
async def bench(request: pytest.FixtureRequest, certificates: CertificatePaths) -> AsyncIterator[Bench]:
    bench = Bench(certificates, request.param)
    yield bench
    await bench.stop()


@pytest.fixture
async def client(bench: Bench) -> AsyncIterator[Stranger]:
    listener = await bench.serve(OPTIONS)
    async with stranger(listener.port, "mqtt", bench.certificates.ca) as peer:
        peer.send(peer.open_stream(), b"hello")
        yield peer


@pytest.fixture
async def server(bench: Bench, client: Stranger) -> Recorder:
    recorder = await bench.accepted.get()
    await recorder.received(5)
    return recorder


async def test_the_protocol_agreed_tells_the_dialect(server: Recorder) -> None:
    assert server.link.alpn == "mqtt"


async def test_each_stream_is_answered_on_itself(client: Stranger, server: Recorder) -> None:
    server.on_data = lambda lane_id, data: server.link.reply_lane(lane_id).write(b"%d:" % lane_id + data)
    streams = [client.open_stream() for _ in range(3)]
    assert streams == [4, 8, 12]
    for stream_id in streams:
        client.send(stream_id, b"request")
    for stream_id in streams:
        expected = b"%d:request" % stream_id
        assert await client.received(stream_id, len(expected)) == expected
    assert 0 not in client.streams


async def test_control_and_one_way_streams_are_answered_on_control(client: Stranger, server: Recorder) -> None:
    one_way = client._quic.get_next_available_stream_id(is_unidirectional=True)
    client.send(one_way, b"one way")
    await server.received(7, one_way)
    assert server.link.reply_lane(one_way) is server.link.control
    assert server.link.reply_lane(0) is server.link.control


async def test_a_stream_has_one_reply_lane_until_it_is_finished(client: Stranger, server: Recorder) -> None:
    client.send(client.open_stream(), b"last request", is_last=True)
    await server.until(lambda: server.finished == [4])
    lane = server.link.reply_lane(4)
    assert server.link.reply_lane(4) is lane
    assert not server.link.reply_lane(4).is_closed
    lane.write(b"answer")
    lane.finish()
    assert lane.is_closed
    await client.until(lambda: client.finished == {4})
    assert client.streams[4] == b"answer"
    late = server.link.reply_lane(4)
    assert late.is_closed
    late.write(b"discarded")
    assert server.link.unsent == 0


async def test_a_reset_reply_lane_stays_closed(client: Stranger, server: Recorder) -> None:
    client.send(client.open_stream(), b"request")
    await server.received(7, 4)
    lane = server.link.reply_lane(4)
    lane.write(b"never completed")
    lane.reset(0x97)
    assert lane.is_closed
    assert server.link.reply_lane(4).is_closed


async def test_a_reply_lane_the_peer_stops_is_closed_and_reported(client: Stranger, server: Recorder) -> None:
    client.send(client.open_stream(), b"request")
    await server.received(7, 4)
    lane = server.link.reply_lane(4)
    lane.write(b"answer")
    await client.received(4, 6)
    client.stop(4, 0)
    await server.until(lambda: server.writable == [lane])
    assert lane.is_closed
    assert server.link.reply_lane(4).is_closed


async def test_a_stopped_stream_that_was_never_answered_has_a_closed_reply_lane(
    client: Stranger, server: Recorder
) -> None:
    client.send(client.open_stream(), b"request")
    await server.received(7, 4)
    client.stop(4, 0)
    client.send(0, b"done")
    await server.received(9)
    assert server.link.reply_lane(4).is_closed


async def test_a_reply_lane_nobody_reads_is_congested_and_holds_up_no_other(client: Stranger, server: Recorder) -> None:
    streams = [client.open_stream(), client.open_stream()]
    for stream_id in streams:
        client.send(stream_id, b"request")
        await server.received(7, stream_id)
    slow, quick = map(server.link.reply_lane, streams)
    # aioquic opens a stream's window as data arrives, so the client must hold its answers back to be slow.
    client._quic._write_stream_limits = lambda **_: None  # type: ignore[method-assign]
    written = 0
    while not slow.congested:
        slow.write(bytes(64 * 1024))
        written += 64 * 1024
        assert written < 32 * 1024 * 1024
        await asyncio.sleep(0)
    quick.write(b"quick")
    assert await client.received(streams[1], 5) == b"quick"
    assert not quick.congested


@pytest.mark.parametrize("bench", ["aioquic"], indirect=True)  # the core of qh3 has a limit of its own
async def test_streams_past_the_limit_wait_for_others_to_end_both_ways(client: Stranger, server: Recorder) -> None:
    server.on_data = lambda lane_id, data: server.link.reply_lane(lane_id).write(data)
    streams = [client.open_stream() for _ in range(6)]
    for stream_id in streams:
        client.send(stream_id, b"x", is_last=True)
    for stream_id in streams[:4]:
        await client.received(stream_id, 1)
    client.send(0, b"control")
    await client.received(0, 7)
    assert set(server.data) == {0, *streams[:4]}
    for stream_id in streams[:4]:
        server.link.reply_lane(stream_id).finish()
    for stream_id in streams[4:]:
        await client.received(stream_id, 1)


async def test_closing_ends_reply_lanes(client: Stranger, server: Recorder) -> None:
    client.send(client.open_stream(), b"request")
    await server.received(7, 4)
    lane = server.link.reply_lane(4)
    server.link.close(0x8B)
    assert lane.is_closed
    assert server.link.reply_lane(4).is_closed
    await server.closed_once()
    await client.until(lambda: client.is_closed)
    assert server.link.reply_lane(8).is_closed
