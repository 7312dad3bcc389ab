"""Operators in topic filters, from clients that know nothing of them, and from ours over each transport."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING

import pytest
from paho.mqtt.packettypes import PacketTypes

from tests.interop.paho_client import V4, V5, Paho, properties, properties_of
from tests.interop.test_mosquitto import mosquitto, subscriber
from tests.running import MOQ, Broker, Running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from paho.mqtt.enums import MQTTProtocolVersion

    import moq

    Connect = Callable[..., Paho]
    Make = Callable[..., moq.Client]

pytestmark = pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto_sub is not installed")

PATIENCE_S = 15
TOPIC_FILTER_INVALID = 0x8F
FAILURE = 0x80

CASES = [
    ("$GT;30/TOPIC/temp", [("temp", "30"), ("temp", "31")], "TOPIC/temp 31"),
    ("$CONTAINS;status%2Fok/TOPIC/+", [("a", "nothing"), ("b", "status/ok")], "TOPIC/b status/ok"),
    ("$EQ;on;.lamp/TOPIC/#", [("x/y", "on"), ("x/y", '{"lamp": "on"}')], 'TOPIC/x/y {"lamp": "on"}'),
    ("$AVG/TOPIC/+/temp", [("b/temp", "warm"), ("a/temp", "21.5")], "$AVG/TOPIC/$AGGREGATE/temp 21.5"),
    ("$RPT$SUM/TOPIC/+/temp", [("sens1/temp", "20")], "$SUM/TOPIC/sens1/temp 20"),
    ("$MAX/TOPIC/a;b/temp", [("c/temp", "9"), ("b/temp", "7")], "$MAX/TOPIC/b/temp 7"),
    ("$WIN;1s;MAX/TOPIC/+", [("meter", "4")], "$WIN;1s;MAX/TOPIC/meter 4"),
    ("$GT;0$SUM$WIN;1s;MAX/TOPIC/+", [("a", "3")], "$GT;0$SUM$WIN;1s;MAX/TOPIC/$AGGREGATE 3"),
    ("$MRP;10/TOPIC/degree", [("degree", "1")], "TOPIC/degree 1"),
]


def publish(port: int, topic: str, payload: str) -> None:
    mosquitto("pub", port, "-t", topic, "-m", payload, "-q", "1")


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
@pytest.mark.parametrize(("filter_", "published", "expected"), CASES, ids=[case[0] for case in CASES])
def test_mosquitto_sub_gets_what_it_asked_for(
    port: int, topic: str, version: str, filter_: str, published: list[tuple[str, str]], expected: str
) -> None:
    with subscriber(port, filter_.replace("TOPIC", topic), "-V", version, "-F", "%t %p") as running:
        for name, payload in published[:-1]:
            publish(port, f"{topic}/{name}", payload)
        publish(port, f"{topic}/{published[-1][0]}", published[-1][1])
        running.wait_for(expected.replace("TOPIC", topic))
    assert [line for line in running.stdout if line.startswith(("$", topic))] == [expected.replace("TOPIC", topic)]


@pytest.mark.parametrize("scheme", ["quic", "tcp", "tls"])
@pytest.mark.parametrize(
    "filter_", ["$GT;20.0/TOPIC/+", "$RPT$SUM$GTE;2e1/TOPIC/+", "$WIN;1s;AVG/TOPIC/+", "$MRP;1$AVG/TOPIC/x;y"]
)
def test_moq_sub_gets_the_same_over_each_transport(
    ports: dict[str, int], data_dir: Path, topic: str, scheme: str, filter_: str
) -> None:
    if "quic" not in ports:
        pytest.skip("the broker under test speaks MQTT alone")
    url = f"{scheme}://localhost:{ports[scheme]}"
    command = (*MOQ, "sub", url, filter_.replace("TOPIC", topic), "-c", "1", "--data-dir", str(data_dir))
    with Running(*command) as running:
        running.wait_for("subscribed to")
        publish(ports["tcp"], f"{topic}/x", "21")
        assert running.wait() == 0
    (line,) = running.stdout
    assert line.endswith(f"{topic}/x 21")


@pytest.fixture(params=(V4, V5), ids=("3.1.1", "5"))
def version(request: pytest.FixtureRequest) -> MQTTProtocolVersion:
    chosen: MQTTProtocolVersion = request.param
    return chosen


def test_what_is_not_permitted_fails_and_mqtt_5_says_why(
    paho: Connect, topic: str, version: MQTTProtocolVersion
) -> None:
    client = paho(version)
    assert client.subscribe(f"$DAILYAVG$SUM/{topic}/+") == [TOPIC_FILTER_INVALID if version is V5 else FAILURE]
    if version is V5:
        words = "a spatial aggregate is not permitted after a temporal one, only before it"
        assert client.answer_properties.ReasonString.startswith(words)


def test_the_expiry_of_a_message_ends_the_part_of_its_value(paho: Connect, topic: str) -> None:
    client, publisher = paho(V5), paho(V5)
    client.subscribe(f"$COUNT/{topic}/+")
    brief = properties(PacketTypes.PUBLISH, MessageExpiryInterval=1)
    publisher.publish(f"{topic}/a", b"1", 1, properties=brief)
    assert client.next().payload == b"1"
    count = b"2"
    while count == b"2":
        publisher.publish(f"{topic}/b", b"1", 1)
        count = bytes(client.next().payload)
    assert count == b"1"


def test_a_subscription_with_operators_is_ended_with_its_text(
    paho: Connect, topic: str, version: MQTTProtocolVersion
) -> None:
    client = paho(version)
    client.subscribe(f"$GT;5.0/{topic}")
    client.subscribe(topic)
    client.publish(topic, b"6", 1)
    assert [client.next().payload, client.next().payload] == [b"6", b"6"]
    client.unsubscribe(f"$GT;5.0/{topic}")
    client.publish(topic, b"7", 1)
    client.publish(topic, b"8", 1)
    assert [client.next().payload, client.next().payload] == [b"7", b"8"]


def test_shared_subscriptions_share_what_passes_a_rule(paho: Connect, topic: str) -> None:
    members = [paho(V5), paho(V4)]
    for member in members:
        assert member.subscribe(f"$share/g/$GT;0/{topic}", 1) == [1]
    publisher = paho(V5)
    for number in range(-3, 7):
        publisher.publish(topic, str(number), 1)
    received = [member.next().payload for member in members for _ in range(3)]
    assert sorted(received) == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_a_subscription_identifier_comes_with_values(paho: Connect, topic: str) -> None:
    client = paho(V5)
    client.subscribe(f"$SUM/{topic}/+", properties=properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=7))
    client.publish(f"{topic}/a", b"1")
    assert properties_of(client.next()).SubscriptionIdentifier == [7]


def test_capabilities_are_there_for_anyone(port: int) -> None:
    entries = json.loads(mosquitto("sub", port, "-t", "$SYS/capabilities", "-C", "1", "-F", "%p"))
    assert {"$EQ", "$AVG", "$DAILYAVG", "$MRP"} <= {entry["keyword"] for entry in entries}


async def test_one_client_tells_its_subscriptions_apart(mmqp: Make, topic: str) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        mmqp("quic") as client,
        client.subscribe(f"$GT;5/{topic}/+") as above,
        client.subscribe(f"$SUM/{topic}/+") as total,
        client.subscribe(f"{topic}/b") as plain,
    ):
        for subscription in (above, total, plain):
            await subscription.ready()
        await client.publish(f"{topic}/a", b"6", 1)
        await client.publish(f"{topic}/b", b"1", 1)
        assert [(await anext(total)).payload, (await anext(total)).payload] == [b"6", b"7"]
        assert (await anext(above)).topic == f"{topic}/a"
        assert (await anext(plain)).topic == f"{topic}/b"


def test_a_window_survives_kill_9_once_what_it_counted_is_acknowledged(tmp_path: Path) -> None:
    persistent = properties(PacketTypes.CONNECT, SessionExpiryInterval=3600)
    with Broker(tmp_path) as broker:
        counter = Paho(broker.ports["tcp"], V5, "counter", connect_properties=persistent)
        counter.subscribe("$WIN;2s;COUNT/meter/+", 1)
        publisher = Paho(broker.ports["tcp"], V5)
        for number in range(20):
            publisher.publish(f"meter/{number % 2}", b"1", 1)
        broker.process.kill()
        broker.wait()
        counted = count_of(counter)
        counter.vanish()
        publisher.vanish()
    with Broker(tmp_path) as broker:
        back = Paho(broker.ports["tcp"], V5, "counter", clean=False, connect_properties=persistent)
        while counted < 20:
            counted += int(back.next().payload)
        back.vanish()
    assert counted == 20


def test_the_last_message_of_a_period_survives_kill_9(tmp_path: Path) -> None:
    persistent = properties(PacketTypes.CONNECT, SessionExpiryInterval=3600)
    with Broker(tmp_path) as broker:
        slow = Paho(broker.ports["tcp"], V5, "slow", connect_properties=persistent)
        slow.subscribe("$MRP;6000/degree", 1)
        publisher = Paho(broker.ports["tcp"], V5)
        for number in range(5):
            publisher.publish("degree", str(number), 1)
        assert slow.next().payload == b"0"
        broker.process.kill()
        broker.wait()
        slow.vanish()
        publisher.vanish()
    with Broker(tmp_path) as broker:
        back = Paho(broker.ports["tcp"], V5, "slow", clean=False, connect_properties=persistent)
        received = [back.next().payload]
        if received == [b"0"]:  # its acknowledgement may have been lost with the broker
            received.append(back.next().payload)
        back.vanish()
    assert received[-1] == b"4"


def count_of(client: Paho) -> int:
    """What windows that ended before the crash have told."""
    return sum(int(client.next().payload) for _ in range(client.messages.qsize()))
