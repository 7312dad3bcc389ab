"""Many subscriptions with operators at once: each gets what it would get from a broker of its own.

What is compared with shares nothing: one computation per subscription, fed with every message whose topic its filter
matches by the definition of matching.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from moq.broker.message import NEVER
from moq.broker.operators import Calendar, Computation, Settings, compute, parse
from moq.config import Limits
from moq.topics import matches
from moq.wire import PublishExtension
from tests.broker.desk import Client, Desk

FILTERS = ("+/t", "a/+", "#", "a/t", "b/#")
OPERATORS = (
    "$GT;5",
    "$LTE;5.0",
    "$NEQ;x",
    "$SUM",
    "$RPT$MAX",
    "$GT;8$SUM$LT;9",
    "$WIN;5s;AVG",
    "$COUNT$WIN;5s;SUM",
    "$SUM$GT;3$WIN;10s;COUNT",
)
subscriptions = st.one_of(
    st.builds("/".join, st.tuples(st.sampled_from(OPERATORS), st.sampled_from(FILTERS))),
    st.sampled_from(("$MIN/a;b/t", "$RPT$AVG/t;u", "$SUM$WIN;5s;MAX/a;c/t")),
)
topics = st.sampled_from(("a/t", "b/t", "c/t", "a/u", "t", "u", "b"))
payloads = st.sampled_from((b"1", b"4.5", b"6", b"9", b"x", b""))
steps = st.one_of(
    st.tuples(st.just("publish"), topics, payloads, st.sampled_from((None, 2_000, 7_000)), st.integers(0, 2)),
    st.tuples(st.just("wait"), st.sampled_from((0.5, 3.0, 6.0))),
    st.tuples(st.just("leave"), st.integers(0, 5)),
)


class Alone:
    """One subscription with a computation that nobody shares."""

    def __init__(self, text: str, epoch: float) -> None:
        plan = parse(text)
        assert plan is not None
        self._sources = plan.sources
        self._computation: Computation = compute(plan, Settings(calendar=Calendar(epoch), max_name_bytes=255))
        self.received: list[tuple[str, bytes]] = []

    def publish(self, topic: str, payload: bytes, expires_at: float, now: float) -> None:
        if any(matches(source, topic) for source in self._sources):
            self.received += self._computation.on_message(topic, payload, expires_at, now)

    def wait_until(self, now: float) -> None:
        while (when := self._computation.next_timeout()) is not None and when <= now:
            self.received += self._computation.on_timeout(when)


def compare(client: Client, alone: Alone) -> None:
    """Each topic has a lane of its own: order holds within one."""
    received = [(message.topic, message.payload) for message in client.messages()]
    assert sorted(received) == sorted(alone.received)
    for topic in {topic for topic, _ in received}:
        assert [m for m in received if m[0] == topic] == [m for m in alone.received if m[0] == topic]


@settings(max_examples=150)
@given(st.lists(subscriptions, min_size=1, max_size=6), st.lists(steps, max_size=30))
def test_each_subscription_gets_what_it_would_get_alone(texts: list[str], actions: list[tuple]) -> None:  # type: ignore[type-arg]
    desk = Desk(Limits(max_keep_alive_s=1_000_000))
    publisher = desk.connect("publisher")
    publisher.register("#")
    everybody: list[tuple[str, Client, Alone]] = []
    for number, text in enumerate(texts):
        client = desk.connect(f"client-{number}")
        client.subscribe(text, qos=number % 3)
        everybody.append((text, client, Alone(text, desk.broker.environment.epoch)))
    for number, (action, *rest) in enumerate(actions, 1):
        if action == "publish":
            topic, payload, ttl_ms, qos = rest
            extension = PublishExtension(ttl_ms=ttl_ms) if ttl_ms is not None else None
            publisher.publish(topic, payload, qos=qos, id=number if qos else 0, extension=extension)
            expires_at = NEVER if ttl_ms is None else desk.now + ttl_ms / 1000
            for _, _, alone in everybody:
                alone.publish(topic, payload, expires_at, desk.now)
        elif action == "wait":
            desk.advance(rest[0])
            for _, _, alone in everybody:
                alone.wait_until(desk.now)
        elif rest[0] < len(everybody):
            text, client, alone = everybody.pop(rest[0])
            client.unsubscribe(text)
            compare(client, alone)
    for _, client, alone in everybody:
        compare(client, alone)
    for text, client, _ in everybody:
        client.unsubscribe(text)
    assert (len(desk.broker.stages), desk.broker.subscriptions.count) == (0, 0)
    assert desk.broker.subscriptions._root.is_empty
