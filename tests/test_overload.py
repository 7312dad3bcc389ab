"""A broker that has too much: it refuses with a reason, slows publishers, drops best effort, and recovers by itself.

The broker is a process of its own, so that its memory can be read from the kernel.
"""

from __future__ import annotations

import asyncio
import urllib.request
from typing import TYPE_CHECKING

import pytest
from websockets.asyncio.client import connect as connect_websocket

import moq
from moq.errors import MoqError
from moq.reasons import Reason, describe
from moq.wire import ConAck, ConReq, Settings, Subscribe, TopAck, encode, mqtt
from tests.running import Broker
from tests.test_backpressure import join, rss_bytes

if TYPE_CHECKING:
    from pathlib import Path

SCHEMES = ("tcp", "tls", "quic")
PATIENCE_S = 30


def metric(broker: Broker, name: str) -> float:
    """One figure of `/metrics`."""
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.ports['http']}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))


def refused(broker: Broker, limit: str) -> float:
    return metric(broker, f'moq_refused_total{{limit="{limit}"}}')


async def until(broker: Broker, name: str, wanted: float) -> None:
    """Wait for a figure, which has no event to wait for."""
    async with asyncio.timeout(PATIENCE_S):
        while await asyncio.to_thread(metric, broker, name) != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


# --- connections --------------------------------------------------------------------------------------

LIMITS = [
    ("max_connections", "connections", Reason.SERVER_BUSY),
    ("max_connections_per_address", "connections_per_address", Reason.QUOTA_EXCEEDED),
]


@pytest.mark.parametrize(("setting", "limit", "reason"), LIMITS)
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_one_connection_too_many_is_told_why_until_another_leaves(
    tmp_path: Path, scheme: str, setting: str, limit: str, reason: Reason
) -> None:
    with Broker(tmp_path, "--limit", f"{setting}=2") as broker:
        url = broker.url(scheme)
        async with moq.connect(url, data_dir=tmp_path) as first:
            async with moq.connect(url, data_dir=tmp_path):
                with pytest.raises(MoqError) as caught:
                    await moq.connect(url, data_dir=tmp_path).__aenter__()
                assert describe(reason) in str(caught.value)
                assert refused(broker, limit) >= 1
                await first.publish("a", b"still served", qos=1)
            await until(broker, "moq_links_open", 1)
            async with moq.connect(url, data_dir=tmp_path) as again:
                await again.publish("a", b"served again", qos=1)


async def said(reader: asyncio.StreamReader) -> bytes:
    """All the broker says until it closes."""
    async with asyncio.timeout(PATIENCE_S):
        return await reader.read()


async def test_every_dialect_is_refused_in_its_own_words(tmp_path: Path) -> None:
    with Broker(tmp_path, "--limit", "max_connections=1") as broker:
        async with moq.connect(broker.url("tcp"), data_dir=tmp_path):
            for first_words, answer in (
                (encode(ConReq(client_id="late")), encode(ConAck(False, Reason.SERVER_BUSY))),
                (_connect(mqtt.VERSION_5), mqtt.encode(mqtt.ConnAck(False, Reason.SERVER_BUSY), mqtt.VERSION_5)),
                (_connect(mqtt.VERSION_3_1_1), mqtt.encode(mqtt.ConnAck(False, 3), mqtt.VERSION_3_1_1)),
                (b"GET / HTTP/1.1\r\n\r\n", encode(ConAck(False, Reason.SERVER_BUSY))),
            ):
                reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports["tcp"])
                writer.write(first_words)
                assert await said(reader) == answer
                writer.close()
            async with connect_websocket(
                f"ws://127.0.0.1:{broker.ports['ws']}/mqtt",
                subprotocols=["mqtt"],  # type: ignore[list-item]
            ) as websocket:
                await websocket.send(_connect(mqtt.VERSION_5))
                refusal = await websocket.recv()
            assert refusal == mqtt.encode(mqtt.ConnAck(False, Reason.SERVER_BUSY), mqtt.VERSION_5)
            assert refused(broker, "connections") == 5


async def test_the_refused_who_say_nothing_are_closed_soon(tmp_path: Path) -> None:
    with Broker(tmp_path, "--limit", "max_connections=1") as broker:
        async with moq.connect(broker.url("tcp"), data_dir=tmp_path):
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports["tcp"])
            assert await said(reader) == b""
            writer.close()


def _connect(version: int) -> bytes:
    return mqtt.encode(mqtt.Connect(version, client_id="late"), version)


# --- the memory watermark -----------------------------------------------------------------------------

WATERMARK = 2 * 1024 * 1024
WATERMARK_LIMITS = (
    "--limit",
    f"memory_watermark_bytes={WATERMARK}",
    "--limit",
    f"max_queued_bytes={64 * 1024 * 1024}",
    "--store",
    "memory",
)
PAYLOAD = bytes(16 * 1024)
ALLOWED_BYTES = 16 * 1024 * 1024
"""What may be held above what an empty broker needs: one and a half watermarks, what a publisher sends until the next
sample and in its turns, the windows of its connection, and Python's own slack. 2 to 5 MB were measured."""

