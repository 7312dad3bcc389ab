"""`$SYS/top`: what is counted and published while somebody watches, and that nothing is while nobody does."""

from __future__ import annotations

import json
from itertools import count as counted
from typing import TYPE_CHECKING, Any

import pytest

from moq.broker import metering, snapshot
from moq.broker.link import LinkState
from moq.broker.snapshot import ProcessState
from moq.broker.top import INTERVAL_S, TOPIC, Top
from moq.config import Limits
from moq.wire import PubReq
from tests.broker.desk import LONG, PERSISTENT, Desk

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.broker.access import Action, Actor
    from tests.broker.desk import Client


def process() -> Callable[[], ProcessState]:
    """A process that works a quarter of the time."""
    seconds = counted(1)
    return lambda: ProcessState(7, next(seconds) * 0.25, 1234)


class Gate:
    """Access that can be taken away."""

    def __init__(self) -> None:
        self.is_open = True

    def allows(self, actor: Actor, action: Action, topic: str) -> bool:
        return self.is_open or topic != TOPIC


def desk_with_top(limits: Limits | None = None, access: Gate | None = None) -> Desk:
    desk = Desk(limits=limits, access=access)
    Top(desk.broker, "1.2.3", process(), desk.now)
    return desk


@pytest.fixture
def desk() -> Desk:
    return desk_with_top()


def watch(desk: Desk, client_id: str = "watcher", filter_: str = TOPIC) -> Client:
    """A client that watches, from the moment that everything is counted."""
    watcher = desk.connect(client_id)
    watcher.subscribe(filter_)
    desk.advance(0)
    return watcher


def seen(client: Client) -> dict[str, Any]:
    """The newest snapshot."""
    newest: dict[str, Any] = json.loads(client.payloads()[-1])
    return newest


def named(entries: list[dict[str, Any]], key: str, name: object) -> dict[str, Any]:
    (entry,) = [entry for entry in entries if entry[key] == name]
    return entry


def is_counting(desk: Desk) -> bool:
    return "publish" in vars(desk.broker)


def test_a_broker_that_nobody_watches_counts_nothing_and_keeps_no_timer(desk: Desk) -> None:
    before = desk.broker.next_timeout()
    publisher = desk.connect("publisher")
    sends = publisher.connection.send_message
    desk.advance(5)
    assert not is_counting(desk)
    assert publisher.connection.send_message == sends
    assert before is None
    assert desk.broker.subscriptions.awaited.keys() == {TOPIC}


def test_the_first_snapshot_comes_after_a_second_and_then_every_second(desk: Desk) -> None:
    watcher = watch(desk)
    desk.advance(0.9)
    assert watcher.payloads() == []
    desk.advance(0.1)
    assert len(watcher.payloads()) == 1
    desk.advance(3)
    assert len(watcher.payloads()) == 3


def test_a_snapshot_is_not_retained(desk: Desk) -> None:
    watch(desk)
    desk.advance(2)
    late = desk.connect("late")
    late.subscribe(TOPIC)
    assert late.payloads() == []
    assert desk.broker.topics.get(TOPIC) is None


def test_the_broker_tells_of_itself(desk: Desk) -> None:
    watcher = watch(desk)
    desk.advance(1)
    found = seen(watcher)
    assert found["version"] == snapshot.VERSION
    assert found["interval_s"] == INTERVAL_S
    assert found["at"] == 1_000_001.0
    broker = found["broker"]
    assert (broker["version"], broker["uptime_s"], broker["pressure"]) == ("1.2.3", 1.0, "calm")
    assert (broker["connections"], broker["rss_bytes"], broker["cpu_share"]) == (7, 1234, 0.25)
    assert (broker["sessions"], broker["connected"], broker["subscriptions"]) == (1, 1, 1)


