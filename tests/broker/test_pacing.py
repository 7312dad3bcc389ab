"""Reception periods: at most one message per period, topic and subscription; the newest wins and the last arrives."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moq.broker.operators.plan import PERIOD_UNIT_S
from moq.broker.store import MessageRecord, Table
from moq.config import Limits
from moq.reasons import Reason
from moq.wire import PublishExtension, RetentionMode, Subscribe, SubscribeExtension
from tests.broker.desk import LONG, PERSISTENT, Client, Desk

SECOND = SubscribeExtension(period=100)


def publisher_of(desk: Desk, *topics: str) -> Client:
    publisher = desk.connect("publisher")
    for alias, topic in enumerate(topics, 1):
        publisher.register(topic, alias=alias)
    return publisher


def paced(desk: Desk, filter_: str = "a", *, qos: int = 0, extension: SubscribeExtension = SECOND) -> Client:
    subscriber = desk.connect("subscriber")
    subscriber.subscribe(filter_, qos=qos, extension=extension)
    return subscriber


def stored(desk: Desk) -> int:
    return len(desk.store.load(Table.PACED))


# --- the rule -----------------------------------------------------------------------------------------


def test_the_first_is_sent_at_once_and_the_newest_when_the_period_ends(desk: Desk) -> None:
    subscriber, publisher = paced(desk), publisher_of(desk, "a")
    for payload in (b"1", b"2", b"3"):
        publisher.publish(1, payload)
    assert subscriber.payloads() == [b"1"]
    desk.advance(0.99)
    assert subscriber.payloads() == []
    desk.advance(0.01)
    assert subscriber.payloads() == [b"3"]
    desk.advance(5)
    assert subscriber.payloads() == []
    assert (desk.figures.superseded, desk.figures.superseded_bytes) == (1, 1)


def test_a_period_begins_with_what_was_pending_too(desk: Desk) -> None:
    subscriber, publisher = paced(desk), publisher_of(desk, "a")
    publisher.publish(1, b"1")
    publisher.publish(1, b"2")
    desk.advance(1)
    publisher.publish(1, b"3")
    assert subscriber.payloads() == [b"1", b"2"]
    desk.advance(1)
    assert subscriber.payloads() == [b"3"]


def test_periods_are_those_of_single_topics(desk: Desk) -> None:
    subscriber, publisher = paced(desk, "+"), publisher_of(desk, "a", "b")
    for alias in (1, 2, 1, 2):
        publisher.publish(alias, b"%d" % alias)
    assert subscriber.payloads() == [b"1", b"2"]
    desk.advance(1)
    assert subscriber.payloads() == [b"1", b"2"]


@pytest.mark.parametrize("extension", [SubscribeExtension(period=0), None])
def test_no_period_changes_nothing(desk: Desk, extension: SubscribeExtension | None) -> None:
    subscriber, publisher = desk.connect("subscriber"), publisher_of(desk, "a")
    subscriber.subscribe("a", extension=extension)
    for number in range(3):
        publisher.publish(1, b"%d" % number)
    assert subscriber.payloads() == [b"0", b"1", b"2"]
    assert desk.broker.subscriptions.route("a").has_others is False


def test_a_run_of_messages_is_paced_like_single_ones(desk: Desk) -> None:
    subscriber, publisher = paced(desk), publisher_of(desk, "a")
    twin = Desk()
    for client, source in ((subscriber, publisher), (paced(twin), publisher_of(twin, "a"))):
        source.send_bytes(b"".join(bytes([0x70, 0x06, 0x00, 0, 0, 0, 1, ord("0") + n]) for n in range(5)))
        assert client.payloads() == [b"0"]
    desk.advance(1)
    assert (subscriber.payloads(), desk.figures.superseded) == ([b"4"], 3)


def test_the_operator_paces_like_the_extension_and_the_longer_period_counts(desk: Desk) -> None:
    subscriber, publisher = paced(desk, "$MRP;200/a"), publisher_of(desk, "a")
    publisher.publish(1, b"1")
    publisher.publish(1, b"2")
    assert [message.topic for message in subscriber.messages()] == ["a"]
    desk.advance(1.99)
    assert subscriber.payloads() == []
    desk.advance(0.01)
    assert subscriber.payloads() == [b"2"]
    assert subscriber.unsubscribe("$MRP;200/a") == Reason.SUCCESS
    publisher.publish(1, b"3")
    desk.advance(5)
    assert subscriber.payloads() == []


def test_what_expires_while_it_is_pending_is_not_sent(desk: Desk) -> None:
    subscriber, publisher = paced(desk), publisher_of(desk, "a")
    publisher.publish(1, b"1")
    publisher.publish(1, b"2", extension=PublishExtension(ttl_ms=500))
    desk.advance(1)
    assert (subscriber.payloads(), desk.figures.dropped_expired) == ([b"1"], 1)


@given(
    arrivals=st.lists(st.tuples(st.floats(0, 3), st.integers(0, 1)), max_size=40),
    period=st.integers(1, 200),
    qos=st.integers(0, 2),
)
def test_never_two_within_a_period_and_never_the_last_lost(
    arrivals: list[tuple[float, int]], period: int, qos: int
) -> None:
    desk = Desk()
    subscriber = paced(desk, "+", qos=qos, extension=SubscribeExtension(period=period))
    publisher = publisher_of(desk, "a", "b")
    sent: dict[str, list[tuple[float, bytes]]] = {"a": [], "b": []}
    published: dict[str, list[bytes]] = {"a": [], "b": []}

    def look() -> None:
        for message in subscriber.messages():
            assert message.payload == published[message.topic][-1], "the newest wins"
            sent[message.topic].append((desk.now, message.payload))

    def pass_time(seconds: float) -> None:
        end = desk.now + seconds
        while (when := desk.broker.next_timeout()) is not None and when <= end:
            desk.advance(max(when - desk.now, 0))
            look()
        desk.advance(end - desk.now)

    for number, (gap, topic) in enumerate(arrivals):
        pass_time(gap)
        published["ab"[topic]].append(b"%d" % number)
        publisher.publish(topic + 1, b"%d" % number, qos=qos and 1, id=number + 1 if qos else 0)
        look()
        assert sent["ab"[topic]], "the first is sent at once"
    pass_time(period * PERIOD_UNIT_S + 1)
    for name, messages in sent.items():
        times = [at for at, _ in messages]
        assert all(later - earlier >= period * PERIOD_UNIT_S - 1e-9 for earlier, later in pairwise(times))
        assert [payload for _, payload in messages[-1:]] == published[name][-1:], "the last arrives"
    assert desk.figures.superseded == len(arrivals) - sum(map(len, sent.values()))


# --- what it costs ------------------------------------------------------------------------------------


def test_there_is_one_timer_for_all_periods_and_none_when_they_are_over(desk: Desk) -> None:
    subscriber, publisher = paced(desk, "+"), publisher_of(desk, *(f"t{n}" for n in range(50)))
    before = len(desk.broker.timers._heap)
    for _ in range(10):
        for alias in range(1, 51):
            publisher.publish(alias, b"x")
    assert len(desk.broker.timers._heap) == before + 1
    desk.advance(3)
    assert len(subscriber.payloads()) == 100
    assert (desk.broker.pacing._timer, desk.broker.pacing._heap) == (None, [])
    session = desk.broker.sessions.get("subscriber")
    assert session is not None
    assert (session.paces.running, session.paces.size) == ({}, 0)


def test_past_the_bound_further_topics_are_sent_unpaced_and_counted() -> None:
    desk = Desk(Limits(max_paced_topics_per_session=1))
    subscriber, publisher = paced(desk, "+"), publisher_of(desk, "a", "b")
    for alias in (1, 2, 2, 1):
        publisher.publish(alias, b"%d" % alias)
    assert subscriber.payloads() == [b"1", b"2", b"2"]
    assert desk.figures.unpaced == 2


def test_what_is_pending_has_the_bound_of_a_queue() -> None:
    desk = Desk(Limits(max_queued_bytes=100))
    subscriber, publisher = paced(desk), publisher_of(desk, "a")
    for payload in (b"first", b"x" * 60, b"y" * 101, b"z" * 100):
        publisher.publish(1, payload)
    desk.advance(1)
    assert subscriber.payloads() == [b"first", b"z" * 100]
    assert (desk.figures.dropped_queue_full, desk.figures.superseded) == (1, 1)


# --- subscriptions ------------------------------------------------------------------------------------


def test_of_overlapping_subscriptions_the_one_without_a_period_wins(desk: Desk) -> None:
    subscriber, publisher = paced(desk, "a/#"), publisher_of(desk, "a/b")
    subscriber.subscribe("a/b")
    for number in range(3):
        publisher.publish(1, b"%d" % number)
    assert subscriber.payloads() == [b"0", b"1", b"2"]


def test_of_overlapping_periods_the_shorter_wins(desk: Desk) -> None:
    subscriber, publisher = paced(desk, "a/#"), publisher_of(desk, "a/b")
    subscriber.subscribe("a/b", extension=SubscribeExtension(period=10))
    publisher.publish(1, b"1")
    publisher.publish(1, b"2")
    desk.advance(0.1)
    assert subscriber.payloads() == [b"1", b"2"]


def test_what_is_pending_is_sent_when_the_period_is_taken_back(desk: Desk) -> None:
    subscriber, publisher = paced(desk), publisher_of(desk, "a")
    publisher.publish(1, b"1")
    publisher.publish(1, b"2")
    subscriber.subscribe("a")
    publisher.publish(1, b"3")
    assert subscriber.payloads() == [b"1", b"2", b"3"]
    desk.advance(2)
    assert subscriber.payloads() == []


def test_what_is_pending_is_dropped_with_its_subscription(desk: Desk) -> None:
    subscriber, publisher = paced(desk), publisher_of(desk, "a")
    publisher.publish(1, b"1")
    publisher.publish(1, b"2")
    subscriber.unsubscribe("a")
    desk.advance(2)
    assert subscriber.payloads() == [b"1"]


def test_a_client_is_not_sent_its_own_messages_if_it_wants_none(desk: Desk) -> None:
    subscriber, publisher = paced(desk), publisher_of(desk, "a")
    (target,) = desk.broker.subscriptions.route("a").paced
    target.no_local = True
    subscriber.register("a", alias=5)
    subscriber.publish(5, b"mine")
    publisher.publish(1, b"theirs")
    assert subscriber.payloads() == [b"theirs"]


def test_the_retained_message_begins_the_first_period(desk: Desk) -> None:
    publisher = publisher_of(desk, "a")
    publisher.publish(1, b"kept", qos=1, id=1, retain=True)
    subscriber = paced(desk)
    publisher.publish(1, b"2")
    assert subscriber.payloads() == [b"kept"]
    desk.advance(1)
    assert subscriber.payloads() == [b"2"]


@pytest.mark.parametrize("mode", [RetentionMode.FIFO, RetentionMode.LIFO])
def test_of_many_retained_messages_the_newest_is_sent(desk: Desk, mode: RetentionMode) -> None:
    publisher = desk.connect("publisher")
    publisher.register("a", alias=1, mode=mode)
    for number in range(3):
        publisher.publish(1, b"%d" % number, qos=1, id=number + 1, retain=True)
    assert paced(desk).payloads() == [b"2"]


def test_subscribing_again_does_not_send_the_retained_message_before_its_time(desk: Desk) -> None:
    publisher = publisher_of(desk, "a")
    publisher.publish(1, b"kept", qos=1, id=1, retain=True)
    subscriber = paced(desk)
    publisher.publish(1, b"2")
    subscriber.subscribe("a", extension=SECOND)
    desk.advance(1)
    assert subscriber.payloads() == [b"kept", b"2"]


# --- groups and sessions ------------------------------------------------------------------------------


def test_the_member_a_group_chooses_has_its_own_period(desk: Desk) -> None:
    publisher = publisher_of(desk, "a")
    slow, quick = desk.connect("slow"), desk.connect("quick")
    slow.subscribe("a", group="g", extension=SECOND)
    quick.subscribe("a", group="g")
    for number in range(6):
        publisher.publish(1, b"%d" % number)
    assert (len(slow.payloads()), len(quick.payloads())) == (1, 3)
    desk.advance(1)
    assert (len(slow.payloads()), len(quick.payloads())) == (1, 0)


@pytest.mark.parametrize("settings", [None, LONG])
def test_what_a_lost_member_has_pending_goes_to_another(desk: Desk, settings: object) -> None:
    publisher = publisher_of(desk, "a")
    lost = desk.connect("lost", settings=LONG if settings else None)
    lost.subscribe("a", qos=1, group="g", extension=SECOND)
    publisher.publish(1, b"1", qos=1, id=1)
    publisher.publish(1, b"2", qos=1, id=2)
    other = desk.connect("other")
    other.subscribe("a", qos=1, group="g")
    (first,) = lost.messages()
    lost.puback(first.id)
    lost.lost()
    desk.advance(1)
    assert (first.payload, other.payloads()) == (b"1", [b"2"])


def test_what_is_pending_waits_for_an_absent_client_and_is_superseded_while_it_is_away(desk: Desk) -> None:
    publisher = publisher_of(desk, "a")
    subscriber = desk.connect("subscriber", settings=LONG)
    subscriber.subscribe("a", qos=1, extension=SECOND)
    for number in (1, 2):
        publisher.publish(1, b"%d" % number, qos=1, id=number)
    (first,) = subscriber.messages()
    subscriber.puback(first.id)
    subscriber.lost()
    publisher.publish(1, b"3", qos=1, id=3)
    desk.advance(1)
    assert desk.connect("subscriber", resume=True, settings=LONG).payloads() == [b"3"]
    assert desk.figures.superseded == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_pending_for_a_persistent_session_survives_a_crash_once_it_is_acknowledged(qos: int) -> None:
    desk = Desk()
    publisher = publisher_of(desk, "a")
    subscriber = desk.connect("subscriber", settings=PERSISTENT)
    subscriber.subscribe("a", qos=qos, extension=SECOND)
    desk.hold_commits()
    for number in (1, 2, 3):
        publisher.publish(1, b"%d" % number, qos=qos, id=number)
    publisher.read()
    desk.commit()
    assert len(publisher.read()) == 3
    restarted = desk.restarted()
    back = restarted.connect("subscriber", resume=True, settings=PERSISTENT)
    assert sorted(back.payloads()) == [b"1", b"3"]
    restarted.advance(5)
    assert back.payloads() == []


def test_the_store_has_the_newest_alone_and_forgets_it_with_its_delivery(desk: Desk) -> None:
    publisher = publisher_of(desk, "a")
    subscriber = desk.connect("subscriber", settings=PERSISTENT)
    subscriber.subscribe("a", qos=1, extension=SECOND)
    for number in (1, 2, 3):
        publisher.publish(1, b"%d" % number, qos=1, id=number)
    ((key, record),) = desk.store.load(Table.PACED)
    assert isinstance(record, MessageRecord)
    assert (key, record.payload) == (("subscriber", "", "a"), b"3")
    publisher.publish(1, b"4")
    assert stored(desk) == 0
    publisher.publish(1, b"5", qos=1, id=5)
    desk.advance(1)
    assert stored(desk) == 0
    assert subscriber.payloads() == [b"1", b"5"]


def test_a_session_that_ends_takes_what_is_pending_with_it(desk: Desk) -> None:
    publisher = publisher_of(desk, "a")
    subscriber = desk.connect("subscriber", settings=PERSISTENT)
    subscriber.subscribe("a", qos=1, extension=SECOND)
    for number in (1, 2):
        publisher.publish(1, b"%d" % number, qos=1, id=number)
    desk.connect("subscriber", settings=PERSISTENT)
    assert stored(desk) == 0
    desk.advance(5)
    assert desk.broker.pacing._heap == []


def test_a_subscription_that_a_restarted_broker_cannot_read_stays_and_gets_nothing(desk: Desk) -> None:
    subscriber = desk.connect("subscriber", settings=PERSISTENT)
    subscriber.subscribe("a")
    ((_, record),) = desk.store.load(Table.SUBSCRIPTION)
    desk.store.put(Table.SUBSCRIPTION, ("subscriber", "$GONE/a", None), record)
    restarted = desk.restarted()
    back = restarted.connect("subscriber", resume=True, settings=PERSISTENT)
    publisher_of(restarted, "a").publish(1, b"x")
    assert back.payloads() == [b"x"]
    assert back.unsubscribe("$GONE/a") == Reason.SUCCESS


def test_the_period_of_a_persistent_subscription_survives_a_restart(desk: Desk) -> None:
    subscriber = desk.connect("subscriber", settings=PERSISTENT)
    assert subscriber.ask(Subscribe(0, False, 0, "a", None, SECOND)) == [Reason.SUCCESS]
    subscriber.subscribe("$MRP;100/b")
    restarted = desk.restarted()
    back, publisher = (
        restarted.connect("subscriber", resume=True, settings=PERSISTENT),
        publisher_of(restarted, "a", "b"),
    )
    for alias in (1, 1, 2, 2):
        publisher.publish(alias, b"%d" % alias)
    assert back.payloads() == [b"1", b"2"]
