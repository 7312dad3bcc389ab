"""A broker process and the signals of those who run it: SIGHUP, SIGTERM, and a second SIGTERM."""

from __future__ import annotations

import asyncio
import queue
import signal
import socket
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Literal

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

import moq as library
from moq.reasons import Reason
from moq.security.users import new_verifier, save_users
from moq.wire import mqtt
from tests.running import FREE_PORTS, MOQ, PATIENCE_S, Broker, Running
from tests.server.mqtt_client import MQTTClient, connect, publish

if TYPE_CHECKING:
    from pathlib import Path

LONG = ("--drain-timeout-s", "1000")
"""More than any test waits: what ends all the same does not wait for that time to be over."""


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.toml"
    save_users(path, {"alice": new_verifier("wonder")})
    return path


def logged_in(broker: Broker, scheme: str = "tcp", user: str = "alice") -> library.Client:
    return library.connect(
        broker.url(scheme), user_name=user, password="wonder", data_dir=broker.data_dir, reconnect=False
    )


# --- SIGHUP -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["tcp", "tls", "quic"])
async def test_a_hang_up_reads_the_files_again_and_drops_no_connection(
    tmp_path: Path, users: Path, scheme: str
) -> None:
    access = tmp_path / "access.toml"
    access.write_text('[[rule]]\nallow = ["all"]\ntopics = ["%u/#"]\n')
    with Broker(tmp_path / "data", "--users-file", str(users), "--access-file", str(access)) as broker:
        async with logged_in(broker, scheme) as alice, asyncio.timeout(PATIENCE_S):
            with pytest.raises(library.RequestRefused):
                await alice.publish("bob/x", b"x", qos=1)
            save_users(users, {name: new_verifier("wonder") for name in ("alice", "bob")})
            access.write_text('[[rule]]\nallow = ["all"]\ntopics = ["bob/#"]\n')
            broker.process.send_signal(signal.SIGHUP)
            broker.wait_for("reloaded users, access list and certificates")
            await alice.publish("bob/x", b"x", qos=1)
            async with logged_in(broker, scheme, "bob") as bob:
                await bob.publish("bob/x", b"x", qos=1)
        assert broker.stop() == 0


def test_a_file_that_cannot_be_used_is_one_line_and_the_broker_goes_on(tmp_path: Path, users: Path) -> None:
    with Broker(tmp_path / "data", "--users-file", str(users)) as broker:
        users.write_text("[alice")
        broker.process.send_signal(signal.SIGHUP)
        line = broker.wait_for("not reloaded")
        assert f"ERROR not reloaded, the old settings stay: the users file {users} is not TOML: " in line
        save_users(users, {})
        broker.process.send_signal(signal.SIGHUP)
        broker.wait_for("reloaded users")
        assert sum("not reloaded" in line for line in broker.stderr) == 1
        assert broker.stop() == 0


# --- SIGTERM ------------------------------------------------------------------------------------------


def test_clients_others_wrote_are_told_and_hold_nothing_up(tmp_path: Path) -> None:
    told: queue.Queue[str] = queue.Queue()
    with Broker(tmp_path, *LONG) as broker:
        clients = [
            listening(broker.ports["tcp"], MQTTProtocolVersion.MQTTv5, "tcp", told),
            listening(broker.ports["tcp"], MQTTProtocolVersion.MQTTv311, "tcp", told),
            listening(broker.ports["ws"], MQTTProtocolVersion.MQTTv5, "websockets", told),
        ]
        assert [told.get(timeout=PATIENCE_S) for _ in clients] == ["Success"] * 3
        assert broker.stop() == 0
        reasons = sorted(told.get(timeout=PATIENCE_S) for _ in clients)
        assert reasons.count("Server shutting down") == 2  # 3.1.1 has no words for it
        for client in clients:
            client.loop_stop()


def listening(
    port: int, version: MQTTProtocolVersion, transport: Literal["tcp", "websockets"], told: queue.Queue[str]
) -> paho.Client:
    """A client that connects, and puts down what it is told then and at the end."""
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=version, transport=transport)
    client.ws_set_options("/mqtt")
    client.on_connect = client.on_disconnect = lambda *details: told.put(str(details[-2]))
    client.reconnect_delay_set(PATIENCE_S, PATIENCE_S)
    client.connect("localhost", port)
    client.loop_start()
    return client


