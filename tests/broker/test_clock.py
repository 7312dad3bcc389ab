"""`$SYS/clock`: a request that the broker answers itself, for those who may read its topics, and no way to publish."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from moq.reasons import Reason
from moq.wire import ConEnd, PubAck, PublishKind, Register
from tests.broker.desk import Desk

if TYPE_CHECKING:
    from moq.broker.access import Action, Actor

CLOCK = "$SYS/clock"
ALIAS = 9


class WallClock:
    """The desk's time, after some reckoning."""

    def now_ns(self) -> int:
        return 5_000_000_700

    def from_loop(self, seconds: float) -> int:
        return int(seconds * 1e9) + 5_000_000_000


class NoSystem:
    """Nobody reads the broker's own topics."""

    def allows(self, actor: Actor, action: Action, topic: str) -> bool:
        return not topic.startswith("$")


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.broker.environment.wall_clock = WallClock()
    return desk


@pytest.mark.parametrize("qos", [0, 1])
def test_a_request_is_answered_with_both_times(desk: Desk, qos: int) -> None:
    client = desk.connect("asker")
    client.register(CLOCK, alias=ALIAS)
    client.publish(ALIAS, b"", kind=PublishKind.REQUEST, qos=qos, id=4)
    (answer,) = client.messages()
    assert (answer.packet.kind, answer.id, answer.packet.qos) == (PublishKind.RESPONSE, 4, 0)
    assert json.loads(answer.payload) == {"received_at_ns": 5_000_000_000, "sent_at_ns": 5_000_000_700}
    assert [packet.packet_id for packet in client.take(PubAck)] == [4] * qos


def test_nobody_can_publish_on_it(desk: Desk) -> None:
    other = desk.connect("other")
    other.subscribe("$SYS/#")
    client = desk.connect("asker")
    client.register(CLOCK, alias=ALIAS)
    client.publish(ALIAS, b"x", qos=1, id=1)
    (refusal,) = client.take(PubAck)
    assert refusal.reason == Reason.TOPIC_NOT_REGISTERED
    client.publish(ALIAS, b"x")
    assert client.take(ConEnd)
    assert other.messages() == []


def test_who_may_not_read_the_broker_s_topics_may_not_ask() -> None:
    desk = Desk(access=NoSystem())
    desk.broker.environment.wall_clock = WallClock()
    assert desk.connect("asker").ask(Register(0, False, ALIAS, CLOCK)) == [Reason.NOT_AUTHORIZED]


def test_a_broker_without_a_clock_does_not_answer() -> None:
    assert Desk().connect("asker").ask(Register(0, False, ALIAS, CLOCK)) == [Reason.NOT_AUTHORIZED]
