"""QoS 3 on a desk: who has a message is collected and told once, whatever becomes of publisher and subscribers."""

from __future__ import annotations

import pytest

from moq.broker.access import Action
from moq.broker.confirmations import Answer, Outcome
from moq.broker.dialects.mmqp_confirmations import confirmations_that_fit
from moq.config import Limits
from moq.reasons import Reason
from moq.wire import (
    ConEnd,
    Confirmation,
    ConfirmSyn,
    PubAck,
    PublishExtension,
    PublishKind,
    PubReq,
    PubSyn,
    Settings,
    SubscribeExtension,
    encode,
)
from tests.broker.desk import LONG, PERSISTENT, Client, Desk
from tests.broker.test_topic_requests import Denying

TOO_FEW, TIMED_OUT = Reason.TOO_FEW_SUBSCRIBERS, Reason.CONFIRMATION_TIMED_OUT


def publisher(desk: Desk, name: str = "publisher", settings: Settings = LONG, *, resume: bool = False) -> Client:
    client = desk.connect(name, settings=settings, resume=resume)
    client.register("t", alias=1)
    return client


def subscriber(
    desk: Desk, name: str, *, qos: int = 3, settings: Settings | None = None, group: str | None = None
) -> Client:
    client = desk.connect(name, settings=settings)
    client.subscribe("t", alias=1, qos=qos, group=group)
    return client


def publish(
    client: Client,
    waited: int,
    *ids: str,
    id: int = 7,  # noqa: A002 - the word of the packets
    deadline_ms: int | None = None,
    dup: bool = False,
    payload: bytes = b"!",
    retain: bool = False,
) -> None:
    extension = None
    if ids or deadline_ms is not None:
        extension = PublishExtension(subscribers=list(ids) or None, deadline_ms=deadline_ms)
    client.send(PubReq(0, retain, dup, 3, id, 1, None, waited, extension, payload))


def answer(client: Client, reply: bytes | None = None) -> None:
    """Receive a message, confirm it, and play the exchange to its end."""
    (message,) = client.messages()
    if reply is None:
        client.pubsyn(message.id)
    else:
        client.send(ConfirmSyn(message.id, 0, [Confirmation(reply=reply)]))
    assert client.take(PubSyn) == [PubSyn(0, message.id, Reason.RELEASE)], "released at once"
    client.puback(message.id)


def outcome(client: Client) -> tuple[int, list[tuple[str | None, bytes | None]]] | None:
    """What a publisher was told: the reason, who confirmed, with which reply."""
    told = client.take(ConfirmSyn)
    if not told:
        return None
    (packet,) = told
    return packet.reason, [(item.client_id, item.reply) for item in packet.confirmations]


# --- the exchange -------------------------------------------------------------------------------------


def test_the_publisher_hears_once_from_all_it_waited_for(desk: Desk) -> None:
    client, one, two = publisher(desk), subscriber(desk, "one"), subscriber(desk, "two")
    publish(client, 2)
    desk.advance(0.25)
    answer(one)
    assert client.read() == []
    desk.advance(0.5)
    answer(two, b"done")
    assert client.read() == [
        ConfirmSyn(7, Reason.SUCCESS, [Confirmation("one", 250), Confirmation("two", 750, b"done")])
    ]
    client.pubsyn(7, Reason.RELEASE)
    assert client.read() == [PubAck(0, 7, Reason.SUCCESS)]
    session = desk.broker.sessions.get("publisher")
    assert session is not None
    assert not session.received
    assert not desk.broker.confirmations._of


def test_with_none_to_wait_for_the_first_answer_is_forwarded(desk: Desk) -> None:
    client, one, two = publisher(desk), subscriber(desk, "one"), subscriber(desk, "two")
    publish(client, 0)
    answer(two)
    assert outcome(client) == (Reason.SUCCESS, [("two", None)])
    answer(one)
    assert client.read() == []


