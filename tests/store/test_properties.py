"""Random changes, commits and crashes: the store on disk holds what a store in memory held at the last commit."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moq.broker.message import NEVER, Message
from moq.broker.store import DeliveryRecord, MemoryStore, MessageRecord, Table
from tests.store.opened import Page, copy_files, open_sqlite, settle, unnumbered
from tests.store.test_contract import FACTS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from moq.broker.store import Record, Store

OWNERS = ("a", "b", "c", "d")
PAYLOADS = (b"", b"x", b"12345", b"spooled" * 20)
TIMES = (100.0, 200.0, 300.0, NEVER)

owners = st.sampled_from(OWNERS)
known_facts = st.sampled_from(FACTS)
counts = st.integers(0, 4)
sizes = st.integers(0, 300)

Facts = dict[Table, list[tuple["Hashable", "Record"]]]
Queues = dict[str, list[DeliveryRecord]]


def contents(store: Store, settle: Callable[[], None] = lambda: None) -> tuple[Facts, Queues]:
    """All that a store holds."""
    pages = {queue.owner: Page() for queue in store.queues()}
    for owner, page in pages.items():
        store.read(owner, -1, 1_000_000, 1 << 40, page)
    settle()
    return {table: list(store.load(table)) for table in Table}, {
        owner: page.deliveries for owner, page in pages.items()
    }


class Stores(RuleBasedStateMachine):
    """Drives both stores with the same changes, as a core would: numbers only grow, a new owner has no queue."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.lives = 0
        self.disk = open_sqlite(self.root / "0", durability="relaxed")
        self.memory = MemoryStore()
        self.safe = MemoryStore()
        """What memory held at the last commit."""
        self.next_number = 1
        self.messages: list[Message] = []
        self.asked: list[tuple[list[object], list[object]]] = []

    def teardown(self) -> None:
        self.disk.close()
        shutil.rmtree(self.root)

    # --- changes --------------------------------------------------------------------------------------

    @rule(fact=known_facts)
    def put(self, fact: tuple[Table, Hashable, Record]) -> None:
        self.memory.put(*fact)
        self.disk.put(*fact)

    @rule(fact=known_facts, payload=st.sampled_from(PAYLOADS))
    def put_retained(self, fact: tuple[Table, Hashable, Record], payload: bytes) -> None:
        record = MessageRecord("t", payload, 1, True, "p", NEVER, None)
        self.memory.put(Table.RETAINED, ("t", len(payload) % 2), record)
        self.disk.put(Table.RETAINED, ("t", len(payload) % 2), record)

    @rule(fact=known_facts)
    def delete(self, fact: tuple[Table, Hashable, Record]) -> None:
        self.memory.delete(fact[0], fact[1])
        self.disk.delete(fact[0], fact[1])

    @rule(
        to=st.lists(owners, min_size=1, max_size=3, unique=True),
        payload=st.sampled_from(PAYLOADS),
        expires_at=st.sampled_from(TIMES),
        packet_id=st.sampled_from((0, 0, 7)),
    )
    def publish(self, to: list[str], payload: bytes, expires_at: float, packet_id: int) -> None:
        message = Message("t", payload, 1, False, "p", expires_at)
        self.messages.append(message)
        self._enqueue(to, message, packet_id)

    @precondition(lambda self: self.messages)
    @rule(to=owners, data=st.data())
    def publish_again(self, to: str, data: st.DataObject) -> None:
        self._enqueue([to], data.draw(st.sampled_from(self.messages)), 0)

    def _enqueue(self, to: list[str], message: Message, packet_id: int) -> None:
        for owner in to:
            arguments = (owner, self.next_number, message, message.expires_at, 1, packet_id, None)
            self.memory.enqueue(*arguments)
            self.disk.enqueue(*arguments)
            self.next_number += 1

    @rule(owner=owners, data=st.data(), released=st.booleans())
    def mark(self, owner: str, data: st.DataObject, released: bool) -> None:
        number = self._some_number(owner, data)
        self.memory.mark(owner, number, 9, released)
        self.disk.mark(owner, number, 9, released)

    @rule(owner=owners, data=st.data())
    def dequeue(self, owner: str, data: st.DataObject) -> None:
        number = self._some_number(owner, data)
        self.memory.dequeue(owner, number)
        self.disk.dequeue(owner, number)

    def _some_number(self, owner: str, data: st.DataObject) -> int:
        there = [delivery.number for delivery in contents(self.memory)[1].get(owner, [])]
        return data.draw(st.sampled_from([*there, 0]))

    @rule(owner=owners, new_owner=owners)
    def rename(self, owner: str, new_owner: str) -> None:
        if new_owner not in {queue.owner for queue in self.memory.queues()}:
            self.memory.rename(owner, new_owner)
            self.disk.rename(owner, new_owner)

    @rule(owner=owners)
    def drop(self, owner: str) -> None:
        self.memory.drop(owner)
        self.disk.drop(owner)

    # --- questions ------------------------------------------------------------------------------------

    @rule(owner=owners, after=st.integers(-1, 20), messages=counts, size=sizes)
    def trim(self, owner: str, after: int, messages: int, size: int) -> None:
        expected, found = self._ask()
        self.memory.trim(owner, after, messages, size, lambda *answer: expected.append(answer))
        self.disk.trim(owner, after, messages, size, lambda *answer: found.append(answer))

    @rule(before=st.sampled_from(TIMES[:3]), skip=st.sets(owners))
    def sweep(self, before: float, skip: set[str]) -> None:
        """Answered before anything else happens: later it would not speak of queues dropped since."""
        expected, found = self._ask()
        self.memory.sweep(before, skip, lambda gone: expected.append(sorted(size for _, size in gone)))
        self.disk.sweep(before, skip, lambda gone: found.append(sorted(size for _, size in gone)))
        self.settle()

    @rule(owner=owners, after=st.integers(0, 20), messages=st.integers(1, 5), size=sizes)
    def read(self, owner: str, after: int, messages: int, size: int) -> None:
        expected, found = self._ask()
        self.memory.read(owner, after, messages, size, lambda *answer: expected.append(answer))
        self.disk.read(
            owner, after, messages, size, lambda page, is_end: found.append(([unnumbered(d) for d in page], is_end))
        )

    def _ask(self) -> tuple[list[object], list[object]]:
        expected: list[object] = []
        found: list[object] = []
        self.asked.append((expected, found))
        return expected, found

    # --- time passes ----------------------------------------------------------------------------------

    @rule()
    def settle(self) -> None:
        settle(self.disk)
        self.safe = self.memory.copy()
        assert [found for _, found in self.asked] == [expected for expected, _ in self.asked]
        self.asked.clear()
        self._compare(self.memory)

    @rule()
    def crash(self) -> None:
        """Go on with the files as they are now, and with what memory held when they were written."""
        self.lives += 1
        copy_files(self.disk.path, self.root / str(self.lives))
        self.disk.close()
        self.disk = open_sqlite(self.root / str(self.lives), durability="relaxed")
        self.asked.clear()
        self.messages.clear()
        self.memory = self.safe.copy()
        self._compare(self.memory)

    def _compare(self, memory: MemoryStore) -> None:
        assert contents(self.disk, lambda: settle(self.disk)) == contents(memory)
        counted = sorted((replace(queue, packet_ids=()) for queue in memory.queues()), key=lambda queue: queue.owner)
        found = sorted((replace(queue, packet_ids=()) for queue in self.disk.queues()), key=lambda queue: queue.owner)
        assert found == counted

    @invariant()
    def nothing_failed(self) -> None:
        assert self.disk.failure is None


Stores.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
test_disk_and_memory_agree_whenever_it_crashes = Stores.TestCase
