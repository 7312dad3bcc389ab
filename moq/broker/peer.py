"""What the core asks of a connected client: implemented by each dialect's connection.

The calls are the core's effects on a client, in the core's words; the dialect makes packets of them. None of
them blocks or fails: a peer whose link is gone ignores them and the core hears of it through `disconnect`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from moq.broker.confirmations import Outcome
    from moq.broker.message import Message, Run, Target
    from moq.reasons import Reason

CONGESTED: Final = 0
"""Nothing was sent; `Broker.on_writable` will follow when it can be."""

SENT: Final = 1

UNDELIVERABLE: Final = 2
"""This client can never take it: it is larger than the client accepts, or its protocol has no words for it."""


class Peer(Protocol):
    """One connected client."""

    def send_message(self, message: Message, target: Target | None, qos: int, packet_id: int, dup: bool) -> int:
        """Send one message, and say what became of it: `SENT`, `CONGESTED` or `UNDELIVERABLE`."""

    def send_run(self, run: Run, target: Target) -> int:
        """Send a run of messages; returns how many were dropped because their lane is congested."""

    def acknowledge(self, kind: int, packet_id: int, reason: Reason) -> None:
        """QoS 1: the broker has taken responsibility, or refuses. Also refuses requests at any QoS.

        `NO_MATCHING_SUBSCRIBERS` is no refusal: nobody is there, and the message was retained if it was to be.
        """

    def confirm_received(self, kind: int, packet_id: int, reason: Reason) -> None:
        """QoS 2, first step: the message is kept, or refused."""

    def confirm(self, packet_id: int, qos: int, outcome: Outcome) -> None:
        """The confirmations a publisher waited for: at QoS 1 the end of the exchange, else its first step.

        Whatever the outcome, the message was taken: this is no refusal.
        """

    def confirm_completed(self, kind: int, packet_id: int, reason: Reason, outcome: Outcome | None = None) -> None:
        """QoS 2, last step: the packet identifier is free again; the outcome is what `confirm` told."""

    def release(self, kind: int, packet_id: int) -> None:
        """QoS 2 towards a subscriber: its receipt was noted, it may let go of the identifier."""

    def ask_type(self, query_id: int, topic: str) -> None:
        """Ask a publisher for the type of its topic; `Broker.on_type_answer` follows, or nothing."""

    def close(self, reason: Reason) -> None:
        """Tell the client why, then end the connection."""
