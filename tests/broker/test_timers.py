"""Deadlines: kept in order, called off, swept."""

from __future__ import annotations

from moq.broker.timers import Timers


def test_what_is_due_runs_in_order_and_once() -> None:
    timers, ran = Timers(), list[str]()
    timers.at(2, lambda now: ran.append(f"second at {now}"))
    timers.at(1, lambda now: ran.append(f"first at {now}"))
    timers.at(9, lambda now: ran.append("too early"))
    assert timers.next_timeout() == 1
    timers.handle_timeout(3)
    timers.handle_timeout(3)
    assert ran == ["first at 3", "second at 3"]
    assert timers.next_timeout() == 9


def test_a_timer_called_off_does_not_run() -> None:
    timers, ran = Timers(), list[str]()
    timer = timers.at(1, lambda _: ran.append("first"))
    timer.cancel()
    timer.cancel()
    assert timers.next_timeout() is None
    later = timers.at(2, lambda _: ran.append("later"))
    timers.at(1, lambda _: later.cancel())
    timers.handle_timeout(5)
    assert ran == []


def test_what_a_callback_adds_waits_for_the_next_call() -> None:
    timers, ran = Timers(), list[float]()

    def again(now: float) -> None:
        ran.append(now)
        timers.at(now, again)

    timers.at(1, again)
    timers.handle_timeout(1)
    assert ran == [1]


def test_dead_timers_do_not_outnumber_the_living() -> None:
    timers = Timers()
    for number in range(5000):
        timers.at(1000 + number, print).cancel()
    assert len(timers._heap) < 1100
    assert timers.next_timeout() is None
