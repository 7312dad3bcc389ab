"""`$SYS/top`: once a second a picture of the broker as one JSON message, for as long as somebody is subscribed.

    nobody ── a subscription to exactly `$SYS/top` ──► counting ── every second ──► snapshot, published
       ▲                                                  │
       └────────── the last subscriber has gone ──────────┘

While nobody watches nothing is counted, sent or looked at. Nothing is retained: who subscribes gets the first snapshot
a second later. Work is done in slices, one per turn of the event loop, so that ten thousand connections hold nobody
up; see `snapshot.py` for what there is to do and `metering.py` for how messages are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from moq.broker.access import Action
from moq.broker.message import Message
from moq.broker.metering import Metering
from moq.broker.snapshot import Snapshots, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from moq.broker.core import Broker
    from moq.broker.message import Subscription
    from moq.broker.snapshot import ProcessState

TOPIC: Final = "$SYS/top"

INTERVAL_S: Final = 1.0

ResultT = TypeVar("ResultT")


class Top:
    """Publishes the snapshots of one broker."""

    def __init__(self, broker: Broker, version: str, process: Callable[[], ProcessState], now: float) -> None:
        self._broker = broker
        self._process = process
        self._version = version
        self._started_at = now
        self._life: Generator[float, float, None] | None = None
        broker.subscriptions.awaited[TOPIC] = self._on_subscribed
        if any(self._subscriptions()):  # of sessions that an earlier broker kept
            self._on_subscribed()

    def _on_subscribed(self) -> None:
        if self._life is None:
            self._life = self._live()
            self._broker.timers.at(next(self._life), self._go_on)

    def _go_on(self, now: float) -> None:
        assert self._life is not None
        try:
            when = self._life.send(now)
        except StopIteration:
            self._life = None
        else:
            self._broker.timers.at(when, self._go_on)

    def _subscriptions(self) -> Iterator[Subscription]:
        """Those to this very topic: `$SYS/#` asks for figures, and gets snapshots only while others want them."""
        matching = self._broker.subscriptions.matching(TOPIC)
        return (subscription for subscription in matching if subscription.source == TOPIC)

    @property
    def _is_watched(self) -> bool:
        """True if a snapshot would reach somebody who asked for it."""
        allows = self._broker.environment.access.allows
        return any(
            subscription.session.peer is not None and allows(subscription.session, Action.RECEIVE, TOPIC)
            for subscription in self._subscriptions()
        )

    def _live(self) -> Generator[float, float, None]:
        """Wait for somebody who watches, as long as one may come back; yields when to go on, and is told the time."""
        now = yield self._broker.environment.now
        while any(self._subscriptions()):
            if self._is_watched:
                now = yield from self._watch(now)
            now = yield now + INTERVAL_S

    def _watch(self, now: float) -> Generator[float, float, float]:
        """Count and publish until nobody watches."""
        metering = Metering(self._broker)
        _, now = yield from _spread(metering.open(), now)
        snapshots = Snapshots(self._broker, metering, self._process, now)
        due = now + INTERVAL_S
        while self._is_watched:
            now = yield due
            figures: dict[str, object] = {
                "version": self._version,
                "uptime_s": round(now - self._started_at, 3),
                "loop_lag_s": round(max(now - due, 0.0), 6),
            }
            snapshot, now = yield from _spread(snapshots.take(figures, now), now)
            self._broker.route(Message(TOPIC, encode(snapshot)), now)
            due = max(due + INTERVAL_S, now)
        _, now = yield from _spread(metering.close(), now)
        return now


def _spread(work: Generator[float, None, ResultT], now: float) -> Generator[float, float, tuple[ResultT, float]]:
    """Do a piece of work in as many turns as it wants, with the pauses it wants."""
    while True:
        try:
            pause_s = next(work)
        except StopIteration as end:
            return end.value, now
        now = yield now + pause_s
