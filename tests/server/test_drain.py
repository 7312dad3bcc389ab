"""A broker that stops: exchanges end first, everybody is told, and nobody holds the end up."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
from typing import TYPE_CHECKING

import pytest

import certs
import moq
from moq.config import BrokerConfig, Limits
from moq.errors import ConnectFailed, ConnectionLost
from moq.reasons import Reason
from moq.server import Server
from moq.wire import ConEnd, PubAck, PubReq, PubSyn, Register, Subscribe, mqtt
from tests.server.mqtt_client import MQTTClient, publish
from tests.server.wire_client import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.server.wire_client import Wires

UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


@pytest.fixture
def patient(config: BrokerConfig) -> BrokerConfig:
    """A stop may take longer than any test: what ends all the same does not wait for that time to be over."""
    return dataclasses.replace(config, drain_timeout_s=100 * PATIENCE_S)


class Leaving:
    """A server that is told to stop while the test goes on."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self._task = asyncio.create_task(self.server.__aexit__(None, None, None))
        await until(lambda: self.server.obstacle == "draining")

    async def end(self) -> None:
        assert self._task is not None
        async with asyncio.timeout(PATIENCE_S):
            await self._task


@pytest.fixture
async def leaving(patient: BrokerConfig) -> AsyncIterator[Leaving]:
    leaving = Leaving(Server(patient))
    await leaving.server.__aenter__()
    yield leaving
    await leaving.end()


def trusting(data_dir: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certs.ensure(data_dir).ca))


@pytest.mark.parametrize("scheme", ["tcp", "tls", "ws", "wss"])
async def test_a_client_that_stays_open_after_the_goodbye_is_not_waited_for(
    leaving: Leaving, data_dir: Path, scheme: str
) -> None:
    context = trusting(data_dir) if scheme in ("tls", "wss") else None
    reader, writer = await asyncio.open_connection("localhost", leaving.server.ports[scheme], ssl=context)
    if scheme in ("ws", "wss"):
        writer.write(UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
    else:
        await MQTTClient.over_streams(reader, writer).connect("stubborn")
    await until(lambda: leaving.server.connections == 1)
    await leaving.begin()
    await leaving.end()
    assert leaving.server.connections == 0
    writer.transport.abort()


@pytest.mark.parametrize("engine", ["aioquic", "qh3"])
async def test_a_quic_client_is_told_and_not_waited_for(patient: BrokerConfig, data_dir: Path, engine: str) -> None:
    leaving = Leaving(Server(dataclasses.replace(patient, quic_engine=engine)))
    await leaving.server.__aenter__()
    url = f"quic://localhost:{leaving.server.ports['quic']}"
    client = moq.connect(url, data_dir=data_dir, reconnect=False)
    await client.__aenter__()
    subscription = await client.subscribe("a").ready()
    await leaving.begin()
    await leaving.end()
    with pytest.raises(ConnectionLost) as lost:
        await anext(subscription)
    assert lost.value.reason == Reason.SERVER_SHUTTING_DOWN


async def test_an_exchange_under_way_ends_before_the_goodbye(leaving: Leaving, wires: Wires) -> None:
    publisher = await wires.connect(leaving.server.ports["tcp"], "publisher")
    subscriber = await wires.connect(leaving.server.ports["tcp"], "subscriber")
    await publisher.ask(Register(0, False, 1, "a"))
    await subscriber.ask(Subscribe(1, False, 1, "a"))
    publisher.send(PubReq(0, False, False, 2, 7, 1, None, None, None, b"x"))
    assert await publisher.read() == PubSyn(0, 7, Reason.SUCCESS)
    message = await subscriber.read()
    assert isinstance(message, PubReq)
    await leaving.begin()
    publisher.send(PubSyn(0, 7, Reason.RELEASE))
    subscriber.send(PubAck(0, message.packet_id, Reason.SUCCESS))
    assert await publisher.read_to_the_end() == [PubAck(0, 7, Reason.SUCCESS), ConEnd(Reason.SERVER_SHUTTING_DOWN)]
    assert await subscriber.read_to_the_end() == [ConEnd(Reason.SERVER_SHUTTING_DOWN)]
    session = leaving.server.broker.sessions.get("subscriber")
    assert session is None or session.outbound.load == 0


async def test_who_does_not_end_its_exchange_is_told_all_the_same(config: BrokerConfig, wires: Wires) -> None:
    leaving = Leaving(Server(dataclasses.replace(config, drain_timeout_s=1.0)))
    await leaving.server.__aenter__()
    client = await wires.connect(leaving.server.ports["tcp"], "undecided")
    await client.ask(Register(0, False, 1, "a"))
    client.send(PubReq(0, False, False, 2, 7, 1, None, None, None, b"x"))
    assert await client.read() == PubSyn(0, 7, Reason.SUCCESS)
    await leaving.begin()
    assert await client.read_to_the_end() == [ConEnd(Reason.SERVER_SHUTTING_DOWN)]
    await leaving.end()


async def test_clients_of_mqtt_5_are_sent_elsewhere(patient: BrokerConfig) -> None:
    leaving = Leaving(Server(dataclasses.replace(patient, server_reference="other.example.org:1883")))
    await leaving.server.__aenter__()
    streams = await asyncio.open_connection("localhost", leaving.server.ports["tcp"])
    client = MQTTClient.over_streams(*streams)
    await client.connect("alice")
    await client.subscribe("a", qos=1)
    await client.send(publish("a", b"x", qos=1, packet_id=5))
    answers = [await client.read(), await client.read()]
    (message,) = [packet for packet in answers if isinstance(packet, mqtt.Publish)]
    await leaving.begin()
    await client.send(mqtt.PubAck(message.packet_id, 0))
    (goodbye,) = await client.read_to_the_end()
    assert isinstance(goodbye, mqtt.Disconnect)
    assert goodbye.reason == Reason.USE_ANOTHER_SERVER
    assert goodbye.properties == mqtt.Properties(server_reference="other.example.org:1883")
    await leaving.end()


async def test_nobody_new_is_let_in_while_the_others_leave(config: BrokerConfig, data_dir: Path, wires: Wires) -> None:
    # What a deaf client has not read holds the stop up for as long as it takes to look.
    limits = Limits(max_unsent_bytes=1 << 26)
    leaving = Leaving(Server(dataclasses.replace(config, drain_timeout_s=100 * PATIENCE_S, limits=limits)))
    await leaving.server.__aenter__()
    publisher = await wires.connect(leaving.server.ports["tcp"], "publisher")
    deaf = await wires.connect(leaving.server.ports["tcp"], "deaf")
    await publisher.ask(Register(0, False, 1, "a"))
    await deaf.ask(Subscribe(0, False, 1, "a"))
    for _ in range(40):
        publisher.send(PubReq(0, False, False, 0, 0, 1, None, None, None, bytes(1 << 20)))
    await until(lambda: leaving.server.broker.figures.messages_received == 40)
    ports = leaving.server.ports
    await leaving.begin()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", ports["tcp"])
    with pytest.raises(ConnectFailed) as refused:
        await moq.connect(f"quic://localhost:{ports['quic']}", data_dir=data_dir, reconnect=False).__aenter__()
    assert refused.value.reason == Reason.SERVER_SHUTTING_DOWN
    deaf.abort()
    await leaving.end()
