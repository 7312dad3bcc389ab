"""WebSocket with clients that are not ours: the library's asyncio client, and requests written by hand."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import struct
from typing import TYPE_CHECKING

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from certs import authority
from moq.reasons import Reason
from tests.transports.wires import OPTIONS, PATIENCE_S, Recorder
from transports import tcp, tls, websocket
from transports.websocket import FRAME_BYTES, WebSocketOptions

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from moq.broker.link import Link
    from transports import Listener

BINARY, TEXT, CLOSE, PING, PONG = 0x82, 0x81, 0x88, 0x89, 0x8A


class Bench:
    """A listener; what its links hear; clients of it that end with the test."""

    def __init__(self) -> None:
        self.accepted: asyncio.Queue[Recorder] = asyncio.Queue()
        self.exits = contextlib.AsyncExitStack()

    def accept(self, link: Link) -> Recorder:
        recorder = Recorder(link)
        self.accepted.put_nowait(recorder)
        return recorder

    async def serve(
        self,
        options: WebSocketOptions | None = None,
        *,
        origins: Sequence[str] = (),
        context: ssl.SSLContext | None = None,
    ) -> Listener:
        options = options or WebSocketOptions.of(OPTIONS)
        listener = await websocket.serve("127.0.0.1", 0, self.accept, tls=context, origins=origins, options=options)
        self.exits.push_async_callback(listener.close)
        return listener

    async def stranger(self, port: int, **options: object) -> ClientConnection:
        settings = {"subprotocols": ["mqtt"], "compression": None, "proxy": None} | options
        return await self.exits.enter_async_context(
            connect(f"ws://127.0.0.1:{port}/mqtt", **settings)  # type: ignore[arg-type]
        )

    async def open(self, options: WebSocketOptions | None = None) -> tuple[ClientConnection, Recorder]:
        listener = await self.serve(options)
        client = await self.stranger(listener.port)
        return client, await self.accepted.get()

    async def by_hand(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        self.exits.callback(writer.close)
        return reader, writer

    async def open_by_hand(
        self, options: WebSocketOptions | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Recorder]:
        """A WebSocket whose frames the test writes and reads itself."""
        listener = await self.serve(options)
        reader, writer = await self.by_hand(listener.port)
        writer.write(request())
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        return reader, writer, await self.accepted.get()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    async with asyncio.timeout(PATIENCE_S), bench.exits:
        yield bench


def request(path: str = "/mqtt", *more: str, subprotocol: str | None = "mqtt") -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade"]
    lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", *more]
    lines += [f"Sec-WebSocket-Protocol: {subprotocol}"] if subprotocol else []
    return "\r\n".join([*lines, "", ""]).encode()


def frame(kind: int, payload: bytes) -> bytes:
    """A frame of a client; its mask is zero, so that its payload can be read here."""
    size = len(payload)
    head = bytes((kind, 0x80 | size)) if size < 126 else bytes((kind, 0xFE)) + struct.pack(">H", size)
    return head + bytes(4) + payload


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    kind, size = await reader.readexactly(2)
    if size == 126:
        (size,) = struct.unpack(">H", await reader.readexactly(2))
    return kind, await reader.readexactly(size)


# --- the handshake ---------------------------------------------------------------------------------------


async def test_the_sub_protocol_is_the_link_s(bench: Bench) -> None:
    client, server = await bench.open()
    assert client.subprotocol == server.link.alpn == "mqtt"
    assert server.link.transport == "ws"
    assert server.link.peer.startswith("127.0.0.1:")
    assert not server.link.has_lanes


async def test_a_query_after_the_path_is_ignored(bench: Bench) -> None:
    listener = await bench.serve()
    reader, writer = await bench.by_hand(listener.port)
    writer.write(request("/mqtt?token=x"))
    assert b" 101 " in await reader.readline()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request("/"), b"404"),
        (request("/mqtt/"), b"404"),
        (request(subprotocol=None), b"400"),
        (request(subprotocol="soap"), b"400"),
        (b"POST /mqtt HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\n\r\n", b"426"),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n", b"414"),
        (request("/mqtt", f"X: {'y' * 9000}"), b"431"),
        (request("/mqtt", *(f"X{number}: y" for number in range(200))), b"431"),
        (request("/mqtt", *(f"X{number}: {'y' * 1000}" for number in range(20))), b"431"),
        (request("/mqtt", "Origin: https://evil.example"), b"403"),
    ],
)
async def test_a_request_that_cannot_be_served_is_refused(bench: Bench, sent: bytes, status: bytes) -> None:
    listener = await bench.serve()
    reader, writer = await bench.by_hand(listener.port)
    writer.write(sent)
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert bench.accepted.empty()


@pytest.mark.parametrize("sent", [b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00\n", b"\x00" * 20000, b"hello\r\n\r\n"])
async def test_what_is_not_http_is_cut_off(bench: Bench, sent: bytes) -> None:
    listener = await bench.serve()
    reader, writer = await bench.by_hand(listener.port)
    writer.write(sent)
    await reader.read()
    assert bench.accepted.empty()


@pytest.mark.parametrize("sent", [b"", b"GET /mqtt HTTP/1.1\r\n"])
async def test_a_request_that_takes_too_long_is_cut_off(bench: Bench, sent: bytes) -> None:
    listener = await bench.serve(WebSocketOptions(connect_timeout_s=0.05))
    reader, writer = await bench.by_hand(listener.port)
    writer.write(sent)
    assert (await reader.read()).startswith(b"HTTP/1.1 408")


async def test_a_client_that_leaves_during_the_handshake_is_forgotten(bench: Bench) -> None:
    listener = await bench.serve()
    reader, writer = await bench.by_hand(listener.port)
    writer.write(b"GET /mqtt HTTP/1.1\r\n")
    writer.write_eof()
    assert await reader.read() == b""
    assert bench.accepted.empty()


async def test_the_handshake_s_deadline_ends_with_it(bench: Bench) -> None:
    _, server = await bench.open()
    assert isinstance(server.link, websocket.ServedWebSocket)
    assert server.link._deadline.cancelled()


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:80"])
async def test_pages_of_this_machine_may_connect(bench: Bench, origin: str) -> None:
    listener = await bench.serve()
    await bench.stranger(listener.port, origin=origin)


@pytest.mark.parametrize("origin", ["http://localhost.evil.example", "https://evil.example", "null"])
async def test_other_pages_may_connect_only_if_allowed(bench: Bench, origin: str) -> None:
    listener = await bench.serve(origins=["https://panel.example.org"])
    with pytest.raises(InvalidStatus, match="403"):
        await bench.stranger(listener.port, origin=origin)
    await bench.stranger(listener.port, origin="https://panel.example.org")
    anywhere = await bench.serve(origins=["*"])
    await bench.stranger(anywhere.port, origin=origin)


async def test_over_tls_it_is_wss(bench: Bench, tmp_path: Path) -> None:
    made = authority.ensure(tmp_path)
    listener = await bench.serve(context=tls.server_context(made.server, made.server_key))
    client = await bench.exits.enter_async_context(
        connect(
            f"wss://localhost:{listener.port}/mqtt",
            subprotocols=["mqtt"],  # type: ignore[list-item]
            ssl=tls.client_context(made.ca),
            proxy=None,
            host="127.0.0.1",
        )
    )
    server = await bench.accepted.get()
    assert server.link.transport == "wss"
    await client.send(b"hello")
    assert await server.received(5) == b"hello"


# --- frames ----------------------------------------------------------------------------------------------


async def test_frames_make_one_byte_stream(bench: Bench) -> None:
    client, server = await bench.open()
    await client.send(b"one")
    await client.send([b"t", b"w", b"o"])  # one message in three frames
    await client.send(b"")
    await client.send(b"three")
    assert await server.received(11) == b"onetwothree"


async def test_a_frame_may_come_byte_by_byte(bench: Bench) -> None:
    _, writer, server = await bench.open_by_hand()
    for byte in frame(BINARY, b"hello"):
        writer.write(bytes((byte,)))
        await writer.drain()
    assert await server.received(5) == b"hello"


async def test_each_write_is_a_frame_and_a_large_one_several(bench: Bench) -> None:
    client, server = await bench.open()
    server.link.control.write(b"small")
    server.link.control.write(bytes(FRAME_BYTES + 1))
    assert await client.recv() == b"small"
    assert await client.recv() == bytes(FRAME_BYTES)
    assert await client.recv() == b"\0"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(TEXT, b"text"), 1003),
        (frame(0x83, b"reserved opcode"), 1002),
        (frame(0xC2, b"reserved bit"), 1002),
        (frame(0x80, b"continues nothing"), 1002),
        (b"\x82\x05hello", 1002),  # not masked
        (b"\x82\xff" + (1 << 40).to_bytes(8, "big") + bytes(4), 1009),
        (b"\x82\xfe" + (1001).to_bytes(2, "big") + bytes(4), 1009),
    ],
)
async def test_a_frame_nobody_may_send_closes_with_its_code(bench: Bench, sent: bytes, code: int) -> None:
    reader, writer, server = await bench.open_by_hand(WebSocketOptions(max_frame_bytes=1000))
    writer.write(frame(BINARY, b"before") + sent + frame(BINARY, b"after"))
    kind, payload = await read_frame(reader)
    assert (kind, int.from_bytes(payload[:2], "big")) == (CLOSE, code)
    assert await reader.read() == b""
    writer.close()
    reason, message = await server.closed_once()
    assert reason is None
    assert "broke the rules of WebSocket" in message
    assert server.data == {0: b"before"}


async def test_pings_are_answered(bench: Bench) -> None:
    reader, writer, _ = await bench.open_by_hand()
    writer.write(frame(PING, b"are you there"))
    assert await read_frame(reader) == (PONG, b"are you there")
    writer.write(frame(PONG, b"unasked"))
    writer.write(frame(PING, b""))
    assert await read_frame(reader) == (PONG, b"")


async def read_frames(reader: asyncio.StreamReader, count: int) -> None:
    for _ in range(count):
        await read_frame(reader)


def is_read(link: Link) -> bool:
    assert isinstance(link, websocket.WebSocketLink)
    assert isinstance(link._stream, tcp.TCPLink)
    return link._stream._stream.is_reading()


# --- slow readers ----------------------------------------------------------------------------------------


async def write_until_full(writer: asyncio.StreamWriter, data: bytes, is_enough: Callable[[], bool]) -> int:
    """Write until the other side takes no more; how much it took."""
    written = 0
    while not is_enough():
        writer.write(data)
        written += len(data)
        assert written < 64 * 1024 * 1024, "the server reads what nobody takes the answers of without end"
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(writer.drain(), 0.05)
    return written


async def test_a_client_that_pings_and_does_not_read_is_read_no_more(bench: Bench) -> None:
    reader, writer, server = await bench.open_by_hand()
    writer.transport.set_write_buffer_limits(high=0)
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    pings = frame(PING, b"x" * 125) * 500
    sent = await write_until_full(writer, pings, lambda: server.link.control.congested)
    assert server.link.unsent <= OPTIONS.high_water_bytes + 2 * OPTIONS.read_bytes
    reader._transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(sent // len(pings) * 500):
        assert await read_frame(reader) == (PONG, b"x" * 125)
    writer.write(frame(BINARY, b"read again"))
    assert await server.received(10) == b"read again"


async def test_a_choked_link_stays_paused_while_its_handler_wants_it_so(bench: Bench) -> None:
    reader, writer, server = await bench.open_by_hand()
    writer.transport.set_write_buffer_limits(high=0)
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    pings = frame(PING, b"x" * 125) * 500
    sent = await write_until_full(writer, pings, lambda: server.link.control.congested)
    server.link.pause_reading(0)
    server.link.resume_reading(0)
    assert not is_read(server.link)
    server.link.pause_reading(0)
    reader._transport.resume_reading()  # type: ignore[attr-defined]
    pongs = asyncio.create_task(read_frames(reader, sent // len(pings) * 500))
    await server.until(lambda: bool(server.writable))
    assert not is_read(server.link)
    server.link.resume_reading(0)
    await pongs
    assert is_read(server.link)
    writer.write(frame(BINARY, b"read again"))
    assert await server.received(10) == b"read again"


async def test_a_client_that_does_not_read_makes_us_hold_a_bounded_amount(bench: Bench) -> None:
    reader, _, server = await bench.open_by_hand()
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    lane = server.link.control
    written = 0
    while not lane.congested:
        lane.write(bytes(8192))
        written += 8192
        assert written < 32 * 1024 * 1024
        await asyncio.sleep(0)
    assert lane.unsent <= OPTIONS.high_water_bytes + 2 * 8192
    reader._transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(written // 8192):
        assert await read_frame(reader) == (BINARY, bytes(8192))
    await server.until(lambda: server.writable == [lane])


# --- ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "code"), [(Reason.SUCCESS, 1000), (Reason.SERVER_SHUTTING_DOWN, 1001), (Reason.MALFORMED_PACKET, 1008)]
)
async def test_closing_says_why(bench: Bench, reason: Reason, code: int) -> None:
    client, server = await bench.open()
    server.link.control.write(b"last words")
    server.link.close(reason, "because " + "é" * 100)
    assert await client.recv() == b"last words"
    with pytest.raises(ConnectionClosed):
        await client.recv()
    assert client.close_code == code
    assert client.close_reason is not None
    assert client.close_reason.startswith("because éé")
    assert len(client.close_reason.encode()) <= 123
    await server.closed_once()


async def test_a_client_s_goodbye_finishes_the_link(bench: Bench) -> None:
    client, server = await bench.open()
    await client.send(b"last words")
    await client.close()
    assert client.close_code == 1000
    assert await server.closed_once() == (None, "closed by the peer")
    assert server.data == {0: b"last words"}
    assert server.finished == [0]


async def test_a_connection_that_ends_without_goodbye_finishes_the_link(bench: Bench) -> None:
    reader, writer, server = await bench.open_by_hand()
    writer.write_eof()
    assert await reader.read() == b""
    await server.closed_once()
    assert server.finished == [0]


async def test_nothing_is_handed_over_once_the_handler_has_closed(bench: Bench) -> None:
    reader, writer, server = await bench.open_by_hand()
    server.on_data = lambda _, data: server.link.close(Reason.MALFORMED_PACKET)
    writer.write(frame(BINARY, b"nonsense") + frame(CLOSE, b""))
    kind, _ = await read_frame(reader)
    assert kind == CLOSE
    assert await reader.read() == b""
    writer.close()
    await server.closed_once()
    assert server.finished == []
