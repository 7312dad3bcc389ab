"""Messages on their way in: aliases, routing, acknowledgements, duplicates, full queues, large payloads."""

from __future__ import annotations

import pytest

from moq.client import inbox as inbox_module
from moq.client import session as session_module
from moq.client.inbox import Delivery, Inbox
from moq.client.messages import Message, Request
from moq.client.session import ClientSession, SessionOptions
from moq.reasons import Reason
from moq.wire import (
    Property,
    PubAck,
    PublishExtension,
    PublishKind,
    PubReq,
    PubSyn,
    TopReq,
)
from tests.client.scripted import Pair, message


@pytest.fixture
def pair() -> Pair:
    pair = Pair()
    pair.connect()
    return pair


def subscribed(pair: Pair, filter_: str, *, qos: int = 2, queue: int = 1000, requests: bool = False) -> Inbox:
    inbox = pair.core.subscribe(filter_, qos=qos, requests=requests, queue=queue)
    pair.answer_topics()
    return inbox


def payloads(inbox: Inbox) -> list[bytes]:
    return [item.payload for item in inbox.queue]


# --- which topic, whose message ---------------------------------------------------------------------------


def test_an_alias_of_ours_names_the_topic_it_was_subscribed_with(pair: Pair) -> None:
    first, second = subscribed(pair, "a"), subscribed(pair, "b")
    pair.receive(message(b"1", alias=1), lane=1)
    pair.receive(message(b"2", alias=2), lane=2)
    assert payloads(first) == [b"1"]
    assert payloads(second) == [b"2"]


def test_an_alias_of_the_brokers_is_bound_on_each_lane_by_its_first_message(pair: Pair) -> None:
    inbox = subscribed(pair, "a/#")
    pair.receive(message(b"1", topic="a/x", alias=0x8000), lane=1)
    pair.receive(message(b"2", topic="a/y", alias=0x8001), lane=2)
    pair.receive(message(b"3", alias=0x8000), lane=1)
    assert [(item.topic, item.payload) for item in inbox.queue] == [("a/x", b"1"), ("a/y", b"2"), ("a/x", b"3")]
    pair.receive(message(b"4", alias=0x8000), lane=2)
    assert "names no topic on lane 2" in str(pair.owner.error), "the alias was bound on another lane"


def test_a_topic_without_an_alias_is_named_every_time(pair: Pair) -> None:
    inbox = subscribed(pair, "a/#")
    pair.receive(message(b"1", topic="a/x"), lane=1)
    pair.receive(message(b"2", topic="a/y"), lane=1)
    assert [item.topic for item in inbox.queue] == ["a/x", "a/y"]


def test_one_message_reaches_every_subscription_that_matches(pair: Pair) -> None:
    inboxes = [subscribed(pair, filter_) for filter_ in ("a/#", "a/b", "a/b", "c")]
    pair.receive(message(b"1", topic="a/b", qos=1, packet_id=7))
    assert [len(inbox.queue) for inbox in inboxes] == [1, 1, 1, 0]
    assert pair.broker.next(PubAck) == PubAck(0, 7, Reason.SUCCESS)
    assert not pair.broker.received, "it is acknowledged once"


def test_a_message_brings_its_extension(pair: Pair) -> None:
    inbox = subscribed(pair, "a")
    extension = PublishExtension(
        timestamp_ns=1_500_000_000, group_start=True, type_id=3, properties=[Property("unit", "K")]
    )
    pair.receive(PubReq(0, True, False, 0, 0, 1, None, None, extension, b"{}"))
    received = inbox.queue[0]
    assert (received.timestamp, received.group_start, received.type_id) == (1.5, True, 3)
    assert received.properties == {"unit": "K"}
    assert received.retain
    assert Message("t", b"").timestamp is None


def test_a_message_nobody_wants_any_more_is_acknowledged(pair: Pair) -> None:
    inbox = subscribed(pair, "a")
    pair.core.unsubscribe(inbox)
    pair.answer_topics()
    pair.receive(message(b"late", alias=1, qos=1, packet_id=3))
    assert pair.broker.next(PubAck).packet_id == 3
    assert not inbox.queue


