"""MQTT+ in the broker: rules, aggregates and functions between topics and subscribers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from moq.broker.access import Action
from moq.broker.message import Message
from moq.broker.store import Table
from moq.broker.system import CAPABILITIES, publish_capabilities
from moq.config import Limits
from moq.reasons import Reason
from moq.wire import PublishExtension, Subscribe, SubscribeExtension
from tests.broker.desk import LONG, PERSISTENT, Client, Desk
from tests.broker.operators.test_reference import EXAMPLES, REFUSALS

if TYPE_CHECKING:
    from collections.abc import Collection

    from moq.broker.access import Actor
    from moq.broker.operators.functions import Then

ENCRYPTED = PublishExtension(encrypted=True)
NAMES = SubscribeExtension(repeat_name=True)


class ScriptedFunctions:
    """Functions whose results come when the test says so: by default each gives its payload back."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, bytes, Then]] = []
        self.is_full = False

    def names(self) -> Collection[str]:
        return ("CNTPPL", "ECHO")

    def submit(self, name: str, payload: bytes, then: Then) -> bool:
        if not self.is_full:
            self.waiting.append((name, payload, then))
        return not self.is_full

    def describe(self) -> list[dict[str, object]]:
        return [{"keyword": "$CNTPPL", "desc": "counts people in an image", "returns": "value"}]

    def finish(self, result: bytes | None = None, error: str | None = None) -> None:
        waiting, self.waiting = self.waiting, []
        for _, payload, then in waiting:
            then(payload if result is None and error is None else result, error)


class OneMayNotRead:
    """Everybody may do everything, except that one client must not learn what is on one topic."""

    def __init__(self, client_id: str, topic: str) -> None:
        self.denied = (client_id, topic)

    def allows(self, actor: Actor, action: Action, topic: str) -> bool:
        return action not in (Action.SUBSCRIBE, Action.RECEIVE) or (actor.client_id, topic) != self.denied


PATIENT = Limits(max_keep_alive_s=1_000_000)
"""Clients may be silent for days."""


@pytest.fixture
def desk() -> Desk:
    return Desk(PATIENT)


@pytest.fixture
def functions(desk: Desk) -> ScriptedFunctions:
    functions = ScriptedFunctions()
    desk.broker.environment.functions = functions
    return functions


def publisher_of(desk: Desk) -> Client:
    publisher = desk.connect("publisher")
    publisher.register("#")
    return publisher


def subscriber_of(desk: Desk, filter_: str, *, qos: int = 0, name: str = "subscriber") -> Client:
    subscriber = desk.connect(name)
    subscriber.subscribe(filter_, qos=qos)
    return subscriber


def seen(client: Client) -> list[str]:
    return [f"{message.topic} {message.payload.decode()}" for message in client.messages()]


# --- the language -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", EXAMPLES, ids=lambda lines: lines[0])
def test_an_example_of_the_page_gives_a_subscriber_what_it_says(
    desk: Desk, functions: ScriptedFunctions, lines: list[str]
) -> None:
    desk.advance(86_400 * 2 - desk.broker.environment.epoch % 86_400)  # the examples begin where windows do
    subscriber, publisher = subscriber_of(desk, lines[0].removeprefix("subscribe ")), publisher_of(desk)
    for line in lines[1:]:
        step, _, expected = line.strip().partition("=>")
        action, _, rest = step.strip().partition(" ")
        if action == "wait":
            desk.advance(float(rest))
        else:
            payload, _, ttl = rest.partition(" for ")
            extension = PublishExtension(ttl_ms=int(ttl) * 1000) if ttl else None
            publisher.publish(action, payload.encode(), extension=extension)
            functions.finish()
        assert seen(subscriber) == [text for text in expected.strip().split("  ") if text], line


@pytest.mark.parametrize("subscription", [subscription for subscription, _, _ in REFUSALS])
def test_what_is_not_of_the_language_is_refused(desk: Desk, functions: ScriptedFunctions, subscription: str) -> None:
    client = desk.connect("alice")
    assert client.ask(Subscribe(0, False, 0, subscription)) == [Reason.TOPIC_FILTER_INVALID]
    assert len(desk.broker.stages) == 0


def test_a_request_can_ask_for_the_names_of_those_who_take_part(desk: Desk) -> None:
    subscriber, publisher = desk.connect("subscriber"), publisher_of(desk)
    subscriber.subscribe("$AVG/+/temp", extension=NAMES)
    publisher.publish("b/temp", b"1")
    publisher.publish("a/temp", b"3")
    assert seen(subscriber) == ["$AVG/b/temp 1", "$AVG/a;b/temp 2"]


