"""SUBSCRIBE, REGISTER, UNSUBSCRIBE and QUERY: what is accepted, what aliases mean, what must be registered."""

from __future__ import annotations

import pytest

from moq.broker.access import Action, Actor
from moq.broker.message import Registration, Subscription
from moq.config import Limits
from moq.reasons import Reason
from moq.wire import (
    PubAck,
    PubSyn,
    Query,
    QueryAck,
    Register,
    Subscribe,
    SubscribeExtension,
    TopicRequest,
    Unsubscribe,
)
from tests.broker.desk import LONG, Desk


class Denying:
    """Everything is allowed but one action on one topic, for one client."""

    def __init__(self, client_id: str, action: Action, topic: str) -> None:
        self._denied = (client_id, action, topic)

    def allows(self, actor: Actor, action: Action, topic: str) -> bool:
        return (actor.client_id, action, topic) != self._denied


# --- aliases ------------------------------------------------------------------------------------------


def test_a_client_that_lost_its_memory_may_choose_its_aliases_anew(desk: Desk) -> None:
    before = desk.connect("alice", settings=LONG)
    before.subscribe("old", alias=1)
    before.register("pub", alias=2)
    before.lost()
    client = desk.connect("alice", resume=True, settings=LONG)
    other = desk.connect("bob")
    other.register("old", alias=1)
    other.publish(1, b"named in full: this connection never said what alias 1 means")
    (message,) = client.messages()
    assert message.packet.topic == "old"
    assert client.ask(Subscribe(0, False, 1, "new")) == [Reason.SUCCESS]
    assert client.ask(Subscribe(0, False, 2, "other")) == [Reason.SUCCESS]
    client.publish(2, b"x", qos=1, id=1)
    assert client.read() == [PubAck(0, 1, Reason.TOPIC_NOT_REGISTERED)]


def test_a_client_that_kept_its_memory_publishes_under_its_old_aliases(desk: Desk) -> None:
    before = desk.connect("alice", settings=LONG)
    before.register("pub", alias=2)
    before.lost()
    client = desk.connect("alice", resume=True, settings=LONG)
    client.publish(2, b"x", qos=1, id=1)
    assert client.read() == [PubAck(0, 1, Reason.SUCCESS)]


def test_a_topic_is_named_once_and_then_meant_by_its_alias(desk: Desk) -> None:
    client = desk.connect("alice")
    client.subscribe("a/b", alias=7)
    client.subscribe(None, alias=7, qos=1)
    client.register("a/b", alias=7)
    client.publish(7, b"x", qos=1, id=1)
    (message,) = client.messages()
    assert (message.topic, message.packet.alias, message.packet.qos) == ("a/b", 7, 1)
    assert message.packet.topic is None
    assert client.ask(Unsubscribe(False, 7)) == [Reason.SUCCESS]
    assert client.ask(Unsubscribe(False, 7)) == [Reason.NO_SUBSCRIPTION_EXISTED]


@pytest.mark.parametrize(
    "request_",
    [
        Subscribe(0, False, 0x8000, "a"),
        Subscribe(0, False, 0, None),
        Subscribe(0, False, 5, None),
        Subscribe(0, False, 5, "a/#"),
        Subscribe(0, False, 1, "another"),
        Register(0, False, 1, "another"),
        Unsubscribe(False, 5, None),
    ],
    ids=repr,
)
def test_an_alias_that_means_nothing_or_something_else_is_refused(desk: Desk, request_: TopicRequest) -> None:
    client = desk.connect("alice")
    client.subscribe("first", alias=1)
    assert client.ask(request_) == [Reason.TOPIC_ALIAS_INVALID]
    assert not client.is_closed


def test_one_topack_has_a_reason_for_each_request_in_order(desk: Desk) -> None:
    client = desk.connect("alice")
    reasons = client.ask(
        Subscribe(0, False, 0, "a"), Subscribe(0, False, 0, "a/#/b"), Register(0, False, 1, "b"), Unsubscribe(False, 9)
    )
    assert reasons == [Reason.SUCCESS, Reason.TOPIC_FILTER_INVALID, Reason.SUCCESS, Reason.TOPIC_ALIAS_INVALID]


