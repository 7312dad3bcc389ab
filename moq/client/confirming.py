"""Confirmed publishing as the program sees it: who has a message, when, and what they had to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from moq.errors import LocalProtocolError, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from moq.wire.mmqp import ConfirmSyn

MAX_WAITED = 0xFFFF
MAX_SUBSCRIBERS = 255
MAX_REPLY_BYTES = 255
"""Counts and lengths of the packets."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """One subscriber has the message."""

    client_id: str
    """Empty if this client may not know who subscribes."""
    after_s: float
    """Since the broker took the message, in seconds."""
    reply: bytes | None = None
    """What the subscriber had to say, if anything."""


@dataclass(frozen=True, slots=True)
class Confirmations:
    """Who has a message, in the order they confirmed it."""

    confirmed: tuple[Confirmation, ...]
    reason: int
    """SUCCESS: as many as were waited for."""

    def __iter__(self) -> Iterator[Confirmation]:
        return iter(self.confirmed)

    def __len__(self) -> int:
        return len(self.confirmed)

    def __getitem__(self, index: int) -> Confirmation:
        return self.confirmed[index]

    @property
    def client_ids(self) -> list[str]:
        """Their names."""
        return [confirmation.client_id for confirmation in self.confirmed]


class NotConfirmed(RequestRefused):
    """Fewer subscribers than were waited for have confirmed a message; `reason` says why no more will.

    TOO_FEW_SUBSCRIBERS: there were too few from the start, and nobody got it, or too few are left that could confirm.
    CONFIRMATION_TIMED_OUT: the rest may still get it. Any other reason is that of a broker that did not take it.
    """

    def __init__(self, wish: Wish, topic: str, reason: int, confirmed: tuple[Confirmation, ...] = ()) -> None:
        self.confirmations = Confirmations(confirmed, reason)
        answered = self.confirmations.client_ids
        self.missing = [client_id for client_id in wish.subscribers if client_id not in answered]
        """Those of the designated subscribers that have not confirmed it."""
        whom = f" ({', '.join(map(repr, answered))})" if answered else ""
        missing = f", missing {', '.join(map(repr, self.missing))}" if self.missing else ""
        super().__init__(
            f"PUBLISH on {topic!r}: {len(answered)} of {max(wish.waited, 1)} confirmed{whom}{missing}", reason
        )


@dataclass(frozen=True, slots=True)
class Wish:
    """What a publisher waits for."""

    waited: int
    subscribers: tuple[str, ...] = ()

    def confirmations(self, packet: ConfirmSyn) -> tuple[Confirmation, ...]:
        """What PUBSYN tells."""
        return tuple(
            Confirmation(item.client_id or "", (item.after_ms or 0) / 1000, item.reply) for item in packet.confirmations
        )


def wish_of(confirm: int, subscribers: Collection[str]) -> Wish:
    """What the program waits for, or a complaint."""
    if not 0 <= confirm <= MAX_WAITED:
        raise LocalProtocolError(f"confirm is {confirm}; it is the number of subscribers to wait for, 0 for the first")
    designated = tuple(dict.fromkeys(subscribers))
    if len(designated) > MAX_SUBSCRIBERS:
        raise LocalProtocolError(f"subscribers has {len(designated)} names; at most {MAX_SUBSCRIBERS} fit in PUBREQ")
    if designated and confirm > len(designated):
        raise LocalProtocolError(f"confirm is {confirm}, more than the {len(designated)} subscribers that count")
    return Wish(confirm, designated)
