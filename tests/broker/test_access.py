"""Access lists where they take effect: at subscribing, at each delivery, and again when the rules change."""

from __future__ import annotations

import tomllib

import pytest

from moq.reasons import Reason
from moq.security.access import AccessList, Rules, parse_rules
from moq.security.scram import METHOD
from moq.wire import ConEnd, PubAck, PubSyn, PubType, Query, QueryAck, Register, Subscribe, TopReq, TypeReq, mqtt
from tests.broker.desk import LONG, Client, Desk
from tests.broker.mqtt.scripted import MQTTClient, connect
from tests.broker.mqtt.test_authentication import table

EVERYTHING = """
[[rule]]
allow = ["all", "sys"]
topics = ["#", "$SYS/#"]
"""

EVE_READS_A_PART = """
[[rule]]
clients = ["eve"]
allow = ["read"]
topics = ["home/+/temperature"]

[[rule]]
clients = ["eve"]
deny = ["all", "sys"]
topics = ["#", "$SYS/#"]
"""


def rules(text: str) -> Rules:
    return parse_rules(tomllib.loads(text), text)


class GuardedDesk(Desk):
    """A broker with an access list."""

    def __init__(self, text: str) -> None:
        self.list = AccessList(rules(text))
        super().__init__(access=self.list)

    def change(self, text: str, *connected: Client | MQTTClient) -> None:
        """New rules, as a reload brings them."""
        self.list.rules = rules(text)
        self.broker.subscriptions.forget_routes()
        for client in connected:
            client.connection.judge_again()


@pytest.fixture
def guarded() -> GuardedDesk:
    return GuardedDesk(EVE_READS_A_PART + EVERYTHING)


def publisher(desk: Desk) -> Client:
    client = desk.connect("publisher")
    client.register("#")
    return client


TOPICS = ("home/hall/temperature", "home/hall/alarm", "home", "secret", "home/hall/temperature/raw")


# --- a wildcard does not leak -------------------------------------------------------------------------


@pytest.mark.parametrize("filter_", ["#", "home/#", "home/+/+", "+/hall/#", "home/hall/temperature"])
def test_a_wildcard_brings_only_what_may_be_read(guarded: GuardedDesk, filter_: str) -> None:
    eve, talker = guarded.connect("eve"), publisher(guarded)
    eve.subscribe(filter_)
    for topic in TOPICS:
        talker.publish(topic, topic.encode())
    assert eve.payloads() == [b"home/hall/temperature"]


def test_a_wildcard_brings_only_those_retained_messages_that_may_be_read(guarded: GuardedDesk) -> None:
    eve, talker = guarded.connect("eve"), publisher(guarded)
    for number, topic in enumerate(TOPICS, 1):
        talker.publish(topic, topic.encode(), qos=1, id=number, retain=True)
    eve.subscribe("#")
    assert eve.payloads() == [b"home/hall/temperature"]


def test_a_group_gives_no_message_to_a_member_that_may_not_read_it(guarded: GuardedDesk) -> None:
    eve, bob, talker = guarded.connect("eve"), guarded.connect("bob"), publisher(guarded)
    for member in (eve, bob):
        member.subscribe("#", group="g")
    for _ in range(4):
        talker.publish("secret", b"x")
    assert eve.payloads() == []
    assert bob.payloads() == [b"x"] * 4


def test_an_mqtt_client_gets_no_more_through_a_wildcard(guarded: GuardedDesk) -> None:
    eve, talker = connect(guarded, "eve"), publisher(guarded)
    assert eve.ask(mqtt.Subscription("#", 0), mqtt.Subscription("$share/g/secret", 0)) == [0, Reason.NOT_AUTHORIZED]
    assert eve.ask(mqtt.Subscription("$SYS/#", 0)) == [Reason.NOT_AUTHORIZED]
    for topic in TOPICS:
        talker.publish(topic, topic.encode())
    assert eve.payloads() == [b"home/hall/temperature"]


def test_a_filter_of_which_nothing_may_be_read_is_refused(guarded: GuardedDesk) -> None:
    eve = guarded.connect("eve")
    refused = [Subscribe(0, False, 0, filter_) for filter_ in ("secret", "home/+", "home/hall/temperature/#", "$SYS/#")]
    # The third has the readable topic itself among its names.
    assert eve.ask(*refused) == [Reason.NOT_AUTHORIZED, Reason.NOT_AUTHORIZED, 0, Reason.NOT_AUTHORIZED]


