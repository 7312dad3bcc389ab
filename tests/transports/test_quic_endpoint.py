"""The endpoint against strangers, junk, refusals, full sockets and kernels that can do less."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from typing import TYPE_CHECKING

import pytest

from certs import authority
from moq.errors import ConfigError, ConnectFailed
from tests.transports.quic_bench import Bench
from transports import quic
from transports.options import TransportOptions
from transports.quic import QUICOptions, sockets
from transports.quic.packets import LongHeader, encode_version_negotiation, maybe_long_header
from transports.quic.sockets import UDPSocket
from transports.quic.tickets import TicketStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from certs.authority import CertificatePaths
    from moq.broker.link import Link
    from transports.quic.engine import Address

ENGINES = ["aioquic", "qh3"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificatePaths:
    return authority.ensure(tmp_path_factory.mktemp("quic"))


@pytest.fixture(params=ENGINES)
async def bench(request: pytest.FixtureRequest, certificates: CertificatePaths) -> AsyncIterator[Bench]:
    bench = Bench(certificates, request.param)
    yield bench
    await bench.stop()


class Stranger(asyncio.DatagramProtocol):
    """Sends what it likes and records the answers."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[bytes] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self.answers.put_nowait(data)

    @classmethod
    async def to(cls, port: int) -> tuple[asyncio.DatagramTransport, Stranger]:
        loop = asyncio.get_running_loop()
        return await loop.create_datagram_endpoint(cls, remote_addr=("127.0.0.1", port))


def initial(version: int, size: int = 1200) -> bytes:
    return (b"\xc0" + version.to_bytes(4, "big") + b"\x08DESTINAT\x04SRCE").ljust(size, b"\x00")


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


async def echo_once(bench: Bench, port: int, options: QUICOptions | None = None, *, host: str = "127.0.0.1") -> None:
    client = await bench.connect(port, options, host=host)
    server = await bench.accepted.get()
    client.link.control.write(b"alive?")
    assert await server.received(6) == b"alive?"


# --- strangers -----------------------------------------------------------------------------------------


async def test_junk_is_ignored_and_others_are_served(bench: Bench) -> None:
    listener = await bench.serve()
    transport, stranger = await Stranger.to(listener.port)
    rng = random.Random(1)
    for size in (0, 1, 2, 6, 7, 8, 20, 30, 100, 1199, 1200, 1500):
        for first in (0x00, 0x40, 0x80, 0xC0, 0xFF):
            transport.sendto(bytes((first,))[:size] + rng.randbytes(max(0, size - 1)))
            transport.sendto((bytes((first,)) + b"\x00\x00\x00\x01" + rng.randbytes(1500))[:size])
    await echo_once(bench, listener.port)
    transport.close()
    while not stranger.answers.empty():
        assert stranger.answers.get_nowait()[1:5] == bytes(4), "only version negotiation is answered"


async def test_an_unknown_version_is_answered_with_ours(bench: Bench) -> None:
    listener = await bench.serve()
    transport, stranger = await Stranger.to(listener.port)
    transport.sendto(initial(0x1A2A3A4A, size=1199))
    transport.sendto(initial(0))
    transport.sendto(initial(0x1A2A3A4A))
    answer = await asyncio.wait_for(stranger.answers.get(), 5)
    header = maybe_long_header(answer)
    assert header is not None
    assert header.is_version_negotiation
    assert (header.destination_cid, header.source_cid) == (b"SRCE", b"DESTINAT")
    assert b"\x00\x00\x00\x01" in answer
    assert stranger.answers.empty()
    transport.close()


async def test_unfinished_handshakes_are_bound_and_time_out(bench: Bench) -> None:
    listener = await bench.serve(QUICOptions(max_handshakes=3, connect_timeout_s=0.2))
    transport, stranger = await Stranger.to(listener.port)
    rng = random.Random(3)
    for _ in range(10):
        transport.sendto(b"\xc0\x00\x00\x00\x01\x08" + rng.randbytes(8) + b"\x04SRCE" + rng.randbytes(1200))
    transport.sendto(initial(0x1A2A3A4A))
    await asyncio.wait_for(stranger.answers.get(), 5)  # answered in order: all before it has been handled
    assert len(listener._handshakes) == 3
    transport.close()
    await echo_once(bench, listener.port)


