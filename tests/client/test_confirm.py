"""Confirmed publishing with the library: real broker, real sockets, every transport."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import moq
from moq.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.client.conftest import Brokers


async def replying(client: moq.Client, topic: str, ready: asyncio.Event) -> None:
    """Answer every message on a topic with its payload and the client's own name."""
    async with client.subscribe(topic, qos=3, replies=True) as messages:
        ready.set()
        async for message in messages:
            message.reply(f"{client.client_id} has {message.text}")


class Subscribers:
    """Clients that reply, each in a task of its own."""

    def __init__(self, brokers: Brokers, scheme: str) -> None:
        self._brokers = brokers
        self._scheme = scheme
        self._tasks: list[asyncio.Task[None]] = []

    async def add(self, *names: str) -> None:
        for name in names:
            client = await self._brokers.connect(self._scheme, name)
            ready = asyncio.Event()
            self._tasks.append(asyncio.create_task(replying(client, "t", ready)))
            await ready.wait()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def subscribers(brokers: Brokers, scheme: str) -> AsyncIterator[Subscribers]:
    subscribers = Subscribers(brokers, scheme)
    yield subscribers
    await subscribers.stop()


async def test_a_publisher_learns_who_has_its_message_and_what_they_say(
    brokers: Brokers, scheme: str, subscribers: Subscribers
) -> None:
    await subscribers.add("one", "two", "three")
    publisher = await brokers.connect(scheme)
    confirmations = await publisher.publish("t", "news", confirm=3, timeout=10)
    assert sorted(confirmations.client_ids) == ["one", "three", "two"]
    assert {item.client_id: item.reply for item in confirmations} == {
        name: f"{name} has news".encode() for name in ("one", "two", "three")
    }
    assert confirmations.reason == Reason.SUCCESS
    assert 0 <= confirmations[0].after_s <= confirmations[-1].after_s < 10


async def test_the_first_confirmation_is_awaited_when_the_program_wants_it(
    brokers: Brokers, scheme: str, subscribers: Subscribers
) -> None:
    await subscribers.add("one")
    publisher = await brokers.connect(scheme)
    pending = await publisher.publish("t", "news", confirm=0)
    assert isinstance(pending, moq.FirstConfirmation)
    assert (await pending).client_ids == ["one"]
    assert pending.is_known
    assert (await pending).client_ids == ["one"], "it may be awaited again"


async def test_only_designated_subscribers_count(brokers: Brokers, scheme: str, subscribers: Subscribers) -> None:
    await subscribers.add("one", "two")
    publisher = await brokers.connect(scheme)
    assert await publisher.subscribers("t") == ["one", "two"]
    confirmations = await publisher.publish("t", "x", confirm=1, subscribers=["two"])
    assert confirmations.client_ids == ["two"]


async def test_too_few_subscribers_are_told_at_once(brokers: Brokers, scheme: str, subscribers: Subscribers) -> None:
    await subscribers.add("one")
    publisher = await brokers.connect(scheme)
    with pytest.raises(moq.NotConfirmed, match="0 of 2 confirmed, missing 'one', 'nobody'") as caught:
        await publisher.publish("t", "x", confirm=2, subscribers=["one", "nobody"], timeout=60)
    assert caught.value.reason == Reason.TOO_FEW_SUBSCRIBERS
    pending = await publisher.publish("nowhere", "x", confirm=0)
    with pytest.raises(moq.NotConfirmed, match="too few subscribers"):
        await pending


async def test_at_the_deadline_the_publisher_gets_what_there_is(
    brokers: Brokers, scheme: str, subscribers: Subscribers
) -> None:
    await subscribers.add("quick")
    silent, publisher = await brokers.connect(scheme, "silent"), await brokers.connect(scheme)
    async with silent.subscribe("t", qos=3, replies=True) as messages:
        with pytest.raises(moq.NotConfirmed) as caught:
            await publisher.publish("t", "x", confirm=2, timeout=0.3, subscribers=["quick", "silent"])
        assert caught.value.missing == ["silent"]
        assert caught.value.confirmations.client_ids == ["quick"]
        assert caught.value.reason == Reason.CONFIRMATION_TIMED_OUT
        assert (await anext(messages)).text == "x"


async def test_every_qos_but_0_confirms(brokers: Brokers, scheme: str) -> None:
    publisher = await brokers.connect(scheme)
    clients = [await brokers.connect(scheme, f"qos{qos}") for qos in range(4)]
    subscriptions = [client.subscribe("t", qos=qos) for qos, client in enumerate(clients)]
    for subscription in subscriptions:
        await subscription.ready()
    confirmations = await publisher.publish("t", "x", confirm=3, timeout=10)
    assert sorted(confirmations.client_ids) == ["qos1", "qos2", "qos3"]
    assert [(await anext(subscription)).qos for subscription in subscriptions] == [0, 1, 2, 3]