# --- the other rights ---------------------------------------------------------------------------------


def test_who_may_not_register_query_or_write_is_told_so(guarded: GuardedDesk) -> None:
    eve = guarded.connect("eve")
    assert eve.ask(Register(0, False, 1, "home/hall/temperature")) == [Reason.NOT_AUTHORIZED]
    eve.send(TopReq(9, [Query(0, "home/hall/temperature")]))
    assert eve.take(QueryAck) == [QueryAck(9, Reason.NOT_AUTHORIZED, [])]


def test_discovery_shows_only_what_may_be_read(guarded: GuardedDesk) -> None:
    eve, talker = guarded.connect("eve"), publisher(guarded)
    for number, topic in enumerate(TOPICS, 1):
        talker.publish(topic, b"x")
        talker.send(PubType(False, False, number, 0, 1, 0, topic, "text/plain", b"{}"))
    eve.send(TypeReq(1, "#"))
    assert [answer.topic for answer in eve.take(PubType)] == ["home/hall/temperature"]


def test_requests_and_responses_are_rights_of_their_own() -> None:
    mute = '[[rule]]\nclients = ["mute"]\ndeny = ["respond"]\ntopics = ["#"]\n'
    shy = '[[rule]]\nclients = ["shy"]\ndeny = ["request"]\ntopics = ["#"]\n'
    desk = GuardedDesk(mute + shy + EVERYTHING)
    responder, asker = desk.connect("mute"), desk.connect("shy")
    responder.subscribe("service", requests=True)
    asker.register("service", alias=1)
    asker.request(1, b"?", id=1)
    assert asker.take(PubAck) == [PubAck(1, 1, Reason.NOT_AUTHORIZED)]
    other = publisher(desk)
    other.request("service", b"?", id=1)
    assert other.take(PubAck) == [PubAck(1, 1, Reason.NO_RESPONDER)]


def test_a_right_to_respond_that_was_lost_meanwhile_is_asked_for_again() -> None:
    desk = GuardedDesk(EVERYTHING)
    responder, asker = desk.connect("responder"), publisher(desk)
    responder.subscribe("service", requests=True)
    asker.request("service", b"?", id=1)
    (question,) = responder.messages()
    desk.change('[[rule]]\nclients = ["responder"]\ndeny = ["respond"]\ntopics = ["#"]\n' + EVERYTHING, responder)
    responder.respond(question.id, b"!", qos=1)
    assert responder.take(PubAck) == [PubAck(2, question.id, Reason.NOT_AUTHORIZED)]
    assert asker.messages() == []


# --- rules that change --------------------------------------------------------------------------------


def test_a_subscriber_that_loses_its_rights_stays_connected_and_gets_nothing_more() -> None:
    desk = GuardedDesk(EVERYTHING)
    eve, talker = desk.connect("eve"), publisher(desk)
    eve.subscribe("#")
    talker.publish("secret", b"before")
    desk.change(EVE_READS_A_PART + EVERYTHING, eve, talker)
    talker.publish("secret", b"after")
    talker.publish("home/hall/temperature", b"20")
    assert eve.payloads() == [b"before", b"20"]
    desk.change(EVERYTHING, eve, talker)
    talker.publish("secret", b"again")
    assert eve.payloads() == [b"again"]
    assert not eve.is_closed


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publisher_that_loses_its_rights_is_told_so(qos: int) -> None:
    desk = GuardedDesk(EVERYTHING)
    eve, listener = desk.connect("eve"), desk.connect("listener")
    listener.subscribe("#")
    eve.register("secret", alias=1)
    eve.register("wild/#")
    eve.publish("wild/x", b"before")
    desk.change(EVE_READS_A_PART + EVERYTHING, eve, listener)
    eve.publish(1, b"after", qos=qos, id=1)
    eve.publish("wild/x", b"after", qos=qos, id=2)
    answer = PubAck if qos == 1 else PubSyn
    assert eve.take(answer) == [answer(0, number, Reason.NOT_AUTHORIZED) for number in (1, 2)]
    desk.change(EVERYTHING, eve, listener)
    eve.publish(1, b"again", qos=qos, id=3)
    assert listener.payloads() == [b"before", b"again"]


def test_a_publisher_of_qos_0_that_loses_its_rights_is_closed_with_the_reason() -> None:
    desk = GuardedDesk(EVERYTHING)
    eve = desk.connect("eve")
    eve.register("secret", alias=1)
    desk.change(EVE_READS_A_PART + EVERYTHING, eve)
    eve.publish(1, b"after")
    assert eve.take(ConEnd) == [ConEnd(Reason.NOT_AUTHORIZED)]