def test_an_exchange_has_eight_packets_where_the_paper_counts_nine(desk: Desk) -> None:
    """E-MQTT figure 3, for one subscriber. Plain QoS 2 with a response topic takes 18."""
    client, one = publisher(desk), subscriber(desk, "one")
    publish(client, 1)
    answer(one)  # PUBREQ to it, PUBSYN, RELEASE, PUBACK
    assert len(client.take(ConfirmSyn)) == 1
    client.pubsyn(7, Reason.RELEASE)
    assert client.read() == [PubAck(0, 7, Reason.SUCCESS)]
    assert one.read() == []


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 10, 20, 40, 80])
def test_a_packet_grows_by_two_bytes_and_two_for_each_short_name(count: int) -> None:
    """Table 3 of the paper: 12 bytes at QoS 2, 14 at QoS 3, 2 more per name; ours has 2 more for any list at all."""
    plain = PubReq(0, False, False, 2, 7, 1, None, None, None, b"123456")
    names = [chr(0x21 + index) for index in range(count)]
    extension = PublishExtension(subscribers=names) if names else None
    asked = PubReq(0, False, False, 3, 7, 1, None, count, extension, b"123456")
    assert len(encode(asked)) - len(encode(plain)) == 2 + (2 + 2 * count if count else 0)


@pytest.mark.parametrize(("qos", "seen"), [(3, 3), (2, 2), (1, 1)])
def test_a_subscriber_confirms_by_the_qos_it_subscribed_with(desk: Desk, qos: int, seen: int) -> None:
    client, one = publisher(desk), subscriber(desk, "one", qos=qos)
    publish(client, 1)
    (message,) = one.messages()
    assert (message.packet.qos, message.packet.waited) == (seen, 1 if seen == 3 else None)
    if qos == 1:
        one.puback(message.id)
    else:
        one.pubsyn(message.id)
    assert outcome(client) == (Reason.SUCCESS, [("one", None)])


def test_a_subscriber_of_qos_0_gets_the_message_and_does_not_count(desk: Desk) -> None:
    client, silent, one = publisher(desk), subscriber(desk, "silent", qos=0), subscriber(desk, "one")
    publish(client, 2)
    assert client.read() == [PubSyn(0, 7, TOO_FEW)]
    publish(client, 1, id=8)
    assert silent.payloads() == [b"!"]
    answer(one)
    assert outcome(client) == (Reason.SUCCESS, [("one", None)])


def test_a_repeated_answer_counts_once(desk: Desk) -> None:
    client, one, _ = publisher(desk), subscriber(desk, "one"), subscriber(desk, "two")
    publish(client, 2, deadline_ms=1000)
    (message,) = one.messages()
    one.pubsyn(message.id)
    one.pubsyn(message.id)
    desk.advance(1)
    assert outcome(client) == (TIMED_OUT, [("one", None)])


def test_subscribers_that_join_late_do_not_count(desk: Desk) -> None:
    client, one, _ = publisher(desk), subscriber(desk, "one"), subscriber(desk, "two")
    publish(client, 2, deadline_ms=1000, retain=True)
    late = subscriber(desk, "late")
    (old,) = late.messages()
    assert (old.packet.retain, old.packet.qos) == (True, 2)
    late.pubsyn(old.id)
    answer(one)
    desk.advance(1)
    assert outcome(client) == (TIMED_OUT, [("one", None)])


def test_a_reply_is_told_as_it_is_and_a_second_one_not(desk: Desk) -> None:
    client, one, two = publisher(desk), subscriber(desk, "one"), subscriber(desk, "two", qos=2)
    publish(client, 2)
    (message,) = one.messages()
    for reply in (b"\0\xff" * 127, b"second"):
        one.send(ConfirmSyn(message.id, 0, [Confirmation(reply=reply)]))
    answer(two)
    assert outcome(client) == (Reason.SUCCESS, [("one", b"\0\xff" * 127), ("two", None)])


