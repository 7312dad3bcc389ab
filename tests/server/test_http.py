"""Health and metrics over HTTP, also for clients that speak it badly."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from moq.broker.store import MemoryStore
from moq.reasons import Reason
from moq.server import Server
from moq.server.http import HTTPListener
from moq.wire import PubReq, PubSyn, Register
from tests.server.wire_client import PATIENCE_S, until

if TYPE_CHECKING:
    from moq.config import BrokerConfig
    from tests.server.wire_client import Wires


async def exchange(server: Server, request: bytes) -> bytes:
    """Send bytes, say no more, and read the answer to its end."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["http"])
        try:
            writer.write(request)
            writer.write_eof()
            return await reader.read()
        finally:
            writer.close()


async def get(server: Server, path: str) -> tuple[str, str]:
    """The status line and the body of an answer whose length is as announced."""
    answer = await exchange(server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    return head.split(b"\r\n")[0].decode(), body.decode()


async def test_a_live_server_is_healthy_and_ready(server: Server) -> None:
    assert await get(server, "/healthz") == ("HTTP/1.0 200 OK", "ok\n")
    assert await get(server, "/readyz") == ("HTTP/1.0 200 OK", "ready\n")


UNAVAILABLE = "HTTP/1.0 503 Service Unavailable"


async def ready_figure(server: Server) -> float:
    _, body = await get(server, "/metrics")
    (family,) = [family for family in text_string_to_metric_families(body) if family.name == "moq_ready"]
    return family.samples[0].value


async def test_a_server_that_is_starting_is_alive_and_not_ready(config: BrokerConfig) -> None:
    server = Server(config)
    server._http = await HTTPListener.open("127.0.0.1", 0, server)
    try:
        assert await get(server, "/healthz") == ("HTTP/1.0 200 OK", "ok\n")
        assert await get(server, "/readyz") == (UNAVAILABLE, "starting\n")
        assert await ready_figure(server) == 0
    finally:
        await server._http.close()


async def test_a_server_that_drains_says_so_until_its_clients_are_gone(config: BrokerConfig, wires: Wires) -> None:
    server = Server(dataclasses.replace(config, drain_timeout_s=100 * PATIENCE_S))
    await server.__aenter__()
    client = await wires.connect(server.ports["tcp"], "alice")
    await client.ask(Register(0, False, 1, "a"))
    client.send(PubReq(0, False, False, 2, 1, 1, None, None, None, b"an exchange that keeps it waiting"))
    await client.read()
    leaving = asyncio.create_task(server.__aexit__(None, None, None))
    await until(lambda: server.obstacle == "draining")
    assert await get(server, "/readyz") == (UNAVAILABLE, "draining\n")
    assert await get(server, "/healthz") == ("HTTP/1.0 200 OK", "ok\n")
    assert await ready_figure(server) == 0
    client.send(PubSyn(0, 1, Reason.RELEASE))
    await leaving


async def test_a_server_whose_store_fails_says_why_it_is_not_ready(config: BrokerConfig) -> None:
    async with Server(dataclasses.replace(config, store="memory")) as server:
        assert await ready_figure(server) == 1
        store = server.storage.store = FailingStore()
        store.failure = "no space left on device"
        assert await get(server, "/readyz") == (UNAVAILABLE, "the store fails: no space left on device\n")
        assert await get(server, "/healthz") == ("HTTP/1.0 200 OK", "ok\n")
        assert await ready_figure(server) == 0
        store.failure = None
        assert await get(server, "/readyz") == ("HTTP/1.0 200 OK", "ready\n")


class FailingStore(MemoryStore):
    """A store that says that it cannot write."""

    failure: str | None = None


async def test_other_paths_and_methods_are_refused(server: Server) -> None:
    assert (await get(server, "/"))[0] == "HTTP/1.0 404 Not Found"
    assert (await exchange(server, b"POST /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.0 405")


async def test_metrics_are_what_prometheus_reads(server: Server, wires: Wires) -> None:
    client = await wires.connect(server.ports["tcp"], "alice")
    await client.ask(Register(0, False, 1, "a"))
    client.send(PubReq(0, False, False, 1, 1, 1, None, None, None, b"12345"))
    await client.read()
    _, body = await get(server, "/metrics")
    families = list(text_string_to_metric_families(body))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    kind = 'dialect="mmqp",qos="1",transport="tcp"'
    assert f"moq_messages_received_total{{{kind}}} 1.0\n" in body
    assert f"moq_received_bytes_total{{{kind}}} 5.0\n" in body
    assert 'moq_sessions{state="connected"} 1.0\n' in body
    (drops,) = [family for family in families if family.name == "moq_messages_dropped"]
    assert {sample.labels["reason"] for sample in drops.samples} >= {"congested", "queue_full", "expired"}


@pytest.mark.parametrize("garbage", [b"", b"\r\n", b"\x00" * 100, b"x" * 100_000, b"GET\r\n\r\n", b"\r\n\r\n"])
async def test_garbage_does_no_harm(server: Server, garbage: bytes) -> None:
    answer = b""
    with contextlib.suppress(ConnectionError):  # cut off in the middle of it: as good an answer
        answer = await exchange(server, garbage)
    assert not answer or answer.startswith(b"HTTP/1.0 4")
    assert (await get(server, "/healthz"))[0] == "HTTP/1.0 200 OK"


async def test_a_client_that_never_ends_its_request_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moq.server.http.REQUEST_TIMEOUT_S", 0.01)
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["http"])
        writer.write(b"GET /healthz")
        assert await reader.read() == b""
        writer.close()
