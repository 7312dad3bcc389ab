"""Open-loop load: every message is due at a time fixed before the run, and its latency counts from then.

One process publishes and subscribes, so one clock measures. Each turn of the loop sends all that is due, then sleeps
until the next message is: a broker that stalls does not slow the load down, so each message it held up shows for how
long (no coordinated omission). If the generator itself is late, that counts too, and `send_lag` says by how much.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import selectors
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.bench.clients import Ears
from moq.bench.flows import LAST_PACKET_ID
from moq.bench.ledger import Ledger, nearest_rank

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from moq.bench.clients import Client
    from moq.bench.scenarios import Case

    Connect = Callable[[str, Ears, bool], Awaitable[Client]]
    """Opens a client: its identifier, who hears, and whether it publishes."""

MAX_BACKLOG_BYTES: Final = 64 * 1024 * 1024
"""A load beyond what the broker takes piles up in the generator; past this the run ends as overloaded."""
MAX_UNANSWERED: Final = LAST_PACKET_ID // 2
"""The same above QoS 0: a packet identifier is not used again before its answer has come."""
STALL_S: Final = 10.0
"""With no delivery for this long after the end what is missing is lost: a TCP that has lost its retransmissions too
waits some seconds before it tries again."""
MAX_DRAIN_S: Final = 30.0
DRAIN_STEP_S: Final = 0.02
TIMER_SLACK_NS: Final = 1_000
"""By default the kernel wakes a sleeper up to 50 µs late, to save power."""


def make_loop() -> asyncio.AbstractEventLoop:
    """A loop whose timers are exact: `epoll` waits whole milliseconds, `select` microseconds."""
    with contextlib.suppress(OSError):
        Path("/proc/self/timerslack_ns").write_text(str(TIMER_SLACK_NS))
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


class OpenLoop:
    """All clients of one run."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.plans = case.flows()
        self.ledger = Ledger(self.plans, 1 if case.is_request else case.subscribers)
        self.is_overloaded = False
        self.send_lag_ns = array("q")
        """Of each turn that sent something: how late the first message of it was."""
        self.all_sent = asyncio.Event()
        """Set once the last message has been sent, or the load was given up."""
        self._publishers: list[Client] = []
        self.subscribers: list[Client] = []
        """In the order of the receivers' numbers in the ledger."""
        self._due: list[tuple[int, int]] = []
        self._next_seq = [0] * len(self.plans)
        self._timer: asyncio.Handle | None = None
        self._start_ns = self._end_ns = 0

    # --- before -------------------------------------------------------------------------------------------

    async def open(self, connect: Connect) -> None:
        """Connect everybody: subscribers first, so that the first message already finds them."""
        for number in range(self.case.subscribers):
            subscriber = await connect(f"bench-sub-{number}", self._ears(number), False)
            self.subscribers.append(subscriber)
            await subscriber.subscribe(self.plans)
        for number in range(self.case.publishers):
            # Where messages are requests it is the publishers who receive, and all count as one.
            publisher = await connect(f"bench-pub-{number}", self._ears(0), True)
            self._publishers.append(publisher)
            await publisher.announce([plan for plan in self.plans if plan.publisher == number])
        for client in (*self.subscribers, *self._publishers):
            client.start()

    def _ears(self, receiver: int) -> Ears:
        deliver = self.ledger.deliver

        def delivered(index: int, seq: int, due_ns: int, now_ns: int, size: int) -> None:
            deliver(receiver, index, seq, due_ns, now_ns, size)

        return Ears(delivered, self.ledger.acknowledge)

    # --- sending ------------------------------------------------------------------------------------------

    def start(self, warm_up_s: float, duration_s: float) -> None:
        """Fix all times, and begin."""
        self._start_ns = time.perf_counter_ns()
        counted_ns = self._start_ns + round(warm_up_s * 1e9)
        self._end_ns = counted_ns + round(duration_s * 1e9)
        self.ledger.count_from(counted_ns, self._end_ns)
        self._due = [(self._start_ns + plan.due_ns(0), plan.index) for plan in self.plans]
        heapq.heapify(self._due)
        self._send_what_is_due()

    def _send_what_is_due(self) -> None:
        now_ns, due = time.perf_counter_ns(), self._due
        if due and due[0][0] <= now_ns:
            self.send_lag_ns.append(now_ns - due[0][0])
        while due and due[0][0] <= now_ns:
            due_ns, index = due[0]
            plan, seq = self.plans[index], self._next_seq[index]
            self._publishers[plan.publisher].publish(plan, seq, due_ns)
            self.ledger.sent(index, due_ns)
            self._next_seq[index] = seq + 1
            next_ns = self._start_ns + plan.due_ns(seq + 1)
            if next_ns < self._end_ns:
                heapq.heapreplace(due, (next_ns, index))
            else:
                heapq.heappop(due)
        self._look_at_backlog()
        if due:
            wait_s = (due[0][0] - time.perf_counter_ns()) / 1e9
            loop = asyncio.get_running_loop()
            # Through the loop also when late: what has come is to be read between two turns.
            self._timer = (
                loop.call_later(wait_s, self._send_what_is_due)
                if wait_s > 0
                else loop.call_soon(self._send_what_is_due)
            )
        else:
            self.all_sent.set()

    def _look_at_backlog(self) -> None:
        """Give up where the load is more than the broker takes: the rest would measure our memory."""
        for client in self._publishers:
            if client.unsent > MAX_BACKLOG_BYTES or client.unanswered > MAX_UNANSWERED:
                self.is_overloaded = True
                self._due.clear()
                return

    def check(self) -> None:
        """Raise what keeps a client from going on."""
        for client in (*self._publishers, *self.subscribers):
            if client.failure is not None:
                raise client.failure

    # --- the end ------------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Wait for what is on its way, until nothing more comes."""
        arrived, since = -1, time.perf_counter()
        until = since + MAX_DRAIN_S
        while not self.ledger.is_complete and (now := time.perf_counter()) < until:
            if self.ledger.arrived != arrived:
                arrived, since = self.ledger.arrived, now
            elif now - since > STALL_S:
                return
            self.check()
            await asyncio.sleep(DRAIN_STEP_S)

    @property
    def lanes(self) -> int:
        """Streams on which the receiver with the most of them got messages."""
        receivers = self._publishers if self.case.is_request else self.subscribers
        return max(client.lanes for client in receivers)

    def extra(self) -> dict[str, float]:
        """What there is to say besides the latencies of the run."""
        lag = sorted(self.send_lag_ns)
        found = {"streams": float(self.lanes)}
        if lag:
            found |= {"send_lag_p99_us": nearest_rank(lag, 99) / 1000, "send_lag_max_us": lag[-1] / 1000}
        found |= _percentiles("acknowledged", sorted(self.ledger.acknowledged_ns))
        found |= self.ledger.isolation()
        for book in self.ledger.books_of(video=True):
            found |= _percentiles("video", sorted(book.latency_ns))
            found |= {
                "video_sent": float(book.sent),
                "video_lost": float(book.sent * self.ledger.receivers - book.received),
            }
        return found

    def close(self) -> None:
        """End all connections."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
        for client in (*self._publishers, *self.subscribers):
            client.close()


def _percentiles(name: str, ordered: list[int]) -> dict[str, float]:
    if not ordered:
        return {}
    return {f"{name}_p{percent}_us": nearest_rank(ordered, percent) / 1000 for percent in (50, 95, 99)}