def test_a_reply_to_a_message_nobody_collects_is_ignored(desk: Desk) -> None:
    client, one = publisher(desk), subscriber(desk, "one")
    client.publish(1, b"plain", qos=2, id=1)
    (message,) = one.messages()
    one.send(ConfirmSyn(message.id, 0, [Confirmation(reply=b"?")]))
    assert one.read() == [PubSyn(0, message.id, Reason.RELEASE)]
    assert client.read() == [PubSyn(0, 1, 0)]


@pytest.mark.parametrize(
    "own",
    [[], [Confirmation(), Confirmation()], [Confirmation(client_id="other")], [Confirmation(after_ms=1)]],
    ids=["none", "two", "a name", "a time"],
)
def test_a_subscriber_confirms_for_itself_alone(desk: Desk, own: list[Confirmation]) -> None:
    client, one = publisher(desk), subscriber(desk, "one")
    publish(client, 1)
    (message,) = one.messages()
    one.send(ConfirmSyn(message.id, 0, own))
    assert one.take(ConEnd) == [ConEnd(Reason.PROTOCOL_ERROR)]


def test_a_message_of_qos_1_is_not_confirmed_by_pubsyn(desk: Desk) -> None:
    client, one = publisher(desk), subscriber(desk, "one", qos=1)
    publish(client, 1)
    (message,) = one.messages()
    one.send(ConfirmSyn(message.id, 0, [Confirmation(reply=b"x")]))
    assert one.take(ConEnd) == [ConEnd(Reason.PROTOCOL_ERROR)]


def test_one_client_that_matches_twice_counts_once(desk: Desk) -> None:
    client, one, two = publisher(desk), subscriber(desk, "one"), subscriber(desk, "two")
    one.subscribe("#", qos=3)
    publish(client, 2)
    answer(one)
    assert client.read() == []
    answer(two)
    assert outcome(client) == (Reason.SUCCESS, [("one", None), ("two", None)])


def test_several_messages_are_collected_apart(desk: Desk) -> None:
    client, one = publisher(desk), subscriber(desk, "one")
    publish(client, 1, id=1, payload=b"a")
    publish(client, 1, id=2, payload=b"b")
    first, second = one.messages()
    one.pubsyn(second.id)
    assert [packet.packet_id for packet in client.take(ConfirmSyn)] == [2]
    one.pubsyn(first.id)
    assert [packet.packet_id for packet in client.take(ConfirmSyn)] == [1]


def test_subscribers_that_are_sent_the_same_share_its_bytes(desk: Desk) -> None:
    client, one, two, other = publisher(desk), *(subscriber(desk, name) for name in ("one", "two", "other"))
    other.subscribe("u", alias=2, qos=1)
    client.register("u", alias=2)
    client.publish(2, b"", qos=1, id=1)
    publish(client, 3)
    first, second, third = (subscriber_.messages()[-1] for subscriber_ in (one, two, other))
    assert (first.id, second.id, third.id) == (1, 1, 2), "the third has another message before it"
    assert first.packet == second.packet
    assert third.packet.waited == 3


# --- designated subscribers ---------------------------------------------------------------------------


def test_only_designated_subscribers_count(desk: Desk) -> None:
    client = publisher(desk)
    named, other, more = (subscriber(desk, name) for name in ("named", "other", "more"))
    publish(client, 2, "named", "more", "stranger")
    answer(other)
    answer(named)
    assert client.read() == []
    answer(more)
    assert outcome(client) == (Reason.SUCCESS, [("named", None), ("more", None)])


def test_more_than_are_designated_is_refused(desk: Desk) -> None:
    client, one, two = publisher(desk), subscriber(desk, "one"), subscriber(desk, "two")
    publish(client, 2, "one", "one")
    assert client.read() == [PubSyn(0, 7, TOO_FEW)]
    assert one.payloads() == two.payloads() == []


def test_designated_subscribers_that_do_not_subscribe_cannot_answer(desk: Desk) -> None:
    client, one = publisher(desk), subscriber(desk, "one")
    publish(client, 2, "one", "stranger")
    assert client.read() == [PubSyn(0, 7, TOO_FEW)]
    publish(client, 1, "one", "stranger", id=8)
    answer(one)
    assert outcome(client) == (Reason.SUCCESS, [("one", None)])


