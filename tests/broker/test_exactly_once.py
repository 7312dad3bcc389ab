"""QoS 2 delivers exactly once, in order per topic, whatever is lost, overtaken, restarted or crashed.

A publisher and a subscriber (the real client core) talk to the real broker core over memory links whose lanes
move one piece at a time in an order Hypothesis chooses. Connections are cut; either client goes on with its
session over a new one; the broker crashes and comes back with what its store had committed, and nothing else.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from moq.broker.core import Broker
from moq.broker.dialects.mmqp import Connection
from moq.broker.environment import Environment
from moq.client.core import ClientCore, State
from moq.client.session import ClientSession, SessionOptions
from tests.broker.stores import CommitStore
from transports.memory import MemoryLink, MemoryNetwork

if TYPE_CHECKING:
    from moq.broker.link import Lane, Link
    from moq.client.inbox import Inbox
    from moq.client.pending import Exchange

TOPICS = ("a/x", "a/y", "b")
PERSISTENT = SessionOptions(persistent=True, expiry_s=3600)


class BrokerSide:
    """Gives a memory link's events to a broker's connection, at the world's time."""

    def __init__(self, broker: Broker, link: Link) -> None:
        self.connection = Connection(broker, link, lambda: "nobody", 0.0)

    def data_received(self, lane_id: int, data: bytes) -> None:
        self.connection.receive_data(lane_id, data, 0.0)

    def lane_finished(self, lane_id: int) -> None:
        self.connection.lane_finished(lane_id, 0.0)

    def lane_reset(self, lane_id: int, reason: int) -> None:
        self.connection.lane_reset(lane_id)

    def lane_writable(self, lane: Lane) -> None:
        self.connection.lane_writable(lane, 0.0)

    def closed(self, reason: int | None, message: str) -> None:
        self.connection.closed(0.0)


class ClientSide:
    """One client: a session that outlives its connections."""

    def __init__(self, client_id: str) -> None:
        self.session = ClientSession(client_id=client_id, resume=True)
        self.core: ClientCore | None = None
        self.link: MemoryLink | None = None

    @property
    def is_connected(self) -> bool:
        return self.core is not None and self.core.state is not State.CLOSED


class World:
    """A broker, a publisher and a subscriber."""

    def __init__(self, *, has_lanes: bool, store: CommitStore | None = None) -> None:
        self.network = MemoryNetwork(has_lanes=has_lanes, max_lanes=2)
        self.store = store or CommitStore()
        self.broker = Broker(Environment(store=self.store))
        self.publisher = ClientSide("publisher")
        self.subscriber = ClientSide("subscriber")
        self.links: list[MemoryLink] = []
        """Every link to the broker that runs now, those its clients have given up included."""
        self.inboxes: list[Inbox] = []
        self.published: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
        self.received: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
        self.exchanges: list[Exchange] = []
        for client in (self.publisher, self.subscriber):
            self.connect(client)
        self.inboxes = [self.subscribe(filter_) for filter_ in ("a/#", "b")]
        self.settle()

    def subscribe(self, filter_: str) -> Inbox:
        assert self.subscriber.core is not None
        return self.subscriber.core.subscribe(filter_, qos=2)

    def connect(self, client: ClientSide) -> None:
        broker = self.broker

        def make_core(link: Link) -> ClientCore:
            client.core = ClientCore(client.session, link, lambda: 0.0, PERSISTENT)
            return client.core

        client.link, _ = self.network.connect(partial(BrokerSide, broker), make_core)
        self.links.append(client.link)
        assert client.core is not None
        client.core.start()

    def lose(self, client: ClientSide) -> None:
        assert client.link is not None
        self.network.lose(client.link)
        self.network._run_posted()

    def crash_broker(self) -> None:
        """Kill -9: the connections break, what was not committed is gone, and a new broker reads the rest."""
        for link in self.links:
            link.other.handler = None  # the dead broker hears nothing, and writes nothing into the store
        self.links.clear()
        for client in (self.publisher, self.subscriber):
            if client.is_connected:
                self.lose(client)
        self.store.crash()
        self.broker = Broker(Environment(store=self.store))

    def publish(self, topic: str) -> None:
        assert self.publisher.core is not None
        payload = f"{topic} {len(self.published[topic])}".encode()
        self.published[topic].append(payload)
        self.exchanges.append(self.publisher.core.publish(topic, payload, qos=2))

    def commit(self) -> None:
        self.store.commit()
        self.broker.on_durable(0.0)

    def read(self) -> None:
        core = self.subscriber.core
        for inbox in self.inboxes:
            while core is not None and (message := core.take(inbox)) is not None:
                self.received[message.topic].append(message.payload)

    def settle(self) -> None:
        """Connect everyone and let everything arrive."""
        for _ in range(1000):
            for client in (self.publisher, self.subscriber):
                if not client.is_connected:
                    self.connect(client)
            self.commit()
            moved = self.network.deliver()
            self.read()
            if not moved and self.store.durable == self.store.last:
                return
        raise AssertionError("the world does not come to rest")