def test_routes_are_found_again_after_too_many_topics(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MAX_CACHED_ROUTES", 2)
    inbox = subscribed(pair, "#")
    for number in range(5):
        pair.receive(message(topic=f"t/{number}"))
    assert len(inbox.queue) == 5
    assert len(pair.session._routes) <= 2


# --- requests ---------------------------------------------------------------------------------------------


def test_a_request_goes_to_one_subscription_that_answers(pair: Pair) -> None:
    plain = subscribed(pair, "a/#")
    first = subscribed(pair, "a/b", requests=True)
    second = subscribed(pair, "a/+", requests=True)
    pair.receive(message(b"?", topic="a/b", packet_id=5, kind=PublishKind.REQUEST))
    assert [len(inbox.queue) for inbox in (plain, first, second)] == [0, 1, 0]
    assert isinstance(first.queue[0], Request)


def test_a_subscription_for_requests_only_takes_nothing_else(pair: Pair) -> None:
    inbox = subscribed(pair, "a", requests=True)
    inbox.only_requests = True
    pair.receive(message(b"news", alias=1))
    pair.receive(message(b"?", alias=1, packet_id=5, kind=PublishKind.REQUEST))
    assert payloads(inbox) == [b"?"]


# --- QoS 2 ------------------------------------------------------------------------------------------------


def test_qos_2_is_delivered_once_however_often_it_is_repeated(pair: Pair) -> None:
    inbox = subscribed(pair, "a")
    pair.receive(message(b"1", alias=1, qos=2, packet_id=7))
    assert pair.broker.next(PubSyn) == PubSyn(0, 7, Reason.SUCCESS)
    pair.lose()
    pair.connect(session_present=True)
    pair.receive(message(b"1", alias=1, qos=2, packet_id=7, dup=True))
    assert pair.broker.next(PubSyn) == PubSyn(0, 7, Reason.SUCCESS)
    pair.receive(PubSyn(0, 7, Reason.RELEASE))
    assert pair.broker.next(PubAck) == PubAck(0, 7, Reason.SUCCESS)
    assert payloads(inbox) == [b"1"]
    pair.receive(message(b"2", alias=1, qos=2, packet_id=7))
    assert payloads(inbox) == [b"1", b"2"], "the identifier carries the next message"


def test_the_release_of_an_unknown_message_is_answered(pair: Pair) -> None:
    pair.receive(PubSyn(0, 9, Reason.RELEASE))
    assert pair.broker.next(PubAck) == PubAck(0, 9, Reason.PACKET_IDENTIFIER_NOT_FOUND)


def test_identifiers_of_a_forgotten_session_mean_nothing_to_the_next(pair: Pair) -> None:
    inbox = subscribed(pair, "a")
    pair.receive(message(b"1", alias=1, qos=2, packet_id=7))
    pair.lose()
    pair.connect(session_present=False)
    pair.answer_topics()
    pair.receive(message(b"2", alias=1, qos=2, packet_id=7))
    assert payloads(inbox) == [b"1", b"2"]


def test_kinds_do_not_share_identifiers(pair: Pair) -> None:
    inbox = subscribed(pair, "a", requests=True)
    pair.receive(message(b"1", alias=1, qos=2, packet_id=7))
    pair.receive(message(b"2", alias=1, qos=2, packet_id=7, kind=PublishKind.REQUEST))
    assert payloads(inbox) == [b"1", b"2"]


# --- full queues ------------------------------------------------------------------------------------------


def test_a_full_queue_drops_the_oldest_best_effort_message_and_counts_it(pair: Pair) -> None:
    inbox = subscribed(pair, "a", queue=2)
    for number in range(4):
        pair.receive(message(bytes([number]), alias=1))
    assert payloads(inbox) == [b"\2", b"\3"]
    assert inbox.dropped == 2


@pytest.mark.parametrize(("qos", "answer"), [(1, PubAck), (2, PubSyn)])
def test_a_full_queue_withholds_acknowledgements_until_there_is_room(
    pair: Pair, qos: int, answer: type[PubAck | PubSyn]
) -> None:
    inbox = subscribed(pair, "a", queue=1)
    for packet_id in (1, 2, 3):
        pair.receive(message(bytes([packet_id]), alias=1, qos=qos, packet_id=packet_id))
    assert pair.broker.next(answer).packet_id == 1
    assert not pair.broker.received
    for packet_id in (1, 2, 3):
        taken = pair.core.take(inbox)
        assert taken is not None
        assert taken.payload == bytes([packet_id])
        pair.deliver()
        if packet_id < 3:
            assert pair.broker.next(answer).packet_id == packet_id + 1
    assert pair.core.take(inbox) is None


def test_a_withheld_message_is_not_kept_twice_when_it_is_repeated(pair: Pair) -> None:
    inbox = subscribed(pair, "a", queue=1)
    for packet_id in (1, 2, 2):
        pair.receive(message(bytes([packet_id]), alias=1, qos=1, packet_id=packet_id))
    assert len(inbox.withheld) == 1


def test_a_full_queue_does_not_block_another_subscription(pair: Pair) -> None:
    slow, quick = subscribed(pair, "slow", queue=1), subscribed(pair, "quick")
    for packet_id in range(1, 6):
        pair.receive(message(b"", alias=1, qos=1, packet_id=packet_id), lane=1)
    pair.receive(message(b"go", alias=2, qos=1, packet_id=6), lane=2)
    assert payloads(quick) == [b"go"]
    assert [packet.packet_id for _, packet in pair.broker.received if isinstance(packet, PubAck)] == [1, 6]
    assert len(slow.withheld) == 4


def test_a_message_for_two_is_acknowledged_when_the_slower_has_room(pair: Pair) -> None:
    slow, quick = subscribed(pair, "a/+", queue=1), subscribed(pair, "a/#")
    for packet_id in (1, 2):
        pair.receive(message(b"", topic="a/b", qos=1, packet_id=packet_id))
    assert len(quick.queue) == 2
    assert pair.broker.next(PubAck).packet_id == 1
    assert not pair.broker.received
    pair.core.take(slow)
    pair.deliver()
    assert pair.broker.next(PubAck).packet_id == 2


def test_past_its_bound_reading_stops_on_the_lane_of_the_slow_subscription(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moq.client.receiving.MAX_WITHHELD", 2)
    slow, quick = subscribed(pair, "slow", queue=1), subscribed(pair, "quick")
    for packet_id in range(1, 8):
        pair.receive(message(b"", alias=1, qos=1, packet_id=packet_id), lane=1)
    assert len(slow.withheld) == 3, "the rest stays with the broker"
    pair.receive(message(b"go", alias=2, qos=1, packet_id=50), lane=2)
    assert payloads(quick) == [b"go"]
    for _ in range(2):
        pair.core.take(slow)
    pair.deliver()
    assert len(slow.queue) + len(slow.withheld) == 5, "reading went on: two are taken, five are here"
    while pair.core.take(slow) is not None:
        pair.deliver()
    acknowledged = [packet.packet_id for _, packet in pair.broker.received if isinstance(packet, PubAck)]
    assert acknowledged == [1, 50, 2, 3, 4, 5, 6, 7]


def test_what_is_withheld_when_the_connection_is_lost_is_left_to_the_broker(pair: Pair) -> None:
    inbox = subscribed(pair, "a", queue=1)
    for packet_id in (1, 2):
        pair.receive(message(bytes([packet_id]), alias=1, qos=2, packet_id=packet_id))
    pair.lose()
    pair.connect(session_present=True)
    assert pair.core.take(inbox) is not None
    assert pair.core.take(inbox) is None
    pair.receive(message(b"\2", alias=1, qos=2, packet_id=2, dup=True))
    assert payloads(inbox) == [b"\2"]


def test_nothing_is_acknowledged_on_a_connection_that_is_over(pair: Pair) -> None:
    inbox = subscribed(pair, "a", queue=1)
    for packet_id in (1, 2):
        pair.receive(message(bytes([packet_id]), alias=1, qos=1, packet_id=packet_id))
    withheld = inbox.withheld[0]
    pair.lose()
    inbox.withheld.append(withheld)
    pair.core.take(inbox)
    pair.deliver()
    assert payloads(inbox) == [b"\2"]


def test_closing_a_subscription_acknowledges_what_it_had_not_taken(pair: Pair) -> None:
    inbox = subscribed(pair, "a", queue=1)
    for packet_id in (1, 2):
        pair.receive(message(bytes([packet_id]), alias=1, qos=1, packet_id=packet_id))
    pair.core.unsubscribe(inbox)
    pair.deliver()
    assert [packet.packet_id for _, packet in pair.broker.received if isinstance(packet, PubAck)] == [1, 2]


def test_an_acknowledged_message_is_never_displaced() -> None:
    inbox = Inbox("a", limit=2)
    for number, qos in enumerate((1, 0, 0)):
        inbox.offer(Delivery(Message("a", bytes([number]), qos), (0, 0), 0))
    assert payloads(inbox) == [b"\0", b"\1"]
    assert inbox.dropped == 1


def test_best_effort_does_not_overtake_what_is_withheld() -> None:
    inbox = Inbox("a", limit=1)
    for number, qos in enumerate((0, 1, 0)):
        inbox.offer(Delivery(Message("a", bytes([number]), qos), (0, number), 0))
    assert payloads(inbox) == [b"\0"]
    assert len(inbox.withheld) == 1
    assert inbox.dropped == 1


def test_a_queue_is_also_full_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "MAX_QUEUED_BYTES", 10)
    inbox = Inbox("a")
    assert inbox.offer(Delivery(Message("a", b"x" * 10, 1), (0, 1), 0))
    assert not inbox.offer(Delivery(Message("a", b"y", 1), (0, 2), 0))
    assert inbox.admit() is None
    inbox.take()
    assert inbox.admit() is not None


def test_an_inbox_wakes_its_reader_and_ends_once() -> None:
    inbox = Inbox("a")
    inbox.end()
    woken: list[int] = []
    inbox = Inbox("a")
    inbox.wake = lambda: woken.append(1)
    inbox.offer(Delivery(Message("a", b""), (0, 0), 0))
    inbox.end()
    inbox.end()
    assert len(woken) == 2


# --- large payloads ---------------------------------------------------------------------------------------


def test_a_payload_in_pieces_is_put_together_up_to_the_bound() -> None:
    pair = Pair(SessionOptions(chunk_bytes=1000, max_packet_bytes=100_000))
    pair.connect()
    inbox = subscribed(pair, "a")
    payload = bytes(range(256)) * 300
    pair.receive(message(payload, alias=1, qos=1, packet_id=4))
    assert payloads(inbox) == [payload]
    assert pair.broker.next(PubAck).packet_id == 4
    pair.receive(message(bytes(100_001), alias=1))
    assert pair.owner.error is not None
    assert pair.owner.error.reason == Reason.PACKET_TOO_LARGE


# --- a session begun by another run of the program --------------------------------------------------------


def test_what_a_resumed_session_brings_waits_until_the_program_subscribes_again() -> None:
    pair = Pair(session=ClientSession("me", resume=True))
    pair.connect(session_present=True)
    pair.receive(message(b"a", topic="a", alias=0x8000, qos=1, packet_id=1))
    pair.receive(message(b"b", topic="b", alias=0x8001, qos=2, packet_id=2))
    pair.receive(message(b"lost", topic="a", qos=0))
    assert not pair.broker.received, "nobody has it yet, so nobody acknowledges it"
    inbox = pair.core.subscribe("a", qos=1)
    pair.deliver()
    assert payloads(inbox) == [b"a"]
    pair.broker.next(TopReq)
    assert pair.broker.next(PubAck).packet_id == 1
    full = pair.core.subscribe("b", qos=2, queue=0)
    assert len(full.withheld) == 1


def test_a_session_of_this_program_brings_nothing_unknown() -> None:
    pair = Pair()
    pair.connect()
    pair.lose()
    pair.connect(session_present=True)
    pair.receive(message(b"a", topic="a", qos=1, packet_id=1))
    assert pair.broker.next(PubAck).packet_id == 1
