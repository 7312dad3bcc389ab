"""Confirmed publishing in the words of MQTT 5: user properties of PUBLISH, its acknowledgements and a subscriber's.

PUBLISH          moq-confirm: 2              so many confirmations; 0: the first
moq-confirm-id: alice       only hers count; once for each
moq-confirm-timeout-ms: 500
PUBACK, PUBREC   moq-reply: done             from a subscriber: a word for the publisher
PUBACK, PUBREC,  moq-confirm-reason: 0       to the publisher: the outcome, as a reason code
PUBCOMP          moq-confirmed: 2            how many have confirmed
moq-confirmation: {"client_id": "alice", "after_ms": 1.5, "reply": "done"}
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Final

from moq.broker.confirmations import Wanted
from moq.errors import RequestRefused
from moq.reasons import Reason

if TYPE_CHECKING:
    from moq.broker.confirmations import Answer, Outcome
    from moq.wire import mqtt

    Pairs = list[tuple[str, str]]

CONFIRM: Final = "moq-confirm"
CONFIRM_ID: Final = "moq-confirm-id"
CONFIRM_TIMEOUT: Final = "moq-confirm-timeout-ms"
REPLY: Final = "moq-reply"
REASON: Final = "moq-confirm-reason"
CONFIRMED: Final = "moq-confirmed"
CONFIRMATION: Final = "moq-confirmation"

MAX_SUBSCRIBERS: Final = 255
"""Whom one message may name, as in MMQP, where one byte counts them."""

PAIR_BYTES: Final = 5
"""What a user property takes besides its name and value."""


def wanted_of(properties: mqtt.Properties) -> Wanted | None:
    """The confirmations a PUBLISH asks for, if it does.

    Raises:
        RequestRefused: it asks for something else than a number, or names too many.
    """
    pairs = properties.user_properties or ()
    waited = next((value for name, value in pairs if name == CONFIRM), None)
    if waited is None:
        return None
    timeout = next((value for name, value in pairs if name == CONFIRM_TIMEOUT), None)
    subscribers = frozenset(value for name, value in pairs if name == CONFIRM_ID)
    if len(subscribers) > MAX_SUBSCRIBERS:
        raise RequestRefused(f"{len(subscribers)} subscribers in {CONFIRM_ID}", Reason.QUOTA_EXCEEDED)
    timeout_s = None if timeout is None else _number(CONFIRM_TIMEOUT, timeout) / 1000
    return Wanted(_number(CONFIRM, waited), subscribers, timeout_s)


def reply_of(properties: mqtt.Properties | None) -> bytes | None:
    """What a subscriber adds to its acknowledgement."""
    if properties is None:
        return None
    return next((value.encode() for name, value in properties.user_properties or () if name == REPLY), None)


def told(outcome: Outcome, room: int) -> Pairs:
    """An outcome in user properties: how it ended in any case, then who confirmed, in so many bytes."""
    pairs = [(REASON, str(int(outcome.reason))), (CONFIRMED, str(len(outcome.answers)))]
    room -= sum(map(_size, pairs))
    for answer in outcome.answers:
        pair = (CONFIRMATION, _shown(answer))
        room -= _size(pair)
        if room < 0:
            break
        pairs.append(pair)
    return pairs


def _shown(answer: Answer) -> str:
    shown: dict[str, object] = {"client_id": answer.client_id, "after_ms": round(answer.after_s * 1000, 3)}
    if answer.reply is not None:
        try:
            shown["reply"] = answer.reply.decode()
        except UnicodeDecodeError:
            shown["reply_base64"] = b64encode(answer.reply).decode()
    return json.dumps(shown)


def _size(pair: tuple[str, str]) -> int:
    return PAIR_BYTES + sum(len(text.encode()) for text in pair)


def _number(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise RequestRefused(f"{name} is {value!r}; it is a number", Reason.IMPLEMENTATION_SPECIFIC_ERROR)
    return int(value)