@pytest.mark.parametrize("count", [1, 20])
def test_counts_agree_with_what_was_published_and_delivered(desk: Desk, count: int) -> None:
    publisher, subscriber = desk.connect("publisher"), desk.connect("subscriber")
    publisher.register("room/temp", alias=5)
    subscriber.subscribe("room/#", qos=1)
    subscriber.link.network = LinkState(0.0125, 12_000, 100, 0, 0, 2, None)
    watcher = watch(desk)
    for number in range(count):
        publisher.publish(5, b"x" * 10, qos=number % 2, id=number % 2 and number, lane=2)
    desk.advance(1)
    found = seen(watcher)
    assert found["broker"]["messages_in_per_s"] == found["broker"]["messages_out_per_s"] == count
    sender = named(found["connections"], "client_id", "publisher")
    assert (sender["messages_in_per_s"], sender["bytes_in_per_s"], sender["messages_out_per_s"]) == (
        count,
        count * 10,
        0,
    )
    receiver = named(found["connections"], "client_id", "subscriber")
    assert (receiver["messages_out_per_s"], receiver["bytes_out_per_s"]) == (count, count * 10)
    assert receiver["inflight"] == count // 2
    assert (receiver["rtt_s"], receiver["lost"], receiver["streams_out"]) == (0.0125, 2, 2)
    topic = named(found["topics"], "topic", "room/temp")
    assert (topic["messages_in_per_s"], topic["messages_out_per_s"], topic["subscribers"]) == (count, count, 1)
    incoming = named(found["streams"], "client_id", "publisher")
    assert (incoming["stream"], incoming["direction"], incoming["messages_per_s"]) == (2, "in", count)
    outgoing = named(found["streams"], "client_id", "subscriber")
    (stream_id,) = subscriber.link.lanes
    assert (outgoing["stream"], outgoing["topic"], outgoing["bytes_per_s"]) == (stream_id, "room/temp", count * 10)


def test_a_run_is_counted_as_its_messages_and_a_dropped_one_not_at_all(desk: Desk) -> None:
    publisher, subscriber = desk.connect("publisher"), desk.connect("subscriber")
    publisher.register("a", alias=1)
    subscriber.subscribe("a", alias=9)
    watcher = watch(desk)
    run = [PubReq(0, False, False, 0, 0, 1, None, None, None, b"12345")] * 4
    publisher.send(*run)
    subscriber.stall(9)
    publisher.send(*run)
    desk.advance(1)
    found = seen(watcher)
    assert named(found["topics"], "topic", "a")["messages_in_per_s"] == 8
    receiver = named(found["connections"], "client_id", "subscriber")
    assert (receiver["messages_out_per_s"], receiver["bytes_out_per_s"]) == (4, 20)
    assert found["broker"]["drops"]["congested"] == {"per_s": 4.0, "total": 4}


def test_requests_and_responses_are_counted(desk: Desk) -> None:
    asker, answerer = desk.connect("asker"), desk.connect("answerer")
    asker.register("ask", alias=1)
    answerer.subscribe("ask", requests=True)
    watcher = watch(desk)
    asker.request(1, b"?", id=7)
    (request,) = answerer.messages()
    answerer.respond(request.id, b"!!")
    desk.advance(1)
    found = seen(watcher)
    assert named(found["topics"], "topic", "")["bytes_in_per_s"] == 2
    assert named(found["topics"], "topic", "")["subscribers"] is None
    assert named(found["connections"], "client_id", "answerer")["messages_in_per_s"] == 1


def test_messages_that_wait_for_confirmations_are_counted(desk: Desk) -> None:
    publisher, subscriber = desk.connect("publisher"), desk.connect("subscriber")
    publisher.register("a", alias=1)
    subscriber.subscribe("a", qos=3)
    watcher = watch(desk)
    publisher.send(PubReq(0, False, False, 3, 7, 1, None, 1, None, b"x"))
    desk.advance(1)
    found = seen(watcher)
    assert named(found["topics"], "topic", "a")["messages_in_per_s"] == 1
    assert named(found["connections"], "client_id", "subscriber")["inflight"] == 1


def test_each_interval_begins_from_nothing(desk: Desk) -> None:
    publisher = desk.connect("publisher")
    publisher.register("a", alias=1)
    watcher = watch(desk)
    publisher.publish(1, b"x")
    desk.advance(1)
    assert seen(watcher)["topics"]
    desk.advance(1)
    found = seen(watcher)
    assert [entry["topic"] for entry in found["topics"]] == [TOPIC]
    assert named(found["connections"], "client_id", "publisher")["messages_in_per_s"] == 0