@pytest.mark.parametrize("filter_", ["a", "$GT;5/a", "$DAILYAVG/a"])
def test_names_of_participants_need_a_spatial_aggregate(desk: Desk, filter_: str) -> None:
    client = desk.connect("alice")
    assert client.ask(Subscribe(0, False, 0, filter_, None, NAMES)) == [Reason.TOPIC_FILTER_INVALID]


def test_a_list_of_names_that_is_too_long_for_the_dialect_gives_way_to_the_keyword(desk: Desk) -> None:
    subscriber, publisher = subscriber_of(desk, "$RPT$SUM/+"), publisher_of(desk)
    for number in range(30):
        publisher.publish(f"sensor-{number:03}", b"1")
    topics = [message.topic for message in subscriber.messages()]
    assert len(topics) == 30
    assert topics[0] == "$SUM/sensor-000"
    assert topics[-1] == "$SUM/$AGGREGATE"


# --- subscriptions ------------------------------------------------------------------------------------


def test_equal_subscriptions_share_one_computation_and_it_ends_with_the_last(desk: Desk) -> None:
    one, other = subscriber_of(desk, "$GT;20$SUM/+"), subscriber_of(desk, "$GT;20.0$SUM/+", name="other")
    other.subscribe("$MRP;100$GT;2e1$SUM/+")
    assert len(desk.broker.stages) == 1
    publisher_of(desk).publish("a", b"21")
    assert seen(one) == ["$GT;20$SUM/$AGGREGATE 21"]
    assert seen(other) == ["$GT;20$SUM/$AGGREGATE 21"] * 2
    assert one.unsubscribe("$GT;20$SUM/+") == Reason.SUCCESS
    assert other.unsubscribe("$GT;20.0$SUM/+") == Reason.SUCCESS
    assert len(desk.broker.stages) == 1
    other.lost()
    assert (len(desk.broker.stages), desk.broker.subscriptions.count) == (0, 0)
    assert desk.broker.subscriptions._root.is_empty


def test_unsubscribing_takes_the_text_that_was_subscribed_to(desk: Desk) -> None:
    subscriber = subscriber_of(desk, "$GT;20.0/a")
    assert subscriber.unsubscribe("$GT;20/a") == Reason.NO_SUBSCRIPTION_EXISTED
    assert subscriber.unsubscribe("$GT;20.0/a") == Reason.SUCCESS


def test_subscribing_again_keeps_what_was_computed(desk: Desk) -> None:
    subscriber, publisher = subscriber_of(desk, "$SUM/+"), publisher_of(desk)
    publisher.publish("a", b"1")
    subscriber.subscribe("$SUM/+", qos=1)
    publisher.publish("b", b"2")
    assert seen(subscriber) == ["$SUM/$AGGREGATE 1", "$SUM/$AGGREGATE 3"]
    subscriber.subscribe("$SUM/+", extension=NAMES)
    assert len(desk.broker.stages) == 1
    publisher.publish("b", b"5")
    assert seen(subscriber) == ["$SUM/b 5"]


def test_a_plain_subscription_beside_one_with_operators_gets_its_own_copy(desk: Desk) -> None:
    subscriber, publisher = subscriber_of(desk, "a"), publisher_of(desk)
    subscriber.subscribe("$GT;5/a")
    publisher.publish("a", b"6")
    publisher.publish("a", b"4")
    assert sorted(seen(subscriber)) == ["a 4", "a 6", "a 6"]


def test_values_have_the_qos_of_the_subscription_and_messages_that_pass_a_rule_at_most_their_own(desk: Desk) -> None:
    subscriber, publisher = subscriber_of(desk, "$SUM/+", qos=2), publisher_of(desk)
    subscriber.subscribe("$GT;0/+", qos=2)
    publisher.publish("a", b"1", qos=1, id=1)
    assert sorted((message.topic, message.packet.qos) for message in subscriber.messages()) == [
        ("$SUM/$AGGREGATE", 2),
        ("a", 1),
    ]


def test_a_publisher_hears_whether_anyone_is_there(desk: Desk) -> None:
    subscriber_of(desk, "$DAILYAVG/a")
    assert desk.broker.route(Message("a", b"1"), desk.now) is Reason.SUCCESS
    assert desk.broker.route(Message("b", b"1"), desk.now) is Reason.NO_MATCHING_SUBSCRIBERS


