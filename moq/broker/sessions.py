"""The life of sessions: connect, resume, take over, lose the connection, expire, come back after a restart.

    connect ──► connected ──► away ──► connect: resumed
                   │            └────► expired: forgotten, its will published at the latest now
                   └── expiry 0 ─────► forgotten at once

Wills are part of this life: the initial one is published when its client arrives, the last one when the client is
lost without having said goodbye, after its delay unless the client is back by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.broker.access import Action, Identity
from moq.broker.message import NEVER, Message, Mode, Registration, Subscription, Will
from moq.broker.session import Session
from moq.broker.shares import ESTATE, Shares
from moq.broker.store import RegistrationRecord, SessionRecord, SubscriptionRecord, Table
from moq.broker.subscriptions import group_key
from moq.errors import RequestRefused
from moq.reasons import Reason
from moq.topics import has_wildcard, name_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from moq.broker.core import Broker
    from moq.broker.delivery import Delivery
    from moq.broker.message import Target
    from moq.broker.peer import Peer


class Sessions:
    """Every session of a broker, by client id."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._environment = broker.environment
        self._sessions: dict[str, Session] = {}
        self._shares = Shares(broker.environment, broker.subscriptions, broker.pacing)
        sweeper = self._environment.sweeper
        sweeper.on_swept = self._on_swept
        sweeper.connected = lambda: {s.client_id for s in self._sessions.values() if s.peer is not None}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def get(self, client_id: str) -> Session | None:
        """The session of a client, if there is one."""
        return self._sessions.get(client_id)

    def connect(
        self,
        client_id: str,
        *,
        resume: bool,
        is_persistent: bool | None,
        expiry_s: float | None,
        initial_will: Will | None,
        last_will: Will | None,
        now: float,
        user: str | None = None,
        keeps_wills: bool = False,
    ) -> tuple[Session, bool]:
        """A client has said who it is. Returns its session and whether that is one from before.

        Call `start` once the client has been told. A connection that held the session is closed. What is None of
        `is_persistent` and `expiry_s` stays as it was in a session that is resumed; so do its wills if `keeps_wills`.

        Raises:
            RequestRefused: There are too many sessions, a will is not allowed, or the session is another user's.
        """
        for will in (initial_will, last_will):
            self._check_will(Identity(client_id, user), will)
        session = self._sessions.get(client_id)
        if session is not None and session.user != user:
            raise RequestRefused(f"session {client_id!r}", Reason.CLIENT_IDENTIFIER_NOT_VALID)
        if session is None and len(self._sessions) >= self._environment.limits.max_sessions:
            raise RequestRefused("session", Reason.QUOTA_EXCEEDED)
        if session is not None:
            ends_with_connection = session.peer is not None and session.expiry_s <= 0
            self._take_over(session, now)
            if not resume or ends_with_connection or is_persistent not in (None, session.is_persistent):
                self._end(session, now)
                session = None
        is_present = session is not None
        if session is None:
            session = self._sessions[client_id] = Session(client_id, self._environment, bool(is_persistent))
        session.cancel_timers()
        session.user = user
        if expiry_s is not None:
            session.expiry_s = expiry_s
        if keeps_wills:
            initial_will, last_will = initial_will or session.wills[0], last_will or session.wills[1]
        session.wills = (initial_will, last_will)
        session.last_will = last_will
        session.save()
        if initial_will is not None:
            self._publish_initial(session, initial_will, now)
        return session, is_present

    def start(self, session: Session, peer: Peer, now: float, window: int | None = None) -> None:
        """Begin delivering to a connected client: first what was under way, then what waited.

        It takes at most `window` messages of QoS 1 and 2 that it has not acknowledged, if it says so.
        """
        session.outbound.attach(peer, lambda topic, label: self._target_now(session, topic, label), now, window)

    def disconnect(self, session: Session, peer: Peer, *, with_will: bool, expiry_s: float, now: float) -> None:
        """A client's connection is gone; its session stays for `expiry_s`. Ignored if another one has taken over."""
        if session.peer is not peer:
            return
        if not with_will:
            session.last_will = None
        movable = self._detach(session, now)
        if expiry_s <= 0:
            self._end(session, now)
            return
        self._shares.on_detached(session, movable, now)
        self._expire_in(session, expiry_s, now)

    def recover(self, now: float) -> None:
        """Read back the sessions an earlier broker kept; all their clients are away."""
        store, epoch = self._environment.store, self._environment.epoch
        for key, record in store.load(Table.SESSION):
            assert isinstance(key, str)
            assert isinstance(record, SessionRecord)
            session = self._sessions[key] = Session(key, self._environment, is_persistent=True)
            session.expiry_s, session.user = record.expiry_s, record.user
            session.wills, session.last_will = record.wills, record.last_will
        for key, record in store.load(Table.SUBSCRIPTION):
            assert isinstance(key, tuple)
            assert isinstance(record, SubscriptionRecord)
            client_id, filter_, group = key
            self._recover_subscription(client_id, filter_, group, record, now)
        for key, record in store.load(Table.REGISTRATION):
            assert isinstance(key, tuple)
            assert isinstance(record, RegistrationRecord)
            client_id, filter_ = key
            self._recover_registration(client_id, filter_, record)
        for key, _ in store.load(Table.RECEIVED):
            assert isinstance(key, tuple)
            self._sessions[key[0]].received.add(key[1])
        for key, record in store.load(Table.SESSION):
            assert isinstance(key, str)
            assert isinstance(record, SessionRecord)
            session = self._sessions[key]
            self._schedule_will(session, now)
            expires_at = record.expires_at - epoch
            self._expire_in(session, session.expiry_s if expires_at == NEVER else expires_at - now, now)
        self._recover_queues(now)

    def _recover_queues(self, now: float) -> None:
        """Learn what each session has waiting in the store, and give away what ended ones have left."""
        queues = list(self._environment.store.queues())
        for queue in queues:
            if not queue.owner.startswith(ESTATE):
                self._sessions[queue.owner].outbound.recover(queue)
        for queue in queues:
            if queue.owner.startswith(ESTATE):
                self._shares.recover(queue.owner)
        if queues:
            self._environment.sweeper.begin(now)
        self._broker.pacing.recover(self._sessions.get, now)
        self._broker.stages.recover(now)

    def _on_swept(self, owner: str, size: int) -> None:
        if (session := self._sessions.get(owner)) is not None:
            session.outbound.on_swept(size)

    def target(self, session: Session, topic: str, label: str | None) -> Target | None:
        """For whom a message is that waited: None if its subscription is gone."""
        subscriptions = self._broker.subscriptions
        if label is None:
            route = subscriptions.route(topic)
            return next((target for target in (*route.targets, *route.paced) if target.session is session), None)
        if (group := subscriptions.group(label)) is not None:
            return next((target for target in group.members if target.session is session), None)
        return self._broker.stages.target(session, label)

    def _target_now(self, session: Session, topic: str, label: str | None) -> Target | None:
        """For whom a message from the store is: what it was accepted for may have given way to something else."""
        return self.target(session, topic, label) or self.target(session, topic, None)

    def _recover_subscription(
        self, client_id: str, filter_: str, group: str | None, record: SubscriptionRecord, now: float
    ) -> None:
        subscription = Subscription(
            self._sessions[client_id],
            filter_,
            record.qos,
            group,
            record.accepts_requests,
            record.no_local,
            record.alias,
            record.priority,
            record.retain_as_published,
            record.identifier,
            record.answers_by_topic,
            record.period,
            record.repeats_names,
        )
        self._sessions[client_id].subscriptions[filter_, group] = subscription
        try:
            subscription.plan = self._broker.read(subscription)
        except RequestRefused:
            subscription.is_dormant = True
        else:
            self._broker.enter(subscription, now)

    def _recover_registration(self, client_id: str, filter_: str, record: RegistrationRecord) -> None:
        session = self._sessions[client_id]
        registration = Registration(filter_, Mode(record.mode), record.expiry_s, record.alias)
        session.registrations[filter_] = registration
        if not has_wildcard(filter_):
            self._broker.adopt(session, filter_, registration)

    def _take_over(self, session: Session, now: float) -> None:
        """The same client on a new connection: the old one has lost its session."""
        peer = session.peer
        if peer is not None:
            self._detach(session, now)
            peer.close(Reason.SESSION_TAKEN_OVER)

    def _detach(self, session: Session, now: float) -> list[Delivery]:
        movable = session.outbound.detach()
        self._broker.requests.on_detached(session, now)
        self._schedule_will(session, now)
        return movable

    def _expire_in(self, session: Session, seconds: float, now: float) -> None:
        session.save(now + seconds)
        session.end_timer = self._environment.timers.at(now + seconds, lambda at: self._end(session, at))

    def _end(self, session: Session, now: float) -> None:
        """Forget a session and all that belonged to it; what its groups still owe goes to other members."""
        del self._sessions[session.client_id]
        session.cancel_timers()
        was_in_a_group = session.is_in_a_group
        groups = [group_key(shared) for shared in session.subscriptions.values() if shared.group is not None]
        for subscription in list(session.subscriptions.values()):
            self._broker.withdraw(subscription)
            session.drop_subscription(subscription)
        for registration in list(session.registrations.values()):
            session.drop_registration(registration)
        for name in list(session.publishes):
            self._broker.abandon(session, name)
        self._broker.requests.on_session_ended(session)
        self._broker.pacing.on_session_ended(session, now)
        self._shares.on_ended(session, session.outbound.discard(), now, was_in_a_group=was_in_a_group)
        self._broker.confirmations.on_session_ended(session, groups)
        session.erase()
        # A will waits no longer than its session.
        self._publish_last(session, now)

    # --- wills ----------------------------------------------------------------------------------------

    def _check_will(self, client: Identity, will: Will | None) -> None:
        if will is None:
            return
        if name_error(will.topic) is not None:
            raise RequestRefused(f"will topic {will.topic!r}", Reason.TOPIC_NAME_INVALID)
        if not self._environment.access.allows(client, Action.PUBLISH, will.topic):
            raise RequestRefused(f"will topic {will.topic!r}", Reason.NOT_AUTHORIZED)

    def _publish_initial(self, session: Session, will: Will, now: float) -> None:
        if will.delay_s > 0:
            self._environment.timers.at(now + will.delay_s, lambda at: self._publish_will(session, will, at))
        else:
            self._publish_will(session, will, now)

    def _schedule_will(self, session: Session, now: float) -> None:
        will = session.last_will
        if will is not None and will.delay_s > 0:
            session.will_timer = self._environment.timers.at(
                now + will.delay_s, lambda at: self._publish_last(session, at)
            )
        elif will is not None:
            self._publish_last(session, now)

    def _publish_last(self, session: Session, now: float) -> None:
        will, session.last_will = session.last_will, None
        if will is not None:
            if session.client_id in self._sessions:
                session.save(session.end_timer.when if session.end_timer is not None else NEVER)
            self._publish_will(session, will, now)

    def _publish_will(self, session: Session, will: Will, now: float) -> None:
        if not self._environment.access.allows(session, Action.PUBLISH, will.topic):
            # It was allowed when the client connected, which may be long ago.
            self._environment.figures.dropped_not_authorized += 1
            return
        expires_at = now + will.expiry_s if will.expiry_s is not None else NEVER
        publisher = session.client_id
        message = Message(will.topic, will.payload, will.qos, will.retain, publisher, expires_at, will.properties)
        self._broker.route(message, now)