# --- groups -------------------------------------------------------------------------------------------


def test_a_group_counts_as_one(desk: Desk) -> None:
    client = publisher(desk)
    members = [subscriber(desk, name, group="g") for name in ("left", "right")]
    publish(client, 2)
    assert client.read() == [PubSyn(0, 7, TOO_FEW)]
    publish(client, 1, id=8)
    (chosen,) = [member for member in members if member.link.unsent]
    answer(chosen)
    reason, confirmed = outcome(client) or (None, [])
    assert reason == Reason.SUCCESS
    assert len(confirmed) == 1


def test_another_member_answers_when_the_first_is_gone(desk: Desk) -> None:
    client = publisher(desk)
    members = {name: subscriber(desk, name, group="g", qos=1) for name in ("left", "right")}
    publish(client, 1)
    (chosen,) = [name for name, member in members.items() if member.link.unsent]
    members.pop(chosen).lost()
    ((name, other),) = members.items()
    (message,) = other.messages()
    other.puback(message.id)
    assert outcome(client) == (Reason.SUCCESS, [(name, None)])


def test_the_last_member_of_a_group_takes_its_answer_along(desk: Desk) -> None:
    client, member = publisher(desk), subscriber(desk, "member", group="g")
    publish(client, 1)
    member.lost()
    assert outcome(client) == (TOO_FEW, [])


def test_a_member_that_is_also_a_subscriber_counts_once(desk: Desk) -> None:
    client, both = publisher(desk), subscriber(desk, "both")
    both.subscribe("+", qos=3, group="g")
    publish(client, 2)
    for message in both.messages():
        both.pubsyn(message.id)
    assert outcome(client) == (TOO_FEW, [("both", None)])


def test_a_group_that_acknowledges_nothing_does_not_count(desk: Desk) -> None:
    client, member = publisher(desk), subscriber(desk, "member", group="g", qos=0)
    publish(client, 1)
    assert client.read() == [PubSyn(0, 7, TOO_FEW)]
    publish(client, 1, "member", id=8)
    assert client.read() == [PubSyn(0, 8, TOO_FEW)]
    assert member.payloads() == []


def test_a_member_that_was_not_designated_does_not_answer_for_its_group(desk: Desk) -> None:
    client = publisher(desk)
    members = {name: subscriber(desk, name, group="g") for name in ("left", "right")}
    publish(client, 1, "left", id=1)
    publish(client, 1, "left", id=2)
    for member in members.values():
        answer(member)
    told = {packet.reason: [item.client_id for item in packet.confirmations] for packet in client.take(ConfirmSyn)}
    assert told == {Reason.SUCCESS: ["left"], TOO_FEW: []}


def test_a_designated_member_answers_for_its_group(desk: Desk) -> None:
    client, member = publisher(desk), subscriber(desk, "member", group="g")
    publish(client, 1, "member")
    answer(member)
    assert outcome(client) == (Reason.SUCCESS, [("member", None)])


# --- when it cannot be --------------------------------------------------------------------------------


@pytest.mark.parametrize("waited", [0, 1])
def test_without_subscribers_the_answer_comes_at_once(desk: Desk, waited: int) -> None:
    client = publisher(desk)
    publish(client, waited, retain=True)
    assert client.read() == [PubSyn(0, 7, TOO_FEW)]
    late = subscriber(desk, "late")
    assert late.payloads() == [], "a refused message is not retained"
    assert desk.figures.confirmations_failed == 1


def test_too_few_are_told_at_once_and_nobody_gets_the_message(desk: Desk) -> None:
    client, one = publisher(desk), subscriber(desk, "one")
    publish(client, 2)
    assert client.read() == [PubSyn(0, 7, TOO_FEW)]
    assert one.payloads() == []
    publish(client, 1)
    answer(one)
    assert outcome(client) == (Reason.SUCCESS, [("one", None)]), "the identifier was free again"


