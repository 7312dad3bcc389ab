"""URLs: what each part means, and what is said about one that cannot be used."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import transports
from moq.errors import ConfigError
from tests.transports.wires import Recorder
from transports import Target, parse_url

if TYPE_CHECKING:
    from moq.broker.link import Link


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("tcp://localhost", Target("tcp", "localhost", 1883)),
        ("tls://localhost", Target("tls", "localhost", 8883)),
        ("quic://localhost/", Target("quic", "localhost", 14567)),
        ("quic://broker.example:4433", Target("quic", "broker.example", 4433)),
        ("tcp://[::1]:99", Target("tcp", "::1", 99)),
        ("auto://localhost", Target("auto", "localhost", None)),
    ],
)
def test_a_url_names_scheme_host_and_port(url: str, target: Target) -> None:
    assert parse_url(url) == target
    assert parse_url(str(target)) == target


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("http://localhost", "must begin with one of tcp://, tls://, quic://, auto://"),
        ("localhost:1883", "must begin with one of"),
        ("tcp://", "names no host"),
        ("tcp://localhost:0", "a port that is not a number from 1 to 65535"),
        ("tcp://localhost:70000", "a port that is not a number from 1 to 65535"),
        ("tcp://localhost:mqtt", "a port that is not a number from 1 to 65535"),
        ("tcp://localhost/topic", "more than a scheme, a host and a port"),
        ("tcp://me@localhost", "more than a scheme, a host and a port"),
    ],
)
def test_a_url_that_cannot_be_used_is_named_with_the_rule(url: str, rule: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_url(url)
    assert repr(url) in str(refused.value)
    assert rule in str(refused.value)


def test_auto_stands_for_quic_and_tcp() -> None:
    assert parse_url("auto://there").candidates() == (Target("quic", "there", 14567), Target("tcp", "there", 1883))
    assert parse_url("auto://there:7").candidates() == (Target("quic", "there", 7), Target("tcp", "there", 7))
    assert parse_url("tls://there").candidates() == (Target("tls", "there", 8883),)


async def test_a_link_is_served_and_opened_by_scheme() -> None:
    accepted: asyncio.Queue[Recorder] = asyncio.Queue()

    def accept(link: Link) -> Recorder:
        recorder = Recorder(link)
        accepted.put_nowait(recorder)
        return recorder

    listener = await transports.serve("tcp", "127.0.0.1", 0, accept)
    link = await transports.connect(Target("tcp", "127.0.0.1", listener.port), Recorder)
    link.control.write(b"hello")
    server = await accepted.get()
    assert await server.received(5) == b"hello"
    link.close(0)
    await server.closed_once()
    await listener.close()


async def test_serving_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"tls on 127\.0\.0\.1 port 0 needs a certificate and a private key"):
        await transports.serve("tls", "127.0.0.1", 0, Recorder)
    with pytest.raises(ConfigError, match="scheme 'auto' cannot be served; known are tcp, tls, quic"):
        await transports.serve("auto", "127.0.0.1", 0, Recorder)
    with pytest.raises(ConfigError, match="'auto://there' stands for several targets"):
        await transports.connect(parse_url("auto://there"), Recorder)
