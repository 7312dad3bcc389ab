"""QoS 3: the confirmations of a message, collected for its publisher (E-MQTT).

    publisher ── message, n ──► broker ── message ──► each subscriber, by the QoS it subscribed with
    publisher ◄─ outcome ────── broker ◄─ received ── each subscriber, released at once

A collection waits for n answers; for the first, if n is 0. Who can give one is settled when the message is taken: each
subscriber of QoS 1 or more has a *place*, and so has each group as a whole. A place is vacated by an answer, or when
none can come from it any more. The collection ends with the n-th answer, when fewer than n can still come, or at its
deadline, and tells what it has. It belongs to its publisher's session, which keeps the outcome until it is released.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from moq.broker.access import Action
from moq.broker.message import Properties
from moq.broker.store import CollectionRecord, ConfirmationRecord, Table
from moq.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from moq.broker.environment import Environment
    from moq.broker.message import Message
    from moq.broker.session import Session
    from moq.broker.sessions import Sessions
    from moq.broker.subscriptions import Subscriptions
    from moq.broker.timers import Timer

MAX_REPLY_BYTES = 255
"""Of what a subscriber may add to its confirmation."""

NUMBERS_PER_SECOND = 1_000_000
"""Collections are numbered from the time the broker started on, so that no two brokers on one store share a number."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a publisher asks for."""

    waited: int
    """So many confirmations at once; 0: the first."""
    subscribers: frozenset[str] = frozenset()
    """Only theirs count; empty: anybody's."""
    timeout_s: float | None = None

    @property
    def needed(self) -> int:
        """Answers after which it is complete."""
        return max(self.waited, 1)


