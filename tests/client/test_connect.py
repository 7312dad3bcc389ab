"""From a URL to a connection: addresses, trust, the race of `auto`, and what is said when nobody answers."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import moq
from moq.client.connect import find_authority, parse_targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.client.conftest import Brokers

CA = Path("ca.pem")


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port that nobody listens on and nobody else can take meanwhile."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@pytest.fixture
def mute_port() -> Iterator[int]:
    """A port where connections are accepted and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


# --- addresses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "authority", "expected"),
    [
        ("tcp://h", None, ["tcp://h:1883"]),
        ("tls://h:99", None, ["tls://h:99"]),
        ("auto://localhost", None, ["quic://localhost:14567", "tcp://localhost:1883"]),
        ("auto://localhost", CA, ["quic://localhost:14567", "tls://localhost:8883"]),
        ("auto://example.org", None, ["quic://example.org:14567", "tls://example.org:8883"]),
        ("auto://localhost?quic=1&tcp=2&tls=3", None, ["quic://localhost:1", "tcp://localhost:2"]),
        ("auto://localhost?quic=1&tcp=2&tls=3", CA, ["quic://localhost:1", "tls://localhost:3"]),
    ],
)
def test_a_url_names_the_addresses_to_try(url: str, authority: Path | None, expected: list[str]) -> None:
    assert [str(target) for target in parse_targets(url, authority)] == expected


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("http://h", "must begin with one of"),
        ("auto://h:99", "auto:// takes one each"),
        ("auto://h?quic=0", "quic=0"),
        ("auto://h?udp=1", "udp=1"),
        ("auto://h?quic=x", "quic=x"),
        ("tcp://", "names no host"),
    ],
)
def test_a_url_that_names_none_is_refused(url: str, complaint: str) -> None:
    with pytest.raises(moq.ConfigError, match=complaint):
        moq.connect(url)


def test_settings_that_cannot_be_used_are_refused_before_connecting() -> None:
    with pytest.raises(moq.ConfigError, match="quic_engine is 'none'"):
        moq.connect("quic://h", quic_engine="none")
    with pytest.raises(moq.ConfigError, match="keep_alive_s is 0"):
        moq.connect("quic://h", keep_alive_s=0)


# --- trust ------------------------------------------------------------------------------------------------


def test_the_authority_given_goes_before_the_development_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MOQ_DATA_DIR", raising=False)
    assert find_authority(None, None) is None
    for directory in (".moq", "other"):
        (tmp_path / directory / "certs").mkdir(parents=True)
        (tmp_path / directory / "certs" / "ca.pem").touch()
    assert find_authority(None, None) == Path(".moq/certs/ca.pem")
    monkeypatch.setenv("MOQ_DATA_DIR", "other")
    assert find_authority(None, None) == Path("other/certs/ca.pem")
    assert find_authority(None, "nowhere") is None
    given = tmp_path / "given.pem"
    given.touch()
    assert find_authority(given, "other") == given
    with pytest.raises(moq.ConfigError, match="there is no such file"):
        find_authority("missing.pem", None)


@pytest.mark.parametrize("scheme", ["tls", "quic"])
async def test_a_broker_that_is_not_trusted_is_not_talked_to(brokers: Brokers, tmp_path: Path, scheme: str) -> None:
    with pytest.raises(moq.ConnectFailed, match="certificate"):
        await moq.connect(brokers.url(scheme), data_dir=tmp_path).__aenter__()


# --- nobody answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["tcp", "tls"])
async def test_the_error_says_where_nobody_answers_and_what_to_do(dead_port: int, scheme: str, data_dir: Path) -> None:
    url = f"{scheme}://localhost:{dead_port}"
    with pytest.raises(moq.ConnectFailed, match=f"no broker answers at {url} \\(is `scripts/broker` running\\?\\)"):
        await moq.connect(url, data_dir=data_dir).__aenter__()


async def test_a_port_that_says_nothing_is_given_up(mute_port: int) -> None:
    client = moq.connect(f"tcp://127.0.0.1:{mute_port}", connect_timeout_s=0.1)
    with pytest.raises(moq.ConnectFailed, match=r"did not answer within 0\.1 s"):
        await client.__aenter__()


async def test_a_broker_that_refuses_says_why(brokers: Brokers) -> None:
    bad_will = moq.Will("no/#/name", "x")
    with pytest.raises(moq.ConnectFailed, match="refused the connection: topic name invalid"):
        await brokers.client("tcp", last_will=bad_will).__aenter__()


# --- auto -------------------------------------------------------------------------------------------------


def auto(brokers: Brokers, data_dir: Path, **ports: int) -> moq.Client:
    named = {**{name: brokers.ports[name] for name in ("quic", "tcp", "tls")}, **ports}
    query = "&".join(f"{name}={port}" for name, port in named.items())
    return moq.connect(f"auto://localhost?{query}", data_dir=data_dir)


async def test_auto_prefers_quic_where_it_works(
    brokers: Brokers, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys.modules[find_authority.__module__], "QUIC_PREFERENCE_S", 30
    )  # a loaded machine must not decide
    async with auto(brokers, data_dir) as client:
        assert client.transport == "quic"
        await client.publish("a", "x", qos=1)


async def test_auto_works_where_udp_is_blocked(brokers: Brokers, data_dir: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as blocked:
        blocked.bind(("127.0.0.1", 0))  # takes every datagram, answers none
        async with auto(brokers, data_dir, quic=blocked.getsockname()[1]) as client:
            assert client.transport == "tls"
            await client.publish("a", "x", qos=1)


async def test_auto_works_where_only_quic_does(brokers: Brokers, data_dir: Path, dead_port: int) -> None:
    async with auto(brokers, data_dir, tls=dead_port) as client:
        assert client.transport == "quic"


async def test_auto_leaves_no_second_connection_behind(brokers: Brokers, data_dir: Path) -> None:
    before = asyncio.all_tasks()
    async with auto(brokers, data_dir):
        pass
    assert asyncio.all_tasks() == before


async def test_cancelling_a_connection_leaves_nothing_behind(
    brokers: Brokers, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[find_authority.__module__], "QUIC_PREFERENCE_S", 30)
    before = asyncio.all_tasks()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as blocked:
        blocked.bind(("127.0.0.1", 0))
        client = auto(brokers, data_dir, quic=blocked.getsockname()[1])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):  # TLS stands by then, or does not; either way nothing may stay
                await client.__aenter__()
    assert asyncio.all_tasks() == before


async def test_auto_names_every_address_that_failed(data_dir: Path, dead_port: int) -> None:
    url = f"auto://localhost?quic={dead_port}&tls={dead_port}"
    client = moq.connect(url, data_dir=data_dir, connect_timeout_s=30)
    with pytest.raises(moq.ConnectFailed) as failed:
        await client.__aenter__()
    assert f"quic://localhost:{dead_port}" in str(failed.value)
    assert f"tls://localhost:{dead_port}" in str(failed.value)