class ExactlyOnce(RuleBasedStateMachine):
    """Random histories of a world."""

    @initialize(has_lanes=st.booleans())
    def begin(self, has_lanes: bool) -> None:
        self.world = World(has_lanes=has_lanes)

    @rule(topic=st.sampled_from(TOPICS))
    def publish(self, topic: str) -> None:
        self.world.publish(topic)

    @precondition(lambda self: self.world.network.ready())
    @rule(data=st.data(), size=st.sampled_from([1, 3, 7, None]))
    def something_arrives(self, data: st.DataObject, size: int | None) -> None:
        lanes = self.world.network.ready()
        self.world.network.step(lanes[data.draw(st.integers(0, len(lanes) - 1), label="lane")], size)
        self.world.read()

    @rule()
    def everything_arrives(self) -> None:
        self.world.network.deliver()
        self.world.read()

    @rule()
    def the_store_commits(self) -> None:
        self.world.commit()

    @rule(is_publisher=st.booleans())
    def a_connection_is_lost(self, is_publisher: bool) -> None:
        client = self.world.publisher if is_publisher else self.world.subscriber
        if client.is_connected:
            self.world.lose(client)

    @rule(is_publisher=st.booleans())
    def a_client_connects(self, is_publisher: bool) -> None:
        client = self.world.publisher if is_publisher else self.world.subscriber
        if not client.is_connected:
            self.world.connect(client)

    @rule(is_publisher=st.booleans())
    def a_client_connects_while_its_old_connection_still_stands(self, is_publisher: bool) -> None:
        client = self.world.publisher if is_publisher else self.world.subscriber
        if client.core is not None and client.is_connected:
            client.core.closed(None, "the client restarted")
            assert client.link is not None
            client.link.handler = None
        self.world.connect(client)

    @rule()
    def the_broker_crashes(self) -> None:
        self.world.crash_broker()

    @invariant()
    def nothing_arrives_twice_or_out_of_order(self) -> None:
        if not hasattr(self, "world"):
            return
        for topic, received in self.world.received.items():
            assert received == self.world.published[topic][: len(received)]

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.settle()
        assert self.world.received == self.world.published
        assert all(exchange.is_settled and exchange.error is None for exchange in self.world.exchanges)


ExactlyOnce.TestCase.settings = settings(
    max_examples=int(os.environ.get("MOQ_EXACTLY_ONCE_EXAMPLES", "150")), stateful_step_count=60, deadline=None
)
TestExactlyOnce = pytest.mark.slow(ExactlyOnce.TestCase)


class BoastfulStore(CommitStore):
    """Claims that everything is safe at once: the commit-before-acknowledge rule, broken on purpose."""

    @property
    def durable(self) -> int:
        return self.last


class ExactlyOnceWithABoastfulStore(ExactlyOnce):
    """The same histories over a store that cannot keep its word."""

    @initialize(has_lanes=st.booleans())
    def begin(self, has_lanes: bool) -> None:
        self.world = World(has_lanes=has_lanes, store=BoastfulStore())


def test_the_machine_notices_acknowledgements_that_do_not_wait_for_the_store() -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            ExactlyOnceWithABoastfulStore,
            settings=settings(max_examples=500, stateful_step_count=60, deadline=None, phases=[Phase.generate]),
        )