def test_too_few_are_left_is_told_at_once_with_who_answered(desk: Desk) -> None:
    client, one, two = publisher(desk), subscriber(desk, "one"), subscriber(desk, "two")
    publish(client, 2)
    answer(one, b"here")
    two.lost()
    assert outcome(client) == (TOO_FEW, [("one", b"here")])
    client.pubsyn(7, Reason.RELEASE)
    assert client.read() == [PubAck(0, 7, Reason.SUCCESS)]


def test_a_subscriber_whose_session_expires_while_it_is_away_will_not_answer(desk: Desk) -> None:
    client, one = publisher(desk), subscriber(desk, "one", settings=Settings(persistent=True, expiry_s=5))
    one.lost()
    publish(client, 1)
    desk.advance(4)
    assert client.read() == []
    desk.advance(1)
    assert outcome(client) == (TOO_FEW, [])


def test_a_refusal_is_no_answer(desk: Desk) -> None:
    client, one, two = publisher(desk), subscriber(desk, "one"), subscriber(desk, "two", qos=1)
    publish(client, 2)
    (message,) = one.messages()
    one.send(ConfirmSyn(message.id, Reason.UNSPECIFIED_ERROR, [Confirmation(reply=b"no")]))
    assert outcome(client) == (TOO_FEW, [])
    publish(client, 2, id=8)
    (message,) = two.messages()[1:]
    two.puback(message.id, Reason.UNSPECIFIED_ERROR)
    assert outcome(client) == (TOO_FEW, [])


def test_a_message_dropped_from_a_full_queue_is_told_at_once() -> None:
    desk = Desk(Limits(max_queued_messages=1, max_inflight=1))
    client, one = publisher(desk), subscriber(desk, "one")
    publish(client, 1, id=1)
    publish(client, 1, id=2)
    publish(client, 1, id=3)
    told = client.take(ConfirmSyn)
    assert told == [ConfirmSyn(2, TOO_FEW, [])], "the third one pushed the second out of the queue"
    answer(one)
    answer(one)
    assert [packet.packet_id for packet in client.take(ConfirmSyn)] == [1, 3]


def test_a_message_that_expired_before_it_was_sent_is_told_at_once(desk: Desk) -> None:
    client, one = publisher(desk), subscriber(desk, "one", settings=LONG)
    one.lost()
    client.send(PubReq(0, False, False, 3, 7, 1, None, 1, PublishExtension(ttl_ms=1000), b"!"))
    desk.advance(2)
    one = desk.connect("one", resume=True, settings=LONG)
    assert one.payloads() == []
    assert outcome(client) == (TOO_FEW, [])


def test_a_message_superseded_within_a_reception_period_is_told_at_once(desk: Desk) -> None:
    client, one = publisher(desk), desk.connect("one")
    one.subscribe("t", alias=1, qos=3, extension=SubscribeExtension(period=100))
    for packet_id in (1, 2, 3):
        publish(client, 1, id=packet_id)
    assert client.take(ConfirmSyn) == [ConfirmSyn(2, TOO_FEW, [])]
    answer(one)
    desk.advance(1)
    answer(one)
    assert [packet.packet_id for packet in client.take(ConfirmSyn)] == [1, 3]


def test_a_queue_that_refuses_refuses_the_whole_message() -> None:
    desk = Desk(Limits(max_queued_messages=1), queue_policy="refuse")
    client, one = publisher(desk), subscriber(desk, "one", settings=LONG)
    one.lost()
    publish(client, 1, id=1)
    publish(client, 1, id=2)
    assert client.read() == [PubSyn(0, 2, Reason.QUOTA_EXCEEDED)]


def test_the_deadline_ends_it_with_what_there_is(desk: Desk) -> None:
    client, one, two = publisher(desk), subscriber(desk, "one"), subscriber(desk, "two")
    publish(client, 2, deadline_ms=1500)
    desk.advance(1)
    answer(one)
    desk.advance(0.4)
    assert client.read() == []
    desk.advance(0.1)
    assert outcome(client) == (TIMED_OUT, [("one", None)])
    answer(two)
    assert client.read() == []


