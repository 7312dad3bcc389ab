"""The library against the real broker on real sockets, over every transport."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import moq
from moq.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.client.conftest import Brokers


@dataclass
class Reading:
    celsius: float
    sensor: str = "kitchen"


async def until(client: moq.Client, topic: str, is_so: Callable[[list[str]], bool]) -> None:
    """Wait until the broker's list of a topic's subscribers is as it should be."""
    while not is_so(await client.subscribers(topic)):
        pass


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_one_publishes_another_receives(brokers: Brokers, scheme: str, qos: int) -> None:
    subscriber, publisher = await brokers.connect(scheme), await brokers.connect(scheme)
    async with subscriber.subscribe("room/#", qos=qos) as messages:
        await publisher.publish("room/light", "on", qos=qos)
        message = await anext(messages)
    assert (message.topic, message.text, message.qos) == ("room/light", "on", qos)
    assert publisher.transport == scheme


@pytest.mark.parametrize("sender", ["tcp", "tls", "quic"])
async def test_transports_meet_on_the_same_topics(brokers: Brokers, scheme: str, sender: str) -> None:
    subscriber, publisher = await brokers.connect(scheme), await brokers.connect(sender)
    async with subscriber.subscribe("a") as messages:
        await publisher.publish("a", b"\x00\xff")
        assert (await anext(messages)).payload == b"\x00\xff"


async def test_order_holds_within_a_topic(brokers: Brokers, scheme: str) -> None:
    subscriber, publisher = await brokers.connect(scheme), await brokers.connect(scheme)
    async with subscriber.subscribe("n/+", qos=1, queue=5000) as messages:
        async with asyncio.TaskGroup() as publishing:
            for number in range(300):
                publishing.create_task(publisher.publish(f"n/{number % 3}", str(number), qos=1))
        received = [await anext(messages) for _ in range(300)]
    for remainder in range(3):
        numbers = [int(message.text) for message in received if message.topic == f"n/{remainder}"]
        assert numbers == list(range(remainder, 300, 3))


async def test_publishing_faster_than_the_network_waits_instead_of_buffering(brokers: Brokers, scheme: str) -> None:
    publisher, subscriber = await brokers.connect(scheme), await brokers.connect(scheme)
    payload = bytes(64 * 1024)
    async with subscriber.subscribe("bulk", qos=1) as messages:
        link = publisher._machine.link
        most = 0
        for _ in range(100):
            await publisher.publish("bulk", payload)
            most = max(most, link.unsent)
        await publisher.publish("bulk", "end", qos=1)
        while (await anext(messages)).payload != b"end":
            pass
    assert 0 < most < 3 * 1024 * 1024, "6.4 MB were published"


async def test_a_large_payload_arrives_whole(brokers: Brokers, scheme: str) -> None:
    client = await brokers.connect(scheme)
    payload = bytes(range(256)) * 8192
    async with client.subscribe("big", qos=1) as messages:
        await client.publish("big", payload, qos=1)
        assert (await anext(messages)).payload == payload


async def test_a_message_brings_what_its_publisher_said_of_it(brokers: Brokers, scheme: str) -> None:
    client = await brokers.connect(scheme)
    async with client.subscribe("a") as messages:
        await client.publish("a", "x", ttl=60, timestamp_ns=123, properties={"unit": "K"}, group_start=True)
        message = await anext(messages)
    assert (message.timestamp_ns, message.properties, message.group_start) == (123, {"unit": "K"}, True)


async def test_a_retained_message_is_there_for_whoever_comes_later(brokers: Brokers, scheme: str) -> None:
    client = await brokers.connect(scheme)
    await client.register("state", moq.RetentionMode.FIFO, expiry=60)
    for payload in ("1", "2"):
        await client.publish("state", payload, qos=1, retain=True)
    async with client.subscribe("state", qos=1) as messages:
        received = [await anext(messages) for _ in range(2)]
    assert [(message.text, message.retain) for message in received] == [("1", True), ("2", True)]


async def test_a_bare_loop_subscribes_and_leaving_it_unsubscribes(brokers: Brokers, scheme: str) -> None:
    client, other = await brokers.connect(scheme, "listener"), await brokers.connect(scheme)

    async def first() -> str:
        async for message in client.subscribe("a"):
            return message.text
        raise AssertionError("a subscription does not end by itself")

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(first())
        await until(other, "a", lambda ids: ids == ["listener"])
        await other.publish("a", "1")
        assert await reading == "1"
    del reading
    gc.collect()
    await until(other, "a", lambda ids: ids == [])


async def test_a_closed_subscription_ends_its_loop(brokers: Brokers) -> None:
    client = await brokers.connect("tcp")
    messages = await client.subscribe("a", qos=1).ready()
    await client.publish("a", "not looked at", qos=1)
    await client.subscribers("a")
    assert messages.queued == 1
    await messages.aclose()
    await messages.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(messages)


async def test_a_subscription_nobody_used_asks_for_nothing(brokers: Brokers) -> None:
    client = await brokers.connect("tcp")
    unused = client.subscribe("a")
    assert (unused.queued, unused.dropped) == (0, 0)
    await unused.aclose()
    assert await client.subscribers("a") == []


async def test_cancelling_a_wait_loses_no_message(brokers: Brokers, scheme: str) -> None:
    client = await brokers.connect(scheme)
    async with client.subscribe("a", qos=1) as messages:
        for _ in range(20):
            waiting = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await client.publish("a", "still here", qos=1)
        assert (await anext(messages)).text == "still here"


async def test_a_slow_consumer_does_not_block_another(brokers: Brokers, scheme: str) -> None:
    client, publisher = await brokers.connect(scheme), await brokers.connect(scheme)
    async with (
        client.subscribe("slow", qos=1, queue=2) as slow,
        client.subscribe("quick", qos=1) as quick,
        client.subscribe("news", queue=2) as news,
    ):
        for number in range(20):
            await publisher.publish("slow", str(number), qos=1)
            await publisher.publish("news", str(number))
        await publisher.publish("quick", "go", qos=1)
        assert (await anext(quick)).text == "go"
        assert [(await anext(slow)).text for _ in range(20)] == [str(number) for number in range(20)]
        await publisher.publish("news", "last")
        read = 1
        while (await anext(news)).text != "last":
            read += 1
        assert news.dropped + read == 21
        assert news.dropped


# --- requests ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_request_is_answered_to_whoever_asked(brokers: Brokers, scheme: str, qos: int) -> None:
    responder, requester = await brokers.connect(scheme), await brokers.connect(scheme)

    async def serve() -> None:
        async for request in requests:
            await request.respond(request.text.upper())

    async with responder.requests("shout/+") as requests, asyncio.TaskGroup() as group:
        serving = group.create_task(serve())
        replies = await asyncio.gather(*(requester.request(f"shout/{n}", f"hi {n}", qos=qos) for n in range(10)))
        serving.cancel()
    assert [reply.text for reply in replies] == [f"HI {n}" for n in range(10)]


async def test_a_request_nobody_can_answer_fails_at_once(brokers: Brokers, scheme: str) -> None:
    client = await brokers.connect(scheme)
    with pytest.raises(moq.RequestRefused) as refusal:
        await client.request("nobody", "hello?", timeout=50)
    assert refusal.value.reason == Reason.NO_RESPONDER


async def test_a_request_nobody_answers_fails_in_time(brokers: Brokers) -> None:
    client = await brokers.connect("tcp")
    async with client.requests("silence"):
        with pytest.raises(moq.RequestRefused) as refusal:
            await client.request("silence", timeout=0.05)
    assert refusal.value.reason == Reason.REQUEST_TIMED_OUT


async def test_an_answer_that_comes_too_late_is_refused(brokers: Brokers) -> None:
    client = await brokers.connect("tcp")
    async with client.requests("slow") as requests:
        asking = asyncio.ensure_future(client.request("slow", timeout=0.05))
        request = await anext(requests)
        with pytest.raises(moq.RequestRefused):
            await asking
        with pytest.raises(moq.RequestRefused) as refusal:
            await request.respond("at last", qos=1)
    assert refusal.value.reason == Reason.REQUEST_CLOSED


# --- types ------------------------------------------------------------------------------------------------


async def test_a_dataclass_announces_its_type_and_is_read_back(brokers: Brokers, scheme: str) -> None:
    publisher, subscriber = await brokers.connect(scheme), await brokers.connect(scheme)
    async with subscriber.subscribe("temp/#") as messages:
        for celsius in (20.5, 21.5):
            await publisher.publish("temp/kitchen", Reading(celsius))
        assert [(await anext(messages)).as_(Reading).celsius for _ in range(2)] == [20.5, 21.5]
    (type_,) = await subscriber.describe("temp/#")
    assert type_.topic == "temp/kitchen"
    assert isinstance(schema := type_.json_schema(), dict)
    assert schema["required"] == ["celsius"]
    assert await subscriber.describe("other/#") == []


async def test_a_type_in_any_language_can_be_announced(brokers: Brokers) -> None:
    client = await brokers.connect("tcp")
    idl = moq.TopicType("video", b"struct Frame {};", moq.TypeFormat.OMG_IDL, "video/mp4", 7)
    await client.announce("video", idl)
    assert await client.describe("video") == [idl]


# --- the connection ---------------------------------------------------------------------------------------


async def test_two_clients_of_one_identifier_do_not_fight_over_it(brokers: Brokers, scheme: str) -> None:
    first = await brokers.connect(scheme, "same")
    messages = await first.subscribe("a").ready()
    await brokers.connect(scheme, "same")
    with pytest.raises(moq.ConnectionLost) as lost:
        await anext(messages)
    assert lost.value.reason == Reason.SESSION_TAKEN_OVER
    with pytest.raises(moq.ConnectionLost):
        await first.publish("a", "x")


async def test_the_last_will_is_for_those_who_vanish(brokers: Brokers, scheme: str) -> None:
    watcher = await brokers.connect(scheme)
    wills: dict[str, Any] = {"initial_will": moq.Will("state", "here"), "last_will": moq.Will("state", "gone")}
    async with watcher.subscribe("state") as states:
        async with brokers.client(scheme, **wills):
            assert (await anext(states)).text == "here"
        vanishing = await brokers.connect(scheme, reconnect=False, **wills)
        assert (await anext(states)).text == "here", "an orderly goodbye publishes no will"
        vanishing._machine.link.abort()
        assert (await anext(states)).text == "gone"


async def test_closing_sends_what_was_published_and_ends_the_loops(brokers: Brokers, scheme: str) -> None:
    watcher = await brokers.connect(scheme)
    async with watcher.subscribe("a", queue=200) as seen:
        async with brokers.client(scheme) as client:
            own = await client.subscribe("b").ready()
            for number in range(100):
                await client.publish("a", str(number))
        assert [int((await anext(seen)).text) for _ in range(100)] == list(range(100))
    with pytest.raises(StopAsyncIteration):
        await anext(own)
    assert not client.is_connected
    await own.aclose()
    await client.close()


async def test_a_client_leaves_no_task_behind(brokers: Brokers, scheme: str) -> None:
    before = asyncio.all_tasks()
    async with brokers.client(scheme) as client:
        await client.publish("a", "x", qos=1)
    assert asyncio.all_tasks() == before


async def test_a_client_is_used_inside_its_block_and_entered_once(brokers: Brokers) -> None:
    client = brokers.client("tcp")
    with pytest.raises(moq.LocalProtocolError, match="not connected"):
        await client.publish("a", "x")
    assert not client.is_connected
    assert not client.session_present
    async with client:
        with pytest.raises(moq.LocalProtocolError, match="connects once"):
            await client.__aenter__()


async def test_the_broker_names_a_client_that_has_no_name(brokers: Brokers) -> None:
    client = await brokers.connect("tcp")
    assert client.client_id
    assert (await brokers.connect("tcp", "chosen")).client_id == "chosen"


async def test_a_cancelled_publish_that_was_not_sent_is_taken_back(brokers: Brokers) -> None:
    client = await brokers.connect("tcp", window=1)
    async with client.subscribe("#", qos=1) as messages:
        publishing = asyncio.ensure_future(client.publish("new/topic", "never", qos=1))
        await asyncio.sleep(0)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        await client.publish("new/topic", "instead", qos=1)
        assert (await anext(messages)).text == "instead"
