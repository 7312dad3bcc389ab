"""A broker and its clients on real sockets, traced: every delivery has its records, and they tell one story."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import moq
from moq.broker.dialects.mmqp_outlets import Outlets
from moq.broker.dialects.mqtt_outlets import MQTTOutlets
from moq.config import BrokerConfig
from moq.server import Server
from moq.trace.clock import now_ns
from moq.wire import mqtt
from tests.running import moq as run_moq
from tests.server.mqtt_client import MQTTClient
from tests.trace.reading import files, rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

MESSAGES = 60


@pytest.fixture
def config(data_dir: Path, tmp_path: Path) -> BrokerConfig:
    ports = dict.fromkeys(("tcp_port", "tls_port", "quic_port", "http_port", "websocket_port", "wss_port"), 0)
    return BrokerConfig(**ports, data_dir=data_dir, trace=tmp_path / "traces", sys_interval_s=0)  # type: ignore[arg-type]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


def client(server: Server, config: BrokerConfig, scheme: str, client_id: str, **options: Any) -> moq.Client:
    url = f"{scheme}://localhost:{server.ports[scheme]}"
    return moq.connect(url, client_id, data_dir=config.data_dir, **options)


async def exchange(config: BrokerConfig, scheme: str, **options: Any) -> None:
    """Publish at every QoS on two topics to two subscribers, and wait until all has arrived."""
    async with Server(config) as server, AsyncExitStack() as clients:
        inboxes = []
        for number in range(2):
            subscriber = await clients.enter_async_context(
                client(server, config, scheme, f"subscriber-{number}", trace=config.trace, **options)
            )
            inboxes.append(subscriber.subscribe("t/#", qos=2))
            await inboxes[-1].ready()
        publisher = await clients.enter_async_context(
            client(server, config, scheme, "publisher", trace=config.trace, **options)
        )
        for number in range(MESSAGES):
            await publisher.publish(f"t/{number % 2}", bytes(number), qos=number % 3)
        for inbox in inboxes:
            for _ in range(MESSAGES):
                await anext(inbox)


@pytest.mark.parametrize("scheme", ["tcp", "quic"])
async def test_every_delivery_has_one_record_of_each_role_and_they_join(config: BrokerConfig, scheme: str) -> None:
    await exchange(config, scheme)
    assert config.trace is not None
    sent = {(row["topic"], row["sent_at_ns"]): row for row in rows(config.trace, role="publisher")}
    assert len(sent) == len(rows(config.trace, role="publisher")) == MESSAGES
    deliveries = Counter(
        (row["topic"], row["sent_at_ns"], row["client_id"]) for row in rows(config.trace, role="broker")
    )
    received = {
        (row["topic"], row["sent_at_ns"], row["client_id"]): row for row in rows(config.trace, role="subscriber")
    }
    wanted = {(*key, f"subscriber-{number}") for key in sent for number in range(2)}
    assert deliveries == Counter(wanted)
    assert received.keys() == wanted
    assert len(rows(config.trace, role="subscriber")) == len(wanted)
    for row in rows(config.trace, role="broker"):
        there = received[row["topic"], row["sent_at_ns"], row["client_id"]]
        assert row["sent_at_ns"] <= row["broker_in_ns"] <= row["broker_out_ns"] <= there["received_at_ns"]
        for name in ("transport", "dialect", "stream_id", "alias", "qos", "payload_bytes", "kind"):
            assert row[name] == there[name], name
        assert (row["transport"], row["dialect"]) == (scheme, "mmqp")
        assert row["weight"] == 1.0


async def test_topics_have_streams_of_their_own_on_quic(config: BrokerConfig) -> None:
    await exchange(config, "quic")
    assert config.trace is not None
    streams = {
        (row["client_id"], row["topic"]): row["stream_id"]
        for row in rows(config.trace, role="broker")
        if row["stream_id"]
    }
    assert len(set(streams.values())) == 2
    assert len(streams) == 4


async def test_all_roles_sample_the_same_messages(config: BrokerConfig) -> None:
    await exchange(replace(config, trace_sample=0.3), "tcp", trace_sample=0.3)
    assert config.trace is not None
    keys = {
        role: {(row["topic"], row["sent_at_ns"]) for row in rows(config.trace, role=role)}
        for role in ("publisher", "broker", "subscriber")
    }
    assert keys["publisher"] == keys["broker"] == keys["subscriber"]
    assert 0 < len(keys["broker"]) < MESSAGES
    assert all(row["weight"] == pytest.approx(1 / 0.3) for row in rows(config.trace))
    assert sum(row["offered"] for row in rows(config.trace, "totals", role="broker")) == MESSAGES * 2


@pytest.mark.parametrize("scheme", ["tcp", "quic"])
async def test_connections_and_clocks_are_recorded_beside_the_messages(config: BrokerConfig, scheme: str) -> None:
    assert config.trace is not None
    async with (
        Server(config) as server,
        client(server, config, scheme, "looked-at", trace=config.trace) as looked_at,
    ):
        await until_seen(server, looked_at)
    for role in ("broker", "client"):
        states = rows(config.trace, "connections", role=role, client_id="looked-at")
        assert states
        for state in states:
            assert state["transport"] == scheme
            assert state["round_trip_ns"] > 0
            assert state["congestion_window_bytes"] > 0
            assert state["packets_sent"] > 0
            assert (state["open_streams"] is None) == (scheme == "tcp")
    clocks = rows(config.trace, "clocks", client_id="looked-at")
    assert len(clocks) >= 5
    assert any(clock["is_best"] for clock in clocks)
    for clock in clocks:  # one process, one clock: the estimate must contain 0
        assert abs(clock["offset_ns"]) <= clock["round_trip_ns"] / 2 + 1


async def until_seen(server: Server, seen: moq.Client) -> None:
    """Wait until the broker and the client have looked at the connection, and the clocks were compared."""
    async with asyncio.timeout(30):
        assert server.tracing is not None
        tracer: Any = seen._tracer
        broker = server.tracing.tracer.writer
        clocks = tracer.writer._rows["clocks"]
        while not (broker._states.current and tracer.writer._states.current and len(clocks) >= 5):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_stamp_of_mqtt_5_reaches_mmqp_and_the_other_way_round(config: BrokerConfig) -> None:
    assert config.trace is not None
    async with (
        Server(config) as server,
        client(server, config, "quic", "mmqp", trace=config.trace) as ours,
        mqtt_client(server, "plain") as plain,
    ):
        inbox = ours.subscribe("from/mqtt")
        await inbox.ready()
        await plain.subscribe("from/mmqp")
        stamp = now_ns()
        properties = mqtt.Properties(user_properties=[("a", "b"), ("moq-timestamp-ns", str(stamp))])
        await plain.send(mqtt.Publish(False, 0, False, "from/mqtt", 0, properties, b"1"))
        message = await anext(inbox)
        assert message.timestamp_ns == stamp
        await ours.publish("from/mmqp", b"2")
        answer = await plain.read()
    assert isinstance(answer, mqtt.Publish)
    assert answer.properties is not None
    (told,) = answer.properties.user_properties or []
    (out,) = rows(config.trace, role="broker", topic="from/mmqp")
    assert told == ("moq-timestamp-ns", str(out["sent_at_ns"]))
    assert (out["dialect"], out["transport"], out["client_id"], out["alias"]) == ("mqtt5", "tcp", "plain", None)
    (came,) = rows(config.trace, role="broker", topic="from/mqtt")
    (got,) = rows(config.trace, role="subscriber", topic="from/mqtt")
    assert came["sent_at_ns"] == got["sent_at_ns"] == stamp
    assert came["broker_in_ns"] <= came["broker_out_ns"] <= got["received_at_ns"]


@contextlib.asynccontextmanager
async def mqtt_client(server: Server, client_id: str) -> AsyncIterator[MQTTClient]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["tcp"])
    found = MQTTClient.over_streams(reader, writer)
    try:
        await found.connect(client_id)
        yield found
    finally:
        writer.close()
        await writer.wait_closed()


async def test_without_a_trace_there_is_no_file_no_thread_and_no_other_code(
    config: BrokerConfig, tmp_path: Path
) -> None:
    threads = {thread.name for thread in threading.enumerate()}
    async with (
        Server(replace(config, trace=None, store="memory")) as server,
        client(server, config, "tcp", "plain") as plain,
        mqtt_client(server, "mqtt"),
    ):
        inbox = plain.subscribe("t")
        await inbox.ready()
        await plain.publish("t", b"")
        message = await anext(inbox)
        assert message.timestamp_ns is None
        connections = [served.connection for served in server.served]
        kinds = {type(connection._outlets) for connection in connections}
        assert kinds == {Outlets, MQTTOutlets}
        for connection in connections:
            assert connection.send_message.__func__ in (Outlets.send, MQTTOutlets.send)  # type: ignore[attr-defined]
        assert "moq trace" not in {thread.name for thread in threading.enumerate()} - threads
    assert os.listdir(tmp_path) == []


async def test_a_broker_whose_trace_cannot_be_written_goes_on_and_counts(config: BrokerConfig) -> None:
    assert config.trace is not None
    async with Server(config) as server, client(server, config, "tcp", "one", stamp=True) as one:
        (config.trace / "messages").rmdir()
        (config.trace / "messages").write_text("in the way")
        inbox = one.subscribe("t")
        await inbox.ready()
        async with asyncio.timeout(30):
            while not server.broker.figures.traced_messages_lost:
                await one.publish("t", b"x")
                await anext(inbox)
                await asyncio.sleep(0.02)
        (config.trace / "messages").unlink()
        await one.publish("t", b"the last")
        assert (await anext(inbox)).payload == b"the last"
    assert [row["payload_bytes"] for row in rows(config.trace)][-1] == len(b"the last")
    lost = server.broker.figures.traced_messages_lost
    assert sum(row["dropped"] for row in rows(config.trace, "totals")) == lost


def test_a_trace_that_cannot_be_begun_is_said_at_once(data_dir: Path, tmp_path: Path) -> None:
    occupied = tmp_path / "occupied"
    occupied.write_text("")
    ports = [part for name in ("tcp", "tls", "quic", "http") for part in (f"--{name}-port", "0")]
    ended = run_moq("broker", *ports, "--data-dir", str(data_dir), "--trace", str(occupied))
    assert ended.returncode == 2
    assert b"where nothing can be written" in ended.stderr


async def test_a_client_that_may_not_read_the_clock_is_traced_all_the_same(
    config: BrokerConfig, tmp_path: Path
) -> None:
    assert config.trace is not None
    access = tmp_path / "access.toml"
    access.write_text('[[rule]]\nallow = ["read", "write"]\ntopics = ["#"]\n')
    async with (
        Server(replace(config, access_file=access)) as server,
        client(server, config, "tcp", "one", trace=config.trace) as one,
    ):
        inbox = one.subscribe("t")
        await inbox.ready()
        await one.publish("t", b"x")
        await anext(inbox)
        with pytest.raises(moq.RequestRefused):
            await one.request("$SYS/clock")
    assert len(rows(config.trace)) == 3
    assert not [path for path in files(config.trace) if "clocks" in path.parts]
