"""One client as the broker remembers it, connected or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.broker.message import NEVER
from moq.broker.outbound import Outbound
from moq.broker.pacing import Paces
from moq.broker.store import RegistrationRecord, SessionRecord, SubscriptionRecord, Table
from moq.broker.traffic import Traffic

if TYPE_CHECKING:
    from moq.broker.environment import Environment
    from moq.broker.message import Registration, Subscription, Will
    from moq.broker.peer import Peer
    from moq.broker.timers import Timer


class Session:
    """Subscriptions, registrations, exchanges under way, the will: what outlives a connection.

    A persistent session writes all of it to the store as it changes, so that it outlives the broker too.
    """

    def __init__(self, client_id: str, environment: Environment, is_persistent: bool) -> None:
        self.client_id = client_id
        self.is_persistent = is_persistent
        self.user: str | None = None
        """Who may connect to it; None: anonymous clients."""
        self.expiry_s = 0.0
        self.outbound = Outbound(client_id, environment, is_persistent)
        self.paces = Paces()
        self.subscriptions: dict[tuple[str, str | None], Subscription] = {}  # by filter and group
        self.registrations: dict[str, Registration] = {}  # by topic or filter
        self.publishes: set[str] = set()
        """Concrete topics this session is known to publish: it may be asked for their type."""
        self.received: set[int] = set()
        """Exchanges (kind << 16 | packet id) of QoS 2 messages it sent and has not released."""
        self.wills: tuple[Will | None, Will | None] = (None, None)
        """Initial and last will as its client left them, for connections that resume without saying them again."""
        self.last_will: Will | None = None
        """The last will while it is due if the client is lost."""
        self.traffic = Traffic()
        """Where what its client publishes is counted: that of the connection it has."""
        self.end_timer: Timer | None = None
        self.will_timer: Timer | None = None
        self._environment = environment

    @property
    def peer(self) -> Peer | None:
        """The connected client, if it is."""
        return self.outbound.peer

    @property
    def is_in_a_group(self) -> bool:
        """True if it shares subscriptions with others."""
        return any(group is not None for _, group in self.subscriptions)

    def cancel_timers(self) -> None:
        """The client is back, or the session is over: nothing is due any more."""
        for timer in (self.end_timer, self.will_timer):
            if timer is not None:
                timer.cancel()
        self.end_timer = self.will_timer = None

    def save(self, expires_at: float = NEVER) -> None:
        """Write what concerns the session itself; `expires_at` is set while its client is away."""
        if self.is_persistent:
            record = SessionRecord(
                self.expiry_s, expires_at + self._environment.epoch, self.wills, self.last_will, self.user
            )
            self._environment.store.put(Table.SESSION, self.client_id, record)

    def note_received(self, exchange: int) -> None:
        """A QoS 2 message was taken: the same identifier is a repetition until it is released."""
        self.received.add(exchange)
        if self.is_persistent:
            self._environment.store.put(Table.RECEIVED, (self.client_id, exchange), None)

    def note_released(self, exchange: int) -> bool:
        """The identifier is free again. False if it was not in use."""
        if exchange not in self.received:
            return False
        self.received.discard(exchange)
        if self.is_persistent:
            self._environment.store.delete(Table.RECEIVED, (self.client_id, exchange))
        return True

    def save_subscription(self, subscription: Subscription) -> None:
        """Keep a subscription."""
        self.subscriptions[subscription.filter, subscription.group] = subscription
        if self.is_persistent:
            record = SubscriptionRecord(
                subscription.qos,
                subscription.group,
                subscription.accepts_requests,
                subscription.no_local,
                subscription.alias,
                subscription.priority,
                subscription.retain_as_published,
                subscription.identifier,
                subscription.answers_by_topic,
                subscription.period,
                subscription.repeats_names,
            )
            key = (self.client_id, subscription.filter, subscription.group)
            self._environment.store.put(Table.SUBSCRIPTION, key, record)

    def drop_subscription(self, subscription: Subscription) -> None:
        """Forget a subscription."""
        del self.subscriptions[subscription.filter, subscription.group]
        if self.is_persistent:
            key = (self.client_id, subscription.filter, subscription.group)
            self._environment.store.delete(Table.SUBSCRIPTION, key)

    def save_registration(self, registration: Registration) -> None:
        """Keep a registration."""
        self.registrations[registration.filter] = registration
        if self.is_persistent:
            record = RegistrationRecord(registration.mode, registration.expiry_s, registration.alias)
            self._environment.store.put(Table.REGISTRATION, (self.client_id, registration.filter), record)

    def drop_registration(self, registration: Registration) -> None:
        """Forget a registration."""
        del self.registrations[registration.filter]
        if self.is_persistent:
            self._environment.store.delete(Table.REGISTRATION, (self.client_id, registration.filter))

    def erase(self) -> None:
        """Take the rest out of the store: this session is over."""
        if self.is_persistent:
            for exchange in list(self.received):
                self.note_released(exchange)
            self._environment.store.delete(Table.SESSION, self.client_id)