def test_a_period_paces_values(desk: Desk) -> None:
    subscriber, publisher = subscriber_of(desk, "$MRP;100$SUM/+"), publisher_of(desk)
    for topic in ("a", "b", "c"):
        publisher.publish(topic, b"1")
    desk.advance(1)
    assert seen(subscriber) == ["$SUM/$AGGREGATE 1", "$SUM/$AGGREGATE 3"]


def test_members_of_a_group_share_what_is_computed(desk: Desk) -> None:
    publisher, members = publisher_of(desk), [desk.connect(name) for name in ("x", "y")]
    for member in members:
        member.subscribe("$GT;0/a", group="g")
    for number in range(1, 5):
        publisher.publish("a", b"%d" % number)
    assert sorted(seen(members[0]) + seen(members[1])) == ["a 1", "a 2", "a 3", "a 4"]
    members[0].lost()
    members[1].unsubscribe("$GT;0/a")
    assert len(desk.broker.stages) == 0


def test_there_are_only_so_many_computations() -> None:
    desk = Desk(Limits(max_computations=1))
    client = subscriber_of(desk, "$SUM/+")
    assert client.ask(Subscribe(0, False, 0, "$AVG/+")) == [Reason.QUOTA_EXCEEDED]
    assert client.ask(Subscribe(0, False, 0, "$MRP;5$SUM/+")) == [Reason.SUCCESS]
    assert desk.figures.refused_subscriptions == 1


def test_only_so_many_topics_take_part_and_the_rest_is_counted() -> None:
    desk = Desk(Limits(max_topics_per_computation=2))
    subscriber, publisher = subscriber_of(desk, "$SUM/+"), publisher_of(desk)
    for topic in ("a", "b", "c", "a"):
        publisher.publish(topic, b"1")
    assert [message.payload for message in subscriber.messages()] == [b"1", b"2", b"2"]
    assert desk.figures.left_out_of_aggregates == 1


def test_a_value_without_an_expiry_takes_part_for_the_configured_time() -> None:
    desk = Desk(Limits(default_ttl_s=10))
    subscriber, publisher = subscriber_of(desk, "$COUNT/+"), publisher_of(desk)
    publisher.publish("a", b"1")
    desk.advance(10)
    publisher.publish("b", b"1")
    assert [message.payload for message in subscriber.messages()] == [b"1", b"1"]


# --- retained messages --------------------------------------------------------------------------------


def test_retained_messages_pass_the_rule_first(desk: Desk) -> None:
    publisher = publisher_of(desk)
    for number, topic in enumerate(("a", "b", "c"), 1):
        publisher.publish(topic, b"%d" % number, qos=1, id=number, retain=True)
    assert sorted(seen(subscriber_of(desk, "$GTE;2/+"))) == ["b 2", "c 3"]


def test_retained_messages_are_values_of_spatial_aggregates_and_no_news(desk: Desk) -> None:
    publisher = publisher_of(desk)
    publisher.publish("a", b"1", qos=1, id=1, retain=True)
    subscriber = subscriber_of(desk, "$SUM/+")
    assert seen(subscriber) == []
    publisher.publish("b", b"2")
    assert seen(subscriber) == ["$SUM/$AGGREGATE 3"]


def test_retained_messages_are_processed_before_they_are_values(desk: Desk, functions: ScriptedFunctions) -> None:
    publisher = publisher_of(desk)
    publisher.publish("a", b"image", qos=1, id=1, retain=True)
    subscriber = subscriber_of(desk, "$SUM$CNTPPL/+")
    functions.finish(b"4")
    publisher.publish("b", b"other image")
    functions.finish(b"3")
    assert seen(subscriber) == ["$SUM$CNTPPL/$AGGREGATE 7"]


# --- functions ----------------------------------------------------------------------------------------


def test_one_call_serves_all_who_want_the_same_function(desk: Desk, functions: ScriptedFunctions) -> None:
    each, total = subscriber_of(desk, "$CNTPPL/+"), subscriber_of(desk, "$SUM$CNTPPL/+", name="total")
    publisher_of(desk).publish("a", b"image")
    assert [(name, payload) for name, payload, _ in functions.waiting] == [("CNTPPL", b"image")]
    functions.finish(b"2")
    assert (seen(each), seen(total)) == (["$CNTPPL/a 2"], ["$SUM$CNTPPL/$AGGREGATE 2"])


def test_a_subscriber_hears_that_a_function_failed(desk: Desk, functions: ScriptedFunctions) -> None:
    subscriber, publisher = subscriber_of(desk, "$MAX$CNTPPL/+/image"), publisher_of(desk)
    publisher.publish("room/image", b"no image")
    functions.finish(error="the worker has crashed")
    assert seen(subscriber) == ["$ERROR/$MAX$CNTPPL/room/image the worker has crashed"]
    functions.is_full = True
    publisher.publish("room/image", b"image")
    assert seen(subscriber) == ["$ERROR/$MAX$CNTPPL/room/image $CNTPPL has too much to do"]
    assert desk.figures.functions_failed == 2