def test_an_mqtt_publisher_that_loses_its_rights_is_judged_anew() -> None:
    desk = GuardedDesk(EVERYTHING)
    eve, listener = connect(desk, "eve"), desk.connect("listener")
    listener.subscribe("#")
    eve.publish("secret", b"before")
    desk.change(EVE_READS_A_PART + EVERYTHING, listener)
    eve.connection.judge_again()
    eve.publish("secret", b"after", qos=1, id=1)
    eve.publish("secret", b"after")
    assert [answer.reason for answer in eve.take(mqtt.PubAck)] == [Reason.NOT_AUTHORIZED]
    assert listener.payloads() == [b"before"]
    assert desk.figures.dropped_not_authorized == 1


def test_a_resumed_session_publishes_under_no_alias_that_the_rules_no_longer_grant() -> None:
    desk = GuardedDesk(EVERYTHING)
    eve = desk.connect("eve", settings=LONG)
    eve.register("secret", alias=1)
    eve.lost()
    desk.change(EVE_READS_A_PART + EVERYTHING)
    eve = desk.connect("eve", resume=True, settings=LONG)
    eve.publish(1, b"x", qos=1, id=1)
    assert eve.take(PubAck) == [PubAck(0, 1, Reason.NOT_AUTHORIZED)]


def test_a_will_is_not_published_where_its_client_no_longer_may() -> None:
    desk = GuardedDesk(EVERYTHING)
    listener = desk.connect("listener")
    listener.subscribe("#")
    eve = connect(desk, "eve", will=mqtt.Will(None, "gone", b"eve"))
    desk.change(EVE_READS_A_PART + EVERYTHING, listener)
    eve.lost()
    assert listener.payloads() == []
    assert desk.figures.dropped_not_authorized == 1


# --- goodbyes -----------------------------------------------------------------------------------------


def test_a_dismissed_client_is_told_why_and_its_will_is_published(desk: Desk) -> None:
    listener = desk.connect("listener")
    listener.subscribe("gone")
    eve = connect(desk, "eve", will=mqtt.Will(None, "gone", b"eve"))
    assert eve.connection.user is None
    eve.connection.dismiss(Reason.NOT_AUTHORIZED, desk.now)
    assert [packet.reason for packet in eve.take(mqtt.Disconnect)] == [Reason.NOT_AUTHORIZED]
    assert eve.is_closed
    assert listener.payloads() == [b"eve"]


def test_a_client_of_mqtt_5_is_told_which_server_to_use_instead(desk: Desk) -> None:
    client, older = connect(desk, "alice"), connect(desk, "bob", 4)
    desk.broker.environment.authenticator = table()
    half_way = MQTTClient(desk)
    half_way.connect(
        "x", properties=mqtt.Properties(authentication_method=METHOD, authentication_data=b"n,,n=alice,r=nonce")
    )
    half_way.take(mqtt.Auth)
    for each in (client, older, half_way):
        each.connection.shut_down(desk.now, "other.example.org:8883")
        assert each.is_closed
    where = mqtt.Properties(server_reference="other.example.org:8883")
    assert client.read() == [mqtt.Disconnect(Reason.USE_ANOTHER_SERVER, where)]
    assert half_way.read() == [mqtt.ConnAck(False, Reason.USE_ANOTHER_SERVER, where)]
    assert older.read() == []


def test_a_client_of_mmqp_is_told_that_the_server_shuts_down_wherever_another_is(desk: Desk) -> None:
    client = desk.connect("alice")
    client.connection.shut_down(desk.now, "other.example.org:8883")
    assert client.read() == [ConEnd(Reason.SERVER_SHUTTING_DOWN)]


def is_settled(client: Client) -> bool:
    return client.connection.is_settled


def test_a_connection_is_settled_once_its_exchanges_have_ended(desk: Desk) -> None:
    alice, talker = desk.connect("alice"), publisher(desk)
    alice.subscribe("a", qos=1)
    talker.publish("a", b"x", qos=2, id=1)
    assert [is_settled(talker), is_settled(alice)] == [False, False]
    talker.pubsyn(1, Reason.RELEASE)
    assert [is_settled(talker), is_settled(alice)] == [True, False]
    (message,) = alice.messages()
    alice.puback(message.id)
    assert is_settled(alice)
