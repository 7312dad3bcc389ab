"""Properties of the core's structures over random histories: tries, packet identifiers, queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moq.broker.access import OpenAccess
from moq.broker.delivery import PacketIds
from moq.broker.environment import Environment
from moq.broker.message import Message, Run, Subscription, Target
from moq.broker.retention import Topics
from moq.broker.session import Session
from moq.broker.store import DeliveryRecord, MemoryStore
from moq.broker.subscriptions import Subscriptions
from moq.config import Limits
from moq.reasons import Reason
from moq.topics import filter_error, matches
from tests.broker.stores import CommitStore

if TYPE_CHECKING:
    import pytest

    from moq.broker.confirmations import Outcome
    from moq.broker.outbound import Outbound

LEVELS = st.sampled_from(["", "a", "b", "$s"])
NAMES = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = (
    st.lists(LEVELS | st.just("+") | st.just("#"), min_size=1, max_size=4)
    .map("/".join)
    .filter(lambda filter_: filter_error(filter_) is None)
)


@given(st.lists(st.tuples(FILTERS, st.sampled_from([None, "g"]), st.booleans()), max_size=12), NAMES)
def test_the_trie_of_filters_agrees_with_the_definition(history: list[tuple[str, str | None, bool]], name: str) -> None:
    subscriptions = Subscriptions(OpenAccess())
    session = Session("x", Environment(), is_persistent=False)
    present: dict[tuple[str, str | None], Subscription] = {}
    for filter_, group, is_added in history:
        subscriptions.route(name)
        if is_added:
            subscription = present[filter_, group] = Subscription(session, filter_, group=group)
            subscriptions.add(subscription)
        elif (known := present.pop((filter_, group), None)) is not None:
            subscriptions.remove(known)
    expected = sorted((filter_, group or "") for filter_, group in present if matches(filter_, name))
    assert sorted((found.filter, found.group or "") for found in subscriptions.matching(name)) == expected
    route = subscriptions.route(name)
    assert len(route.targets) == any(not group for _, group in expected)
    assert len(route.groups) == sum(bool(group) for _, group in expected)
    assert subscriptions.count == len(present)
    if not present:
        assert subscriptions._root.is_empty


@given(st.lists(st.tuples(NAMES, st.booleans()), max_size=12), FILTERS)
def test_the_trie_of_topics_agrees_with_the_definition(history: list[tuple[str, bool]], filter_: str) -> None:
    topics = Topics(Environment())
    present: set[str] = set()
    for name, is_added in history:
        if is_added:
            topic = topics.know(name)
            assert topic is not None
            topic.publishers.add("x")
            present.add(name)
        elif (known := topics.get(name)) is not None:
            known.publishers.clear()
            topics.forget_if_idle(known)
            present.discard(name)
    assert sorted(topic.name for topic in topics.matching(filter_)) == sorted(
        name for name in present if matches(filter_, name)
    )
    assert len(topics) == len(present)
    if not present:
        assert not topics._root.children


def test_routes_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moq.broker.subscriptions.MAX_CACHED_ROUTES", 2)
    subscriptions = Subscriptions(OpenAccess())
    for name in ("a", "b", "c"):
        subscriptions.route(name)
    assert len(subscriptions._routes) == 1


@given(st.lists(st.integers(-60, 60), max_size=300))
def test_a_packet_identifier_in_use_is_never_handed_out(history: list[int]) -> None:
    ids = PacketIds()
    used: dict[int, int] = {}
    for step in history:
        if step >= 0:
            taken = ids.take()
            assert taken not in used
            assert 1 <= taken <= 0xFFFF
            used[taken] = 1
        elif used:
            packet_id = sorted(used)[-step % len(used)]
            if step % 2:
                ids.hold(packet_id)
                used[packet_id] += 1
            else:
                ids.release(packet_id)
                used[packet_id] -= 1
                if not used[packet_id]:
                    del used[packet_id]


def test_identifiers_end_and_come_back() -> None:
    ids = PacketIds()
    assert [ids.take() for _ in range(0xFFFF)] == list(range(1, 0x10000))
    assert ids.are_used_up
    assert ids.take() == 0
    ids.release(500)
    assert ids.take() == 500


class ScriptedPeer:
    """A peer whose lanes are congested when the test says so."""

    def __init__(self) -> None:
        self.congested: set[str] = set()
        self.sent: list[tuple[Message, int, int, bool]] = []
        self.released: set[int] = set()

    def send_message(self, message: Message, target: Target | None, qos: int, packet_id: int, dup: bool) -> bool:
        if message.topic in self.congested:
            return False
        self.sent.append((message, qos, packet_id, dup))
        return True

    def send_run(self, run: Run, target: Target) -> int:
        raise AssertionError("nothing is published in runs")

    def release(self, kind: int, packet_id: int) -> None:
        self.released.add(packet_id)

    def acknowledge(self, kind: int, packet_id: int, reason: Reason) -> None:
        raise AssertionError("nothing was published by this peer")

    confirm_received = acknowledge

    def confirm_completed(self, kind: int, packet_id: int, reason: Reason, outcome: Outcome | None = None) -> None:
        raise AssertionError("nothing was published by this peer")

    def confirm(self, packet_id: int, qos: int, outcome: Outcome) -> None:
        raise AssertionError("nothing was published by this peer")

    def ask_type(self, query_id: int, topic: str) -> None:
        raise AssertionError("nothing was published by this peer")

    def close(self, reason: Reason) -> None:
        raise AssertionError("nobody takes over")


TOPICS = ("a", "b", "c")


class QueueMachine(RuleBasedStateMachine):
    """Random offers, acknowledgements, congestion and lost connections against one session's queues.

    Two messages may wait in memory, so that most of what waits is in the store, which answers when it has committed.
    """

    @initialize(commits_itself=st.booleans())
    def begin(self, commits_itself: bool) -> None:
        limits = Limits(max_inflight=4, max_queued_messages=6, max_queued_bytes=40, max_queued_in_memory=2)
        self.store = CommitStore(commits_itself=commits_itself)
        self.environment = Environment(limits=limits, store=self.store)
        self.environment.sweeper.on_swept = lambda owner, size: self.outbound.on_swept(size)
        self.environment.sweeper.connected = lambda: {"x"} if self.peer is not None else set()
        self.session = Session("x", self.environment, is_persistent=True)
        self.outbound: Outbound = self.session.outbound
        self.peer: ScriptedPeer | None = None
        self.open: dict[int, tuple[Message, int]] = {}
        self.qos_of: dict[int, int] = {}
        self.number = 0
        self.seen: dict[str, int] = dict.fromkeys(TOPICS, -1)
        self.now = 0.0

    @rule(topic=st.sampled_from(TOPICS), qos=st.integers(0, 2), size=st.integers(0, 20), lives=st.booleans())
    def offer(self, topic: str, qos: int, size: int, lives: bool) -> None:
        subscription = Subscription(self.session, topic, qos=2)
        expires_at = float("inf") if lives else self.now + 3
        payload = b"%04d" % self.number + bytes(size)
        self.number += 1
        self.outbound.offer(
            Message(topic, payload, qos, expires_at=expires_at), Target(self.session, subscription), self.now
        )
        self.collect()

    @precondition(lambda self: self.peer is None)
    @rule()
    def connect(self) -> None:
        self.peer = ScriptedPeer()
        self.open = {packet_id: entry for packet_id, entry in self.open.items() if entry[1]}
        self.seen = dict.fromkeys(TOPICS, -1)  # what was not acknowledged comes again
        self.outbound.attach(self.peer, self.target, self.now)
        self.collect()

    def target(self, topic: str, share: str | None) -> Target:
        assert share is None
        return Target(self.session, Subscription(self.session, topic, qos=2))

    @precondition(lambda self: self.peer is not None)
    @rule()
    def lose(self) -> None:
        self.peer = None
        assert self.outbound.detach() == []

    @precondition(lambda self: self.peer is not None)
    @rule(topic=st.sampled_from(TOPICS))
    def congest(self, topic: str) -> None:
        assert self.peer is not None
        self.peer.congested.add(topic)

    @precondition(lambda self: self.peer is not None)
    @rule(topic=st.sampled_from(TOPICS))
    def drain(self, topic: str) -> None:
        assert self.peer is not None
        self.peer.congested.discard(topic)
        self.outbound.on_writable(self.now)
        self.collect()

    @precondition(lambda self: self.peer is not None and bool(self.open))
    @rule(choice=st.integers(0, 100), refuses=st.booleans())
    def answer(self, choice: int, refuses: bool) -> None:
        packet_id = sorted(self.open)[choice % len(self.open)]
        message, stage = self.open[packet_id]
        if refuses:
            del self.open[packet_id]
            self.outbound.on_received(0, packet_id, Reason.QUOTA_EXCEEDED, self.now)
        elif stage == 0 and self.qos_of[packet_id] == 2:
            assert not self.outbound.on_acknowledged(0, packet_id, self.now)
            self.outbound.on_received(0, packet_id, Reason.SUCCESS, self.now)
            self.open[packet_id] = (message, 1)
        else:
            del self.open[packet_id]
            assert self.outbound.on_acknowledged(0, packet_id, self.now)
        self.collect()

    @rule(seconds=st.sampled_from([1, 20]))
    def wait(self, seconds: int) -> None:
        self.now = self.environment.now = self.now + seconds
        self.environment.timers.handle_timeout(self.now)
        self.collect()

    @rule()
    def commit(self) -> None:
        self.store.commit()
        self.environment.promises.on_durable(self.environment.now)
        stalled = list(self.environment.stalled)
        self.environment.stalled.clear()
        for outbound in stalled:
            outbound.on_writable(self.now)
        self.collect()

    def collect(self) -> None:
        """Look at what was sent: identifiers are fresh, order holds per topic."""
        if self.peer is None:
            return
        for message, qos, packet_id, _ in self.peer.sent:
            number = int(message.payload[:4])
            if qos:
                assert packet_id not in self.open
                self.open[packet_id] = (message, 0)
                self.qos_of[packet_id] = qos
                assert number > self.seen[message.topic]
                self.seen[message.topic] = number
        self.peer.sent.clear()
        for packet_id in self.peer.released - set(self.open):
            assert self.outbound.on_acknowledged(0, packet_id, self.now)  # it was done with it before
        self.peer.released.clear()

    @property
    def stored(self) -> list[DeliveryRecord]:
        found: list[DeliveryRecord] = []
        MemoryStore.read(self.store, "x", -1, 1000, 1000, lambda page, is_last: found.extend(page))
        return found

    @invariant()
    def the_counters_equal_a_recount(self) -> None:
        outbound = self.outbound
        waiting, inflight = list(outbound._queues), list(outbound._inflight.values())
        assert outbound._queues.messages == len(waiting)
        assert outbound._queues.size == sum(len(delivery.message.payload) for delivery in waiting)
        assert outbound._inflight_bytes == sum(len(delivery.message.payload) for delivery in inflight)
        assert len(inflight) <= 4

    @invariant()
    def the_store_has_what_is_outstanding(self) -> None:
        outbound = self.outbound
        if self.store.durable < self.store.last:
            return  # trims and sweeps are still to be answered
        in_memory = [*outbound._queues, *outbound._inflight.values()]
        numbers = {delivery.number for delivery in in_memory}
        stored = self.stored
        assert numbers <= {record.number for record in stored}
        backlog = [record for record in stored if record.number not in numbers]
        assert outbound._backlog is not None
        assert outbound._backlog.messages == len(backlog)
        assert outbound._backlog.size == sum(len(record.message.payload) for record in backlog)
        assert set(outbound.ids._holds) == {d.packet_id for d in [*in_memory, *backlog] if d.packet_id}

    @invariant()
    def nothing_is_in_memory_for_a_client_that_is_away(self) -> None:
        if self.peer is None:
            assert self.outbound.held_bytes == self.outbound.inflight == 0

    @invariant()
    def every_topic_that_waits_is_ready_or_blocked(self) -> None:
        queues = self.outbound._queues
        assert all(queues._queues.values())
        assert sorted([*queues._ready, *queues._blocked]) == sorted(queues._queues)

    @invariant()
    def nothing_waits_that_could_be_sent(self) -> None:
        outbound = self.outbound
        if self.peer is not None and outbound._window_is_open and self.store.durable == self.store.last:
            assert set(outbound._queues._queues) <= self.peer.congested
            assert outbound._backlog is not None
            assert not outbound._backlog.messages or outbound._queues.messages > 1

    @invariant()
    def no_more_waits_than_may(self) -> None:
        if self.store.durable == self.store.last:
            assert self.outbound.waiting <= 6 + 4  # and what was in flight when the connection was lost

    def teardown(self) -> None:
        """In the end everything that was not dropped arrives and is acknowledged, and nothing is left."""
        if not hasattr(self, "outbound"):
            return
        if self.peer is None:
            self.connect()
        assert self.peer is not None
        self.peer.congested.clear()
        for _ in range(100):
            if not (self.outbound.waiting or self.outbound.inflight):
                break
            self.commit()
            self.outbound.on_writable(self.now)
            self.collect()
            for _ in range(len(self.open)):
                self.answer(0, refuses=False)
        self.commit()
        assert (self.outbound.waiting, self.outbound.inflight) == (0, 0)
        assert (self.stored, self.outbound.ids._holds) == ([], {})


TestQueues = QueueMachine.TestCase
TestQueues.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
