"""What `/metrics` counts is what clients count, to the message: under loss, reconnects and drops, on each transport."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from moq.wire import mqtt
from tests.server.counting import CountingClient
from tests.server.mqtt_client import MQTTClient
from tests.server.scraping import scrape
from tests.server.wire_client import PATIENCE_S, until
from tests.udp_relay import UDPRelay

if TYPE_CHECKING:
    from pathlib import Path

    from moq.server import Server

SCHEMES = ("tcp", "tls", "quic")
MESSAGES = 200
PAYLOAD = b"0123456789"


async def pair(server: Server, scheme: str, data_dir: Path, qos: int) -> tuple[CountingClient, CountingClient]:
    """A publisher and a subscriber of a topic."""
    publisher = await CountingClient.connect(server.ports[scheme], scheme, "publisher", data_dir)
    subscriber = await CountingClient.connect(server.ports[scheme], scheme, "subscriber", data_dir)
    await publisher.register("n")
    await subscriber.subscribe("n", qos)
    return publisher, subscriber


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_messages_and_bytes_are_counted_by_transport_and_qos(
    server: Server, data_dir: Path, scheme: str, qos: int
) -> None:
    publisher, subscriber = await pair(server, scheme, data_dir, qos)
    for number in range(1, MESSAGES + 1):
        publisher.publish(PAYLOAD, qos, number if qos else 0)
    await subscriber.until(lambda: subscriber.received[qos] == MESSAGES)
    await publisher.until(lambda: publisher.answers == (MESSAGES if qos else 0))
    for client in (publisher, subscriber):
        await client.leave()
    seen = await scrape(server)
    of = {"transport": scheme, "dialect": "mmqp", "qos": str(qos)}
    assert seen.value("moq_messages_received_total", **of) == publisher.published[qos] == MESSAGES
    assert seen.value("moq_received_bytes_total", **of) == MESSAGES * len(PAYLOAD)
    assert seen.value("moq_messages_sent_total", **of) == MESSAGES
    assert seen.value("moq_sent_bytes_total", **of) == subscriber.received_bytes
    assert seen.value("moq_messages_received_total") == seen.value("moq_messages_sent_total") == MESSAGES
    assert seen.value("moq_messages_dropped_total") == 0
    residences = seen.value("moq_delivery_residence_seconds_count")
    assert residences == MESSAGES, "each delivery has its residence"
    assert seen.value("moq_connections_accepted_total", transport=scheme) == 2
    assert seen.value("moq_connections_closed_total", transport=scheme, reason="client") == 2
    if qos:
        assert seen.value("moq_acknowledgement_seconds_count", qos=str(qos)) == MESSAGES
        assert seen.value("moq_subscriber_acknowledgement_seconds_count", qos=str(qos)) == MESSAGES


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [mqtt.VERSION_3_1_1, mqtt.VERSION_5])
async def test_plain_mqtt_is_counted_by_its_version(server: Server, version: int, qos: int) -> None:
    clients = []
    for name in ("publisher", "subscriber"):
        streams = await asyncio.open_connection("127.0.0.1", server.ports["tcp"])
        client = MQTTClient.over_streams(*streams, version)
        await client.send_bytes(mqtt.encode(mqtt.Connect(version, client_id=name), version))
        await client.is_accepted()
        clients.append(client)
    publisher, subscriber = clients
    asked = mqtt.Subscribe(1, None, [mqtt.Subscription("n", qos)])
    await subscriber.send_bytes(mqtt.encode(asked, version))
    assert isinstance(await subscriber.read(), mqtt.SubAck)
    packets = [mqtt.Publish(False, qos, False, "n", n if qos else 0, None, PAYLOAD) for n in range(1, 101)]
    await publisher.send_bytes(b"".join(mqtt.encode(packet, version) for packet in packets))
    received = 0
    while received < len(packets):
        received += isinstance(await subscriber.read(), mqtt.Publish)
    seen = await scrape(server)
    of = {"transport": "tcp", "dialect": "mqtt3" if version == mqtt.VERSION_3_1_1 else "mqtt5", "qos": str(qos)}
    assert seen.value("moq_messages_received_total", **of) == len(packets)
    assert seen.value("moq_messages_sent_total", **of) == received
    assert seen.value("moq_sent_bytes_total", **of) == received * len(PAYLOAD)
    assert seen.value("moq_messages_sent_total") == received, "and under no other label"
    del of["qos"]
    assert seen.value("moq_connections_open", **of) == 2
    for client in clients:
        client._close()
    await until(lambda: not server.connections)
    after = await scrape(server)
    assert after.value("moq_connections_open") == 0
    assert after.value("moq_connections_closed_total", **of, reason="lost") == 2


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_repetitions_after_reconnects_are_counted_as_the_clients_count_them(
    server: Server, data_dir: Path, scheme: str, qos: int
) -> None:
    publisher, subscriber = await pair(server, scheme, data_dir, qos)
    subscriber.acknowledges = False
    for number in range(1, 11):
        publisher.publish(PAYLOAD, qos, number)
    await subscriber.until(lambda: subscriber.received[qos] == 10)
    await publisher.until(lambda: publisher.answers == 10)
    # Both lose their connection; what was not acknowledged, or not released, comes again.
    await subscriber.cut()
    await publisher.cut()
    await until(lambda: not server.connections)
    resumed = await CountingClient.connect(server.ports[scheme], scheme, "subscriber", data_dir, resume=True)
    again = await CountingClient.connect(server.ports[scheme], scheme, "publisher", data_dir, resume=True)
    await resumed.until(lambda: resumed.received[qos] == 10)
    for number in range(1, 11):
        again.publish(PAYLOAD, qos, number, dup=True)
    await again.until(lambda: again.answers == 10)
    fresh = 10 if qos == 1 else 0  # a repetition of QoS 2 is recognised, one of QoS 1 delivered again
    await resumed.until(lambda: resumed.received[qos] == 10 + fresh)
    seen = await scrape(server)
    assert seen.value("moq_messages_received_total", qos=str(qos)) == publisher.published[qos] + again.published[qos]
    assert seen.value("moq_messages_sent_total", qos=str(qos)) == subscriber.received[qos] + resumed.received[qos]
    assert seen.value("moq_connections_closed_total", transport=scheme, reason="lost") == 2
    assert seen.value("moq_connections_accepted_total", transport=scheme) == 4
    assert seen.value("moq_delivery_residence_seconds_count", path="queued") == 10
    assert seen.value("moq_delivery_residence_seconds_count", path="direct") == 10 + fresh
    assert seen.value("moq_messages_waiting") == 0


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_what_a_subscriber_that_does_not_read_misses_is_counted_as_dropped(
    server: Server, data_dir: Path, scheme: str
) -> None:
    publisher, subscriber = await pair(server, scheme, data_dir, 0)
    publisher.publish(b"first", 0)
    await subscriber.until(lambda: subscriber.received[0] == 1)
    subscriber.pause()
    payload = bytes(16 * 1024)
    while not server.broker.figures.dropped_congested:
        for _ in range(20):
            publisher.publish(payload, 0)
        await publisher.until(lambda: not publisher.link.lane(1).congested)
        await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        while server.broker.figures.messages_received < publisher.published[0]:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.01)
    subscriber.resume()
    sent = server.broker.figures.messages_sent
    await subscriber.until(lambda: subscriber.received[0] == sent)
    seen = await scrape(server)
    dropped = seen.value("moq_messages_dropped_total", reason="congested")
    assert dropped > 0
    assert seen.value("moq_messages_received_total") == publisher.published[0]
    assert seen.value("moq_messages_sent_total") == subscriber.received[0]
    assert publisher.published[0] == subscriber.received[0] + dropped
    assert seen.value("moq_sent_bytes_total") == subscriber.received_bytes


async def test_what_an_mqtt_subscriber_that_does_not_read_misses_is_counted_as_dropped(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["tcp"], limit=4096)
    subscriber = MQTTClient.over_streams(reader, writer)
    publisher = MQTTClient.over_streams(*await asyncio.open_connection("127.0.0.1", server.ports["tcp"]))
    await subscriber.connect("subscriber")
    await publisher.connect("publisher")
    await subscriber.subscribe("n")
    published, figures = 0, server.broker.figures
    payload = bytes(16 * 1024)
    while not figures.dropped_congested:  # it reads no more than 8 KiB before it is asked to
        await publisher.send(*[mqtt.Publish(False, 0, False, "n", 0, None, payload)] * 20)
        published += 20
    await until(lambda: figures.messages_received == published)
    received = 0
    while received < figures.messages_sent:
        received += isinstance(await subscriber.read(), mqtt.Publish)
    seen = await scrape(server)
    assert seen.value("moq_messages_received_total", dialect="mqtt5") == published
    assert seen.value("moq_messages_sent_total", dialect="mqtt5") == received
    assert seen.value("moq_messages_dropped_total", reason="congested") == published - received > 0
    for client in (publisher, subscriber):
        client._close()


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_loss_and_migration_of_quic_clients_change_no_count(server: Server, data_dir: Path, qos: int) -> None:
    port = server.ports["quic"]
    async with UDPRelay(port, loses_every=10) as relay, UDPRelay(port, loses_every=10) as other:
        publisher = await CountingClient.connect(relay.port, "quic", "publisher", data_dir)
        subscriber = await CountingClient.connect(other.port, "quic", "subscriber", data_dir)
        await publisher.register("n")
        await subscriber.subscribe("n", qos)
        relay.is_lossy = other.is_lossy = True
        for number in range(1, MESSAGES + 1):
            publisher.publish(bytes(2000), qos, number if qos else 0)
        await subscriber.until(lambda: subscriber.received[qos] >= MESSAGES // 2)
        await relay.move()
        await subscriber.until(lambda: subscriber.received[qos] == MESSAGES)
        await publisher.until(lambda: publisher.answers == (MESSAGES if qos else 0))
        publisher.publish(b"after", 0)  # what it sends after it has moved is what tells the broker
        await subscriber.until(lambda: subscriber.received.total() == MESSAGES + 1)
        seen = await scrape(server)
        assert relay.lost
        assert other.lost
        assert seen.value("moq_messages_received_total", transport="quic") == publisher.published.total()
        assert seen.value("moq_messages_sent_total", transport="quic") == subscriber.received.total()
        assert seen.value("moq_packets_lost_total", transport="quic") > 0
        assert seen.value("moq_migrations_total") == 1
        for client in (publisher, subscriber):
            await client.cut()
    after = await scrape(server)
    for name in ("moq_packets_lost_total", "moq_packets_sent_total", "moq_packets_received_total"):
        assert after.value(name, transport="quic") >= seen.value(name, transport="quic"), (
            "counted when a link is gone, too"
        )