def test_without_a_deadline_the_brokers_holds() -> None:
    desk = Desk(Limits(confirm_timeout_s=5))
    client = publisher(desk)
    subscriber(desk, "one")
    publish(client, 0)
    desk.advance(4.9)
    assert client.read() == []
    desk.advance(0.1)
    assert outcome(client) == (TIMED_OUT, [])
    assert desk.figures.confirmations_failed == 1


def test_limits_are_at_their_edge() -> None:
    desk = Desk(Limits(max_confirmations=2, max_confirmations_per_session=2))
    client = publisher(desk)
    for name in ("one", "two", "three"):
        subscriber(desk, name)
    publish(client, 3)
    assert client.read() == [PubSyn(0, 7, Reason.QUOTA_EXCEEDED)]
    publish(client, 2, id=1)
    publish(client, 2, id=2)
    publish(client, 2, id=3)
    assert client.read() == [PubSyn(0, 3, Reason.QUOTA_EXCEEDED)]
    client.pubsyn(1, Reason.RELEASE)
    client.read()
    publish(client, 2, id=3)
    assert client.read() == []
    assert desk.figures.refused_confirmations == 2


def test_requests_have_answers_and_no_confirmations(desk: Desk) -> None:
    client = publisher(desk)
    client.send(PubReq(PublishKind.REQUEST, False, False, 3, 7, 1, None, 1, None, b"?"))
    assert client.read() == [PubSyn(1, 7, Reason.QOS_NOT_SUPPORTED)]


def test_a_topic_that_is_not_registered_is_refused(desk: Desk) -> None:
    client = desk.connect("publisher")
    client.send(PubReq(0, False, False, 3, 7, 0, "t", 1, None, b"!"))
    assert client.read() == [PubSyn(0, 7, Reason.TOPIC_NOT_REGISTERED)]


def test_an_identifier_of_another_exchange_is_refused(desk: Desk) -> None:
    client = publisher(desk)
    subscriber(desk, "one")
    client.publish(1, b"plain", qos=2, id=7)
    client.read()
    publish(client, 1)
    assert client.read() == [PubSyn(0, 7, Reason.PACKET_IDENTIFIER_IN_USE)]


def test_who_may_not_ask_for_subscribers_learns_how_many_and_not_who() -> None:
    desk = Desk(access=Denying("publisher", Action.QUERY, "t"))
    client, one = publisher(desk), subscriber(desk, "one")
    publish(client, 1)
    answer(one)
    assert outcome(client) == (Reason.SUCCESS, [("", None)])
    publish(client, 1, "one", id=8)
    answer(one)
    assert outcome(client) == (Reason.SUCCESS, [("one", None)]), "a name it said itself is no secret"


def test_replies_are_left_out_before_names_and_the_last_names_before_the_first() -> None:
    few = Outcome(Reason.SUCCESS, tuple(Answer(f"{number:03}", 0.001, b"r" * 255) for number in range(600)))
    told = confirmations_that_fit(few)
    assert [confirmation.client_id for confirmation in told] == [answer.client_id for answer in few.answers]
    replies = [confirmation.reply is not None for confirmation in told]
    assert replies == sorted(replies, reverse=True)
    assert 0 < sum(replies) < 600
    many = Outcome(Reason.SUCCESS, tuple(Answer("x" * 255, 0.001, b"r") for _ in range(600)))
    told = confirmations_that_fit(many)
    assert 500 < len(told) < 600
    for outcome_told in (confirmations_that_fit(few), told):
        encode(ConfirmSyn(1, 0, outcome_told))


# --- connections come and go --------------------------------------------------------------------------