def test_a_result_that_nobody_waits_for_any_more_is_dropped(desk: Desk, functions: ScriptedFunctions) -> None:
    subscriber = subscriber_of(desk, "$CNTPPL/+")
    publisher_of(desk).publish("a", b"image")
    subscriber.unsubscribe("$CNTPPL/+")
    functions.finish(b"2")
    assert seen(subscriber) == []


def test_an_unknown_function_is_refused(desk: Desk, functions: ScriptedFunctions) -> None:
    client = desk.connect("alice")
    assert client.ask(Subscribe(0, False, 0, "$CNTCATS/+")) == [Reason.TOPIC_FILTER_INVALID]


def test_capabilities_list_functions_and_operators(desk: Desk, functions: ScriptedFunctions) -> None:
    publish_capabilities(desk.broker, desk.now)
    (message,) = subscriber_of(desk, CAPABILITIES).messages()
    entries = json.loads(message.payload)
    assert entries[0] == {"keyword": "$CNTPPL", "desc": "counts people in an image", "returns": "value"}
    keywords = {entry["keyword"] for entry in entries}
    assert {"$GT", "$CONTAINS", "$AVG", "$DAILYAVG", "$QUARTERHOURLYMAX", "$WIN", "$MRP", "$RPT"} <= keywords
    assert all(set(entry) == {"keyword", "desc", "returns"} for entry in entries)


# --- what must not be read ----------------------------------------------------------------------------


@pytest.mark.parametrize("filter_", ["$GT;0/+", "$SUM/+", "$WIN;1s;SUM/+", "$CNTPPL/+"])
def test_encrypted_messages_are_not_read_and_that_is_said_once(
    desk: Desk, functions: ScriptedFunctions, filter_: str
) -> None:
    subscriber, publisher = subscriber_of(desk, filter_), publisher_of(desk)
    for _ in range(2):
        publisher.publish("a", b"1", extension=ENCRYPTED)
    desk.advance(2)
    operators = filter_.partition("/")[0]
    assert seen(subscriber) == [
        f"$ERROR/{operators}/a messages of this topic are encrypted: the broker cannot read them"
    ]
    assert (functions.waiting, desk.figures.unreadable_encrypted) == ([], 2)


def test_a_topic_known_to_be_encrypted_is_refused(desk: Desk) -> None:
    publisher = publisher_of(desk)
    publisher.publish("a", b"1", qos=1, id=1, retain=True, extension=ENCRYPTED)
    client = desk.connect("alice")
    assert client.ask(Subscribe(0, False, 0, "$GT;0/a")) == [Reason.IMPLEMENTATION_SPECIFIC_ERROR]
    client.subscribe("$SUM/+")
    client.subscribe("$MRP;1/a")
    publisher.publish("b", b"2")
    assert "$SUM/$AGGREGATE 2" in seen(client)


def test_what_a_client_may_not_read_is_not_part_of_its_values() -> None:
    desk = Desk(access=OneMayNotRead("curious", "secret"))
    curious, trusted = subscriber_of(desk, "$SUM/+", name="curious"), subscriber_of(desk, "$SUM/+", name="trusted")
    publisher = publisher_of(desk)
    publisher.publish("secret", b"40")
    publisher.publish("open", b"2")
    assert seen(curious) == ["$SUM/$AGGREGATE 2"]
    assert seen(trusted) == ["$SUM/$AGGREGATE 40", "$SUM/$AGGREGATE 42"]


def test_what_a_client_may_not_read_does_not_prime_its_values() -> None:
    desk = Desk(access=OneMayNotRead("curious", "secret"))
    publisher = publisher_of(desk)
    publisher.publish("secret", b"40", qos=1, id=1, retain=True)
    curious = subscriber_of(desk, "$SUM/+", name="curious")
    publisher.publish("open", b"2")
    assert seen(curious) == ["$SUM/$AGGREGATE 2"]


@pytest.mark.parametrize("filter_", ["$GT;0/secret", "$SUM/open;secret", "$MRP;10/secret"])
def test_every_topic_behind_operators_must_be_allowed(filter_: str) -> None:
    desk = Desk(access=OneMayNotRead("curious", "secret"))
    assert desk.connect("curious").ask(Subscribe(0, False, 0, filter_)) == [Reason.NOT_AUTHORIZED]