def test_who_connects_while_somebody_watches_is_counted_from_the_first_message(desk: Desk) -> None:
    watcher = watch(desk)
    late = desk.connect("late")
    late.register("a", alias=1)
    late.publish(1, b"x")
    desk.advance(1)
    assert named(seen(watcher)["connections"], "client_id", "late")["messages_in_per_s"] == 1


def test_a_client_that_takes_its_session_over_is_counted_on(desk: Desk) -> None:
    first = desk.connect("twice", settings=LONG)
    watcher = watch(desk)
    second = desk.connect("twice", settings=LONG, resume=True)
    assert first.is_closed
    second.register("a", alias=1)
    second.publish(1, b"x")
    desk.advance(1)
    assert named(seen(watcher)["connections"], "client_id", "twice")["messages_in_per_s"] == 1


def test_a_client_that_vanishes_is_gone_from_the_next_snapshot(desk: Desk) -> None:
    visitor = desk.connect("visitor")
    watcher = watch(desk)
    visitor.lost()
    desk.advance(1)
    assert [entry["client_id"] for entry in seen(watcher)["connections"]] == ["watcher"]
    assert seen_meters(desk) == {"watcher"}


def seen_meters(desk: Desk) -> set[str]:
    meters: metering.Metering = vars(desk.broker)["publish"].__self__
    return set(meters._meters)


def test_when_nobody_watches_any_more_everything_is_as_before(desk: Desk) -> None:
    publisher = desk.connect("publisher")
    sends, sends_run = publisher.connection.send_message, publisher.connection.send_run
    watcher = watch(desk)
    assert is_counting(desk)
    assert publisher.connection.send_message != sends
    watcher.unsubscribe(TOPIC)
    desk.advance(2)
    assert not is_counting(desk)
    assert "start" not in vars(desk.broker.sessions)
    assert publisher.connection.send_message == sends
    assert publisher.connection.send_run == sends_run


def test_counting_begins_again_with_the_next_who_watches(desk: Desk) -> None:
    watcher = watch(desk)
    watcher.lost()
    desk.advance(3)
    assert not is_counting(desk)
    assert desk.broker.next_timeout() is None
    again = watch(desk, "again")
    desk.advance(1)
    assert len(again.payloads()) == 1


def test_nothing_is_counted_for_a_watcher_that_is_away(desk: Desk) -> None:
    watcher = desk.connect("watcher", settings=PERSISTENT)
    watcher.subscribe(TOPIC)
    desk.advance(1)
    watcher.lost()
    desk.advance(2)
    assert not is_counting(desk)
    back = desk.connect("watcher", settings=PERSISTENT, resume=True)
    desk.advance(3)
    assert back.payloads()


def test_a_broker_that_restarts_remembers_who_watches() -> None:
    desk = desk_with_top()
    desk.connect("watcher", settings=PERSISTENT).subscribe(TOPIC)
    desk = desk.restarted()
    Top(desk.broker, "1.2.3", process(), desk.now)
    back = desk.connect("watcher", settings=PERSISTENT, resume=True)
    desk.advance(3)
    assert back.payloads()


def test_a_wildcard_asks_for_nothing_and_gets_what_others_ask_for(desk: Desk) -> None:
    curious = desk.connect("curious")
    curious.subscribe("$SYS/#")
    desk.advance(3)
    assert not is_counting(desk)
    assert curious.payloads() == []
    watch(desk)
    desk.advance(1)
    assert len(curious.payloads()) == 1


def test_a_period_thins_snapshots_out(desk: Desk) -> None:
    watcher = watch(desk, filter_=f"$MRP;300/{TOPIC}")
    desk.advance(9)
    assert len(watcher.payloads()) == 3


def test_members_of_a_group_watch_in_turn(desk: Desk) -> None:
    one, other = desk.connect("one"), desk.connect("other")
    one.subscribe(TOPIC, group="g")
    other.subscribe(TOPIC, group="g")
    desk.advance(4)
    assert len(one.payloads()) == len(other.payloads()) == 2


def test_who_may_not_see_it_any_more_is_no_reason_to_count() -> None:
    gate = Gate()
    desk = desk_with_top(access=gate)
    watcher = watch(desk)
    desk.advance(1)
    assert watcher.payloads()
    gate.is_open = False
    desk.broker.subscriptions.forget_routes()
    desk.advance(3)
    assert watcher.payloads() == []
    assert not is_counting(desk)
    gate.is_open = True
    desk.broker.subscriptions.forget_routes()
    desk.advance(3)
    assert watcher.payloads()