def test_a_client_that_never_closes_holds_nothing_up(tmp_path: Path) -> None:
    with Broker(tmp_path, *LONG) as broker, socket.create_connection(("localhost", broker.ports["tcp"])) as client:
        client.sendall(connect("stubborn"))
        assert client.recv(100)[:1] == b"\x20"
        assert broker.stop() == 0
        assert client.recv(100) == mqtt.encode(mqtt.Disconnect(Reason.SERVER_SHUTTING_DOWN, None), 5)
        assert client.recv(100) == b""


async def test_an_exchange_ends_while_readyz_says_that_the_broker_drains(tmp_path: Path) -> None:
    with Broker(tmp_path, *LONG, "--server-reference", "other.example.org") as broker:
        client = MQTTClient.over_streams(*await asyncio.open_connection("localhost", broker.ports["tcp"]))
        await client.connect("alice")
        await client.send(publish("a", b"x", qos=2, packet_id=5))
        assert isinstance(await client.read(), mqtt.PubRec)
        broker.process.send_signal(signal.SIGTERM)
        broker.wait_for("stopping")
        assert readiness(broker) == (503, "draining\n")
        await client.send(mqtt.PubRel(5, 0))
        completed, goodbye = await client.read_to_the_end()
        assert isinstance(completed, mqtt.PubComp)
        where = mqtt.Properties(server_reference="other.example.org")
        assert goodbye == mqtt.Disconnect(Reason.USE_ANOTHER_SERVER, where)
        assert broker.wait() == 0


async def test_an_exchange_that_has_not_ended_goes_on_after_the_restart(tmp_path: Path) -> None:
    lasting = mqtt.Connect(5, False, properties=mqtt.Properties(session_expiry_interval=3600), client_id="alice")
    with Broker(tmp_path, "--drain-timeout-s", "1") as broker:
        client = MQTTClient.over_streams(*await asyncio.open_connection("localhost", broker.ports["tcp"]))
        await client.send(lasting)
        await client.is_accepted()
        await client.subscribe("a", qos=2)
        await client.send(publish("a", b"x", qos=1, packet_id=5))
        first = await next_message(client)
        assert broker.stop() == 0
        await client.read_to_the_end()
    with Broker(tmp_path) as broker:
        client = MQTTClient.over_streams(*await asyncio.open_connection("localhost", broker.ports["tcp"]))
        await client.send(lasting)
        await client.is_accepted()
        again = await next_message(client)
        assert (again.payload, again.packet_id, again.qos) == (b"x", first.packet_id, 1)
        await client.send(mqtt.PubAck(again.packet_id, 0))
        assert broker.stop() == 0
        await client.read_to_the_end()


async def next_message(client: MQTTClient) -> mqtt.Publish:
    while not isinstance(packet := await client.read(), mqtt.Publish):
        assert packet is not None
    return packet


def readiness(broker: Broker) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.ports['http']}/readyz", timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    limit = ("--limit", f"max_unsent_bytes={1 << 26}")
    with (
        Broker(tmp_path, *LONG, *limit) as broker,
        socket.create_connection(("localhost", broker.ports["tcp"])) as deaf,
    ):
        # What it does not read keeps the broker waiting.
        deaf.sendall(connect("deaf"))
        deaf.sendall(mqtt.encode(mqtt.Subscribe(1, None, [mqtt.Subscription("a", 0)]), 5))
        for _ in range(40):
            deaf.sendall(mqtt.encode(publish("a", bytes(1 << 20)), 5))
        broker.process.send_signal(signal.SIGTERM)
        broker.wait_for("stopping")
        assert broker.stop() == -signal.SIGTERM


@pytest.mark.parametrize("scheme", ["tcp", "tls", "quic"])
def test_a_subscriber_comes_back_by_itself_after_a_restart(tmp_path: Path, scheme: str) -> None:
    with Broker(tmp_path, *LONG) as first:
        url = first.url(scheme)
        port = str(first.ports[scheme])
        subscriber = Running(*MOQ, "sub", url, "a", "-c", "1", "--data-dir", str(tmp_path))
        with subscriber:
            subscriber.wait_for("subscribed to")
            assert first.stop() == 0
            ports = [*FREE_PORTS, f"--{scheme}-port", port]
            with Running(*MOQ, "broker", *ports, "--data-dir", str(tmp_path)) as second:
                second.wait_for('"ready"')
                publisher = ("pub", url, "a", "-m", "here again", "--retain", "--data-dir", str(tmp_path))
                with Running(*MOQ, *publisher) as done:
                    assert done.wait() == 0
                subscriber.wait_for("here again")
                assert subscriber.wait() == 0
