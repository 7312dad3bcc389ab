"""Two dialects on every port: told apart by the first bytes on TCP and TLS, elsewhere by what the handshake agreed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import socket
import ssl
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from websockets.asyncio.client import connect as open_websocket
from websockets.exceptions import InvalidStatus

import certs
from moq.config import WEBSOCKET_PORT, WSS_PORT, BrokerConfig, Limits
from moq.errors import ConfigError
from moq.reasons import Reason
from moq.server import Server, listeners
from moq.wire import ConAck, ConReq, PubReq, Register, Subscribe, encode, mqtt
from tests.quic_stranger import Stranger, stranger
from tests.server.mqtt_client import MQTTClient, connect, decode, publish, subscribe
from tests.server.mqtt_client import encode as encode_mqtt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from websockets.asyncio.client import ClientConnection

    from tests.server.wire_client import Wires


class Clients:
    """MQTT clients that end with the test."""

    def __init__(self, data_dir: Path, exits: AsyncExitStack) -> None:
        self._data_dir = data_dir
        self._exits = exits

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(certs.ensure(self._data_dir).ca))

    async def tcp(self, port: int, *, is_tls: bool = False, version: int = mqtt.VERSION_5) -> MQTTClient:
        hostname = "localhost" if is_tls else None
        context = self.trust() if is_tls else None
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=hostname)
        self._exits.callback(writer.close)
        return MQTTClient.over_streams(reader, writer, version)

    async def websocket(self, port: int, *, is_tls: bool = False, origin: str | None = None) -> ClientConnection:
        return await self._exits.enter_async_context(
            open_websocket(
                f"{'wss' if is_tls else 'ws'}://localhost:{port}/mqtt",
                host="127.0.0.1",
                subprotocols=["mqtt"],  # type: ignore[list-item]  # a NewType of str
                origin=origin,  # type: ignore[arg-type]
                ssl=self.trust() if is_tls else None,
                proxy=None,
            )
        )

    async def quic(self, port: int) -> Stranger:
        ca = certs.ensure(self._data_dir).ca
        return await self._exits.enter_async_context(stranger(port, "mqtt", ca))


@pytest.fixture
async def clients(data_dir: Path) -> AsyncIterator[Clients]:
    async with AsyncExitStack() as exits:
        yield Clients(data_dir, exits)


# --- one port, two dialects ------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["tcp", "tls"])
async def test_both_dialects_meet_on_one_port(server: Server, clients: Clients, wires: Wires, scheme: str) -> None:
    is_tls = scheme == "tls"
    port = server.ports[scheme]
    mmqp = await wires.connect(port, "mmqp", clients.trust() if is_tls else None)
    device = await clients.tcp(port, is_tls=is_tls)
    await device.connect("mqtt")
    await device.subscribe("from/mmqp")
    await mmqp.ask(Subscribe(0, False, 1, "from/mqtt"))
    await mmqp.ask(Register(0, False, 2, "from/mmqp"))
    await device.send(publish("from/mqtt", b"hello"))
    packet = await mmqp.read()
    assert isinstance(packet, PubReq)
    assert packet.payload == b"hello"
    mmqp.send(PubReq(0, False, False, 0, 0, 2, None, None, None, b"and back"))
    assert await device.payload() == b"and back"


@pytest.mark.parametrize("version", [mqtt.VERSION_3_1_1, mqtt.VERSION_5])
async def test_mqtt_is_recognised_however_its_first_bytes_are_cut(
    server: Server, clients: Clients, version: int
) -> None:
    packet = connect("cut", version)
    for cut in range(1, 8):
        device = await clients.tcp(server.ports["tcp"], version=version)
        await device.send_bytes(packet[:cut])
        await device.send_bytes(packet[cut:])
        await device.is_accepted()


async def test_bytes_may_come_one_by_one_in_either_dialect(server: Server, clients: Clients, wires: Wires) -> None:
    device = await clients.tcp(server.ports["tcp"])
    mmqp = await wires.open(server.ports["tcp"])
    for byte in connect("mqtt"):
        await device.send_bytes(bytes((byte,)))
        await asyncio.sleep(0)
    for byte in encode(ConReq(client_id="mmqp")):
        mmqp.send_bytes(bytes((byte,)))
        await asyncio.sleep(0)
    await device.is_accepted()
    assert await mmqp.read() == ConAck(False, Reason.SUCCESS)


async def test_what_follows_the_first_packet_in_one_read_is_not_lost(server: Server, clients: Clients) -> None:
    device = await clients.tcp(server.ports["tcp"])
    await device.send_bytes(connect("hasty") + encode_mqtt(subscribe("a"), publish("a", b"at once")))
    await device.is_accepted()
    assert isinstance(await device.read(), mqtt.SubAck)
    assert await device.payload() == b"at once"


def hurried(config: BrokerConfig, connect_timeout_s: float) -> BrokerConfig:
    """A configuration for a server that gives up soon, also waiting for clients that outlive it."""
    return dataclasses.replace(config, drain_timeout_s=0.01, limits=Limits(connect_timeout_s=connect_timeout_s))


async def send_without_end(client: MQTTClient, first: bytes, more: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        await client.send_bytes(first)
        while True:
            await client.send_bytes(more)
            await asyncio.sleep(0.001)


# --- strangers -------------------------------------------------------------------------------------------

PARTS_OF_MQTT = [connect("slow")[:size] for size in (1, 2, 3, 8, 12)]


@pytest.mark.parametrize("said", [b"", b"\x10", b"\x10\x80", b"\x10\x80\x80\x80", *PARTS_OF_MQTT])
async def test_who_does_not_finish_the_first_packet_in_time_is_closed(
    config: BrokerConfig, clients: Clients, said: bytes
) -> None:
    async with Server(hurried(config, connect_timeout_s=0.05)) as server:
        device = await clients.tcp(server.ports["tcp"])
        if said:
            await device.send_bytes(said)
        await device.ended()
        assert len(server.broker.sessions) == 0


async def test_a_trickle_does_not_move_the_deadline(config: BrokerConfig, clients: Clients) -> None:
    async with Server(hurried(config, connect_timeout_s=0.1)) as server:
        device = await clients.tcp(server.ports["tcp"])
        trickling = asyncio.create_task(send_without_end(device, connect("x" * 60_000)[:20], b"x"))
        await device.ended()
        trickling.cancel()
        assert len(server.broker.sessions) == 0


@pytest.mark.parametrize(
    "flood",
    [
        b"\x10\xff\xff\xff\x7f\x00\x04MQTT\x05",  # a CONNECT of 256 MB
        b"\x10\xff\xff\xff\xff\xff",  # a length that never ends
        encode_mqtt(publish("a", bytes(1000))),
        encode_mqtt(mqtt.PingReq()),
        b"\xff" * 1000,
    ],
)
async def test_a_flood_before_the_first_packet_is_cut_off(server: Server, clients: Clients, flood: bytes) -> None:
    neighbour = await clients.tcp(server.ports["tcp"])
    await neighbour.connect("neighbour")
    await neighbour.subscribe("a")
    flooder = await clients.tcp(server.ports["tcp"])
    flooding = asyncio.create_task(send_without_end(flooder, flood, bytes(64 * 1024)))
    await flooder.ended()
    flooding.cancel()
    await neighbour.send(publish("a", b"undisturbed"))
    assert await neighbour.payload() == b"undisturbed"


# --- WebSocket -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["ws", "wss"])
async def test_a_websocket_carries_mqtt(server: Server, clients: Clients, scheme: str) -> None:
    device = MQTTClient.over_websocket(await clients.websocket(server.ports[scheme], is_tls=scheme == "wss"))
    await device.connect("browser")
    await device.subscribe("a")
    neighbour = await clients.tcp(server.ports["tcp"])
    await neighbour.connect("neighbour")
    await neighbour.send(publish("a", b"hello"))
    assert await device.payload() == b"hello"


async def test_packets_may_span_frames_and_share_them(server: Server, clients: Clients) -> None:
    device = MQTTClient.over_websocket(await clients.websocket(server.ports["ws"]))
    data = connect("browser") + encode_mqtt(subscribe("a"), publish("a", b"one"), publish("a", b"two"))
    for start in range(0, len(data), 5):
        await device.send_bytes(data[start : start + 5])
    await device.is_accepted()
    assert isinstance(await device.read(), mqtt.SubAck)
    assert [await device.payload(), await device.payload()] == [b"one", b"two"]


async def test_a_page_of_another_site_may_connect_only_if_it_is_named(config: BrokerConfig, clients: Clients) -> None:
    config = dataclasses.replace(config, websocket_origins="https://a.example, https://b.example", drain_timeout_s=0.01)
    async with Server(config) as server:
        with pytest.raises(InvalidStatus, match="403"):
            await clients.websocket(server.ports["ws"], origin="https://evil.example")
        for origin in ("https://a.example", "https://b.example", "http://localhost:3000"):
            await clients.websocket(server.ports["ws"], origin=origin)


async def test_a_websocket_that_does_not_read_costs_a_bounded_amount(config: BrokerConfig, clients: Clients) -> None:
    limits = Limits(max_unsent_bytes=256 * 1024, max_queued_bytes=256 * 1024)
    async with Server(dataclasses.replace(config, drain_timeout_s=0.01, limits=limits)) as server:
        socket_ = await clients.websocket(server.ports["ws"])
        slow = MQTTClient.over_websocket(socket_)
        await slow.connect("slow")
        await slow.subscribe("a")
        (served,) = server._served
        socket_.transport.pause_reading()
        publisher = await clients.tcp(server.ports["tcp"])
        await publisher.connect("publisher")
        sent = 0
        while not server.broker.figures.dropped_congested:
            await publisher.send(*(publish("a", bytes(10_000)) for _ in range(20)))
            sent += 200_000
            assert served.link.unsent <= limits.max_unsent_bytes + 2 * 10_000
            assert sent < 64 * 1024 * 1024
        socket_.transport.abort()


@pytest.mark.parametrize(("setting", "scheme"), [("websocket_port", "ws"), ("wss_port", "wss")])
async def test_a_port_of_one_s_own_that_is_taken_is_named(config: BrokerConfig, setting: str, scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"{setting} is {port}: "):
            async with Server(dataclasses.replace(config, **{setting: port})):
                pass


async def test_a_default_port_that_is_taken_is_replaced(
    config: BrokerConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert listeners.DEFAULT_PORTS == {"ws": WEBSOCKET_PORT, "wss": WSS_PORT}
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
        probe.close()
        port = taken.getsockname()[1]
        monkeypatch.setattr(listeners, "DEFAULT_PORTS", {"ws": port, "wss": free})
        with caplog.at_level(logging.WARNING):
            async with Server(dataclasses.replace(config, websocket_port=None, wss_port=None)) as server:
                assert server.ports["ws"] not in (0, port)
                assert server.ports["wss"] == free
    assert f"websocket_port is {port}: " in caplog.text
    assert "wss_port" not in caplog.text


# --- QUIC ------------------------------------------------------------------------------------------------


async def answers(peer: Stranger, stream_id: int, count: int) -> list[mqtt.Item]:
    """The first packets of a stream."""
    await peer.until(lambda: len(decode(peer.streams.get(stream_id, b""))) >= count)
    return decode(peer.streams[stream_id])


async def test_one_quic_stream_carries_a_whole_connection(server: Server, clients: Clients) -> None:
    peer = await clients.quic(server.ports["quic"])
    control = peer.open_stream()
    peer.send(control, connect("one stream") + encode_mqtt(subscribe("a"), publish("a", b"hello", 1, 7)))
    packets = await answers(peer, control, 4)
    assert {type(packet) for packet in packets} == {mqtt.ConnAck, mqtt.SubAck, mqtt.Publish, mqtt.PubAck}
    assert set(peer.streams) == {0}


async def test_each_quic_stream_gets_its_own_answers(server: Server, clients: Clients) -> None:
    peer = await clients.quic(server.ports["quic"])
    control = peer.open_stream()
    peer.send(control, connect("several streams"))
    assert isinstance((await answers(peer, control, 1))[0], mqtt.ConnAck)
    first, second = peer.open_stream(), peer.open_stream()
    peer.send(first, encode_mqtt(subscribe("a", 1, packet_id=11)))
    assert await answers(peer, first, 1) == [mqtt.SubAck(11, None, b"\x01")]
    peer.send(second, encode_mqtt(publish("b", b"not for us", 1, packet_id=12)))
    (acknowledgement,) = await answers(peer, second, 1)
    assert isinstance(acknowledgement, mqtt.PubAck)
    assert acknowledgement.packet_id == 12
    assert len(decode(peer.streams[control])) == 1


async def test_messages_come_on_the_stream_that_subscribed(server: Server, clients: Clients) -> None:
    peer = await clients.quic(server.ports["quic"])
    control = peer.open_stream()
    peer.send(control, connect("subscriber"))
    await answers(peer, control, 1)
    streams = {topic: peer.open_stream() for topic in ("video", "thermostat")}
    for packet_id, (topic, stream_id) in enumerate(streams.items(), 1):
        peer.send(stream_id, encode_mqtt(subscribe(topic, packet_id=packet_id)))
        await answers(peer, stream_id, 1)
    neighbour = await clients.tcp(server.ports["tcp"])
    await neighbour.connect("publisher")
    await neighbour.send(*(publish(topic, topic.encode()) for topic in streams))
    for topic, stream_id in streams.items():
        _, message = await answers(peer, stream_id, 2)
        assert isinstance(message, mqtt.Publish)
        assert message.payload == topic.encode()


async def test_streams_may_come_and_go_past_the_limit_of_open_ones(server: Server, clients: Clients) -> None:
    peer = await clients.quic(server.ports["quic"])
    control = peer.open_stream()
    peer.send(control, connect("many streams"))
    await answers(peer, control, 1)
    streams = [peer.open_stream() for _ in range(300)]
    for packet_id, stream_id in enumerate(streams, 1):
        peer.send(stream_id, encode_mqtt(publish("a", b"x", 1, packet_id)), is_last=True)
    await peer.until(lambda: set(streams) <= peer.finished)
    acknowledged = [decode(peer.streams[stream_id]) for stream_id in streams]
    assert [packet.packet_id for (packet,) in acknowledged if isinstance(packet, mqtt.PubAck)] == [*range(1, 301)]


async def test_a_mqtt_stream_may_be_reset_without_harm(server: Server, clients: Clients) -> None:
    peer = await clients.quic(server.ports["quic"])
    control = peer.open_stream()
    peer.send(control, connect("resetting"))
    await answers(peer, control, 1)
    other = peer.open_stream()
    peer.send(other, encode_mqtt(publish("a", bytes(1000)))[:500])
    peer.reset(other, 0)
    peer.send(control, encode_mqtt(mqtt.PingReq()))
    assert isinstance((await answers(peer, control, 2))[1], mqtt.PingResp)


async def test_both_dialects_share_the_quic_port(server: Server, clients: Clients, data_dir: Path) -> None:
    peer = await clients.quic(server.ports["quic"])
    control = peer.open_stream()
    peer.send(control, connect("mqtt"))
    await answers(peer, control, 1)
    async with stranger(server.ports["quic"], "mmqp", certs.ensure(data_dir).ca) as mmqp:
        mmqp.send(mmqp.open_stream(), encode(ConReq(client_id="mmqp")))
        await mmqp.received(0, 2)
        assert len(server.broker.sessions) == 2


# --- draining --------------------------------------------------------------------------------------------


async def test_leaving_tells_mqtt_clients_that_the_server_shuts_down(config: BrokerConfig, clients: Clients) -> None:
    async with Server(config) as server:
        device = await clients.tcp(server.ports["tcp"])
        page = MQTTClient.over_websocket(await clients.websocket(server.ports["ws"]))
        peer = await clients.quic(server.ports["quic"])
        await device.connect("device")
        await page.connect("page")
        peer.send(peer.open_stream(), connect("peer"))
        await answers(peer, 0, 1)
        ends = [asyncio.create_task(client.read_to_the_end()) for client in (device, page)]
    assert [await end for end in ends] == [[mqtt.Disconnect(Reason.SERVER_SHUTTING_DOWN)]] * 2
    await peer.until(lambda: peer.is_closed)
    assert decode(peer.streams[0])[1:] == [mqtt.Disconnect(Reason.SERVER_SHUTTING_DOWN)]
    assert server.connections == 0