FLOOD = 3_000
"""Messages of 16 KiB, nearly 50 MB: without a watermark, as much as may be queued."""


async def flood(client: moq.Client, count: int) -> None:
    for _ in range(count):
        await client.publish("load", PAYLOAD, qos=1)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_publishers_are_slowed_until_subscribers_have_caught_up(tmp_path: Path, scheme: str) -> None:
    with Broker(tmp_path, *WATERMARK_LIMITS) as broker:
        stuck = await join(broker, scheme, "stuck", [Subscribe(qos=1, accepts_requests=False, alias=0, topic="load")])
        stuck.stops_at = "load"
        async with moq.connect(broker.url(scheme), data_dir=tmp_path) as publisher:
            before = rss_bytes(broker)
            flooding = asyncio.create_task(flood(publisher, FLOOD))
            await until(broker, "moq_pressure_level", 3)
            # Those who come now are refused, those who are there are served.
            with pytest.raises(MoqError) as caught:
                await moq.connect(broker.url(scheme), data_dir=tmp_path).__aenter__()
            assert describe(Reason.SERVER_BUSY) in str(caught.value)
            assert refused(broker, "memory") >= 1
            highest = rss_bytes(broker)
            for _ in range(40):
                highest = max(highest, rss_bytes(broker))
                await asyncio.sleep(0.05)
            assert not flooding.done()
            assert metric(broker, "moq_lanes_slowed") >= 1
            assert highest - before < ALLOWED_BYTES
            # Whoever held it all up leaves; what was kept for it goes with it.
            stuck.link.abort()
            async with asyncio.timeout(PATIENCE_S):
                await flooding
            await until(broker, "moq_pressure_level", 0)
            async with moq.connect(broker.url(scheme), data_dir=tmp_path) as late:
                await late.publish("a", b"let in again", qos=1)
        broker.wait_for("overload: calm")
        assert [line for line in broker.stderr if "overload: refusing" in line]


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_clients_that_publish_to_each_other_are_slowed_and_not_stuck(tmp_path: Path, scheme: str) -> None:
    """Their acknowledgements come behind their messages: nobody may wait for what is not read."""
    count = 400
    with Broker(tmp_path, "--limit", "memory_watermark_bytes=300000", "--store", "memory") as broker:
        url = broker.url(scheme)
        async with (
            moq.connect(url, data_dir=tmp_path) as one,
            moq.connect(url, data_dir=tmp_path) as other,
            one.subscribe("to/one", qos=1, queue=count) as to_one,
            other.subscribe("to/other", qos=1, queue=count) as to_other,
        ):

            async def send(client: moq.Client, topic: str) -> None:
                await asyncio.gather(*(client.publish(topic, PAYLOAD, qos=1) for _ in range(count)))

            async with asyncio.timeout(PATIENCE_S * 2):
                await asyncio.gather(send(one, "to/other"), send(other, "to/one"))
                for subscription in (to_one, to_other):
                    for _ in range(count):
                        await anext(subscription)
        await until(broker, "moq_pressure_level", 0)
        broker.wait_for("overload: calm")
        assert any("was calm" in line for line in broker.stderr), "there was an overload"


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_best_effort_messages_are_dropped_above_the_watermark(tmp_path: Path, scheme: str) -> None:
    with Broker(tmp_path, *WATERMARK_LIMITS) as broker:
        stuck = await join(broker, scheme, "stuck", [Subscribe(qos=1, accepts_requests=False, alias=0, topic="load")])
        stuck.stops_at = "load"
        async with (
            moq.connect(broker.url(scheme), data_dir=tmp_path) as loader,
            moq.connect(broker.url(scheme), data_dir=tmp_path) as publisher,
        ):
            flooding = asyncio.create_task(flood(loader, FLOOD))
            await until(broker, "moq_pressure_level", 3)
            dropped = 'moq_messages_dropped_total{reason="memory"}'
            async with asyncio.timeout(PATIENCE_S):
                while not await asyncio.to_thread(metric, broker, dropped):
                    await publisher.publish("other", b"best effort", qos=0)
                    await asyncio.sleep(0.01)
            flooding.cancel()
            stuck.link.abort()
            await asyncio.gather(flooding, return_exceptions=True)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_publishers_wait_for_a_store_that_is_behind(tmp_path: Path, scheme: str) -> None:
    with Broker(tmp_path, "--limit", "max_unstored_changes=5") as broker:
        url = broker.url(scheme)
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports["tcp"])
        wanted = Subscribe(qos=1, accepts_requests=False, alias=0, topic="load")
        lasting = Settings(persistent=True, expiry_s=60)
        writer.write(encode(ConReq(client_id="absent", settings=lasting, topics=[wanted])))
        await reader.readuntil(encode(TopAck(0, b"\0")))
        writer.close()
        async with moq.connect(url, data_dir=tmp_path) as publisher:
            seen = asyncio.create_task(asyncio.to_thread(broker.wait_for, "overload: slowing"))
            while not seen.done():
                # Every one of them is acknowledged: those that waited, too.
                await asyncio.gather(*(publisher.publish("load", b"x", qos=1) for _ in range(500)))
            await seen
        await until(broker, "moq_pressure_level", 0)
