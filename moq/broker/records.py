"""Messages as the store keeps them, and back.

Inside the broker times are those of a clock that never jumps; in the store they are seconds since 1970, because
they must make sense to a broker started later. `epoch` is the difference between the two.
"""

from __future__ import annotations

from moq.broker.message import Message
from moq.broker.store import MessageRecord, Record


def message_record(message: Message, epoch: float) -> MessageRecord:
    """What the store keeps of a message."""
    return MessageRecord(
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.publisher,
        message.expires_at + epoch,
        message.properties,
    )


def message_from(record: Record, epoch: float) -> Message:
    """The message a record was made of."""
    assert isinstance(record, MessageRecord)
    message = Message(
        record.topic,
        record.payload,
        record.qos,
        record.retain,
        record.publisher,
        record.expires_at - epoch,
        record.properties,
    )
    message.stored_as = record.stored_as
    return message