def test_the_lists_hold_the_busiest_and_say_how_many_there_are() -> None:
    desk = desk_with_top(Limits(max_top_entries=3))
    clients = [desk.connect(f"client-{number}") for number in range(10)]
    for number, client in enumerate(clients):
        client.register(f"topic/{number}", alias=1)
    watcher = watch(desk)
    for number, client in enumerate(clients):
        for _ in range(number):
            client.publish(1, b"")
    desk.advance(1)
    found = seen(watcher)
    assert [entry["client_id"] for entry in found["connections"]] == ["client-9", "client-8", "client-7"]
    assert [entry["topic"] for entry in found["topics"]] == ["topic/9", "topic/8", "topic/7"]
    assert [entry["messages_per_s"] for entry in found["streams"]] == [9, 8, 7]
    broker = found["broker"]
    assert (broker["connected"], broker["active_topics"], broker["active_streams"]) == (11, 9, 9)


def test_a_client_that_does_not_keep_up_is_among_the_busiest() -> None:
    desk = desk_with_top(Limits(max_top_entries=1))
    publisher, slow = desk.connect("publisher"), desk.connect("slow")
    publisher.register("a", alias=1)
    slow.subscribe("a", alias=9, qos=1)
    slow.stall(9)
    for number in range(1, 6):
        publisher.publish(1, b"x", qos=1, id=number)
    watcher = watch(desk)
    desk.advance(1)
    (entry,) = seen(watcher)["connections"]
    assert (entry["client_id"], entry["waiting"]) == ("slow", 5)


def test_past_the_bound_topics_are_counted_together(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering.open_flow, "__defaults__", (2,))
    monkeypatch.setattr(metering, "MAX_TOPICS", 3)
    publisher, subscriber = desk.connect("publisher"), desk.connect("subscriber")
    publisher.register("a/#")
    subscriber.subscribe("a/#")
    watcher = watch(desk)
    for number in range(5):
        publisher.publish(f"a/{number}", b"x")
    desk.advance(1)
    found = seen(watcher)
    assert named(found["topics"], "topic", None)["messages_in_per_s"] == 2
    mine = [entry for entry in found["streams"] if entry["client_id"] == "publisher"]
    assert {entry["topic"]: entry["messages_per_s"] for entry in mine} == {"a/0": 1, "a/1": 1, None: 3}
    assert named(found["connections"], "client_id", "subscriber")["messages_out_per_s"] == 5


def test_long_names_are_shortened(desk: Desk) -> None:
    publisher = desk.connect("c" * 255)
    topic = "t" * 255
    publisher.register(topic, alias=1)
    watcher = watch(desk)
    publisher.publish(1, b"x")
    desk.advance(1)
    found = seen(watcher)
    assert found["topics"][0]["topic"] == "t" * (snapshot.MAX_NAME - 1) + "…"
    assert len(found["connections"][0]["client_id"]) == snapshot.MAX_NAME


def test_much_work_is_done_in_many_turns(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering, "SLICE", 4)
    monkeypatch.setattr(snapshot, "SLICE", 4)
    for number in range(20):
        desk.connect(f"client-{number}")
    watcher = watch(desk)
    desk.advance(INTERVAL_S)
    turns = 0
    while not (payloads := watcher.payloads()):
        when = desk.broker.next_timeout()
        assert when is not None
        desk.now = max(desk.now, when)
        desk.broker.handle_timeout(desk.now)
        turns += 1
    assert len(json.loads(payloads[0])["connections"]) == 21
    assert turns >= 21 // 4


def test_a_client_that_leaves_while_a_snapshot_is_made_is_left_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "SLICE", 1)
    visitor = desk.connect("visitor")
    visitor.register("a", alias=1)
    watcher = watch(desk)
    visitor.publish(1, b"x")
    desk.advance(INTERVAL_S)  # and of the snapshot, as far as the visitor
    visitor.lost()
    desk.advance(INTERVAL_S / 2)
    found = seen(watcher)
    assert [entry["client_id"] for entry in found["connections"]] == ["watcher"]
    assert found["streams"] == []
    assert named(found["topics"], "topic", "a")["messages_in_per_s"] == 1