async def test_a_listener_may_ask_clients_to_prove_their_address(bench: Bench) -> None:
    options = QUICOptions(retry=True)
    listener = await bench.serve(options)
    transport, stranger = await Stranger.to(listener.port)
    transport.sendto(initial(1))
    retry = await asyncio.wait_for(stranger.answers.get(), 5)
    assert retry[0] & 0xF0 == 0xF0, "a Retry packet"
    assert not listener._handshakes
    transport.close()
    await echo_once(bench, listener.port, options)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_every_address_of_a_host_is_served(bench: Bench, host: str) -> None:
    if host != "127.0.0.1" and not has_ipv6():
        pytest.skip("this machine has no IPv6 loopback")
    listener = await bench.serve(host=host)
    await echo_once(bench, listener.port, host=host)


async def test_a_quiet_client_keeps_its_connection(bench: Bench) -> None:
    options = QUICOptions(idle_timeout_s=0.6, keep_alive_s=0.1)
    listener = await bench.serve(options)
    client = await bench.connect(listener.port, options)
    server = await bench.accepted.get()
    await asyncio.sleep(1.5)  # time itself is what is tested: more than two idle timeouts
    client.link.control.write(b"still here")
    assert await server.received(10) == b"still here"


async def test_a_failing_engine_loses_only_its_own_connection(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    listener = await bench.serve()
    first, second = await bench.connect(listener.port), await bench.connect(listener.port)
    servers = [await bench.accepted.get(), await bench.accepted.get()]

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    assert isinstance(servers[0].link, quic.QUICLink)
    servers[0].link._engine.receive = fail  # type: ignore[method-assign,assignment]
    for client in (first, second):
        client.link.control.write(b"hello")
    await servers[0].closed_once()
    await servers[1].received(5)
    assert "a bug" in caplog.text


# --- failing to connect --------------------------------------------------------------------------------


async def test_nobody_listening_is_told_at_once(bench: Bench) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(ConnectFailed, match=f"quic://127.0.0.1:{port}.*refused"):
        await bench.connect(port)


async def test_a_silent_server_is_given_up(bench: Bench) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        with pytest.raises(ConnectFailed, match=f"quic://127.0.0.1:{port} did not answer within 0.2 s"):
            await bench.connect(port, QUICOptions(connect_timeout_s=0.2))


async def test_an_unknown_authority_is_named(bench: Bench, tmp_path: Path) -> None:
    listener = await bench.serve()
    bench.certificates = authority.ensure(tmp_path)
    with pytest.raises(ConnectFailed, match=f"certificate of quic://127.0.0.1:{listener.port} is not trusted"):
        await bench.connect(listener.port)


async def test_a_certificate_for_another_name_is_refused(bench: Bench) -> None:
    listener = await bench.serve()
    with pytest.raises(ConnectFailed, match="is not trusted"):
        await bench.connect(listener.port, server_name="broker.example")


async def test_no_common_protocol_is_named(bench: Bench) -> None:
    listener = await bench.serve(QUICOptions(alpn=("mmqp",)))
    with pytest.raises(ConnectFailed, match="none of our protocols \\(mqtt\\)"):
        await bench.connect(listener.port, QUICOptions(alpn=("mqtt",)))
    assert bench.accepted.empty()


async def test_an_unknown_host_is_named(bench: Bench) -> None:
    with pytest.raises(ConnectFailed, match=r"quic://no\.such\.host\.invalid:14567"):
        await quic.connect("no.such.host.invalid", 14567, bench.record, ca=None, engine=bench.engine)


async def test_a_cancelled_connect_leaves_nothing_behind(bench: Bench) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        attempt = asyncio.create_task(bench.connect(silent.getsockname()[1]))
        await asyncio.sleep(0)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt


async def test_a_vanished_server_is_noticed_by_what_is_sent_to_it(bench: Bench) -> None:
    listener = await bench.serve()
    client = await bench.connect(listener.port)
    server = await bench.accepted.get()
    for endpoint in listener._endpoints:
        endpoint.close()
    await server.closed_once()
    client.link.control.write(b"anybody there?")
    assert await client.closed_once() == (None, "connection refused")


async def test_a_bug_in_the_client_s_handler_is_raised(bench: Bench) -> None:
    listener = await bench.serve()

    def fail(link: Link) -> None:
        raise ZeroDivisionError("a bug")

    bench.record = fail  # type: ignore[assignment,method-assign]
    accept = bench.accept
    bench.accept = lambda link: accept(link)  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError, match="a bug"):
        await bench.connect(listener.port)


