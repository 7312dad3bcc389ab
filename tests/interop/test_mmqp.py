"""MQTT and MMQP clients on the same topics: a thermostat over TCP, a dashboard over QUIC."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from paho.mqtt.packettypes import PacketTypes

from tests.interop.paho_client import V4, V5, properties, properties_of, will

if TYPE_CHECKING:
    from collections.abc import Callable

    from paho.mqtt.enums import MQTTProtocolVersion

    import moq
    from tests.interop.paho_client import Paho

    Connect = Callable[..., Paho]
    Make = Callable[..., moq.Client]

QOS = (0, 1, 2)
PATIENCE_S = 15


@pytest.fixture(params=(V4, V5), ids=("3.1.1", "5"))
def version(request: pytest.FixtureRequest) -> MQTTProtocolVersion:
    chosen: MQTTProtocolVersion = request.param
    return chosen


@pytest.fixture(params=("tcp", "quic"))
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("qos", QOS)
async def test_an_mmqp_client_receives_what_an_mqtt_client_publishes(
    paho: Connect, mmqp: Make, topic: str, version: MQTTProtocolVersion, scheme: str, qos: int
) -> None:
    async with asyncio.timeout(PATIENCE_S), mmqp(scheme) as dashboard, dashboard.subscribe(topic, 2) as messages:
        await asyncio.to_thread(paho(version).publish, topic, b"21.5", qos)
        message = await anext(messages)
    assert (message.topic, message.payload, message.qos, message.retain) == (topic, b"21.5", qos, False)


@pytest.mark.parametrize("qos", QOS)
async def test_an_mqtt_client_receives_what_an_mmqp_client_publishes(
    paho: Connect, mmqp: Make, topic: str, version: MQTTProtocolVersion, scheme: str, qos: int
) -> None:
    thermostat = paho(version)
    thermostat.subscribe(topic, 2)
    async with asyncio.timeout(PATIENCE_S), mmqp(scheme) as dashboard:
        await dashboard.publish(topic, b"19", qos)
        message = await asyncio.to_thread(thermostat.next)
    assert (message.topic, message.payload, message.qos, message.retain) == (topic, b"19", qos, False)


async def test_retained_messages_are_shared(
    paho: Connect, mmqp: Make, topic: str, version: MQTTProtocolVersion, scheme: str
) -> None:
    async with asyncio.timeout(PATIENCE_S), mmqp(scheme) as dashboard:
        await asyncio.to_thread(paho(version).publish, f"{topic}/a", b"from MQTT", 1, True)
        async with dashboard.subscribe(f"{topic}/a", 1) as messages:
            message = await anext(messages)
        assert (message.payload, message.retain) == (b"from MQTT", True)

        await dashboard.publish(f"{topic}/b", b"from MMQP", 1, retain=True)
        late = paho(version)
        late.subscribe(f"{topic}/b", 1)
        kept = await asyncio.to_thread(late.next)
    assert (kept.payload, kept.retain) == (b"from MMQP", True)


async def test_the_will_of_an_mqtt_client_reaches_an_mmqp_client(
    paho: Connect, mmqp: Make, topic: str, version: MQTTProtocolVersion, scheme: str
) -> None:
    async with asyncio.timeout(PATIENCE_S), mmqp(scheme) as dashboard, dashboard.subscribe(topic, 1) as messages:
        device = await asyncio.to_thread(lambda: paho(version, will=will(topic, b"gone", 1)))
        device.vanish()
        assert (await anext(messages)).payload == b"gone"


async def test_groups_of_both_dialects_are_one(paho: Connect, mmqp: Make, topic: str, scheme: str) -> None:
    member = paho(V5)
    member.subscribe(f"$share/workers/{topic}", 1)
    publisher = paho(V4)
    async with (
        asyncio.timeout(PATIENCE_S),
        mmqp(scheme) as other,
        other.subscribe(topic, 1, group="workers") as messages,
        mmqp(scheme) as witness,
        witness.subscribe(topic, 1) as everything,
    ):
        for number in range(20):
            await asyncio.to_thread(publisher.publish, topic, str(number), 1)
        assert [int((await anext(everything)).payload) for _ in range(20)] == list(range(20))
        # Once the broker answers the member, all that was meant for it has arrived; the other got the rest.
        await asyncio.to_thread(member.publish, f"{topic}/end", b"", 1)
        seen = [int(member.next().payload) for _ in range(member.messages.qsize())]
        seen += [int((await anext(messages)).payload) for _ in range(20 - len(seen))]
    assert sorted(seen) == list(range(20))


async def test_user_properties_cross_the_bridge(paho: Connect, mmqp: Make, topic: str, scheme: str) -> None:
    given = properties(PacketTypes.PUBLISH, UserProperty=("unit", "°C"))
    subscriber = paho(V5)
    subscriber.subscribe(f"{topic}/back", 1)
    async with asyncio.timeout(PATIENCE_S), mmqp(scheme) as dashboard, dashboard.subscribe(topic, 1) as messages:
        await asyncio.to_thread(paho(V5).publish, topic, b"21.5", 1, False, given)
        message = await anext(messages)
        assert message.properties["unit"] == "°C"
        await dashboard.publish(f"{topic}/back", b"x", 1, properties={"unit": "K"})
        received = properties_of(await asyncio.to_thread(subscriber.next))
    assert ("unit", "K") in received.UserProperty


async def test_an_mqtt_client_is_answered_by_an_mmqp_responder(
    paho: Connect, mmqp: Make, topic: str, scheme: str
) -> None:
    requester = paho(V5)
    requester.subscribe(f"{topic}/answer", 1)
    asking = properties(PacketTypes.PUBLISH, ResponseTopic=f"{topic}/answer", CorrelationData=b"\x00c7")
    async with asyncio.timeout(PATIENCE_S), mmqp(scheme) as responder, responder.requests(topic) as requests:
        await asyncio.to_thread(requester.publish, topic, b"how warm?", 1, False, asking)
        request = await anext(requests)
        assert request.payload == b"how warm?"
        await request.respond(b"21.5")
        answer = await asyncio.to_thread(requester.next)
    assert answer.payload == b"21.5"
    assert properties_of(answer).CorrelationData == b"\x00c7"


async def test_an_mmqp_client_is_answered_by_an_mqtt_responder(
    paho: Connect, mmqp: Make, topic: str, scheme: str
) -> None:
    """A subscriber that answers says so, since in MQTT a subscription alone promises no answer."""
    responder = paho(V5)
    responder.subscribe(topic, 1, properties=properties(PacketTypes.SUBSCRIBE, UserProperty=("moq-requests", "1")))

    def respond() -> None:
        request = properties_of(responder.next())
        answering = properties(PacketTypes.PUBLISH, CorrelationData=request.CorrelationData)
        responder.publish(request.ResponseTopic, b"21.5", 1, properties=answering)

    async with asyncio.timeout(PATIENCE_S), mmqp(scheme) as requester:
        answering = asyncio.create_task(asyncio.to_thread(respond))
        answer = await requester.request(topic, b"how warm?", qos=1)
        await answering
    assert answer.payload == b"21.5"
