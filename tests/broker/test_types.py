"""Types: announced by publishers, asked for by anyone, remembered for when the publisher is away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.broker.access import Action
from moq.config import Limits
from moq.reasons import Reason
from moq.wire import PubType, TopAck, TypeFormat, TypeReq
from tests.broker.desk import LONG, Client, Desk
from tests.broker.test_topic_requests import Denying

if TYPE_CHECKING:
    import pytest


def publisher_of(desk: Desk, *topics: str, name: str = "publisher") -> Client:
    publisher = desk.connect(name)
    for alias, topic in enumerate(topics, 1):
        publisher.register(topic, alias=alias)
    return publisher


def announcement(topic: str, schema: bytes = b"{}", packet_id: int = 1) -> PubType:
    return PubType(False, False, packet_id, 0, TypeFormat.JSON_SCHEMA, 7, topic, "application/json", schema)


def answer(query: TypeReq, schema: bytes = b"{}", reason: int = 0, topic: str | None = None) -> PubType:
    return PubType(
        False,
        True,
        query.packet_id,
        reason,
        TypeFormat.JSON_SCHEMA,
        7,
        topic or query.topic,
        "application/json",
        schema,
    )


def announce(client: Client, packet: PubType) -> int:
    client.send(packet)
    (acknowledged,) = client.take(TopAck)
    assert acknowledged.packet_id == packet.packet_id
    return acknowledged.reasons[0]


def ask(client: Client, filter_: str) -> list[PubType]:
    client.send(TypeReq(5, filter_))
    return client.take(PubType)


def test_an_announced_type_is_served_also_when_its_publisher_is_away(desk: Desk) -> None:
    publisher = publisher_of(desk, "a")
    assert announce(publisher, announcement("a")) == Reason.SUCCESS
    publisher.lost()
    expected = PubType(False, True, 5, 0, TypeFormat.JSON_SCHEMA, 7, "a", "application/json", b"{}")
    assert ask(desk.connect("asker"), "a") == [expected]


def test_types_of_topics_nobody_publishes_make_room_for_new_topics() -> None:
    desk = Desk(Limits(max_topics=2))
    for name in ("old", "older"):
        publisher = publisher_of(desk, name)
        announce(publisher, announcement(name))
        publisher.lost()
    publisher_of(desk, "new").lost()
    assert [answer.topic for answer in ask(desk.connect("asker"), "#")] == ["older"]


def test_only_a_publisher_may_announce(desk: Desk) -> None:
    publisher_of(desk, "a")
    stranger = desk.connect("stranger")
    assert announce(stranger, announcement("a")) == Reason.TOPIC_NOT_REGISTERED
    assert announce(stranger, announcement("unknown")) == Reason.TOPIC_NOT_REGISTERED


def test_a_schema_has_a_size() -> None:
    desk = Desk(Limits(max_schema_bytes=3))
    publisher = publisher_of(desk, "a")
    assert announce(publisher, announcement("a", b"1234")) == Reason.PACKET_TOO_LARGE
    assert announce(publisher, announcement("a", b"123")) == Reason.SUCCESS


def test_a_wildcard_finds_all_types_in_order_of_their_names(desk: Desk) -> None:
    publisher = publisher_of(desk, "room/b", "room/a", "other")
    for topic in ("room/b", "room/a", "other"):
        announce(publisher, announcement(topic))
    found = ask(desk.connect("asker"), "room/+")
    assert [(packet.topic, packet.more) for packet in found] == [("room/a", True), ("room/b", False)]


def test_what_nobody_knows_is_answered_with_that(desk: Desk) -> None:
    asker = desk.connect("asker")
    (packet,) = ask(asker, "unknown")
    assert (packet.reason, packet.packet_id, packet.more) == (Reason.TYPE_UNKNOWN, 5, False)
    (packet,) = ask(asker, "a/#/b")
    assert packet.reason == Reason.TOPIC_FILTER_INVALID


def test_a_live_publisher_is_asked_and_its_answer_remembered(desk: Desk) -> None:
    publisher, asker = publisher_of(desk, "a"), desk.connect("asker")
    assert ask(asker, "a") == []
    (query,) = publisher.take(TypeReq)
    assert query.topic == "a"
    publisher.send(answer(query))
    assert [packet.schema for packet in asker.take(PubType)] == [b"{}"]
    assert [packet.schema for packet in ask(asker, "a")] == [b"{}"]
    assert publisher.take(TypeReq) == []


def test_an_answer_waits_for_all_publishers(desk: Desk) -> None:
    first, second = publisher_of(desk, "a", name="first"), publisher_of(desk, "b", name="second")
    announce(publisher_of(desk, "c", name="third"), announcement("c"))
    asker = desk.connect("asker")
    assert ask(asker, "#") == []
    first.send(answer(first.take(TypeReq)[0]))
    assert asker.read() == []
    second.send(answer(second.take(TypeReq)[0]))
    assert [packet.topic for packet in asker.take(PubType)] == ["a", "b", "c"]


def test_a_silent_publisher_delays_the_answer_no_longer_than_the_limit(desk: Desk) -> None:
    silent = publisher_of(desk, "a", "b")
    announce(silent, announcement("b"))
    asker = desk.connect("asker")
    assert ask(asker, "+") == []
    desk.advance(2)
    assert [packet.topic for packet in asker.take(PubType)] == ["b"]
    silent.send(answer(silent.take(TypeReq)[0]))
    assert asker.read() == []


def test_a_publisher_that_does_not_know_says_so(desk: Desk) -> None:
    publisher, asker = publisher_of(desk, "a"), desk.connect("asker")
    ask(asker, "a")
    publisher.send(answer(publisher.take(TypeReq)[0], reason=Reason.TYPE_UNKNOWN))
    assert [packet.reason for packet in asker.take(PubType)] == [Reason.TYPE_UNKNOWN]


def test_an_answer_too_large_is_no_answer() -> None:
    desk = Desk(Limits(max_schema_bytes=3))
    publisher, asker = publisher_of(desk, "a"), desk.connect("asker")
    ask(asker, "a")
    publisher.send(answer(publisher.take(TypeReq)[0], b"1234"))
    assert [packet.reason for packet in asker.take(PubType)] == [Reason.TYPE_UNKNOWN]


def test_only_the_publisher_of_the_topic_in_question_is_believed(desk: Desk) -> None:
    publisher, stranger, asker = publisher_of(desk, "a"), desk.connect("stranger"), desk.connect("asker")
    ask(asker, "a")
    (query,) = publisher.take(TypeReq)
    stranger.send(answer(query))
    publisher.send(answer(query, topic="b"))
    publisher.send(answer(TypeReq(99, "a")))
    assert asker.read() == []
    publisher.send(answer(query))
    assert len(asker.take(PubType)) == 1


def test_a_publisher_that_is_away_is_not_asked(desk: Desk) -> None:
    publisher = publisher_of(desk, "a")
    publisher.publish(1, b"x", qos=1, id=1, retain=True)
    publisher.lost()
    (packet,) = ask(desk.connect("asker"), "a")
    assert packet.reason == Reason.TYPE_UNKNOWN


def test_of_several_publishers_one_that_is_there_is_asked(desk: Desk) -> None:
    for name in ("a", "b"):
        client = desk.connect(name, settings=LONG)
        client.register("t", alias=1)
        client.lost()
    present = publisher_of(desk, "t", name="present")
    ask(desk.connect("asker"), "t")
    assert len(present.take(TypeReq)) == 1


def test_types_obey_the_access_list() -> None:
    desk = Desk(access=Denying("asker", Action.TYPE, "secret"))
    announce(publisher_of(desk, "secret"), announcement("secret"))
    (packet,) = ask(desk.connect("asker"), "#")
    assert packet.reason == Reason.TYPE_UNKNOWN


def test_one_question_asks_a_bounded_number_of_publishers(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moq.broker.types.MAX_ASKED", 1)
    publisher = publisher_of(desk, "a", "b")
    ask(desk.connect("asker"), "#")
    assert len(publisher.take(TypeReq)) == 1


def test_questions_have_identifiers_of_their_own(desk: Desk) -> None:
    publisher, asker = publisher_of(desk, "a"), desk.connect("asker")
    for _ in range(0xFFFF):
        asker.send(TypeReq(1, "a"))
    queries = publisher.take(TypeReq)
    assert {query.packet_id for query in queries} == set(range(1, 0x10000))
    (packet,) = ask(asker, "a")
    assert packet.reason == Reason.TYPE_UNKNOWN
    publisher.send(answer(queries[9], reason=Reason.TYPE_UNKNOWN))
    ask(asker, "a")
    assert publisher.take(TypeReq) == [TypeReq(queries[9].packet_id, "a")]
