"""What the core may rely on, whichever store it is given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from moq.broker.message import NEVER, Properties, Will
from moq.broker.store import (
    AggregateRecord,
    CollectionRecord,
    ConfirmationRecord,
    DeliveryRecord,
    MessageRecord,
    QueueRecord,
    RegistrationRecord,
    SessionRecord,
    SubscriptionRecord,
    Table,
    TopicRecord,
)
from tests.store.opened import Keeper, Page, enqueue, facts, message, queues, read

if TYPE_CHECKING:
    from collections.abc import Hashable

    from moq.broker.store import Record

PROPERTIES = Properties(
    timestamp_ns=1_700_000_000_000_000_001,
    group_start=True,
    encrypted=True,
    type_id=7,
    user=(("name", "first"), ("name", "second ü")),
    content_type="text/plain",
    payload_format=1,
    response_topic="answers/here",
    correlation_data=b"\x00\xff",
)
WILL = Will("last/words", b"\x00bye\xff", 2, True, 60, 5, PROPERTIES)
SUBSCRIPTION = SubscriptionRecord(2, None, True, False, 5, 128, True, 77, False)
RETAINED = MessageRecord("a/b", b"\x00\xff", 1, True, "somebody", 1_800_000_000.5, PROPERTIES)

FACTS: list[tuple[Table, Hashable, Record]] = [
    (Table.SESSION, "client ü", SessionRecord(60.0, 1_800_000_000.5, (WILL, None), WILL, "user")),
    (Table.SESSION, "", SessionRecord(NEVER, NEVER, (None, Will("a", b"")), None, None)),
    (Table.SUBSCRIPTION, ("client", "a/#", None), SUBSCRIPTION),
    (Table.SUBSCRIPTION, ("client", "a/#", ""), SubscriptionRecord(1, "", False, True, 0, 1, False, 0, True)),
    (Table.SUBSCRIPTION, ("client", "a/#", "group"), SubscriptionRecord(0, "group", False, True, 0, 1, False, 0, True)),
    (Table.REGISTRATION, ("client", "a/b"), RegistrationRecord(2, 60, 9)),
    (Table.REGISTRATION, ("client", "a/c"), RegistrationRecord(0, None, 0)),
    (Table.TOPIC, "a/b", TopicRecord(1, 60, 3, "application/json", b'{"\xff"}', 4)),
    (Table.TOPIC, "a/c", TopicRecord(0, None, None, "", b"", 0)),
    (Table.RETAINED, ("a/b", 1), RETAINED),
    (Table.RETAINED, ("a/b", 2), MessageRecord("a/b", b"large" * 100, 2, True, "", NEVER, None)),
    (Table.RETAINED, ("a/c", 1), MessageRecord("a/c", b"", 2, True, "", NEVER, Properties(content_type="text/plain"))),
    (Table.RECEIVED, ("client", 1 << 16 | 65_535), None),
    (Table.SUBSCRIPTION, ("client", "$RPT$AVG/+", None), replace(SUBSCRIPTION, period=65_535, repeats_names=True)),
    (Table.PACED, ("client", "", "a/b"), RETAINED),
    (Table.AGGREGATE, ("$DAILYAVG/+\0client", "a"), AggregateRecord(20_000, (3, "0.30", "-1e-30", "1" * 400))),
    (Table.PACED, ("client", "group\0a/#", "a/b"), MessageRecord("a/b", b"", 1, False, "p", NEVER, None)),
    (
        Table.COLLECTION,
        ("client", 7),
        CollectionRecord(1 << 50, "a/b", 3, 2, ("x", "ü"), 1_800_000_000.5, 1_800_000_030.5, ("x", "g\0a/#"), None),
    ),
    (Table.COLLECTION, ("client", 8), CollectionRecord(5, "a", 1, 0, (), 1.0, 2.0, (), 0xC6)),
    (Table.CONFIRMATION, ("client", 7, "g\0a/#"), ConfirmationRecord("member", 0.25, b"\x00\xff")),
    (Table.CONFIRMATION, ("client", 7, "x"), ConfirmationRecord(None, 0.0, None)),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: f"{fact[0].value}-{fact[1]}")
def test_a_fact_comes_back_as_it_was_written(keeper: Keeper, fact: tuple[Table, Hashable, Record]) -> None:
    table, key, record = fact
    keeper.store.put(table, key, record)
    keeper.settle()
    keeper.restart()
    assert facts(keeper.store, table) == [(key, record)]


def test_facts_come_back_in_the_order_first_written(keeper: Keeper) -> None:
    topic = TopicRecord(0, None, None, "", b"", 0)
    changed = TopicRecord(1, None, None, "", b"", 0)
    for name in "cab":
        keeper.store.put(Table.TOPIC, name, topic)
    keeper.settle()
    keeper.store.put(Table.TOPIC, "a", changed)
    keeper.settle()
    keeper.store.delete(Table.TOPIC, "c")
    keeper.store.put(Table.TOPIC, "c", topic)
    keeper.settle()
    assert facts(keeper.store, Table.TOPIC) == [("a", changed), ("b", topic), ("c", topic)]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: f"{fact[0].value}-{fact[1]}")
def test_a_removed_fact_is_gone_and_the_others_stay(keeper: Keeper, fact: tuple[Table, Hashable, Record]) -> None:
    for table, key, record in FACTS:
        keeper.store.put(table, key, record)
    keeper.settle()
    keeper.store.delete(fact[0], fact[1])
    keeper.settle()
    left = [(table, key, record) for table in Table for key, record in facts(keeper.store, table)]
    assert left == [other for table in Table for other in FACTS if other[0] is table and other is not fact]


def test_removing_a_fact_that_is_not_there_is_no_error(keeper: Keeper) -> None:
    keeper.store.delete(Table.SESSION, "nobody")
    keeper.settle()
    assert facts(keeper.store, Table.SESSION) == []


def test_every_change_counts_and_all_of_them_become_durable(keeper: Keeper) -> None:
    store = keeper.store
    before = store.last
    store.put(Table.RECEIVED, ("c", 1), None)
    store.delete(Table.RECEIVED, ("c", 1))
    enqueue(store, "c", 1, b"x")
    store.mark("c", 1, 5, False)
    store.dequeue("c", 1)
    store.rename("c", "d")
    store.drop("d")
    assert store.last == before + 7
    keeper.settle()
    assert store.durable == store.last
    assert store.failure is None


def test_a_delivery_comes_back_as_it_was_enqueued(keeper: Keeper) -> None:
    sent = message(b"\x00\xff", "t/ü", qos=2, retain=True, properties=PROPERTIES)
    enqueue(keeper.store, "c", 3, sent, expires_at=1_800_000_000.5, qos=2, packet_id=9, share="group")
    record = MessageRecord("t/ü", b"\x00\xff", 2, True, "somebody", 1_800_000_000.5, PROPERTIES)
    assert read(keeper, "c").deliveries == [DeliveryRecord(3, record, 2, 9, False, "group")]


def test_a_page_ends_with_its_number_of_messages(keeper: Keeper) -> None:
    for number in range(1, 6):
        enqueue(keeper.store, "c", number, b"x")
    first = read(keeper, "c", after=1, messages=2)
    rest = read(keeper, "c", after=3, messages=2)
    assert (first.numbers, first.is_end) == ([2, 3], False)
    assert (rest.numbers, rest.is_end) == ([4, 5], True)


@pytest.mark.parametrize(("size", "numbers"), [(0, [1]), (5, [1]), (6, [1, 2]), (10, [1, 2]), (11, [1, 2, 3])])
def test_a_page_ends_once_it_has_its_bytes(keeper: Keeper, size: int, numbers: list[int]) -> None:
    for number in range(1, 5):
        enqueue(keeper.store, "c", number, b"12345")
    page = read(keeper, "c", size=size)
    assert (page.numbers, page.is_end) == (numbers, False)


def test_a_page_has_at_least_one_message_however_large(keeper: Keeper) -> None:
    enqueue(keeper.store, "c", 1, b"large" * 100)
    page = read(keeper, "c", size=1)
    assert (page.payloads, page.is_end) == ([b"large" * 100], True)


def test_large_and_small_payloads_keep_their_order(keeper: Keeper) -> None:
    payloads = [b"a", b"large" * 100, b"", b"b", b"larger" * 100, b"c"]
    for number, payload in enumerate(payloads, 1):
        enqueue(keeper.store, "c", number, payload)
    assert read(keeper, "c").payloads == payloads


def test_the_queue_of_nobody_is_empty(keeper: Keeper) -> None:
    page = read(keeper, "nobody")
    assert (page.deliveries, page.is_end) == ([], True)


def test_a_read_sees_exactly_the_changes_before_it(keeper: Keeper) -> None:
    pages = [Page() for _ in range(4)]
    store = keeper.store
    store.read("c", 0, 10, 1_000, pages[0])
    enqueue(store, "c", 1, b"x")
    store.read("c", 0, 10, 1_000, pages[1])
    enqueue(store, "c", 2, b"x")
    store.dequeue("c", 1)
    store.mark("c", 2, 7, True)
    store.read("c", 0, 10, 1_000, pages[2])
    store.drop("c")
    enqueue(store, "c", 1, b"new")
    store.read("c", 0, 10, 1_000, pages[3])
    keeper.settle()
    assert [page.numbers for page in pages] == [[], [1], [2], [1]]
    assert (pages[2].deliveries[0].packet_id, pages[2].deliveries[0].released) == (7, True)
    assert pages[3].payloads == [b"new"]


@pytest.mark.parametrize("is_settled_first", [False, True])
def test_a_mark_is_kept_and_one_for_nothing_is_ignored(keeper: Keeper, is_settled_first: bool) -> None:
    enqueue(keeper.store, "c", 1, b"x")
    if is_settled_first:
        keeper.settle()
    keeper.store.mark("c", 1, 9, False)
    keeper.store.mark("c", 1, 9, True)
    keeper.store.mark("c", 2, 8, False)
    keeper.store.mark("nobody", 1, 8, False)
    (delivery,) = read(keeper, "c").deliveries
    assert (delivery.packet_id, delivery.released) == (9, True)


@pytest.mark.parametrize("is_settled_first", [False, True])
def test_a_delivery_is_removed_once(keeper: Keeper, is_settled_first: bool) -> None:
    sent = enqueue(keeper.store, "c", 1, b"x")
    enqueue(keeper.store, "d", 1, sent)
    if is_settled_first:
        keeper.settle()
    keeper.store.mark("c", 1, 9, False)
    keeper.store.dequeue("c", 1)
    keeper.store.dequeue("c", 1)
    keeper.store.dequeue("nobody", 1)
    keeper.settle()
    assert read(keeper, "c").deliveries == []
    assert read(keeper, "d").payloads == [b"x"]


@pytest.mark.parametrize("payload", [b"x", b"large" * 100])
def test_a_message_whose_last_delivery_went_can_be_enqueued_again(keeper: Keeper, payload: bytes) -> None:
    sent = enqueue(keeper.store, "c", 1, payload)
    keeper.settle()
    keeper.store.dequeue("c", 1)
    keeper.settle()
    enqueue(keeper.store, "d", 1, sent)
    keeper.settle()
    page = Page()
    keeper.store.dequeue("d", 1)
    keeper.store.read("d", 0, 1, 1, page)
    enqueue(keeper.store, "e", 1, sent)
    assert read(keeper, "e").payloads == [payload]
    assert page.deliveries == []


@pytest.mark.parametrize(
    ("messages", "size", "gone"),
    [(0, 0, []), (1, 0, [3]), (2, 0, [3, 5]), (0, 1, [3]), (0, 6, [3, 5]), (1, 6, [3, 5]), (9, 9, [3, 5, 6])],
)
def test_a_trim_takes_the_oldest_after_a_number_without_a_packet_identifier(
    keeper: Keeper, messages: int, size: int, gone: list[int]
) -> None:
    for number in range(1, 7):
        enqueue(keeper.store, "c", number, b"12345", packet_id=number == 4)
    answers: list[tuple[int, int]] = []
    keeper.store.trim("c", 2, messages, size, lambda *answer: answers.append(answer))
    keeper.store.trim("nobody", -1, messages, size, lambda *answer: answers.append(answer))
    left = read(keeper, "c")
    assert answers == [(len(gone), 5 * len(gone)), (0, 0)]
    assert left.numbers == [number for number in range(1, 7) if number not in gone]


def test_a_sweep_takes_what_has_expired_and_has_no_packet_identifier(keeper: Keeper) -> None:
    for owner in ("c", "d", "skipped"):
        enqueue(keeper.store, owner, 1, b"abc", expires_at=100.0)
        enqueue(keeper.store, owner, 2, b"abc", expires_at=100.0, packet_id=5)
        enqueue(keeper.store, owner, 3, b"abc", expires_at=100.5)
        enqueue(keeper.store, owner, 4, b"abc")
    keeper.settle()
    keeper.store.rename("d", "e")
    answers: list[list[tuple[str, int]]] = []
    keeper.store.sweep(100.0, ["skipped", "nobody"], answers.append)
    left = read(keeper, "c")
    (gone,) = answers
    assert sorted(gone) == [("c", 3), ("e", 3)]
    assert left.numbers == read(keeper, "e").numbers == [2, 3, 4]
    assert read(keeper, "skipped").numbers == [1, 2, 3, 4]


@pytest.mark.parametrize("is_settled_first", [False, True])
def test_a_queue_can_be_given_away_and_begun_anew(keeper: Keeper, is_settled_first: bool) -> None:
    enqueue(keeper.store, "c", 5, b"old")
    if is_settled_first:
        keeper.settle()
    keeper.store.rename("c", "d")
    enqueue(keeper.store, "c", 1, b"new")
    enqueue(keeper.store, "d", 6, b"more")
    keeper.settle()
    keeper.restart()
    assert read(keeper, "c").payloads == [b"new"]
    assert read(keeper, "d").payloads == [b"old", b"more"]


def test_owners_may_pass_on_queues_in_a_ring(keeper: Keeper) -> None:
    for owner in "abc":
        enqueue(keeper.store, owner, 1, owner.encode())
    keeper.settle()
    for owner, new_owner in ("cx", "bc", "ab", "xa"):
        keeper.store.rename(owner, new_owner)
    keeper.store.rename("nobody", "also nobody")
    keeper.settle()
    assert {owner: read(keeper, owner).payloads for owner in "abc"} == {"a": [b"c"], "b": [b"a"], "c": [b"b"]}


def test_a_queue_goes_to_an_owner_whose_own_has_become_empty(keeper: Keeper) -> None:
    enqueue(keeper.store, "c", 1, b"x")
    enqueue(keeper.store, "d", 1, b"y")
    keeper.settle()
    keeper.store.dequeue("d", 1)
    keeper.store.rename("c", "d")
    assert read(keeper, "d").payloads == [b"x"]
    assert read(keeper, "c").payloads == []


@pytest.mark.parametrize("is_settled_first", [False, True])
def test_a_dropped_queue_is_gone_and_another_can_follow(keeper: Keeper, is_settled_first: bool) -> None:
    sent = enqueue(keeper.store, "c", 1, b"x")
    enqueue(keeper.store, "c", 2, b"y")
    enqueue(keeper.store, "d", 1, sent)
    if is_settled_first:
        keeper.settle()
    keeper.store.mark("c", 1, 3, False)
    keeper.store.dequeue("c", 2)
    keeper.store.drop("c")
    keeper.store.drop("nobody")
    keeper.settle()
    assert list(queues(keeper.store)) == ["d"]
    enqueue(keeper.store, "c", 1, b"new")
    assert read(keeper, "c").payloads == [b"new"]
    assert read(keeper, "d").payloads == [b"x"]


def test_queues_are_counted_as_a_starting_broker_wants_it(keeper: Keeper) -> None:
    for number in (2, 5, 9):
        enqueue(keeper.store, "c", number, b"12345", packet_id=number if number > 2 else 0)
    enqueue(keeper.store, "empty", 1, b"x")
    keeper.store.dequeue("empty", 1)
    keeper.settle()
    keeper.restart()
    assert queues(keeper.store) == {"c": QueueRecord("c", 3, 15, 10, (5, 9))}


def test_numbers_go_on_after_a_restart(keeper: Keeper) -> None:
    enqueue(keeper.store, "c", 1, b"first")
    keeper.settle()
    keeper.restart()
    enqueue(keeper.store, "c", 2, b"second")
    enqueue(keeper.store, "d", 1, b"third")
    assert read(keeper, "c").payloads == [b"first", b"second"]
    assert read(keeper, "d").payloads == [b"third"]