def test_with_rules_of_access_operators_are_not_shared() -> None:
    desk = Desk(access=OneMayNotRead("curious", "secret"))
    client = desk.connect("alice")
    reasons = client.ask(Subscribe(0, False, 0, "$SUM/+", "g"))
    assert reasons == [Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED]


# --- sessions and restarts ----------------------------------------------------------------------------


def test_values_wait_for_an_absent_client(desk: Desk) -> None:
    subscriber, publisher = desk.connect("subscriber", settings=LONG), publisher_of(desk)
    subscriber.subscribe("$SUM/+", qos=1)
    subscriber.lost()
    publisher.publish("a", b"1")
    assert seen(desk.connect("subscriber", resume=True, settings=LONG)) == ["$SUM/$AGGREGATE 1"]


def test_what_is_acknowledged_is_counted_after_a_crash() -> None:
    desk = Desk(PATIENT)
    subscriber, publisher = desk.connect("subscriber", settings=PERSISTENT), publisher_of(desk)
    subscriber.subscribe("$DAILYSUM/+", qos=1)
    desk.hold_commits()
    for number, topic in enumerate(("a", "b", "a"), 1):
        publisher.publish(topic, b"%d" % number, qos=1, id=number)
    desk.commit()
    assert len(publisher.read()) == 3
    publisher.publish("a", b"100", qos=1, id=4)
    assert publisher.read() == []
    restarted = desk.restarted()
    back = restarted.connect("subscriber", resume=True, settings=PERSISTENT)
    publisher_of(restarted).publish("a", b"100", qos=1, id=4)
    restarted.advance(86_400)
    assert seen(back) == ["$DAILYSUM/a 104", "$DAILYSUM/b 2"]
    assert restarted.store.load(Table.AGGREGATE) == []


def test_a_window_that_ended_while_the_broker_was_away_is_published_when_it_is_back(desk: Desk) -> None:
    subscriber, publisher = desk.connect("subscriber", settings=PERSISTENT), publisher_of(desk)
    subscriber.subscribe("$SUM$QUARTERHOURLYMAX/+", qos=1)
    publisher.publish("a", b"1")
    publisher.publish("b", b"2")
    restarted = desk.restarted(after_s=1_800)
    restarted.advance(0)
    assert seen(restarted.connect("subscriber", resume=True, settings=PERSISTENT)) == [
        "$SUM$QUARTERHOURLYMAX/$AGGREGATE 3"
    ]


def test_a_value_in_the_queue_of_a_persistent_session_survives_with_its_window_gone(desk: Desk) -> None:
    subscriber, publisher = desk.connect("subscriber", settings=PERSISTENT), publisher_of(desk)
    subscriber.subscribe("$QUARTERHOURLYMAX/+", qos=1)
    subscriber.lost()
    publisher.publish("a", b"1")
    desk.advance(900)
    assert desk.store.load(Table.AGGREGATE) == []
    restarted = desk.restarted()
    assert seen(restarted.connect("subscriber", resume=True, settings=PERSISTENT)) == ["$QUARTERHOURLYMAX/a 1"]


def test_windows_are_kept_for_persistent_sessions_only(desk: Desk) -> None:
    passing, publisher = subscriber_of(desk, "$DAILYSUM/+"), publisher_of(desk)
    publisher.publish("a", b"1")
    assert desk.store.load(Table.AGGREGATE) == []
    lasting = desk.connect("lasting", settings=PERSISTENT)
    lasting.subscribe("$DAILYSUM/+")
    publisher.publish("b", b"2")
    assert [key for key, _ in desk.store.load(Table.AGGREGATE)] == [("$DAILYSUM/+", "a"), ("$DAILYSUM/+", "b")]
    lasting.unsubscribe("$DAILYSUM/+")
    assert desk.store.load(Table.AGGREGATE) == []
    desk.advance(86_400)
    assert seen(passing) == ["$DAILYSUM/a 1", "$DAILYSUM/b 2"]


def test_after_a_restart_spatial_aggregates_begin_with_what_is_retained(desk: Desk) -> None:
    subscriber, publisher = desk.connect("subscriber", settings=PERSISTENT), publisher_of(desk)
    subscriber.subscribe("$SUM/+")
    publisher.publish("a", b"1", qos=1, id=1, retain=True)
    publisher.publish("b", b"2", qos=1, id=2)
    restarted = desk.restarted()
    back = restarted.connect("subscriber", resume=True, settings=PERSISTENT)
    publisher_of(restarted).publish("c", b"4")
    assert seen(back) == ["$SUM/$AGGREGATE 5"]