@pytest.mark.parametrize("filter_", ["", "a/#/b", "a#", "+a", "/".join("a" * 65)])
def test_a_filter_that_is_none_is_refused(desk: Desk, filter_: str) -> None:
    client = desk.connect("alice")
    assert client.ask(Subscribe(0, False, 0, filter_)) == [Reason.TOPIC_FILTER_INVALID]
    assert client.ask(Register(0, False, 0, filter_)) == [Reason.TOPIC_FILTER_INVALID]


def test_what_this_broker_does_not_offer_is_refused_by_name(desk: Desk) -> None:
    client = desk.connect("alice")
    extension = SubscribeExtension(deadline=10)
    assert client.ask(Subscribe(0, False, 0, "a", None, extension)) == [Reason.IMPLEMENTATION_SPECIFIC_ERROR]


# --- subscriptions ------------------------------------------------------------------------------------


def test_a_session_gets_one_copy_at_the_highest_qos_of_its_subscriptions(desk: Desk) -> None:
    client = desk.connect("alice")
    client.subscribe("a/#", qos=0)
    client.subscribe("a/b", alias=3, qos=2)
    client.subscribe("+/b", qos=1)
    client.register("a/b", alias=3)
    client.publish(3, b"x", qos=2, id=1)
    (message,) = client.messages()
    assert (message.packet.qos, message.packet.alias) == (2, 3)


def test_unsubscribing_ends_every_group_of_the_filter(desk: Desk) -> None:
    client = desk.connect("alice")
    client.subscribe("a")
    client.subscribe("a", group="g")
    assert desk.broker.subscriptions.count == 2
    assert client.unsubscribe("a") == Reason.SUCCESS
    assert desk.broker.subscriptions.count == 0


def test_system_topics_are_excluded_from_leading_wildcards(desk: Desk) -> None:
    client = desk.connect("alice")
    client.subscribe("#")
    client.subscribe("+/x")
    client.subscribe("$own/#")
    assert desk.broker.subscriptions.route("$own/x").targets[0].subscription.filter == "$own/#"
    assert [found.filter for found in desk.broker.subscriptions.matching("$own/x")] == ["$own/#"]


def test_a_final_wildcard_includes_its_parent(desk: Desk) -> None:
    client = desk.connect("alice")
    client.subscribe("a/#")
    client.register("a", alias=1)
    client.publish(1, b"x")
    assert client.payloads() == [b"x"]


def test_subscriptions_of_a_session_are_bounded() -> None:
    desk = Desk(Limits(max_subscriptions_per_session=1))
    client = desk.connect("alice")
    client.subscribe("a")
    client.subscribe("a", qos=1)
    assert client.ask(Subscribe(0, False, 0, "b")) == [Reason.QUOTA_EXCEEDED]


def test_a_subscription_that_is_not_allowed_is_refused() -> None:
    desk = Desk(access=Denying("alice", Action.SUBSCRIBE, "secret"))
    assert desk.connect("alice").ask(Subscribe(0, False, 0, "secret")) == [Reason.NOT_AUTHORIZED]


def test_a_wildcard_does_not_reveal_what_may_not_be_received() -> None:
    desk = Desk(access=Denying("alice", Action.RECEIVE, "a/secret"))
    alice, bob = desk.connect("alice"), desk.connect("bob")
    bob.register("a/+")
    bob.publish("a/secret", b"kept", qos=1, id=1, retain=True)
    alice.subscribe("a/+", qos=1)
    alice.subscribe("#", qos=1)
    alice.subscribe("a/secret", group="g", qos=1)
    bob.publish("a/secret", b"live", qos=1, id=2)
    assert alice.payloads() == []


