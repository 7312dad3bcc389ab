"""The books of an open-loop run: what is lost, repeated, late or hit together shows."""

from __future__ import annotations

import pytest

from moq.bench.ledger import Ledger, histogram
from moq.bench.scenarios import Case
from moq.errors import RemoteProtocolError

MS = 1_000_000
SECOND = 1000 * MS


def make_ledger(topics: int = 1, receivers: int = 1, rate: float = 10) -> Ledger:
    ledger = Ledger(Case(rate=rate * topics, topics=topics).flows(), receivers)
    ledger.count_from(0, 10 * SECOND)
    return ledger


def deliver(ledger: Ledger, seq: int, latency_ms: float = 1, index: int = 0, receiver: int = 0) -> None:
    due_ns = ledger.books[index].plan.due_ns(seq)
    ledger.deliver(receiver, index, seq, due_ns, due_ns + round(latency_ms * MS), 100)


def test_what_is_missing_repeated_or_late_is_told_apart() -> None:
    ledger = make_ledger()
    for seq in range(6):
        ledger.sent(0, ledger.books[0].plan.due_ns(seq))
    for seq in (0, 2, 1, 2, 5):
        deliver(ledger, seq)
    (book,) = ledger.books
    assert (book.sent, book.received, book.repeated, book.disordered) == (6, 4, 1, 1)
    assert not ledger.is_complete
    deliver(ledger, 3)
    deliver(ledger, 4)
    assert ledger.is_complete


def test_the_warm_up_is_checked_and_not_counted() -> None:
    ledger = make_ledger()
    ledger.count_from(SECOND, 2 * SECOND)
    for seq in range(30):
        ledger.sent(0, ledger.books[0].plan.due_ns(seq))
        deliver(ledger, seq)
    assert (ledger.books[0].sent, ledger.books[0].received) == (10, 10)
    assert ledger.arrived == 30


def test_every_delivery_passes_the_hook() -> None:
    ledger, seen = make_ledger(), []
    ledger.on_delivery = lambda *facts: seen.append(facts)
    deliver(ledger, 0, latency_ms=2)
    deliver(ledger, 0, latency_ms=3)
    plan = ledger.books[0].plan
    assert seen == [(0, plan, 0, 0, 2 * MS, 100), (0, plan, 0, 0, 3 * MS, 100)]


def test_a_payload_that_was_cut_short_ends_the_run() -> None:
    with pytest.raises(RemoteProtocolError, match="message 3 of flow 0 came with 99 bytes; it was sent with 100"):
        make_ledger().deliver(0, 0, 3, 0, MS, 99)


def test_slices_are_cut_by_when_messages_were_due() -> None:
    ledger = make_ledger(rate=20)
    for seq in range(4):
        deliver(ledger, seq, latency_ms=500 if seq == 0 else 1)
    first, second = ledger.timeline(ledger.books)
    assert (first.at_s, first.count, first.p50_us, first.max_us) == (0.0, 2, 1000, 500_000)
    assert (second.at_s, second.count, second.max_us) == (0.1, 2, 1000)
    assert histogram(ledger.books) == {1000: 3, 500_000: 1}


def spike(ledger: Ledger, hit: set[tuple[int, int]]) -> dict[str, float]:
    """Ten messages a second on each topic, one in a slice, some of them late."""
    for index in range(len(ledger.books)):
        for seq in range(50):
            deliver(ledger, seq, latency_ms=40 if (index, seq) in hit else 2, index=index)
    return ledger.isolation()


def test_topics_that_suffer_together_have_a_ratio_of_one() -> None:
    together = {(index, 7) for index in range(4)}
    assert spike(make_ledger(topics=4), together) == {"spike_slices": 1.0, "isolation_ratio": 1.0}


def test_topics_that_suffer_alone_have_a_ratio_of_zero() -> None:
    assert spike(make_ledger(topics=4), {(0, 7), (1, 9)}) == {"spike_slices": 2.0, "isolation_ratio": 0.0}


def test_without_spikes_there_is_no_ratio() -> None:
    assert spike(make_ledger(topics=4), set()) == {"spike_slices": 0.0}
    assert spike(make_ledger(topics=1), {(0, 1)}) == {}
