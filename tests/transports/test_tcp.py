"""TCP and TLS alone: addresses, errors in words, and the outbox."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from certs import authority
from moq.errors import ConfigError, ConnectFailed
from tests.transports.wires import OPTIONS, PATIENCE_S, Bench, Recorder, TCPWire
from transports import tcp, tls
from transports.options import TransportOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from certs.authority import CertificatePaths
    from moq.broker.link import Link


@pytest.fixture
def certificates(tmp_path: Path) -> CertificatePaths:
    return authority.ensure(tmp_path)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench(TCPWire(None))
    await bench.wire.start(bench.accept)
    yield bench
    await bench.stop()


@pytest.fixture
def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_nobody_listening_is_said_in_words(host: str, free_port: int) -> None:
    with pytest.raises(ConnectFailed, match=f"no connection to tcp://{host}:{free_port}: connection refused"):
        await tcp.connect(host, free_port, Recorder)


async def test_small_writes_leave_at_once_on_both_sides() -> None:
    accepted: asyncio.Future[Recorder] = asyncio.get_running_loop().create_future()

    def accept(link: Link) -> Recorder:
        accepted.set_result(Recorder(link))
        return accepted.result()

    listener = await tcp.serve("127.0.0.1", 0, accept)
    links = [await tcp.connect("127.0.0.1", listener.port, Recorder), (await accepted).link]
    for link in links:
        assert isinstance(link, tcp.TCPLink)
        assert link._stream.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        link.abort()
    await listener.close()


@pytest.mark.parametrize("host", ["a..b", "300.1.1.1.", "x" * 300])
async def test_an_impossible_host_is_said_in_words(host: str) -> None:
    with pytest.raises(ConnectFailed, match=f"no connection to tcp://{host}:1883: "):
        await tcp.connect(host, 1883, Recorder)
    with pytest.raises(ConfigError, match=f"cannot listen on tcp://{host}:0: "):
        await tcp.serve(host, 0, Recorder)


async def test_a_peer_that_never_answers_the_handshake_is_given_up(certificates: CertificatePaths) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        with pytest.raises(ConnectFailed, match=f"tls://127.0.0.1:{port} did not answer within 0.05 s"):
            await tcp.connect(
                "127.0.0.1",
                port,
                Recorder,
                tls=tls.client_context(certificates.ca),
                options=TransportOptions(connect_timeout_s=0.05),
            )


async def test_a_certificate_of_an_unknown_authority_is_refused(certificates: CertificatePaths) -> None:
    context = tls.server_context(certificates.server, certificates.server_key)
    listener = await tcp.serve("127.0.0.1", 0, Recorder, tls=context)
    url = f"tls://127.0.0.1:{listener.port}"
    with pytest.raises(ConnectFailed, match=f"the certificate of {url} is not trusted: unable to get local issuer"):
        await tcp.connect("127.0.0.1", listener.port, Recorder, tls=tls.client_context())
    await listener.close()


async def test_a_plain_server_does_not_pass_for_a_tls_one(certificates: CertificatePaths) -> None:
    def accept(link: Link) -> Recorder:
        link.control.write(b"hello, this is not TLS")
        return Recorder(link)

    listener = await tcp.serve("127.0.0.1", 0, accept)
    with pytest.raises(ConnectFailed, match="does not speak TLS as we do"):
        await tcp.connect("127.0.0.1", listener.port, Recorder, tls=tls.client_context(certificates.ca))
    await listener.close()


def test_an_unreadable_certificate_names_the_file(certificates: CertificatePaths, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"certificate .*absent\.pem .*No such file"):
        tls.server_context(tmp_path / "absent.pem", certificates.server_key)
    with pytest.raises(ConfigError, match=r"certificate authority .*absent\.pem: No such file"):
        tls.client_context(tmp_path / "absent.pem")


async def test_a_port_in_use_is_said_in_words() -> None:
    first = await tcp.serve("127.0.0.1", 0, Recorder)
    with pytest.raises(ConfigError, match=f"cannot listen on tcp://127.0.0.1:{first.port}: address already in use"):
        await tcp.serve("127.0.0.1", first.port, Recorder)
    await first.close()


async def test_a_name_with_several_addresses_is_served_on_one_port() -> None:
    listener = await tcp.serve("localhost", 0, Recorder)
    infos = await asyncio.get_running_loop().getaddrinfo("localhost", listener.port, type=socket.SOCK_STREAM)
    for address in {str(info[4][0]) for info in infos}:
        link = await tcp.connect(address, listener.port, Recorder)
        assert link.peer.endswith(f":{listener.port}")
        link.abort()
    await listener.close()


async def test_a_closed_listener_accepts_no_more_and_keeps_its_links(bench: Bench) -> None:
    client, server = await bench.open()
    await bench.wire.stop()
    with pytest.raises(ConnectFailed):
        await bench.wire.connect(bench.record)
    client.link.control.write(b"still here")
    assert await server.received(10) == b"still here"


async def test_a_peer_that_ends_its_direction_still_gets_the_answer(bench: Bench) -> None:
    client, _ = await bench.open()
    reader, writer = await asyncio.open_connection(*client.link.peer.split(":"))
    half = await bench.accepted.get()
    half.on_data = lambda _, data: half.link.control.write(data.upper())
    writer.write(b"hello")
    writer.write_eof()
    assert await reader.read() == b"HELLO"
    assert half.finished == [0]
    assert await half.closed_once() == (None, "closed by the peer")
    writer.close()


async def test_a_handler_that_fails_when_told_that_the_peer_is_done_loses_its_link(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(lane_id: int) -> None:
        raise ZeroDivisionError("a bug")

    client, server = await bench.open()
    monkeypatch.setattr(server, "lane_finished", fail)
    client.link.close(0)
    assert await server.closed_once() == (None, "the handler failed")
    assert "a bug" in caplog.text


async def test_a_reset_by_the_peer_is_a_lost_connection(bench: Bench) -> None:
    client, _ = await bench.open()
    host, port = client.link.peer.split(":")
    stranger = socket.create_connection((host, int(port)))
    gone = await bench.accepted.get()
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    stranger.close()
    reason, message = await gone.closed_once()
    assert reason is None
    assert message.startswith("connection lost: ")


async def test_closing_a_link_that_the_peer_has_just_reset_ends_it(bench: Bench) -> None:
    client, _ = await bench.open()
    host, port = client.link.peer.split(":")
    stranger = socket.create_connection((host, int(port)))
    gone = await bench.accepted.get()
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    stranger.close()
    gone.link.close(0, "too late")
    assert await gone.closed_once() == (None, "closed by this side: too late")


async def test_one_turn_is_one_write(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    client, server = await bench.open()
    writes = []
    stream = client.link._stream  # type: ignore[attr-defined]
    write = stream.write

    def counting_write(data: bytes) -> None:
        writes.append(len(data))
        write(data)

    monkeypatch.setattr(stream, "write", counting_write)
    for _ in range(1000):
        client.link.control.write(b"0123456789")
    await server.received(10_000)
    assert writes == [10_000]


async def test_lanes_of_one_turn_share_one_callback() -> None:
    class CountingLoop:
        calls = 0

        def call_soon(self, callback: object) -> None:
            self.calls += 1

    loop = CountingLoop()
    flusher = tcp.Flusher(loop)  # type: ignore[arg-type]
    for lane in range(10):
        flusher.add(lane)  # type: ignore[arg-type]
    assert loop.calls == 1


def test_options_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="read_bytes is 0; it must be greater than 0"):
        TransportOptions(read_bytes=0)
    with pytest.raises(ConfigError, match="low_water_bytes is 9; it must be less than high_water_bytes, which is 9"):
        TransportOptions(low_water_bytes=9, high_water_bytes=9)
    assert OPTIONS.low_water_bytes < OPTIONS.high_water_bytes


# --- the end of a link whose peer keeps its side open -------------------------------------------------


@pytest.fixture(params=["tcp", "tls"])
async def stubborn(
    request: pytest.FixtureRequest, certificates: CertificatePaths
) -> AsyncIterator[tuple[Recorder, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A link, and the two halves of a peer that never ends its side by itself."""
    is_tls = request.param == "tls"
    accepted: list[Recorder] = []

    def accept(link: Link) -> Recorder:
        accepted.append(Recorder(link))
        return accepted[-1]

    context = tls.server_context(certificates.server, certificates.server_key) if is_tls else None
    # A peer that is waited for would be waited for longer than the test has patience.
    options = TransportOptions(close_timeout_s=600.0, linger_s=0.05)
    listener = await tcp.serve("localhost", 0, accept, tls=context, options=options)
    trusted = tls.client_context(certificates.ca) if is_tls else None
    reader, writer = await asyncio.open_connection("localhost", listener.port, ssl=trusted, limit=1024)
    writer.write(b"x")
    async with asyncio.timeout(PATIENCE_S):
        while not accepted:  # noqa: ASYNC110  # the handler exists once the kernel has told us of the connection
            await asyncio.sleep(0.001)
    await accepted[0].received(1)
    yield accepted[0], reader, writer
    writer.transport.abort()
    await listener.close()


async def test_a_peer_that_keeps_its_side_open_is_not_waited_for(
    stubborn: tuple[Recorder, asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    handler, reader, _ = stubborn
    handler.link.control.write(b"goodbye")
    handler.link.close(0)
    await handler.closed_once()
    assert await reader.readexactly(7) == b"goodbye"


async def test_a_peer_that_reads_late_still_gets_all_that_was_said(
    stubborn: tuple[Recorder, asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    handler, reader, _ = stubborn
    size = 20_000_000  # more than the kernels on the way hold
    handler.link.control.write(bytes(size))
    handler.link.control.write(b"goodbye")
    handler.link.close(0)
    assert not handler.closings
    received = 0
    async with asyncio.timeout(PATIENCE_S):
        while received < size:
            data = await reader.read(min(1 << 20, size - received))
            assert data
            received += len(data)
        assert await reader.readexactly(7) == b"goodbye"
    await handler.closed_once()
