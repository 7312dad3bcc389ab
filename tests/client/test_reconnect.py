"""Lost connections, restarted brokers, resumed sessions: what a program notices of them, which is little."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import moq
from moq.reasons import Reason

if TYPE_CHECKING:
    from moq.client.connection import Connection
    from tests.client.conftest import Brokers


@dataclass
class Reading:
    celsius: float


def connection(client: moq.Client) -> Connection:
    assert client._connection is not None
    return client._connection


async def cut(client: moq.Client) -> None:
    """Break the link as a network does, and wait until the client has noticed."""
    broken = connection(client)
    broken.core.link.abort()
    await broken.lost


async def back(client: moq.Client) -> None:
    """Wait until the client has a connection again: a question is answered only over one."""
    await client.subscribers("any")
    assert client.is_connected


async def test_a_lost_connection_is_made_again_with_its_session(brokers: Brokers, scheme: str) -> None:
    client, other = await brokers.connect(scheme, "me"), await brokers.connect(scheme)
    async with client.subscribe("a/#", qos=1) as messages:
        await cut(client)
        await other.publish("a/b", "while away", qos=1)
        assert (await anext(messages)).text == "while away"
    assert client.session_present
    assert client.client_id == "me"


async def test_nothing_is_lost_or_doubled_while_connections_break(brokers: Brokers, scheme: str) -> None:
    subscriber, publisher = await brokers.connect(scheme), await brokers.connect(scheme)
    async with subscriber.subscribe("n", qos=2) as messages, asyncio.TaskGroup() as group:

        async def publish() -> None:
            for number in range(60):
                await publisher.publish("n", str(number), qos=2)

        group.create_task(publish())
        received: list[int] = []
        while len(received) < 60:
            received.append(int((await anext(messages)).text))
            if len(received) in (10, 30):
                await cut(publisher)
            if len(received) in (20, 40):
                await cut(subscriber)
    assert received == list(range(60))


async def test_a_broker_that_forgot_everything_is_told_again(brokers: Brokers, scheme: str) -> None:
    client = await brokers.connect(scheme)
    async with client.subscribe("a/+", qos=1) as messages:
        await client.publish("a/b", "before", qos=1)
        assert (await anext(messages)).text == "before"
        await brokers.stop()
        publishing = asyncio.ensure_future(client.publish("a/b", "meanwhile", qos=1))
        await brokers.start()
        await publishing
        await client.publish("a/b", "after", qos=1)
        while (await anext(messages)).text != "after":
            pass
    assert not client.session_present


async def test_a_broker_that_forgot_a_type_is_told_it_when_it_asks(brokers: Brokers, scheme: str) -> None:
    publisher, other = await brokers.connect(scheme), await brokers.connect(scheme)
    await publisher.publish("a", Reading(1.0), qos=1)
    await brokers.stop()
    await brokers.start()
    await publisher.publish("a", Reading(2.0), qos=1)
    assert [type_.topic for type_ in await other.describe("a")] == ["a"]


async def test_a_connection_that_does_not_last_is_made_again_ever_more_slowly(brokers: Brokers) -> None:
    client = await brokers.connect("tcp", reconnect=moq.Reconnect(first_s=0.001, longest_s=60))
    for attempts in (1, 2, 3):
        await cut(client)
        await back(client)
        assert client._attempts == attempts


async def test_without_reconnect_everything_ends_with_the_connection(brokers: Brokers, scheme: str) -> None:
    client = await brokers.connect(scheme, reconnect=False)
    messages = await client.subscribe("a").ready()
    waiting = asyncio.ensure_future(anext(messages))
    asking = asyncio.ensure_future(client.request("a", timeout=30))
    await asyncio.sleep(0)
    await cut(client)
    with pytest.raises(moq.ConnectionLost):
        await waiting
    with pytest.raises((moq.ConnectionLost, moq.RequestRefused)):
        await asking
    with pytest.raises(moq.ConnectionLost):
        await client.subscribers("a")


async def test_a_setting_that_stops_working_ends_the_client(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await brokers.connect("tcp")

    async def refuse(_: object) -> None:
        raise moq.ConfigError("the certificate authority is gone")

    monkeypatch.setattr(client, "_dial", refuse)
    waiting = asyncio.ensure_future(client.publish("a", "x", qos=1))
    await cut(client)
    with pytest.raises(moq.ConnectionLost, match="cannot be connected to again: the certificate authority is gone"):
        await client.subscribers("a")
    await asyncio.wait([waiting])


async def test_a_client_closed_while_it_reconnects_just_ends(brokers: Brokers) -> None:
    async with brokers.client("tcp") as client:
        await brokers.stop()
        waiting = asyncio.ensure_future(client.publish("a", "x", qos=1))
        await connection(client).lost
    with pytest.raises(moq.ConnectionLost, match="the client was closed"):
        await waiting


async def test_a_shutdown_is_survived_and_a_takeover_while_away_is_not(brokers: Brokers) -> None:
    client = await brokers.connect("tcp", "same")
    await brokers.stop()
    await brokers.start()
    await back(client)
    await brokers.connect("tcp", "same", reconnect=False)
    await connection(client).lost
    with pytest.raises(moq.ConnectionLost) as lost:
        await client.publish("a", "x", qos=1)
    assert lost.value.reason == Reason.SESSION_TAKEN_OVER


async def test_a_program_started_again_gets_what_came_while_it_was_away(brokers: Brokers, scheme: str) -> None:
    other = await brokers.connect(scheme)
    async with brokers.client(scheme, "worker", persistent=True) as first:
        held = await first.subscribe("jobs/#", qos=1).ready()
    await held.aclose()
    await other.publish("jobs/1", "dig", qos=1)
    again = await brokers.connect(scheme, "worker", persistent=True, resume=True)
    assert again.session_present
    async with again.subscribe("other", qos=1), again.subscribe("jobs/#", qos=1) as jobs:
        assert (await anext(jobs)).text == "dig"


async def test_a_silent_broker_is_noticed(brokers: Brokers) -> None:
    client = await brokers.connect("tcp", keep_alive_s=1)
    broken = connection(client)
    broken.core._last_active -= 10  # as if nothing had been heard for ten seconds
    client._watcher.cancel()  # type: ignore[union-attr]
    with contextlib.suppress(asyncio.CancelledError):
        await client._watcher  # type: ignore[misc]
    error = await broken.until_lost()
    assert "silent for 2 s" in str(error)


def test_delays_grow_up_to_a_bound_and_differ() -> None:
    reconnect = moq.Reconnect(first_s=0.1, longest_s=2.0)
    for attempt, longest in ((0, 0.1), (3, 0.8), (10, 2.0), (10_000, 2.0)):
        delays = {reconnect.delay_s(attempt) for _ in range(50)}
        assert all(longest / 2 <= delay <= longest for delay in delays)
        assert len(delays) > 1


@pytest.mark.parametrize(("first_s", "longest_s"), [(0.0, 1.0), (2.0, 1.0)])
def test_delays_that_cannot_be_are_refused(first_s: float, longest_s: float) -> None:
    with pytest.raises(moq.ConfigError, match="first_s"):
        moq.Reconnect(first_s=first_s, longest_s=longest_s)
