"""`$SYS/top` of a server on real sockets: counts agree with what clients did, over each transport and dialect."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import json
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import websockets.asyncio.client
from websockets.typing import Subprotocol

import moq
from moq.errors import RequestRefused
from moq.server import Server
from moq.wire.mqtt import Publish
from tests.server.mqtt_client import MQTTClient, publish
from tests.server.wire_client import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from moq.client.subscription import Subscription
    from moq.config import BrokerConfig

TOPIC = "$SYS/top"
COUNT, SIZE = 50, 20


async def snapshots_until_quiet(top: Subscription) -> list[dict[str, Any]]:
    """Snapshots until the traffic is over: one that tells of nothing but itself, after others."""
    found: list[dict[str, Any]] = []
    was_busy = False
    async with asyncio.timeout(PATIENCE_S):
        async for message in top:
            found.append(json.loads(message.payload))
            is_busy = bool({entry["topic"] for entry in found[-1]["topics"]} - {TOPIC})
            if was_busy and not is_busy:
                break
            was_busy |= is_busy
    return found


def total(found: list[dict[str, Any]], part: str, name: str, figure: str, key: str = "client_id") -> int:
    """What the rates of one name come to."""
    amounts: list[float] = [
        entry[figure] * snapshot["interval_s"] for snapshot in found for entry in snapshot[part] if entry[key] == name
    ]
    return round(sum(amounts))


@contextlib.asynccontextmanager
async def mqtt_client(port: int, client_id: str) -> AsyncIterator[MQTTClient]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = MQTTClient.over_streams(reader, writer)
    await client.connect(client_id)
    try:
        yield client
    finally:
        writer.close()
        await writer.wait_closed()


def is_counting(server: Server) -> bool:
    return "publish" in vars(server.broker)


@pytest.mark.parametrize("scheme", ["tcp", "tls", "quic"])
async def test_counts_agree_over_every_transport(server: Server, data_dir: Path, scheme: str) -> None:
    url = f"{scheme}://localhost:{server.ports[scheme]}"
    async with (
        moq.connect(url, "watcher", data_dir=data_dir) as watcher,
        moq.connect(url, "publisher", data_dir=data_dir) as publisher,
        moq.connect(url, "subscriber", data_dir=data_dir) as subscriber,
    ):
        inbox = await subscriber.subscribe("room/#", qos=1, queue=4 * COUNT).ready()
        top = await watcher.subscribe(TOPIC).ready()
        await until(lambda: is_counting(server))
        for number in range(COUNT):
            await publisher.publish(f"room/{number % 2}", b"x" * SIZE, qos=number // 2 % 2)
        for _ in range(COUNT):
            await anext(inbox)
        found = await snapshots_until_quiet(top)
    for name, direction in (("publisher", "in"), ("subscriber", "out")):
        assert total(found, "connections", name, f"messages_{direction}_per_s") == COUNT
        assert total(found, "connections", name, f"bytes_{direction}_per_s") == COUNT * SIZE
        assert total(found, "streams", name, "messages_per_s") == COUNT
    for direction in ("in", "out"):
        assert total(found, "topics", "room/0", f"messages_{direction}_per_s", "topic") == COUNT // 2
    (receiver,) = [entry for entry in found[-1]["connections"] if entry["client_id"] == "subscriber"]
    assert (receiver["transport"], receiver["dialect"], receiver["lost"]) == (scheme, "mmqp", 0)
    assert receiver["rtt_s"] > 0
    assert receiver["congestion_window_bytes"] > 0
    assert receiver["streams_out"] == (3 if scheme == "quic" else 1)
    mine = [entry for each in found for entry in each["streams"] if entry["client_id"] == "subscriber"]
    streams = {entry["stream"] for entry in mine}
    assert len(streams) == (2 if scheme == "quic" else 1)
    assert found[-1]["broker"]["rss_bytes"] > 1024 * 1024


async def test_counts_agree_for_plain_mqtt(server: Server, data_dir: Path) -> None:
    port = server.ports["tcp"]
    async with (
        mqtt_client(port, "publisher") as publisher,
        mqtt_client(port, "subscriber") as subscriber,
        moq.connect(f"tcp://localhost:{port}", data_dir=data_dir) as watcher,
    ):
        await subscriber.subscribe("room/#")
        top = await watcher.subscribe(TOPIC).ready()
        await until(lambda: is_counting(server))
        await publisher.send(*[publish("room/temp", b"x" * SIZE)] * COUNT)
        for _ in range(COUNT):
            await subscriber.read()
        found = await snapshots_until_quiet(top)
    assert total(found, "connections", "publisher", "messages_in_per_s") == COUNT
    assert total(found, "connections", "subscriber", "bytes_out_per_s") == COUNT * SIZE
    assert total(found, "topics", "room/temp", "messages_out_per_s", "topic") == COUNT
    (receiver,) = [entry for entry in found[-1]["connections"] if entry["client_id"] == "subscriber"]
    assert (receiver["dialect"], receiver["user"]) == ("mqtt5", None)


async def test_a_websocket_tells_the_round_trip_of_its_connection(server: Server) -> None:
    url = f"ws://127.0.0.1:{server.ports['ws']}/mqtt"
    async with websockets.asyncio.client.connect(url, subprotocols=[Subprotocol("mqtt")]) as socket:
        client = MQTTClient.over_websocket(socket)
        await client.connect("page")
        await client.subscribe(TOPIC)
        (page,) = json.loads(await client.payload())["connections"]
    assert (page["transport"], page["lost"]) == ("ws", 0)
    assert page["rtt_s"] > 0


async def test_a_connection_that_was_counted_goes_without_the_garbage_collector(server: Server, data_dir: Path) -> None:
    url = f"tcp://localhost:{server.ports['tcp']}"
    async with moq.connect(url, data_dir=data_dir) as watcher:
        top = await watcher.subscribe(TOPIC).ready()
        await until(lambda: is_counting(server))
        gc.collect()
        gc.disable()
        try:
            async with moq.connect(url, "visitor", data_dir=data_dir):
                session = server.broker.sessions.get("visitor")
                assert session is not None
                connection = weakref.ref(session.peer)
            del session
            await until(lambda: server.broker.sessions.get("visitor") is None)
            await anext(top)
            assert connection() is None
        finally:
            gc.enable()


async def test_mqtt_clients_can_watch_and_the_last_one_to_go_ends_the_counting(server: Server) -> None:
    async with mqtt_client(server.ports["tcp"], "watcher") as client:
        await client.subscribe(TOPIC)
        message = await client.read()
        assert isinstance(message, Publish)
        assert not message.retain
        assert json.loads(message.payload)["connections"][0]["client_id"] == "watcher"
    await until(lambda: not is_counting(server))


async def test_the_access_list_decides_who_watches(config: BrokerConfig, tmp_path: Path) -> None:
    rules = tmp_path / "access.toml"
    rules.write_text(
        '[[rule]]\nclients = ["admin"]\nallow = ["sys"]\n\n[[rule]]\nallow = ["read"]\ntopics = ["room/#"]\n'
    )
    async with Server(dataclasses.replace(config, access_file=rules)) as server:
        url = f"tcp://localhost:{server.ports['tcp']}"
        async with (
            moq.connect(url, "admin", data_dir=config.data_dir) as admin,
            moq.connect(url, "guest", data_dir=config.data_dir) as guest,
            asyncio.timeout(PATIENCE_S),
        ):
            with pytest.raises(RequestRefused, match="not authorized"):
                await guest.subscribe(TOPIC).ready()
            assert not is_counting(server)
            top = await admin.subscribe(TOPIC).ready()
            assert json.loads((await anext(top)).payload)["version"] == 1
