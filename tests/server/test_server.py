"""The broker on real sockets: every transport, draining, ports that are taken, strangers that talk garbage."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import socket
import ssl
from typing import TYPE_CHECKING

import pytest

import certs
import moq
from moq.config import BrokerConfig, Limits
from moq.errors import ConfigError
from moq.reasons import Reason
from moq.server import Server
from moq.server.served import new_client_id
from moq.wire import ConAck, ConEnd, PubReq, Register, Subscribe
from tests.server.wire_client import PATIENCE_S, WireClient, Wires, until

if TYPE_CHECKING:
    from pathlib import Path


def message(payload: bytes) -> PubReq:
    return PubReq(0, False, False, 0, 0, 1, None, None, None, payload)


def trusting(data_dir: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certs.ensure(data_dir).ca))


async def is_received(publisher: WireClient, subscriber: WireClient, payload: bytes) -> bool:
    publisher.send(message(payload))
    packet = await subscriber.read()
    return isinstance(packet, PubReq) and packet.payload == payload


async def test_tcp_and_tls_clients_share_one_broker(server: Server, data_dir: Path, wires: Wires) -> None:
    publisher = await wires.connect(server.ports["tcp"], "publisher")
    subscriber = await wires.connect(server.ports["tls"], "subscriber", trusting(data_dir))
    await publisher.ask(Register(0, False, 1, "a"))
    await subscriber.ask(Subscribe(0, False, 1, "a"))
    assert await is_received(publisher, subscriber, b"across transports")
    assert server.connections == 2


@pytest.mark.parametrize("scheme", ["tcp", "tls", "quic"])
async def test_the_client_library_is_served_over_every_transport(server: Server, data_dir: Path, scheme: str) -> None:
    url = f"{scheme}://localhost:{server.ports[scheme]}"
    async with moq.connect(url, data_dir=data_dir) as client, asyncio.timeout(PATIENCE_S):
        subscription = await client.subscribe("a/#", qos=1).ready()
        await client.publish("a/b", b"hello", qos=1)
        assert (await anext(subscription)).payload == b"hello"


async def test_leaving_tells_clients_that_the_server_shuts_down(config: BrokerConfig, wires: Wires) -> None:
    async with Server(config) as server:
        client = await wires.connect(server.ports["tcp"], "alice")
        stranger = await wires.open(server.ports["tcp"])
        await until(lambda: server.connections == 2)
        ends = [asyncio.create_task(each.read_to_the_end()) for each in (client, stranger)]
    assert await ends[0] == [ConEnd(Reason.SERVER_SHUTTING_DOWN)]
    assert await ends[1] == [ConAck(False, Reason.SERVER_SHUTTING_DOWN)]
    assert server.connections == 0
    assert server.obstacle == "draining"


async def test_leaving_sends_what_is_unsent(config: BrokerConfig, wires: Wires) -> None:
    async with Server(config) as server:
        publisher = await wires.connect(server.ports["tcp"], "publisher")
        subscriber = await wires.connect(server.ports["tcp"], "subscriber")
        await publisher.ask(Register(0, False, 1, "a"))
        await subscriber.ask(Subscribe(0, False, 1, "a"))
        for number in range(100):
            publisher.send(message(b"%d" % number))
        await until(lambda: server.broker.figures.messages_received == 100)
        ends = [asyncio.create_task(each.read_to_the_end()) for each in (subscriber, publisher)]
    *received, goodbye = await ends[0]
    assert [packet.payload for packet in received if isinstance(packet, PubReq)] == [b"%d" % n for n in range(100)]
    assert goodbye == ConEnd(Reason.SERVER_SHUTTING_DOWN)
    await ends[1]


async def test_a_client_that_does_not_read_delays_the_end_no_longer_than_the_limit(
    config: BrokerConfig, wires: Wires
) -> None:
    limits = Limits(max_unsent_bytes=1 << 24)
    config = dataclasses.replace(config, drain_timeout_s=0.05, limits=limits)
    async with Server(config) as server:
        publisher = await wires.connect(server.ports["tcp"], "publisher")
        deaf = await wires.connect(server.ports["tcp"], "deaf")
        await publisher.ask(Register(0, False, 1, "a"))
        await deaf.ask(Subscribe(0, False, 1, "a"))
        for _ in range(12):
            publisher.send(message(bytes(1 << 20)))
        await until(lambda: server.broker.figures.messages_received == 12)
    await until(lambda: server.connections == 0)


@pytest.mark.parametrize("name", ["tcp", "tls", "quic", "http"])
async def test_a_port_that_is_taken_is_named(config: BrokerConfig, name: str) -> None:
    kind = socket.SOCK_DGRAM if name == "quic" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", 0))
        if name != "quic":
            taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=re.escape(f"{name}_port is {port}")):
            async with Server(dataclasses.replace(config, **{f"{name}_port": port})):
                pass


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100, b"\xff" * 100, b"\x10\x0c\x04MQTT\x04\x02\x00\x3c\x00\x00"],
)
async def test_garbage_on_one_connection_does_not_disturb_another(server: Server, garbage: bytes, wires: Wires) -> None:
    publisher = await wires.connect(server.ports["tcp"], "publisher")
    subscriber = await wires.connect(server.ports["tcp"], "subscriber")
    await publisher.ask(Register(0, False, 1, "a"))
    await subscriber.ask(Subscribe(0, False, 1, "a"))
    stranger = await wires.open(server.ports["tcp"])
    stranger.send_bytes(garbage)
    answer = await stranger.read()
    assert isinstance(answer, ConAck)
    assert answer.reason >= 0x80
    assert await stranger.read() is None
    assert await is_received(publisher, subscriber, b"undisturbed")
    assert server.broker.figures.protocol_errors == 1


async def test_garbage_on_the_quic_port_does_no_harm(server: Server, data_dir: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for data in (b"", b"\x00", b"\xc0" * 1200, bytes(1500)):
            stranger.sendto(data, ("127.0.0.1", server.ports["quic"]))
    async with moq.connect(f"quic://localhost:{server.ports['quic']}", data_dir=data_dir) as client:
        await client.publish("a", b"x", qos=1)


async def test_deadlines_of_the_core_are_kept(config: BrokerConfig, wires: Wires) -> None:
    config = dataclasses.replace(config, limits=Limits(connect_timeout_s=0.01))
    async with Server(config) as server:
        stranger = await wires.open(server.ports["tcp"])
        assert await stranger.read_to_the_end() == [ConAck(False, Reason.KEEP_ALIVE_TIMEOUT)]


async def test_the_figures_under_sys_can_be_turned_off(config: BrokerConfig) -> None:
    async with Server(dataclasses.replace(config, sys_interval_s=0.0)) as server:
        assert [topic.name for topic in server.broker.topics.matching("$SYS/#")] == ["$SYS/capabilities"]
        assert server.broker.next_timeout() is None
    async with Server(config) as server:
        assert server.broker.topics.get("$SYS/broker/version") is not None


def test_identifiers_for_nameless_clients_differ() -> None:
    assert new_client_id() != new_client_id()
    assert new_client_id().startswith("moq-")