@dataclass(frozen=True, slots=True)
class Answer:
    """One subscriber's confirmation."""

    client_id: str
    """Empty if the publisher may not know who subscribes."""
    after_s: float
    """Since the broker took the message."""
    reply: bytes | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a publisher is told."""

    reason: Reason
    answers: tuple[Answer, ...]


class _Collection:
    """The confirmations of one message."""

    __slots__ = (
        "answers",
        "began_at",
        "deadline",
        "number",
        "outcome",
        "packet_id",
        "peer",
        "places",
        "qos",
        "session",
        "timer",
        "topic",
        "vacated",
        "wanted",
    )

    def __init__(self, session: Session, packet_id: int, number: int, topic: str, qos: int, wanted: Wanted) -> None:
        self.session = session
        self.peer = session.peer
        """The connection its message came on, for the first time or again."""
        self.packet_id = packet_id
        self.number = number
        self.topic = topic
        self.qos = qos
        self.wanted = wanted
        self.began_at = 0.0
        self.deadline = 0.0
        self.places: dict[str, None] = {}
        self.vacated: list[str] = []  # those the store knows of
        self.answers: dict[str, Answer] = {}  # by client id, in order
        self.outcome: Outcome | None = None
        self.timer: Timer | None = None

    def counts(self, client_id: str) -> bool:
        """True if an answer of this client is one more."""
        designated = self.wanted.subscribers
        return client_id not in self.answers and (not designated or client_id in designated)


class Confirmations:
    """Every collection, by its publisher and by the places it waits for."""

    def __init__(self, environment: Environment, subscriptions: Subscriptions, now: float) -> None:
        self._environment = environment
        self._subscriptions = subscriptions
        self._last_number = int((now + environment.epoch) * NUMBERS_PER_SECOND)
        self._of: dict[str, dict[int, _Collection]] = {}  # by publisher, then its packet identifier
        self._open: dict[int, _Collection] = {}  # by number
        self._awaited: dict[str, dict[int, _Collection]] = {}  # by place, then number

    # --- the publisher --------------------------------------------------------------------------------

    def open(self, session: Session, packet_id: int, message: Message, wanted: Wanted, now: float) -> Reason | None:
        """Collect the confirmations of a message, which is to be routed then.

        Or say why it cannot be confirmed as asked: then nobody gets it.
        """
        limits, figures = self._environment.limits, self._environment.figures
        own = self._of.get(session.client_id, ())
        if wanted.waited > limits.max_confirmations or len(own) >= limits.max_confirmations_per_session:
            figures.refused_confirmations += 1
            return Reason.QUOTA_EXCEEDED
        places = dict.fromkeys(self._places(message, wanted))
        is_designated = bool(wanted.subscribers)
        if len(places) < wanted.needed or (is_designated and wanted.waited > len(wanted.subscribers)):
            figures.confirmations_failed += 1
            return Reason.TOO_FEW_SUBSCRIBERS
        self._last_number += 1
        number, qos = self._last_number, message.qos
        message.properties = replace(message.properties or Properties(), waited=wanted.waited, collection=number)
        collection = _Collection(session, packet_id, number, message.topic, qos, wanted)
        collection.began_at = now
        collection.deadline = now + (limits.confirm_timeout_s if wanted.timeout_s is None else wanted.timeout_s)
        self._begin(collection, places)
        self._save(collection)
        figures.confirmations_opened += 1
        return None

    def repeat(self, session: Session, packet_id: int, *, is_repeated: bool) -> bool:
        """A publisher sent a message again: tell the outcome again, if there is one. False if it is a new message.

        At QoS 1 an identifier is free once the outcome was told: without the mark it is a new message's.
        """
        collection = self._of.get(session.client_id, {}).get(packet_id)
        if collection is None:
            return False
        if not is_repeated:
            self._forget(collection)
            return False
        collection.peer = session.peer
        if collection.outcome is not None:
            self._tell(collection)
        return True

    def release(self, session: Session, packet_id: int) -> Outcome | None:
        """The publisher has the outcome, or gives up: nothing is kept. Returns what it was told."""
        collection = self._of.get(session.client_id, {}).get(packet_id)
        if collection is None:
            return None
        self._forget(collection)
        return collection.outcome

    # --- the subscribers ------------------------------------------------------------------------------

    def on_answer(self, number: int, place: str, client_id: str, reply: bytes | None, now: float) -> None:
        """A subscriber has a message. What nobody waits for any more, or did not wait for, is ignored."""
        collection = self._open.get(number)
        if collection is None or place not in collection.places:
            return
        if collection.counts(client_id):
            if reply is not None and len(reply) > MAX_REPLY_BYTES:
                reply = None
            answer = collection.answers[client_id] = Answer(client_id, now - collection.began_at, reply)
            self._vacate(collection, place, answer)
        else:
            self._vacate(collection, place, None)

    def on_lost(self, message: Message, place: str) -> None:
        """A message was dropped, superseded or refused: no answer will come from there."""
        if message.properties is None or not message.properties.collection:
            return
        collection = self._open.get(message.properties.collection)
        if collection is not None and place in collection.places:
            self._vacate(collection, place, None)

    def on_session_ended(self, session: Session, groups: Iterable[str]) -> None:
        """A session is over: what it published nobody waits for, what it subscribed to it will not confirm.

        Nor will those of its groups (their keys) that have no other member.
        """
        for collection in list(self._of.get(session.client_id, {}).values()):
            self._forget(collection)
        gone = [session.client_id, *(key for key in groups if self._subscriptions.group(key) is None)]
        for place in gone:
            for collection in list(self._awaited.get(place, {}).values()):
                self._vacate(collection, place, None)

    # --- after a restart ------------------------------------------------------------------------------

    def recover(self, sessions: Sessions) -> None:
        """Go on with what an earlier broker had begun; places of those it alone knew are vacant."""
        store, epoch = self._environment.store, self._environment.epoch
        answered: dict[tuple[str, int], dict[str, ConfirmationRecord]] = {}
        for key, record in store.load(Table.CONFIRMATION):
            assert isinstance(key, tuple)
            assert isinstance(record, ConfirmationRecord)
            client_id, packet_id, place = key
            answered.setdefault((client_id, packet_id), {})[place] = record
        for key, record in store.load(Table.COLLECTION):
            assert isinstance(key, tuple)
            assert isinstance(record, CollectionRecord)
            client_id, packet_id = key
            session = sessions.get(client_id)
            assert session is not None, "a session is erased after its collections"
            self._last_number = max(self._last_number, record.number)
            wanted = Wanted(record.waited, frozenset(record.subscribers))
            collection = _Collection(session, packet_id, record.number, record.topic, record.qos, wanted)
            collection.began_at, collection.deadline = record.began_at - epoch, record.deadline - epoch
            self._recover_answers(collection, answered.get((client_id, packet_id), {}))
            if record.reason is None:
                vacant = {*collection.vacated, *(place for place in record.places if not self._exists(place, sessions))}
                self._begin(collection, (place for place in record.places if place not in vacant))
                self._check(collection)
            else:
                collection.outcome = self._outcome(collection, Reason(record.reason))
                self._of.setdefault(client_id, {})[packet_id] = collection

    def _recover_answers(self, collection: _Collection, answered: dict[str, ConfirmationRecord]) -> None:
        collection.vacated = list(answered)
        for record in answered.values():
            if record.subscriber is not None:
                collection.answers[record.subscriber] = Answer(record.subscriber, record.after_s, record.reply)

    def _exists(self, place: str, sessions: Sessions) -> bool:
        return sessions.get(place) is not None or self._subscriptions.group(place) is not None

    # --- inside ---------------------------------------------------------------------------------------

    def _places(self, message: Message, wanted: Wanted) -> Iterator[str]:
        """Who can answer: subscribers that acknowledge, and groups with such a member."""
        designated = wanted.subscribers
        route = self._subscriptions.route(message.topic)
        for target in (*route.targets, *route.paced):
            client_id = target.session.client_id
            if (
                target.qos
                and not (target.no_local and client_id == message.publisher)
                and (not designated or client_id in designated)
            ):
                yield client_id
        for group in route.groups:
            if any(
                member.qos
                and group.suits(member, message)
                and (not designated or member.session.client_id in designated)
                for member in group.members
            ):
                yield group.key

    def _begin(self, collection: _Collection, places: Iterable[str]) -> None:
        for place in places:
            collection.places[place] = None
            self._awaited.setdefault(place, {})[collection.number] = collection
        self._open[collection.number] = collection
        self._of.setdefault(collection.session.client_id, {})[collection.packet_id] = collection
        collection.timer = self._environment.timers.at(
            collection.deadline, lambda _: self._finish(collection, Reason.CONFIRMATION_TIMED_OUT)
        )

    def _vacate(self, collection: _Collection, place: str, answer: Answer | None) -> None:
        self._leave(collection, place)
        if collection.session.is_persistent:
            collection.vacated.append(place)
            key = (collection.session.client_id, collection.packet_id, place)
            record = (
                ConfirmationRecord(None, 0.0, None)
                if answer is None
                else ConfirmationRecord(answer.client_id, answer.after_s, answer.reply)
            )
            self._environment.store.put(Table.CONFIRMATION, key, record)
        self._check(collection)

    def _leave(self, collection: _Collection, place: str) -> None:
        del collection.places[place]
        awaited = self._awaited[place]
        del awaited[collection.number]
        if not awaited:
            del self._awaited[place]

    def _check(self, collection: _Collection) -> None:
        """End it if it is complete, or never can be."""
        needed = collection.wanted.needed
        if len(collection.answers) >= needed:
            self._finish(collection, Reason.SUCCESS)
        elif len(collection.answers) + len(collection.places) < needed:
            self._finish(collection, Reason.TOO_FEW_SUBSCRIBERS)

    def _finish(self, collection: _Collection, reason: Reason) -> None:
        self._close(collection)
        collection.outcome = self._outcome(collection, reason)
        self._save(collection)
        self._environment.figures.confirmations_failed += reason is not Reason.SUCCESS
        self._tell(collection)

    def _outcome(self, collection: _Collection, reason: Reason) -> Outcome:
        """The answers, with the names of those the publisher named itself or may ask for."""
        session, designated = collection.session, collection.wanted.subscribers
        is_told = bool(designated) or self._environment.access.allows(session, Action.QUERY, collection.topic)
        answers = collection.answers.values()
        return Outcome(reason, tuple(answer if is_told else replace(answer, client_id="") for answer in answers))

    def _tell(self, collection: _Collection) -> None:
        """Tell the publisher, once that is safe; one that was away asks by repeating its message.

        Not before: its release could overtake the repetition, which lies on another lane and would then be taken for
        a new message.
        """
        peer, packet_id, qos = collection.peer, collection.packet_id, collection.qos
        outcome = collection.outcome
        assert outcome is not None
        if peer is None or peer is not collection.session.peer:
            return
        if qos == 1:
            self._forget(collection)  # its acknowledgement is the last packet of the exchange
        self._environment.promises.keep(lambda: peer.confirm(packet_id, qos, outcome))

    def _close(self, collection: _Collection) -> None:
        if collection.timer is not None:
            collection.timer.cancel()
        self._open.pop(collection.number, None)
        for place in list(collection.places):
            self._leave(collection, place)

    def _save(self, collection: _Collection) -> None:
        if collection.session.is_persistent:
            epoch, wanted, outcome = self._environment.epoch, collection.wanted, collection.outcome
            record = CollectionRecord(
                collection.number,
                collection.topic,
                collection.qos,
                wanted.waited,
                tuple(sorted(wanted.subscribers)),
                collection.began_at + epoch,
                collection.deadline + epoch,
                tuple(collection.places),
                None if outcome is None else int(outcome.reason),
            )
            key = (collection.session.client_id, collection.packet_id)
            self._environment.store.put(Table.COLLECTION, key, record)

    def _forget(self, collection: _Collection) -> None:
        self._close(collection)
        client_id, packet_id = collection.session.client_id, collection.packet_id
        own = self._of[client_id]
        del own[packet_id]
        if not own:
            del self._of[client_id]
        if collection.session.is_persistent:
            store = self._environment.store
            for place in collection.vacated:
                store.delete(Table.CONFIRMATION, (client_id, packet_id, place))
            store.delete(Table.COLLECTION, (client_id, packet_id))
