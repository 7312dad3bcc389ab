"""Users, access list and certificates read again by a server whose connections stay."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import ssl
from typing import TYPE_CHECKING

import pytest

import certs
import moq
from moq.errors import ConnectFailed, ConnectionLost
from moq.reasons import Reason
from moq.security.users import new_verifier, save_users
from moq.server import Server
from moq.wire import mqtt
from tests.server.mqtt_client import MQTTClient, publish
from tests.server.test_http import get
from tests.server.wire_client import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from moq.config import BrokerConfig

OWN = '[[rule]]\nusers = ["*"]\nallow = ["all"]\ntopics = ["%u/#"]\n'
SHARED = '[[rule]]\nusers = ["*"]\nallow = ["read"]\ntopics = ["news/#"]\n'
ALL = '[[rule]]\nallow = ["all"]\ntopics = ["#"]\n'


class Files:
    """The three kinds of files of a broker."""

    def __init__(self, directory: Path) -> None:
        self.data_dir = directory / "data"
        self.users = directory / "users.toml"
        self.access = directory / "access.toml"
        self.set_users("alice", "bob")
        self.access.write_text(OWN)

    def set_users(self, *names: str) -> None:
        save_users(self.users, {name: new_verifier(name) for name in names})

    def new_certificates(self, directory: Path) -> None:
        """Those of another authority: a client that trusts one does not trust the other."""
        made = certs.ensure(directory)
        shutil.copytree(made.directory, certs.paths(self.data_dir).directory, dirs_exist_ok=True)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture(params=["aioquic", "qh3"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def configured(config: BrokerConfig, files: Files) -> BrokerConfig:
    return dataclasses.replace(
        config, data_dir=files.data_dir, users_file=files.users, access_file=files.access, drain_timeout_s=PATIENCE_S
    )


@pytest.fixture
async def server(config: BrokerConfig, files: Files) -> AsyncIterator[Server]:
    async with Server(configured(config, files)) as running:
        yield running


def login(server: Server, user: str, scheme: str = "tcp", **options: object) -> moq.Client:
    url = f"{scheme}://localhost:{server.ports[scheme]}"
    return moq.connect(url, user_name=user, password=user, reconnect=False, **options)  # type: ignore[arg-type]


async def mqtt_login(server: Server, user: str) -> MQTTClient:
    client = MQTTClient.over_streams(*await asyncio.open_connection("localhost", server.ports["tcp"]))
    connect = mqtt.Connect(5, client_id=f"mqtt-{user}", user_name=user, password=user.encode())
    await client.send_bytes(mqtt.encode(connect, 5))
    await client.is_accepted()
    return client


async def test_a_user_that_was_added_can_log_in_and_others_stay(server: Server, files: Files) -> None:
    async with login(server, "alice") as alice, asyncio.timeout(PATIENCE_S):
        with pytest.raises(ConnectFailed):
            await login(server, "carol").__aenter__()
        files.set_users("alice", "bob", "carol")
        assert server.reload() == []
        async with login(server, "carol") as carol:
            await carol.publish("carol/x", b"here", qos=1)
        await alice.publish("alice/x", b"still here", qos=1)


async def test_the_connections_of_a_user_that_was_removed_are_closed(server: Server, files: Files) -> None:
    async with login(server, "alice") as alice, asyncio.timeout(PATIENCE_S):
        bob, mqtt_bob = await login(server, "bob").__aenter__(), await mqtt_login(server, "bob")
        subscription = await bob.subscribe("bob/#").ready()
        files.set_users("alice")
        assert server.reload() == []
        with pytest.raises(ConnectionLost) as lost:
            await anext(subscription)
        assert lost.value.reason == Reason.NOT_AUTHORIZED
        goodbye = (await mqtt_bob.read_to_the_end())[-1]
        assert getattr(goodbye, "reason", None) == Reason.NOT_AUTHORIZED
        with pytest.raises(ConnectFailed):
            await login(server, "bob").__aenter__()
        await alice.publish("alice/x", b"still here", qos=1)


async def test_rules_that_changed_hold_for_what_comes_next(server: Server, files: Files) -> None:
    async with login(server, "alice") as alice, login(server, "bob") as bob, asyncio.timeout(PATIENCE_S):
        everything = await bob.subscribe("#", qos=1).ready()
        await alice.publish("alice/x", b"private", qos=1)
        files.access.write_text(ALL)
        assert server.reload() == []
        await alice.publish("alice/x", b"public", qos=1)
        assert (await anext(everything)).payload == b"public"
        files.access.write_text(SHARED + OWN)
        assert server.reload() == []
        await alice.publish("alice/x", b"private again", qos=1)
        with pytest.raises(moq.RequestRefused):
            await alice.publish("news/today", b"not for her to write", qos=1)
        await bob.publish("bob/x", b"his own", qos=1)
        assert (await anext(everything)).payload == b"his own"


async def test_an_mqtt_client_is_judged_by_the_new_rules_too(server: Server, files: Files) -> None:
    alice, bob = await mqtt_login(server, "alice"), await mqtt_login(server, "bob")
    await bob.subscribe("#", qos=0)
    await alice.send(publish("alice/x", b"private", qos=1, packet_id=1))
    await alice.read()
    files.access.write_text(ALL)
    assert server.reload() == []
    await alice.send(publish("alice/x", b"public", qos=1, packet_id=2))
    await alice.read()
    assert await bob.payload() == b"public"
    for client in (alice, bob):
        client._close()


@pytest.mark.parametrize("broken", ["users", "access", "certificate", "key"])
async def test_one_file_that_cannot_be_used_leaves_all_as_it_was(
    server: Server, files: Files, tmp_path: Path, broken: str
) -> None:
    old_ca = tmp_path / "old.pem"
    old_ca.write_bytes(certs.paths(files.data_dir).ca.read_bytes())
    files.new_certificates(tmp_path / "others")
    files.set_users("carol")
    files.access.write_text(ALL)
    where = certs.paths(files.data_dir)
    path = {"users": files.users, "access": files.access, "certificate": where.server, "key": where.server_key}[broken]
    path.write_text("this is not what it should be")
    complaints = server.reload()
    assert complaints
    assert all(str(path) in complaint for complaint in complaints)
    assert (server.reloader.done, server.reloader.failed) == (0, 1)
    async with asyncio.timeout(PATIENCE_S), login(server, "alice", "tls", ca=old_ca) as alice:
        with pytest.raises(moq.RequestRefused):
            await alice.publish("bob/x", b"as before", qos=1)
        with pytest.raises(ConnectFailed):
            await login(server, "carol", "tls", ca=old_ca).__aenter__()


async def test_new_clients_see_the_new_certificate_on_every_port_and_old_ones_stay(
    config: BrokerConfig, files: Files, engine: str, tmp_path: Path
) -> None:
    async with (
        Server(dataclasses.replace(configured(config, files), quic_engine=engine)) as server,
        asyncio.timeout(PATIENCE_S),
    ):
        old = [await login(server, "alice", scheme, data_dir=files.data_dir).__aenter__() for scheme in ("tls", "quic")]
        files.new_certificates(tmp_path / "others")
        assert server.reload() == []
        new_ca = certs.paths(tmp_path / "others").ca
        for scheme in ("tls", "quic"):
            async with login(server, "alice", scheme, ca=new_ca) as alice:
                await alice.publish("alice/x", b"new", qos=1)
        context = ssl.create_default_context(cafile=str(new_ca))
        _, writer = await asyncio.open_connection("localhost", server.ports["wss"], ssl=context)
        writer.close()
        for client in old:
            await client.publish("alice/x", b"old", qos=1)
            await client.__aexit__(None, None, None)


async def test_reloads_are_counted_by_how_they_ended(server: Server, files: Files) -> None:
    assert server.reload() == []
    files.users.unlink()
    assert len(server.reload()) == 1
    _, body = await get(server, "/metrics")
    assert 'moq_reloads_total{outcome="done"} 1.0' in body
    assert 'moq_reloads_total{outcome="failed"} 1.0' in body
