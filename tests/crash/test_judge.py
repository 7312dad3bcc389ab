"""The judge of a run sees each way in which a broker can break its word, and nothing where it kept it."""

from __future__ import annotations

from array import array

from tests.crash.judge import Kind, Timeline, judge
from tests.crash.ledger import LARGE_BYTES, LARGE_EVERY, REFUSED, Arrived, Flow, Ledger, Sent, payload_of, read_payload

TIMELINE = Timeline(100.0, [103.5, 110.0])


def verdict(qos: int, acknowledged: list[bool], arrived: list[int]) -> list[tuple[Kind, str]]:
    """Judge one flow: message n is sent at 100 + n and acknowledged half a second later."""
    sent = Sent()
    for number, is_acknowledged in enumerate(acknowledged):
        sent.send(100.0 + number)
        sent.acknowledged_at[number] = 100.5 + number if is_acknowledged else 0.0
    seen = Arrived(array("L", arrived), array("d", [101.0 + index for index in range(len(arrived))]))
    flow = Flow(7, "paul", "a/b", qos, ("sue",))
    breaches = judge([flow], Ledger({7: sent}, {("sue", 7): seen}), TIMELINE)
    return [(breach.kind, breach.text) for breach in breaches]


def kinds(qos: int, acknowledged: list[bool], arrived: list[int]) -> list[Kind]:
    return [kind for kind, _ in verdict(qos, acknowledged, arrived)]


def test_all_in_order_once_is_no_breach() -> None:
    assert verdict(2, [True] * 4, [0, 1, 2, 3]) == []


def test_an_acknowledged_message_that_never_arrived_is_lost() -> None:
    assert kinds(1, [True] * 4, [0, 1, 3]) == [Kind.LOST]


def test_everything_is_lost_for_a_subscriber_that_got_nothing() -> None:
    assert kinds(1, [True] * 2, []) == [Kind.LOST, Kind.LOST]


def test_a_message_that_was_not_acknowledged_may_be_missing_but_somebody_still_waits() -> None:
    assert kinds(1, [True, False, True], [0, 2]) == [Kind.STUCK]


def test_a_message_that_was_refused_is_neither_lost_nor_waited_for() -> None:
    sent = Sent()
    sent.acknowledged_at[sent.send(100.0)] = REFUSED
    assert judge([Flow(0, "paul", "a/b", 1, ("sue",))], Ledger({0: sent}), TIMELINE) == []


def test_a_repetition_is_a_breach_only_at_qos_2() -> None:
    assert kinds(1, [True] * 3, [0, 1, 0, 1, 2]) == []
    assert kinds(2, [True] * 3, [0, 1, 1, 2]) == [Kind.TWICE]


def test_a_first_arrival_behind_a_later_message_is_out_of_order() -> None:
    assert kinds(1, [True] * 4, [0, 2, 1, 3]) == [Kind.DISORDER]


def test_a_message_nobody_sent_is_invented() -> None:
    assert kinds(1, [True], [0, 5]) == [Kind.INVENTED]


def test_what_clients_complain_of_is_a_breach() -> None:
    breaches = judge([], Ledger(complaints=["the session of sue was forgotten"]), TIMELINE)
    assert [str(breach) for breach in breaches] == ["complaint: the session of sue was forgotten"]


def test_a_breach_says_which_message_when_and_what_was_seen() -> None:
    ((_, text),) = verdict(1, [True] * 6, [0, 1, 2, 4, 5])
    assert "message 3 of paul on 'a/b' (QoS 1) at sue" in text
    assert "sent          3.000 s, 0.500 s before kill 1" in text
    assert "acknowledged  3.500 s, 0.000 s before kill 1" in text
    assert "… 0 1 2 4 5 … (4 arrived at 4.000 s, 0.500 s after kill 1, 6.000 s before kill 2)" in text


def test_a_payload_is_recognised_only_whole() -> None:
    small, large = payload_of(3, 0), payload_of(3, LARGE_EVERY - 1)
    assert len(large) == LARGE_BYTES
    assert read_payload(small) == (3, 0)
    assert read_payload(large) == (3, LARGE_EVERY - 1)
    assert read_payload(large[:-1]) is None
    assert read_payload(small[:-1] + b"\xff") is None
    assert read_payload(b"") is None
