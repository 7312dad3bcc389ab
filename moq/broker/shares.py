"""A group's messages move on when the member that was to get them is away, or gone for good.

What waits in memory is moved at once. What waits in the store is read a page at a time; each page leaves one queue and
enters others in the same turn, so that no crash can lose or double it. A session that has ended leaves an *estate*: its
queue under a name that no client can have, given away page by page, by the next broker if need be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moq.broker.backlog import PAGE_BYTES, PAGE_MESSAGES
from moq.broker.records import message_from

if TYPE_CHECKING:
    from moq.broker.delivery import Delivery
    from moq.broker.environment import Environment
    from moq.broker.pacing import Pacing
    from moq.broker.session import Session
    from moq.broker.store import DeliveryRecord
    from moq.broker.subscriptions import Subscriptions

ESTATE: Final = "\0"
"""First character of an estate's name; client identifiers contain none."""


class Shares:
    """Moves messages between the members of groups."""

    def __init__(self, environment: Environment, subscriptions: Subscriptions, pacing: Pacing) -> None:
        self._environment = environment
        self._subscriptions = subscriptions
        self._pacing = pacing
        self._estates: set[str] = set()

    def on_detached(self, session: Session, movable: list[Delivery], now: float) -> None:
        """A member is away: other connected members take over; if there are none its messages wait for it."""
        for delivery in movable:
            assert delivery.target is not None
            assert delivery.target.group is not None
            member = delivery.target.group.choose(delivery.message, excluded=session)
            if member is not None and member.session.peer is not None:
                session.outbound.withdraw(delivery)
                self._pacing.deliver(delivery.message, member, now)
        if session.is_persistent and session.is_in_a_group:
            self._move_on(session, after=-1)

    def on_ended(self, session: Session, orphans: list[Delivery], now: float, *, was_in_a_group: bool) -> None:
        """A member is gone for good: other members get what it was to get, whether connected or not."""
        for delivery in orphans:
            assert delivery.target is not None
            assert delivery.target.group is not None
            if (member := delivery.target.group.choose(delivery.message)) is not None:
                self._pacing.deliver(delivery.message, member, now)
        if not session.is_persistent:
            return
        if not was_in_a_group:
            self._environment.store.drop(session.client_id)
            return
        number = 0
        while (estate := f"{ESTATE}{number}") in self._estates:
            number += 1
        self._environment.store.rename(session.client_id, estate)
        self.recover(estate)

    def recover(self, estate: str) -> None:
        """Give away what an ended session has left behind."""
        self._estates.add(estate)
        self._give_away(estate, after=-1)

    def _move_on(self, session: Session, after: int) -> None:
        def on_page(page: list[DeliveryRecord], is_last: bool) -> None:
            for record in page:
                if session.peer is not None:
                    return
                self._move(session, record)
            if not is_last:
                self._move_on(session, page[-1].number)

        self._environment.store.read(session.client_id, after, PAGE_MESSAGES, PAGE_BYTES, on_page)

    def _move(self, session: Session, record: DeliveryRecord) -> None:
        group = self._subscriptions.group(record.share) if record.share is not None else None
        # One who may have a message of QoS 2 already must not see it go to another.
        if group is None or (record.qos >= 2 and record.packet_id):
            return
        message = message_from(record.message, self._environment.epoch)
        member = group.choose(message, excluded=session)
        if member is not None and member.session.peer is not None:
            session.outbound.withdraw_stored(record)
            self._pacing.deliver(message, member, self._environment.now)

    def _give_away(self, estate: str, after: int) -> None:
        def on_page(page: list[DeliveryRecord], is_last: bool) -> None:
            for record in page:
                self._environment.store.dequeue(estate, record.number)
                self._give(record)
            if not is_last:
                self._give_away(estate, page[-1].number)
            else:
                self._estates.discard(estate)

        self._environment.store.read(estate, after, PAGE_MESSAGES, PAGE_BYTES, on_page)

    def _give(self, record: DeliveryRecord) -> None:
        group = self._subscriptions.group(record.share) if record.share is not None else None
        if group is None or (record.qos >= 2 and record.packet_id):
            return
        message = message_from(record.message, self._environment.epoch)
        if (member := group.choose(message)) is not None:
            self._pacing.deliver(message, member, self._environment.now)