async def test_one_answer_comes_from_a_group(brokers: Brokers, scheme: str) -> None:
    publisher = await brokers.connect(scheme)
    members = [await brokers.connect(scheme, name) for name in ("left", "right")]
    subscriptions = [member.subscribe("t", qos=2, group="g") for member in members]
    for subscription in subscriptions:
        await subscription.ready()
    with pytest.raises(moq.NotConfirmed):
        await publisher.publish("t", "x", confirm=2)
    confirmations = await publisher.publish("t", "x", confirm=1)
    assert len(confirmations) == 1
    assert confirmations.client_ids[0] in ("left", "right")


async def test_many_messages_wait_side_by_side(brokers: Brokers, scheme: str, subscribers: Subscribers) -> None:
    await subscribers.add("one", "two")
    publisher = await brokers.connect(scheme, window=5)
    waiting = [asyncio.create_task(publisher.publish("t", str(number), confirm=2)) for number in range(50)]
    for number, confirmations in enumerate(await asyncio.gather(*waiting)):
        assert {item.reply for item in confirmations} == {f"one has {number}".encode(), f"two has {number}".encode()}
    first = [await publisher.publish("t", str(number), confirm=0) for number in range(20)]
    assert [len(await pending) for pending in first] == [1] * 20


async def test_a_publisher_whose_connection_breaks_gets_its_confirmations_all_the_same(
    brokers: Brokers, scheme: str
) -> None:
    subscriber = await brokers.connect(scheme, "one")
    publisher = await brokers.connect(scheme, "publisher", expiry_s=60)
    async with subscriber.subscribe("t", qos=3, replies=True) as messages:
        publishing = asyncio.create_task(publisher.publish("t", "x", confirm=1))
        message = await anext(messages)
        assert publisher._connection is not None
        publisher._connection.core.link.abort()
        message.reply("here")
        confirmations = await publishing
        assert [(item.client_id, item.reply) for item in confirmations] == [("one", b"here")]
        second = asyncio.create_task(anext(messages))
        await publisher.publish("t", "next", confirm=0)
        assert (await second).text == "next", "the first was not delivered twice"


async def test_collecting_goes_on_after_a_restart_of_the_broker(brokers: Brokers, scheme: str) -> None:
    """With the SQLite store: one has answered before the restart, the other answers after it."""
    early = await brokers.connect(scheme, "early", persistent=True, expiry_s=600)
    late = await brokers.connect(scheme, "late", persistent=True, expiry_s=600)
    publisher = await brokers.connect(scheme, "publisher", persistent=True, expiry_s=600)
    async with (
        early.subscribe("t", qos=3, replies=True) as earlier,
        late.subscribe("t", qos=3, replies=True) as later,
    ):
        publishing = asyncio.create_task(publisher.publish("t", "x", confirm=2, timeout=60))
        (await anext(earlier)).reply("before")
        message = await anext(later)
        await early.register("later")  # granted once the store has it, and all that came before
        await brokers.stop()
        await brokers.start()
        message.reply("after")
        confirmations = await publishing
    assert [(item.client_id, item.reply) for item in confirmations] == [("early", b"before"), ("late", b"after")]


async def test_what_is_for_confirmed_messages_is_refused_for_others(brokers: Brokers, scheme: str) -> None:
    publisher = await brokers.connect(scheme)
    with pytest.raises(moq.LocalProtocolError, match="with confirm"):
        await publisher.publish("t", "x", subscribers=["a"])  # type: ignore[call-overload]
    with pytest.raises(moq.LocalProtocolError, match="confirm is -1"):
        await publisher.publish("t", "x", confirm=-1)
    await publisher.publish("t", "x")


async def test_a_reply_that_does_not_fit_is_refused(brokers: Brokers, scheme: str) -> None:
    subscriber, publisher = await brokers.connect(scheme), await brokers.connect(scheme)
    async with subscriber.subscribe("t", qos=3, replies=True) as messages:
        pending = await publisher.publish("t", "x", confirm=0)
        message = await anext(messages)
        with pytest.raises(moq.LocalProtocolError, match="256 bytes; at most 255"):
            message.reply(b"x" * 256)
        message.reply(b"x" * 255)
        assert (await pending)[0].reply == b"x" * 255
