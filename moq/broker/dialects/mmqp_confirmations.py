"""The outcome of a message of QoS 3 in one MMQP packet, however many have confirmed it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moq.wire import MAX_FIELDS_BYTES, Confirmation

if TYPE_CHECKING:
    from moq.broker.confirmations import Answer, Outcome

ROOM_BYTES: Final = MAX_FIELDS_BYTES - 3
"""In a packet, after packet identifier and reason."""

LONGEST_MS: Final = 0xFFFF_FFFF


def confirmations_that_fit(outcome: Outcome) -> list[Confirmation]:
    """Who confirmed, in the order they did; replies only while all names still fit, names while there is room."""
    told = [_told(answer) for answer in outcome.answers]
    names_bytes = sum(_size(confirmation) for confirmation in told)
    room = ROOM_BYTES - names_bytes
    for confirmation, answer in zip(told, outcome.answers, strict=True):
        if answer.reply is not None and len(answer.reply) + 1 <= room:
            confirmation.reply = answer.reply
            room -= len(answer.reply) + 1
    while room < 0:
        room += _size(told.pop())
    return told


def _told(answer: Answer) -> Confirmation:
    return Confirmation(answer.client_id, min(round(answer.after_s * 1000), LONGEST_MS))


def _size(confirmation: Confirmation) -> int:
    """Flags, time, identifier."""
    assert confirmation.client_id is not None
    return 6 + len(confirmation.client_id.encode())
