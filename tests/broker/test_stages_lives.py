"""Subscriptions with operators and periods over the lives of sessions and brokers: nothing is left behind.

Clients subscribe, leave, come back and publish at random; brokers crash and start again. In the end everybody
unsubscribes, and neither the trie nor the store nor any timer may remember that anyone was there.
"""

from __future__ import annotations

from random import Random

import pytest

from moq.broker.store import Table
from moq.config import Limits
from moq.wire import mqtt
from tests.broker.desk import Desk
from tests.broker.mqtt.scripted import MQTTClient, connect, lasting

OPERATORS = (
    *("", "$GT;5/", "$GTE;5.0/", "$GTE;5/", "$SUM/", "$RPT$AVG/", "$WIN;1s;AVG/", "$SUM$WIN;1s;MAX/"),
    *("$MRP;7/", "$MRP;9$GT;2/", "$MRP;30$SUM/"),
)
FILTERS = ("a", "+", "#", "a/+", "b/#", "a;b")
CLIENTS = ("x", "y", "z")
STEPS = 400


class Lives:
    """A broker and clients that do something at random, one step at a time."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._last_packet_id = 0
        self.desk = Desk(Limits(max_keep_alive_s=60_000))
        self.clients: dict[str, MQTTClient] = {}
        self._connect_all()

    def step(self) -> None:
        choose, client_id = self._random.choice, self._random.choice(CLIENTS)
        client, dice = self.clients[client_id], self._random.random()
        filter_ = choose(OPERATORS) + choose(FILTERS)
        if dice < 0.2:
            client.ask(mqtt.Subscription(choose(("", "", "", "$share/g/")) + filter_, choose((0, 1, 2))))
        elif dice < 0.3:
            client.unsubscribe(filter_)
        elif dice < 0.33:
            client.lost()
            self._connect(client_id)
        elif dice < 0.34:
            self.desk = self.desk.restarted(choose((0, 0.5, 3)))
            self._connect_all()
        elif dice < 0.8:
            self._publish(client)
        else:
            self.desk.advance(choose((0.01, 0.05, 0.3, 2)))
        self._answer()

    def _publish(self, client: MQTTClient) -> None:
        choose, qos = self._random.choice, self._random.choice((0, 1))
        self._last_packet_id += 1
        client.publish(
            choose(("a", "b", "a/b", "b/c")),
            choose((b"1", b"9", b"x", b"5")),
            qos=qos,
            id=self._last_packet_id if qos else 0,
            retain=self._random.random() < 0.1,
        )

    def _connect_all(self) -> None:
        for client_id in CLIENTS:
            self._connect(client_id)

    def _connect(self, client_id: str) -> None:
        is_new = self._random.random() < 0.3
        self.clients[client_id] = connect(self.desk, client_id, clean=is_new, properties=lasting())

    def _answer(self) -> None:
        for client in self.clients.values():
            for message in client.messages():
                if message.qos == 1:
                    client.send(mqtt.PubAck(message.packet_id))
                elif message.qos == 2:
                    client.send(mqtt.PubRec(message.packet_id))
            for release in client.take(mqtt.PubRel):
                client.send(mqtt.PubComp(release.packet_id))
            client.take(mqtt.PubAck)
            assert not client.is_closed


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_left_of_subscriptions_that_have_ended(seed: int) -> None:
    lives = Lives(seed)
    for _ in range(STEPS):
        lives.step()
    desk, broker = lives.desk, lives.desk.broker
    assert broker.subscriptions.count == sum(len(session.subscriptions) for session in broker.sessions)
    for session in broker.sessions:
        for filter_, group in list(session.subscriptions):
            broker.unsubscribe(session, filter_, group)
    assert (len(broker.stages), broker.subscriptions.count, broker.subscriptions._groups) == (0, 0, {})
    assert broker.subscriptions._root.is_empty
    assert (desk.store.load(Table.AGGREGATE), desk.store.load(Table.PACED)) == ([], [])
    desk.advance(10)
    assert (broker.pacing._heap, broker.pacing._timer) == ([], None)
    assert all(session.paces.running == {} and session.paces.size == 0 for session in broker.sessions)