# --- configuration -------------------------------------------------------------------------------------


async def test_a_taken_port_is_refused(bench: Bench) -> None:
    listener = await bench.serve()
    with pytest.raises(ConfigError, match=f"cannot listen on quic://127.0.0.1:{listener.port}"):
        await quic.serve(
            "127.0.0.1",
            listener.port,
            bench.accept,
            certificate=bench.certificates.server,
            private_key=bench.certificates.server_key,
            engine=bench.engine,
        )


async def test_a_certificate_that_is_none_is_refused(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    for path in (tmp_path / "empty.pem", tmp_path / "missing.pem"):
        with pytest.raises(ConfigError, match=path.name):
            await quic.serve("127.0.0.1", 0, bench.accept, certificate=path, private_key=path, engine=bench.engine)


async def test_a_file_of_no_authorities_is_refused(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    for path in (tmp_path / "empty.pem", tmp_path / "missing.pem"):
        with pytest.raises(ConfigError, match=f"ca file .*{path.name} cannot be used"):
            await quic.connect("127.0.0.1", 1, bench.record, ca=path, engine=bench.engine)


async def test_an_unknown_engine_is_refused(certificates: CertificatePaths) -> None:
    with pytest.raises(ConfigError, match="'quiche'; known are aioquic, qh3"):
        await quic.connect("127.0.0.1", 1, lambda _: None, ca=None, engine="quiche")  # type: ignore[arg-type,return-value]


async def test_a_missing_engine_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transports.quic.qh3_engine", None)
    with pytest.raises(ConfigError, match=r"moq-broker\[fast\]"):
        await quic.connect("127.0.0.1", 1, lambda _: None, ca=None, engine="qh3")  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("alpn", ()),
        ("alpn", ("",)),
        ("max_datagram_bytes", 1199),
        ("max_datagram_bytes", 20_000),
        ("congestion_control", "bbr"),
        ("idle_lane_s", 0),
        ("low_water_bytes", 1 << 30),
        ("link_low_water_bytes", 1 << 30),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(setting: str, value: object) -> None:
    with pytest.raises(ConfigError, match=setting):
        QUICOptions(**{setting: value})  # type: ignore[arg-type]


def test_options_of_every_transport_become_options_of_quic() -> None:
    chosen = QUICOptions.of(TransportOptions(high_water_bytes=500_000))
    assert chosen.high_water_bytes == 500_000
    assert QUICOptions.of(chosen) is chosen


# --- sockets -------------------------------------------------------------------------------------------


@pytest.fixture
def udp_pair() -> tuple[UDPSocket, UDPSocket, Address]:
    pair = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for sock in pair:
        sock.bind(("127.0.0.1", 0))
    sender, receiver = (UDPSocket(sock, 1 << 20) for sock in pair)
    return sender, receiver, pair[1].getsockname()


def read_all(receiver: UDPSocket) -> list[bytes]:
    datagrams = []
    while (read := receiver.read()) is not None:
        datagrams += read[0]
    return datagrams


def mixed_datagrams(address: Address) -> list[tuple[bytes, Address]]:
    sizes = [1200] * 100 + [300] + [1200] * 3 + [1300] + [50, 60, 70] + [9] * 70
    return [(bytes((number % 256,)) * size, address) for number, size in enumerate(sizes)]


@pytest.mark.parametrize("can_segment", [True, False])
def test_datagrams_of_any_sizes_arrive_as_they_were_cut(
    udp_pair: tuple[UDPSocket, UDPSocket, Address], can_segment: bool
) -> None:
    sender, receiver, address = udp_pair
    sender._can_segment = can_segment
    datagrams = mixed_datagrams(address)
    assert sender.send(datagrams) == len(datagrams)
    assert read_all(receiver) == [data for data, _ in datagrams]
    sender.close()
    receiver.close()


class OldKernel:
    """A socket of a kernel that has no GSO, or has no room."""

    def __init__(self, sock: socket.socket, error: int) -> None:
        self._sock = sock
        self._error = error

    def sendmsg(self, buffers: list[bytes], control: list[object], flags: int, target: Address) -> int:
        if control or self._error not in sockets.NO_GSO:
            raise OSError(self._error, "simulated")
        return self._sock.sendmsg(buffers, [], flags, target)

    def close(self) -> None:
        self._sock.close()


def test_a_kernel_without_segmentation_gets_one_datagram_at_a_time(
    udp_pair: tuple[UDPSocket, UDPSocket, Address],
) -> None:
    sender, receiver, address = udp_pair
    sender._sock = OldKernel(sender._sock, errno.EIO)  # type: ignore[assignment]
    datagrams = mixed_datagrams(address)
    assert sender.send(datagrams) == len(datagrams)
    assert read_all(receiver) == [data for data, _ in datagrams]
    sender.close()
    receiver.close()


@pytest.mark.parametrize(("error", "dealt_with"), [(errno.ENOBUFS, 0), (errno.EAGAIN, 0), (errno.ENETUNREACH, 1)])
def test_a_full_socket_waits_and_an_unreachable_peer_loses_datagrams(
    udp_pair: tuple[UDPSocket, UDPSocket, Address], error: int, dealt_with: int
) -> None:
    sender, receiver, address = udp_pair
    sender._sock = OldKernel(sender._sock, error)  # type: ignore[assignment]
    assert sender.send([(b"one", address)]) == dealt_with
    sender.close()
    receiver.close()


async def test_a_full_socket_delays_and_loses_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await bench.connect((await bench.serve()).port)
    server = await bench.accepted.get()
    send, turns = UDPSocket.send, 0

    def send_sometimes(self: UDPSocket, datagrams: sockets.Datagrams) -> int:
        nonlocal turns
        turns += 1
        return 0 if turns % 3 else send(self, datagrams)

    monkeypatch.setattr(UDPSocket, "send", send_sometimes)
    client.link.control.write(bytes(300_000))
    await server.received(300_000)
    assert turns > 10


# --- packets and tickets -------------------------------------------------------------------------------


@pytest.mark.parametrize("datagram", [initial(1)[:size] for size in range(20)] + [b"\x40" + bytes(50)])
def test_a_header_that_is_cut_off_is_none(datagram: bytes) -> None:
    assert maybe_long_header(datagram) is None or len(datagram) == 19


def test_version_negotiation_swaps_the_ids() -> None:
    packet = encode_version_negotiation(LongHeader(5, b"to", b"from"), (1, 2))
    assert packet[0] & 0x80
    assert packet[1:] == b"\x00\x00\x00\x00\x04from\x02to\x00\x00\x00\x01\x00\x00\x00\x02"


class FakeTicket:
    def __init__(self, identity: bytes) -> None:
        self.ticket = identity


def test_the_oldest_ticket_is_forgotten_and_each_is_used_once() -> None:
    store = TicketStore(2)
    for identity in (b"a", b"b", b"c"):
        store.add(FakeTicket(identity))
    assert len(store) == 2
    assert store.take(b"a") is None
    assert store.take(b"c") is not None
    assert store.take(b"c") is None