def test_the_core_itself_refuses_what_is_no_filter(desk: Desk) -> None:
    """Whatever a dialect lets through."""
    desk.connect("alice")
    session = desk.broker.sessions.get("alice")
    assert session is not None
    assert desk.broker.subscribe(Subscription(session, "#/a"), desk.now) is Reason.TOPIC_FILTER_INVALID
    assert desk.broker.register(session, Registration("#/a")) is Reason.TOPIC_FILTER_INVALID
    assert desk.broker.unsubscribe(session, "a") is Reason.NO_SUBSCRIPTION_EXISTED


def test_a_subscription_that_wants_no_messages_of_its_own_gets_none(desk: Desk) -> None:
    client = desk.connect("alice")
    client.register("a", alias=1)
    session = desk.broker.sessions.get("alice")
    assert session is not None
    desk.broker.subscribe(Subscription(session, "a", no_local=True), desk.now)
    client.publish(1, b"own")
    assert client.payloads() == []
    client.subscribe("#")
    client.publish(1, b"own, wanted by another subscription")
    assert len(client.payloads()) == 1


# --- registrations ------------------------------------------------------------------------------------


def test_publishing_needs_a_registration(desk: Desk) -> None:
    client = desk.connect("alice")
    client.subscribe("a", alias=1)
    client.publish(1, qos=1, id=1)
    client.publish(1, qos=2, id=2)
    client.publish("b", qos=1, id=3)
    client.request(1, id=4)
    assert client.take(PubAck) == [
        PubAck(0, 1, Reason.TOPIC_NOT_REGISTERED),
        PubAck(0, 3, Reason.TOPIC_NOT_REGISTERED),
        PubAck(1, 4, Reason.TOPIC_NOT_REGISTERED),
    ]
    assert client.take(PubSyn) == [PubSyn(0, 2, Reason.TOPIC_NOT_REGISTERED)]
    assert not client.is_closed
    client.publish(1)
    assert client.link.closed_with == Reason.TOPIC_NOT_REGISTERED


def test_a_wildcard_registration_covers_the_names_it_matches(desk: Desk) -> None:
    client, watcher = desk.connect("alice"), desk.connect("bob")
    watcher.subscribe("#")
    client.register("room/+/light")
    client.publish("room/1/light", b"on")
    client.publish("room/1/light", b"off")
    client.publish("room/1/dark", b"", qos=1, id=1)
    assert client.take(PubAck) == [PubAck(0, 1, Reason.TOPIC_NOT_REGISTERED)]
    assert watcher.payloads() == [b"on", b"off"]


def test_registering_later_lifts_an_earlier_refusal(desk: Desk) -> None:
    client = desk.connect("alice")
    client.publish("a", qos=1, id=1)
    client.register("a")
    client.publish("a", qos=1, id=2)
    assert [answer.reason for answer in client.take(PubAck)] == [Reason.TOPIC_NOT_REGISTERED, Reason.SUCCESS]


def test_unregistering_ends_the_right_to_publish(desk: Desk) -> None:
    client = desk.connect("alice")
    client.register("a", alias=1)
    client.register("b/+", alias=0)
    client.publish("b/x", qos=1, id=1)
    assert client.unsubscribe("a", registration=True) == Reason.SUCCESS
    assert client.unsubscribe("b/+", registration=True) == Reason.SUCCESS
    assert client.unsubscribe("b/+", registration=True) == Reason.TOPIC_NOT_REGISTERED
    client.publish(1, qos=1, id=2)
    client.publish("b/x", qos=1, id=3)
    assert [answer.reason for answer in client.take(PubAck)] == [
        Reason.SUCCESS,
        Reason.TOPIC_NOT_REGISTERED,
        Reason.TOPIC_NOT_REGISTERED,
    ]
    assert len(desk.broker.topics) == 0