def test_a_publisher_that_comes_back_is_told_what_was_collected_meanwhile(desk: Desk) -> None:
    client, one, two = publisher(desk), subscriber(desk, "one"), subscriber(desk, "two")
    publish(client, 2)
    answer(one)
    client.lost()
    answer(two)
    client = publisher(desk, resume=True)
    assert client.read() == []
    publish(client, 2, dup=True)
    assert outcome(client) == (Reason.SUCCESS, [("one", None), ("two", None)])
    publish(client, 2, dup=True)
    assert outcome(client) == (Reason.SUCCESS, [("one", None), ("two", None)]), "told again until it is released"
    client.pubsyn(7, Reason.RELEASE)
    assert one.payloads() == two.payloads() == []


def test_a_publisher_that_comes_back_early_goes_on_waiting(desk: Desk) -> None:
    client, one = publisher(desk), subscriber(desk, "one")
    publish(client, 1)
    client.lost()
    client = publisher(desk, resume=True)
    publish(client, 1, dup=True)
    assert client.read() == []
    assert len(one.messages()) == 1
    one.pubsyn(1)
    assert outcome(client) == (Reason.SUCCESS, [("one", None)])


def test_a_publisher_that_comes_back_is_not_told_before_it_asks(desk: Desk) -> None:
    """Its release, on the control lane, would overtake the repetition, which would be delivered as a new message."""
    client, one = publisher(desk), subscriber(desk, "one")
    publish(client, 1)
    client.lost()
    client = publisher(desk, resume=True)
    answer(one)
    assert client.read() == []
    publish(client, 1, dup=True)
    assert outcome(client) == (Reason.SUCCESS, [("one", None)])


def test_a_subscriber_that_is_away_may_answer_in_time(desk: Desk) -> None:
    client, one = publisher(desk), subscriber(desk, "one", settings=LONG)
    one.lost()
    publish(client, 1)
    assert client.read() == []
    desk.advance(10)
    answer(desk.connect("one", resume=True, settings=LONG))
    assert outcome(client) == (Reason.SUCCESS, [("one", None)])


def test_a_subscriber_repeats_its_answer_on_a_new_connection(desk: Desk) -> None:
    client, one = publisher(desk), subscriber(desk, "one", settings=LONG)
    publish(client, 1)
    (first,) = one.messages()
    one.lost()
    one = desk.connect("one", resume=True, settings=LONG)
    (again,) = one.messages()
    assert (again.id, again.packet.dup, again.packet.qos, again.packet.waited) == (first.id, True, 3, 1)
    one.pubsyn(again.id)
    assert outcome(client) == (Reason.SUCCESS, [("one", None)])


def test_a_session_that_ends_gives_up_what_it_collected(desk: Desk) -> None:
    client, one = publisher(desk, settings=Settings(expiry_s=0)), subscriber(desk, "one")
    publish(client, 1)
    client.lost()
    assert not desk.broker.confirmations._open
    answer(one)
    desk.advance(60)


def test_an_identifier_given_up_early_is_free(desk: Desk) -> None:
    client, one = publisher(desk), subscriber(desk, "one")
    publish(client, 1)
    client.pubsyn(7, Reason.RELEASE)
    assert client.read() == [PubAck(0, 7, Reason.SUCCESS)]
    answer(one)
    assert client.read() == []


# --- restarts -----------------------------------------------------------------------------------------


def test_a_collection_goes_on_after_a_restart(desk: Desk) -> None:
    client = publisher(desk, settings=PERSISTENT)
    one, two = (subscriber(desk, name, settings=PERSISTENT) for name in ("one", "two"))
    publish(client, 2)
    desk.advance(1)
    answer(one, b"early")
    assert two.payloads() == [b"!"]
    desk = desk.restarted(after_s=2)
    client = publisher(desk, settings=PERSISTENT, resume=True)
    two = desk.connect("two", resume=True, settings=PERSISTENT)
    publish(client, 2, dup=True)
    answer(two)
    told = client.take(ConfirmSyn)
    assert told == [ConfirmSyn(7, 0, [Confirmation("one", 1000, b"early"), Confirmation("two", 3000)])]
    client.pubsyn(7, Reason.RELEASE)
    assert desk.restarted().broker.confirmations._of == {}


