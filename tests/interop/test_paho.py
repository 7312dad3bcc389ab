"""paho-mqtt, MQTT 3.1.1 and 5, against the broker."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.interop.paho_client import PATIENCE_S, V4, V5, Paho, properties, properties_of, will

if TYPE_CHECKING:
    from collections.abc import Callable

    from paho.mqtt.client import MQTTMessage
    from paho.mqtt.enums import MQTTProtocolVersion

    Connect = Callable[..., Paho]

QOS = (0, 1, 2)
VERSIONS = (V4, V5)


@pytest.fixture(params=VERSIONS, ids=("3.1.1", "5"))
def version(request: pytest.FixtureRequest) -> MQTTProtocolVersion:
    chosen: MQTTProtocolVersion = request.param
    return chosen


def kept(version: MQTTProtocolVersion) -> dict[str, object]:
    """Options of a session that outlives its connection."""
    if version == V4:
        return {"clean": False}
    return {"clean": False, "connect_properties": properties(PacketTypes.CONNECT, SessionExpiryInterval=600)}


def is_quiet(client: Paho, topic: str) -> bool:
    """True if nothing came before a message the client sends to itself."""
    client.subscribe(f"{topic}/marker", 1)
    client.publish(f"{topic}/marker", b"marker", 1)
    return client.next().payload == b"marker"


@pytest.mark.parametrize("publisher_version", VERSIONS, ids=("from 3.1.1", "from 5"))
@pytest.mark.parametrize("subscriber_version", VERSIONS, ids=("to 3.1.1", "to 5"))
@pytest.mark.parametrize("published", QOS)
@pytest.mark.parametrize("granted", QOS)
def test_a_message_arrives_with_the_lower_of_both_qualities(
    paho: Connect,
    topic: str,
    publisher_version: MQTTProtocolVersion,
    subscriber_version: MQTTProtocolVersion,
    published: int,
    granted: int,
) -> None:
    subscriber = paho(subscriber_version)
    assert subscriber.subscribe(topic, granted) == [granted]
    paho(publisher_version).publish(topic, b"21.5", published)
    message = subscriber.next()
    assert (message.topic, message.payload, message.qos) == (topic, b"21.5", min(published, granted))
    assert not message.retain


def test_hundreds_of_messages_of_every_quality_arrive_in_order(
    paho: Connect, topic: str, version: MQTTProtocolVersion
) -> None:
    subscriber, publisher = paho(version), paho(version)
    subscriber.subscribe(f"{topic}/#", 2)
    for number in range(300):
        publisher.client.publish(f"{topic}/{number % 3}", str(number), number % 3)
    received: dict[int, list[int]] = {qos: [] for qos in QOS}
    for _ in range(300):
        message = subscriber.next()
        received[message.qos].append(int(message.payload))
    assert received == {qos: list(range(qos, 300, 3)) for qos in QOS}


def test_a_payload_of_a_megabyte_arrives_whole(paho: Connect, topic: str, version: MQTTProtocolVersion) -> None:
    payload = bytes(range(256)) * 4096
    subscriber = paho(version)
    subscriber.subscribe(topic, 2)
    paho(version).publish(topic, payload, 2)
    assert subscriber.next().payload == payload


@pytest.mark.parametrize("qos", QOS)
def test_a_retained_message_awaits_later_subscribers(
    paho: Connect, topic: str, version: MQTTProtocolVersion, qos: int
) -> None:
    publisher = paho(version)
    publisher.publish(topic, b"first", qos, retain=True)
    publisher.publish(topic, b"second", qos, retain=True)
    publisher.publish(topic, b"live", qos)
    publisher.publish(f"{topic}/marker", b"the broker has what went before", 1)
    subscriber = paho(version)
    subscriber.subscribe(topic, 2)
    message = subscriber.next()
    assert (message.payload, message.qos, message.retain) == (b"second", qos, True)

    publisher.publish(topic, b"", qos, retain=True)
    assert subscriber.next().payload == b""
    late = paho(version)
    late.subscribe(topic, 2)
    assert is_quiet(late, topic)


def test_a_will_is_published_when_its_client_vanishes(paho: Connect, topic: str, version: MQTTProtocolVersion) -> None:
    subscriber = paho(V4)
    subscriber.subscribe(topic, 2)
    paho(version, will=will(topic, b"gone", 1, retain=True)).vanish()
    message = subscriber.next()
    assert (message.payload, message.qos, message.retain) == (b"gone", 1, False)
    late = paho(V5)
    late.subscribe(topic, 2)
    assert late.next().retain


def test_a_will_is_forgotten_when_its_client_says_goodbye(
    paho: Connect, topic: str, version: MQTTProtocolVersion
) -> None:
    subscriber = paho(version)
    subscriber.subscribe(topic, 1)
    paho(version, will=will(topic, b"gone", 1)).disconnect()
    assert is_quiet(subscriber, topic)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("publisher_version", VERSIONS, ids=("from 3.1.1", "from 5"))
def test_a_session_keeps_subscriptions_and_messages_while_its_client_is_away(
    paho: Connect, topic: str, version: MQTTProtocolVersion, publisher_version: MQTTProtocolVersion, qos: int
) -> None:
    first = paho(version, topic, **kept(version))
    assert not first.session_present
    first.subscribe(topic, 2)
    first.disconnect()
    publisher = paho(publisher_version)
    for number in range(20):
        publisher.publish(topic, str(number), qos)
    second = paho(version, topic, **kept(version))
    assert second.session_present
    assert [int(second.next().payload) for _ in range(20)] == list(range(20))
    publisher.publish(topic, b"live", 1)
    assert second.next().payload == b"live"


def test_a_clean_start_discards_the_session(paho: Connect, topic: str, version: MQTTProtocolVersion) -> None:
    first = paho(version, topic, **kept(version))
    first.subscribe(topic, 2)
    first.disconnect()
    second = paho(version, topic)
    assert not second.session_present
    paho(version).publish(topic, b"missed", 1)
    assert is_quiet(second, topic)


def test_a_session_can_change_between_versions(paho: Connect, topic: str) -> None:
    first = paho(V4, topic, **kept(V4))
    first.subscribe(topic, 1)
    first.disconnect()
    paho(V4).publish(topic, b"while away", 1)
    second = paho(V5, topic, **kept(V5))
    assert second.session_present
    assert second.next().payload == b"while away"


def test_an_unsubscribed_client_gets_no_more(paho: Connect, topic: str, version: MQTTProtocolVersion) -> None:
    subscriber = paho(version)
    subscriber.subscribe(topic, 1)
    subscriber.unsubscribe(topic)
    paho(version).publish(topic, b"missed", 1)
    assert is_quiet(subscriber, topic)


@pytest.mark.parametrize("publisher_version", VERSIONS, ids=("from 3.1.1", "from 5"))
def test_members_of_a_shared_subscription_divide_the_messages(
    paho: Connect, topic: str, publisher_version: MQTTProtocolVersion
) -> None:
    messages: queue.Queue[MQTTMessage] = queue.Queue()
    members = [paho(V5) for _ in range(3)]
    for member in members:
        assert member.subscribe(f"$share/workers/{topic}", 1) == [1]
        member.messages = messages
    alone = paho(V5)
    alone.subscribe(topic, 1)
    publisher = paho(publisher_version)
    for number in range(30):
        publisher.publish(topic, str(number), 1)
    assert [int(alone.next().payload) for _ in range(30)] == list(range(30))
    seen = [int(messages.get(timeout=PATIENCE_S).payload) for _ in range(30)]
    assert sorted(seen) == list(range(30))
    assert messages.empty()


def test_properties_are_passed_on_unchanged(paho: Connect, topic: str) -> None:
    subscriber = paho(V5)
    identifier = properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=268435455)
    subscriber.subscribe(topic, 2, properties=identifier)
    given = properties(
        PacketTypes.PUBLISH,
        PayloadFormatIndicator=1,
        ContentType="text/plain; charset=utf-8",
        ResponseTopic=f"{topic}/answer",
        CorrelationData=b"\x00\xff",
        MessageExpiryInterval=600,
        UserProperty=[("b", "2"), ("a", "1"), ("b", "1")],
    )
    paho(V5).publish(topic, "größer", 2, properties=given)
    received = properties_of(subscriber.next())
    assert received.PayloadFormatIndicator == 1
    assert received.ContentType == "text/plain; charset=utf-8"
    assert received.ResponseTopic == f"{topic}/answer"
    assert received.CorrelationData == b"\x00\xff"
    assert 590 <= received.MessageExpiryInterval <= 600
    assert received.UserProperty == [("b", "2"), ("a", "1"), ("b", "1")]
    assert received.SubscriptionIdentifier == [268435455]


def test_a_client_does_not_hear_itself_if_it_says_so(paho: Connect, topic: str) -> None:
    client = paho(V5)
    client.subscribe(topic, options=SubscribeOptions(qos=1, noLocal=True))
    client.publish(topic, b"to others", 1)
    assert is_quiet(client, topic)


def test_retain_is_shown_as_published_if_asked_for(paho: Connect, topic: str) -> None:
    subscriber = paho(V5)
    subscriber.subscribe(topic, options=SubscribeOptions(qos=1, retainAsPublished=True))
    paho(V5).publish(topic, b"kept", 1, retain=True)
    assert subscriber.next().retain


def test_a_client_without_a_name_is_given_one(paho: Connect, topic: str) -> None:
    assert paho(V5).connack_properties.AssignedClientIdentifier
