"""qlog files of real QUIC connections: complete when they have their name, and bounded."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import moq
from moq.config import BrokerConfig
from moq.errors import ConfigError
from moq.server import Server
from transports.quic import qlog

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def config(data_dir: Path, tmp_path: Path) -> BrokerConfig:
    ports = dict.fromkeys(("tcp_port", "tls_port", "quic_port", "http_port", "websocket_port", "wss_port"), 0)
    return BrokerConfig(**ports, data_dir=data_dir, qlog=tmp_path / "qlog", sys_interval_s=0)  # type: ignore[arg-type]


async def talk(config: BrokerConfig, clients: int = 1, **options: Any) -> None:
    async with Server(config) as server:
        url = f"quic://localhost:{server.ports['quic']}"
        opened = [moq.connect(url, f"c{number}", data_dir=config.data_dir, **options) for number in range(clients)]
        for client in opened:
            await client.__aenter__()
        inbox = opened[0].subscribe("a")
        await inbox.ready()
        for number in range(10):
            await opened[0].publish("a", f"{number}", qos=1)
            assert (await anext(inbox)).text == str(number)
        for client in opened:
            await client.close()
    await asyncio.sleep(0)  # engines are let go of at the end of the turn


def events(path: Path) -> list[dict[str, Any]]:
    (trace,) = json.loads(path.read_text())["traces"]
    assert trace["common_fields"]["ODCID"] in path.name
    return list(trace["events"])


async def test_both_sides_of_a_connection_have_a_file(config: BrokerConfig, tmp_path: Path) -> None:
    await talk(config, qlog=tmp_path / "qlog")
    client, server = sorted((tmp_path / "qlog").iterdir())
    assert (client.name.partition("-")[0], server.name.partition("-")[0]) == ("client", "server")
    assert client.name.partition("-")[2] == server.name.partition("-")[2]
    for path in (client, server):
        frames = {frame["frame_type"] for event in events(path) for frame in event["data"].get("frames", ())}
        assert {"crypto", "stream", "ack"} <= frames
        assert "recovery:metrics_updated" in {event["name"] for event in events(path)}


async def test_past_the_bounds_nothing_is_logged_and_the_log_says_so(
    config: BrokerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(qlog, "MAX_EVENTS", 20)
    monkeypatch.setattr(qlog, "MAX_CONNECTIONS", 1)
    await talk(config, clients=3)
    (path,) = (tmp_path / "qlog").iterdir()
    assert len(events(path)) == 20
    assert "has 20 events" in caplog.text
    assert "1 connections are logged" in caplog.text


async def test_what_a_killed_process_left_is_removed_and_nothing_else(config: BrokerConfig, tmp_path: Path) -> None:
    directory = tmp_path / "qlog"
    directory.mkdir()
    (directory / ".server-0a.qlog.tmp").write_text("{")
    (directory / "server-0b.qlog").write_text("{}")
    await talk(config)
    names = sorted(path.name for path in directory.iterdir())
    assert len(names) == 2
    assert ".server-0a.qlog.tmp" not in names
    assert "server-0b.qlog" in names


async def test_a_directory_that_cannot_be_written_is_refused_at_the_start(config: BrokerConfig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"qlog is '.*file', where nothing can be written"):
        await talk(replace(config, qlog=tmp_path / "file"))


@pytest.mark.skipif(importlib.util.find_spec("qh3") is None, reason="pip install 'moq-broker[fast]' brings qh3")
async def test_the_engine_that_writes_none_says_so(config: BrokerConfig) -> None:
    with pytest.raises(ConfigError, match="the engine qh3 writes none"):
        await talk(replace(config, quic_engine="qh3"))