def test_an_outcome_waits_for_its_publisher_over_a_restart(desk: Desk) -> None:
    client = publisher(desk, settings=PERSISTENT)
    one = subscriber(desk, "one")
    publish(client, 1)
    client.lost()
    answer(one, b"ok")
    desk = desk.restarted()
    client = publisher(desk, settings=PERSISTENT, resume=True)
    publish(client, 1, dup=True)
    assert outcome(client) == (Reason.SUCCESS, [("one", b"ok")])
    client.pubsyn(7, Reason.RELEASE)
    assert client.take(PubAck) == [PubAck(0, 7, Reason.SUCCESS)]


def test_subscribers_that_a_restart_forgot_cannot_answer(desk: Desk) -> None:
    client = publisher(desk, settings=PERSISTENT)
    answered, _ = subscriber(desk, "answered"), subscriber(desk, "forgotten")
    publish(client, 2)
    answer(answered)
    desk = desk.restarted()
    client = publisher(desk, settings=PERSISTENT, resume=True)
    publish(client, 2, dup=True)
    assert outcome(client) == (TOO_FEW, [("answered", None)])


def test_a_deadline_that_passed_while_the_broker_was_away_is_told(desk: Desk) -> None:
    client = publisher(desk, settings=PERSISTENT)
    subscriber(desk, "one", settings=PERSISTENT)
    publish(client, 1, deadline_ms=5000)
    desk = desk.restarted(after_s=10)
    desk.advance(0)
    client = publisher(desk, settings=PERSISTENT, resume=True)
    publish(client, 1, dup=True)
    assert outcome(client) == (TIMED_OUT, [])


def test_an_answer_to_an_old_message_is_not_taken_for_one_to_a_new(desk: Desk) -> None:
    client = publisher(desk, settings=PERSISTENT)
    one = subscriber(desk, "one", settings=PERSISTENT)
    publish(client, 1, deadline_ms=100)
    (old,) = one.messages()
    desk.advance(1)
    assert outcome(client) == (TIMED_OUT, [])
    client.pubsyn(7, Reason.RELEASE)
    desk = desk.restarted(after_s=1)
    client = publisher(desk, settings=PERSISTENT, resume=True)
    one = desk.connect("one", resume=True, settings=PERSISTENT)
    publish(client, 1)
    old_again, new = one.messages()
    assert (old_again.id, old_again.packet.dup) == (old.id, True)
    one.pubsyn(old_again.id)
    assert outcome(client) is None
    one.pubsyn(new.id)
    assert outcome(client) == (Reason.SUCCESS, [("one", None)])


def test_nothing_is_told_before_it_is_safe(desk: Desk) -> None:
    client = publisher(desk, settings=PERSISTENT)
    one = subscriber(desk, "one", settings=PERSISTENT)
    desk.hold_commits()
    publish(client, 1)
    assert one.payloads() == [], "its identifier is not safe"
    desk.commit()
    (message,) = one.messages()
    one.pubsyn(message.id)
    assert client.read() == one.read() == []
    desk.commit()
    assert outcome(client) == (Reason.SUCCESS, [("one", None)])
    assert one.read() == [PubSyn(0, message.id, Reason.RELEASE)]


def test_a_broker_that_crashed_before_it_noted_an_answer_gets_it_again(desk: Desk) -> None:
    client = publisher(desk, settings=PERSISTENT)
    one = subscriber(desk, "one", settings=PERSISTENT)
    publish(client, 1)
    (message,) = one.messages()
    desk.hold_commits()
    one.send(ConfirmSyn(message.id, 0, [Confirmation(reply=b"twice said")]))
    desk = desk.restarted()
    client = publisher(desk, settings=PERSISTENT, resume=True)
    publish(client, 1, dup=True)
    one = desk.connect("one", resume=True, settings=PERSISTENT)
    answer(one, b"twice said")
    assert outcome(client) == (Reason.SUCCESS, [("one", b"twice said")])