def test_unregistering_a_wildcard_leaves_what_another_registration_covers(desk: Desk) -> None:
    client = desk.connect("alice")
    client.register("b/+")
    client.register("b/x")
    client.publish("b/x")
    client.publish("b/y")
    client.unsubscribe("b/+", registration=True)
    session = desk.broker.sessions.get("alice")
    assert session is not None
    assert session.publishes == {"b/x"}


def test_registrations_and_topics_are_bounded() -> None:
    desk = Desk(Limits(max_registrations_per_session=2, max_topics=1))
    client = desk.connect("alice")
    client.register("a")
    assert client.ask(Register(0, False, 0, "b")) == [Reason.QUOTA_EXCEEDED]
    client.register("a/#")
    client.register("a/#")
    assert client.ask(Register(0, False, 0, "c/#")) == [Reason.QUOTA_EXCEEDED]
    client.publish("a/x", qos=1, id=1)
    client.publish("a/x", qos=2, id=2)
    assert client.take(PubAck) == [PubAck(0, 1, Reason.QUOTA_EXCEEDED)]
    assert client.take(PubSyn) == [PubSyn(0, 2, Reason.QUOTA_EXCEEDED)]


def test_the_brokers_own_topics_cannot_be_registered(desk: Desk) -> None:
    client = desk.connect("alice")
    assert client.ask(Register(0, False, 0, "$SYS/#")) == [Reason.NOT_AUTHORIZED]


def test_a_name_under_a_wildcard_that_is_not_allowed_is_refused() -> None:
    desk = Desk(access=Denying("alice", Action.PUBLISH, "a/secret"))
    client = desk.connect("alice")
    client.register("a/+")
    client.publish("a/secret", qos=1, id=1)
    assert client.take(PubAck) == [PubAck(0, 1, Reason.NOT_AUTHORIZED)]


def test_names_a_connection_remembers_are_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moq.broker.dialects.mmqp_topics.MAX_KNOWN_NAMES", 2)
    client = desk.connect("alice")
    client.register("a/+")
    for number in range(5):
        client.publish(f"a/{number}")
    assert not client.is_closed


def test_a_refused_repetition_frees_its_identifier(desk: Desk) -> None:
    first = desk.connect("alice", settings=LONG)
    first.register("a", alias=1)
    first.publish(1, b"one", qos=2, id=5)
    first.lost()
    again = desk.connect("alice", resume=True, settings=LONG)
    again.unsubscribe("a", registration=True)
    again.publish(1, b"one", qos=2, id=5, dup=True)
    assert again.take(PubSyn) == [PubSyn(0, 5, Reason.TOPIC_NOT_REGISTERED)]
    again.register("a", alias=1)
    again.subscribe("a")
    again.publish(1, b"two", qos=2, id=5)
    assert again.payloads() == [b"two"]


# --- query --------------------------------------------------------------------------------------------


def test_a_query_lists_who_would_receive(desk: Desk) -> None:
    for name, filter_, group in (("carol", "a/+", None), ("bob", "a/b", "g"), ("dave", "c", None)):
        desk.connect(name).subscribe(filter_, group=group)
    client = desk.connect("alice")
    assert client.query("a/b") == QueryAck(9, Reason.SUCCESS, ["bob", "carol"])
    assert client.query("nobody") == QueryAck(9, Reason.SUCCESS, [])
    assert client.query("a/#") == QueryAck(9, Reason.TOPIC_NAME_INVALID, [])


def test_a_query_by_an_unknown_alias_is_refused(desk: Desk) -> None:
    client = desk.connect("alice")
    client.connection.receive_data(0, b"\x50\x05\x00\x01\xc0\x00\x07", 0.0)
    assert client.take(QueryAck) == [QueryAck(1, Reason.TOPIC_ALIAS_INVALID, [])]
    assert Query(7).topic is None


def test_a_query_is_a_matter_of_access() -> None:
    desk = Desk(access=Denying("alice", Action.QUERY, "a"))
    assert desk.connect("alice").query("a") == QueryAck(9, Reason.NOT_AUTHORIZED, [])
