"""Reception periods (RFC): at most one message per period, topic and subscription; the newest wins, the last arrives.

        arrives   1     2 3 4            5
        period    |---------|---------|  |---------|      begins with each message sent
        sent      1         4            5

A period runs from the moment a message is sent. What arrives while it runs is *pending*: a newer message supersedes it,
and the end of the period sends it. State exists while a period runs and no longer; one heap holds when they end, and
one timer looks at its top, so the cost of time grows with periods that run, never with messages.

The pending message of a persistent session is a fact in the store, replaced as often as it is superseded: it has been
acknowledged to its publisher, so it must survive.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from moq.broker.records import message_from, message_record
from moq.broker.store import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.broker.environment import Environment
    from moq.broker.message import Message, Target
    from moq.broker.session import Session
    from moq.broker.subscriptions import Subscriptions
    from moq.broker.timers import Timer

    Resolve = Callable[[Session, str, str | None], Target | None]
    """Finds the target of a session for a topic and a `Target.label`, as subscriptions are now."""


class Pace:
    """One period that runs: of one session, subscription and topic."""

    __slots__ = ("ends_at", "is_over", "is_stored", "label", "pending", "session", "topic")

    def __init__(self, session: Session, label: str | None, topic: str) -> None:
        self.session = session
        self.label = label
        self.topic = topic
        self.ends_at = 0.0
        self.pending: Message | None = None
        self.is_stored = False
        """Whether the pending message is in the store too."""
        self.is_over = False


class Paces:
    """The periods of one session that run."""

    __slots__ = ("running", "size")

    def __init__(self) -> None:
        self.running: dict[tuple[str | None, str], Pace] = {}  # by label and topic
        self.size = 0
        """Payload bytes of all that is pending."""


class Pacing:
    """All reception periods of a broker."""

    def __init__(self, environment: Environment, subscriptions: Subscriptions, resolve: Resolve) -> None:
        self._environment = environment
        self._figures = environment.figures
        self._limits = environment.limits
        self._subscriptions = subscriptions
        self._resolve = resolve
        self._heap: list[tuple[float, int, Pace]] = []
        self._order = count()
        self._timer: Timer | None = None

    # --- messages -------------------------------------------------------------------------------------

    def deliver(self, message: Message, target: Target, now: float) -> None:
        """Offer a message to a target, paced if it wants that. Requests are not: they wait for an answer."""
        if not target.period_s or message.kind or self.admits(message, target, now):
            target.session.outbound.offer(message, target, now)

    def deliver_run(self, messages: list[Message], target: Target, now: float) -> None:
        """Offer several messages of one topic at once: between the first and the last there is nothing to send."""
        self.deliver(messages[0], target, now)
        for message in messages[1:-1]:
            self._figures.superseded += 1
            self._figures.superseded_bytes += len(message.payload)
        if len(messages) > 1:
            self.deliver(messages[-1], target, now)

    def admits(self, message: Message, target: Target, now: float) -> bool:
        """True if a message may be sent now, and then its period begins; else it is pending."""
        paces = target.session.paces
        pace = paces.running.get((target.label, message.topic))
        if pace is None:
            if len(paces.running) >= self._limits.max_paced_topics_per_session:
                self._figures.unpaced += 1
                return True
            self._begin(Pace(target.session, target.label, message.topic), target, now)
            return True
        if pace.ends_at <= now and pace.pending is None:
            # Its time is over and the timer has not come by yet. The heap has it under its former end, where `_on_time`
            # finds that it goes on.
            pace.ends_at = now + target.period_s
            return True
        self._replace(pace, message, target)
        return False

    def is_pending(self, target: Target, topic: str) -> bool:
        """True if something newer than what is retained is about to be sent."""
        pace = target.session.paces.running.get((target.label, topic))
        return pace is not None and pace.pending is not None

    # --- sessions -------------------------------------------------------------------------------------

    def on_subscriptions_changed(self, session: Session, now: float) -> None:
        """What is pending for a subscription that paces no more is sent, for one that is gone it is dropped."""
        for pace in list(session.paces.running.values()):
            target = self._resolve(session, pace.topic, pace.label)
            if target is None or not target.period_s:
                message = self._take(pace)
                self._end(pace)
                if message is not None and target is not None:
                    session.outbound.offer(message, target, now)
                elif message is not None:
                    self._lose(message, pace)

    def on_session_ended(self, session: Session, now: float) -> None:
        """Forget its periods; its subscriptions are gone. What a group has pending goes to another member."""
        for pace in list(session.paces.running.values()):
            message = self._take(pace)
            self._end(pace)
            if message is not None:
                self._pass_on(message, pace, now)

    def recover(self, find: Callable[[str], Session | None], now: float) -> None:
        """Send what was pending when an earlier broker ended: its period is long over."""
        store, epoch = self._environment.store, self._environment.epoch
        for key, record in list(store.load(Table.PACED)):
            assert isinstance(key, tuple)
            client_id, label, topic = key
            store.delete(Table.PACED, key)
            session = find(client_id)
            target = self._resolve(session, topic, label or None) if session is not None else None
            message = message_from(record, epoch)
            if session is not None and target is not None and message.expires_at > now:
                session.outbound.offer(message, target, now)

    # --- inside ---------------------------------------------------------------------------------------

    def _begin(self, pace: Pace, target: Target, now: float) -> None:
        pace.session.paces.running[pace.label, pace.topic] = pace
        pace.ends_at = now + target.period_s
        self._push(pace)

    def _push(self, pace: Pace) -> None:
        heappush(self._heap, (pace.ends_at, next(self._order), pace))
        self._arm()

    def _arm(self) -> None:
        if not self._heap:
            return
        when = self._heap[0][0]
        if self._timer is None or when < self._timer.when:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._environment.timers.at(when, self._on_time)

    def _on_time(self, now: float) -> None:
        self._timer = None
        heap = self._heap
        while heap and heap[0][0] <= now:
            pace = heappop(heap)[2]
            if pace.is_over:
                continue
            if pace.ends_at > now:
                heappush(heap, (pace.ends_at, next(self._order), pace))
            elif pace.pending is None:
                self._end(pace)
            else:
                self._send(pace, now)
        self._arm()

    def _send(self, pace: Pace, now: float) -> None:
        """The period has ended with something pending: send it, and begin the next one."""
        message = self._take(pace)
        assert message is not None
        session = pace.session
        target = self._resolve(session, pace.topic, pace.label)
        if message.expires_at <= now:
            self._figures.dropped_expired += 1
            target = None
        elif target is not None and target.group is not None and session.peer is None:
            self._end(pace)
            self._pass_on(message, pace, now)
            return
        if target is None:
            self._end(pace)
            self._lose(message, pace)
            return
        session.outbound.offer(message, target, now)
        pace.ends_at = now + target.period_s
        heappush(self._heap, (pace.ends_at, next(self._order), pace))

    def _pass_on(self, message: Message, pace: Pace, now: float) -> None:
        """Let a group choose again: the member that was to get this one is away or gone."""
        group = self._subscriptions.group(pace.label) if pace.label is not None else None
        if group is not None and (member := group.choose(message)) is not None:
            self.deliver(message, member, now)

    def _replace(self, pace: Pace, message: Message, target: Target) -> None:
        """Make a message the pending one. Of all that is done here this is done most, so it calls nobody in vain."""
        session, older = pace.session, pace.pending
        older_size = len(older.payload) if older is not None else 0
        size = session.paces.size + len(message.payload) - older_size
        if size > self._limits.max_queued_bytes:
            self._figures.dropped_queue_full += 1
            self._lose(message, pace)
            return
        if older is not None:
            self._figures.superseded += 1
            self._figures.superseded_bytes += older_size
            if older.properties is not None:
                self._lose(older, pace)
        pace.pending = message
        session.paces.size = size
        if session.is_persistent:
            self._keep(pace, message, is_stored=bool(message.qos and target.qos))

    def _keep(self, pace: Pace, message: Message, *, is_stored: bool) -> None:
        key = (pace.session.client_id, pace.label or "", pace.topic)
        if is_stored:
            self._environment.store.put(Table.PACED, key, message_record(message, self._environment.epoch))
        elif pace.is_stored:
            self._environment.store.delete(Table.PACED, key)
        pace.is_stored = is_stored

    def _take(self, pace: Pace) -> Message | None:
        message, pace.pending = pace.pending, None
        if message is not None:
            pace.session.paces.size -= len(message.payload)
            if pace.is_stored:
                self._keep(pace, message, is_stored=False)
        return message

    def _end(self, pace: Pace) -> None:
        pace.is_over = True
        del pace.session.paces.running[pace.label, pace.topic]

    def _lose(self, message: Message, pace: Pace) -> None:
        """Tell whoever collects confirmations that none will come from here."""
        self._environment.confirmations.on_lost(message, pace.label or pace.session.client_id)
