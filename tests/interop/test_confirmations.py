"""Confirmed publishing with paho-mqtt, alone and beside MMQP clients over TCP and QUIC."""

from __future__ import annotations

import asyncio
import json
import queue
from typing import TYPE_CHECKING, Any

import pytest
from paho.mqtt.packettypes import PacketTypes

from moq.reasons import Reason
from tests.interop.paho_client import PATIENCE_S, V4, V5, properties, properties_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from paho.mqtt.enums import MQTTProtocolVersion

    import moq
    from tests.interop.paho_client import Paho

    Connect = Callable[..., Paho]
    Make = Callable[..., moq.Client]

NO_TIME_MS = "300"


class Outcomes:
    """What paho tells of its acknowledgements: the code and user properties of PUBACK, or of PUBCOMP."""

    def __init__(self, client: Paho) -> None:
        self._told: queue.Queue[tuple[int, list[tuple[str, str]]]] = queue.Queue()
        client.client.on_publish = self._on_publish
        self._client = client

    def _on_publish(self, _client: object, _data: object, _packet_id: int, reason: Any, told: Any) -> None:
        self._told.put((reason.value, getattr(told, "UserProperty", [])))

    def publish(self, topic: str, qos: int, *pairs: tuple[str, str]) -> tuple[int, dict[str, str], list[Any]]:
        """Publish and wait: the reason code, what was told once, and each confirmation without its time."""
        asked = properties(PacketTypes.PUBLISH, UserProperty=list(pairs))
        self._client.client.publish(topic, b"news", qos, properties=asked)
        code, told = self._told.get(timeout=PATIENCE_S)
        who = [json.loads(value) for name, value in told if name == "moq-confirmation"]
        assert all(item.pop("after_ms") >= 0 for item in who)
        return code, dict(told), sorted(who, key=lambda item: str(item["client_id"]))


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("granted", [1, 2])
@pytest.mark.parametrize("version", [V4, V5], ids=("3.1.1", "5"))
def test_a_paho_publisher_hears_which_paho_subscribers_have_its_message(
    paho: Connect, topic: str, version: MQTTProtocolVersion, qos: int, granted: int
) -> None:
    names = [f"{topic}/{name}" for name in ("one", "two")]
    subscribers = [paho(version, name) for name in names]
    for subscriber in subscribers:
        subscriber.subscribe(topic, granted)
    code, told, who = Outcomes(paho(V5)).publish(topic, qos, ("moq-confirm", "2"))
    assert (code, told["moq-confirm-reason"], told["moq-confirmed"]) == (0, "0", "2")
    assert who == [{"client_id": name} for name in names]
    for subscriber in subscribers:
        assert subscriber.next().payload == b"news"


@pytest.mark.parametrize("qos", [1, 2])
def test_a_paho_publisher_is_told_when_there_are_too_few(paho: Connect, topic: str, qos: int) -> None:
    paho(V5, f"{topic}/one").subscribe(topic, 1)
    outcomes = Outcomes(paho(V5))
    if qos == 1:
        assert outcomes.publish(topic, 1, ("moq-confirm", "2"))[0] == Reason.IMPLEMENTATION_SPECIFIC_ERROR
    code, told, who = outcomes.publish(topic, qos, ("moq-confirm", "1"), ("moq-confirm-id", f"{topic}/one"))
    assert (code, told["moq-confirmed"], who) == (0, "1", [{"client_id": f"{topic}/one"}])


@pytest.mark.parametrize("scheme", ["tcp", "quic"])
async def test_an_mmqp_subscriber_replies_to_a_paho_publisher(
    paho: Connect, mmqp: Make, topic: str, scheme: str
) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        mmqp(scheme, f"{topic}/ours") as ours,
        ours.subscribe(topic, qos=3, replies=True) as messages,
    ):
        outcomes = Outcomes(paho(V5))
        publishing = asyncio.create_task(asyncio.to_thread(outcomes.publish, topic, 2, ("moq-confirm", "1")))
        message = await anext(messages)
        assert (message.waited, message.properties["moq-confirm"]) == (1, "1")
        message.reply("grüezi")
        code, _, who = await publishing
    assert (code, who) == (0, [{"client_id": f"{topic}/ours", "reply": "grüezi"}])


@pytest.mark.parametrize("scheme", ["tcp", "quic"])
@pytest.mark.parametrize("version", [V4, V5], ids=("3.1.1", "5"))
async def test_paho_subscribers_confirm_to_an_mmqp_publisher(
    paho: Connect, mmqp: Make, topic: str, scheme: str, version: MQTTProtocolVersion
) -> None:
    subscriber = paho(version, f"{topic}/paho")
    subscriber.subscribe(topic, 2)
    async with asyncio.timeout(PATIENCE_S), mmqp(scheme) as ours:
        confirmations = await ours.publish(topic, "news", confirm=1)
    assert confirmations.client_ids == [f"{topic}/paho"]
    message = subscriber.next()
    assert (message.payload, message.qos) == (b"news", 2)
    if version == V5:
        assert properties_of(message).UserProperty == [("moq-confirm", "1")]


async def test_a_paho_publisher_gets_what_there_is_at_its_deadline(paho: Connect, mmqp: Make, topic: str) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        mmqp("tcp", f"{topic}/silent") as silent,
        silent.subscribe(topic, qos=3, replies=True),
    ):
        paho(V5, f"{topic}/quick").subscribe(topic, 1)
        wishes = (("moq-confirm", "2"), ("moq-confirm-timeout-ms", NO_TIME_MS))
        code, told, who = await asyncio.to_thread(Outcomes(paho(V5)).publish, topic, 2, *wishes)
    assert (code, told["moq-confirm-reason"]) == (0, str(int(Reason.CONFIRMATION_TIMED_OUT)))
    assert who == [{"client_id": f"{topic}/quick"}]
