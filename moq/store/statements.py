"""Segments and questions as SQL, with as few statements as there can be.

Each call into SQLite gives the interpreter's lock away and has to wait for it again, up to 5 ms while the event loop is
busy. So many rows share one statement: VALUES lists on the way in, one JSON text for pairs of numbers, and a page of a
queue comes back as one row, its payloads behind each other in one blob.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, assert_never

from moq.broker.message import NEVER
from moq.broker.store import DeliveryRecord, MessageRecord, Table
from moq.store.batch import Read, Sweep, Trim
from moq.store.rows import (
    FACTS,
    from_maybe_finite,
    maybe_properties,
    maybe_properties_text,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from moq.broker.message import Message
    from moq.store.batch import Answer, Question, Segment
    from moq.store.rows import FactTable, Row
    from moq.store.spool import Spool

ROWS_PER_STATEMENT: Final = 2_048
"""At most 11 columns each: below the 32,766 variables every build of SQLite allows."""

SMALL_REST: Final = 48
"""Rows that are one statement of their own, whatever their number."""

SWEEP_SLICE: Final = 5_000
"""Expired deliveries removed in one transaction, which therefore ends within a fraction of a second."""

DROP_SLICE: Final = 5_000
"""Deliveries of dropped queues removed in one transaction."""

_PAIRS: Final = "SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)"


class Insertion(NamedTuple):
    """A statement around a VALUES list of rows of some width."""

    width: int
    head: str
    tail: str = ""


_ADD_MESSAGES: Final = Insertion(
    9,
    "INSERT INTO message (id, refs, topic, payload, spool, qos, retain, publisher, properties) VALUES ",
    " ON CONFLICT (id) DO UPDATE SET refs = refs + excluded.refs",
)
_ADD_DELIVERIES: Final = Insertion(
    9, "INSERT INTO delivery (queue, number, message, qos, packet_id, released, share, size, expires_at) VALUES "
)
_MARK: Final = """
    UPDATE delivery SET packet_id = json_extract(value, '$[2]'), released = json_extract(value, '$[3]')
    FROM json_each(?) WHERE queue = json_extract(value, '$[0]') AND number = json_extract(value, '$[1]')"""
_REMOVE: Final = f"DELETE FROM delivery WHERE (queue, number) IN ({_PAIRS})"

_DISOWN: Final = "UPDATE queue SET owner = NULL WHERE id IN (SELECT value FROM json_each(?))"
_OWN: Final = Insertion(
    2, "INSERT INTO queue (id, owner) VALUES ", " ON CONFLICT (id) DO UPDATE SET owner = excluded.owner"
)

_READ: Final = """
    WITH candidate AS (
        SELECT * FROM delivery WHERE queue = ? AND number > ? ORDER BY number LIMIT ? + 1
    ), counted AS (
        SELECT *, row_number() OVER earlier AS place, sum(size) OVER earlier - size AS before FROM candidate
        WINDOW earlier AS (ORDER BY number ROWS UNBOUNDED PRECEDING)
    ), page AS (
        SELECT * FROM counted WHERE place <= ? AND (place = 1 OR before < ?)
    ), content AS (
        SELECT page.number, page.qos, packet_id, released, share, size, expires_at,
            message.id, topic, payload, spool, message.qos AS sent_qos, retain, publisher, properties
        FROM page JOIN message ON message.id = page.message ORDER BY page.number
    )
    SELECT
        json_group_array(json_array(number, qos, packet_id, released, share, size, expires_at,
            id, topic, spool, sent_qos, retain, publisher, properties)),
        CAST(group_concat(ifnull(payload, x''), '') AS BLOB),
        (SELECT count(*) FROM candidate) = (SELECT count(*) FROM page)
    FROM content"""

_TRIM: Final = """
    WITH RECURSIVE gone (number, messages, size) AS (
        SELECT * FROM (
            SELECT number, 1, size FROM delivery
            WHERE queue = :queue AND number > :after AND packet_id = 0 AND (:messages > 0 OR :size > 0)
            ORDER BY number LIMIT 1
        )
        UNION ALL
        SELECT delivery.number, gone.messages + 1, gone.size + delivery.size
        FROM gone JOIN delivery ON delivery.queue = :queue AND delivery.number = (
            SELECT next.number FROM delivery AS next
            WHERE next.queue = :queue AND next.number > gone.number AND next.packet_id = 0 ORDER BY next.number LIMIT 1
        )
        WHERE gone.messages < :messages OR gone.size < :size
    )
    SELECT ifnull(max(number), 0), count(*), ifnull(max(size), 0) FROM gone"""
_REMOVE_UP_TO: Final = "DELETE FROM delivery WHERE queue = ? AND number > ? AND number <= ? AND packet_id = 0"

_SWEEP: Final = f"""
    SELECT json_group_array(json_array(queue, number, size)) FROM (
        SELECT queue, number, size FROM delivery
        WHERE expires_at IS NOT NULL AND expires_at <= ? AND packet_id = 0
            AND queue NOT IN (SELECT value FROM json_each(?)) LIMIT {SWEEP_SLICE}
    )"""

_CLEAR_DROPPED: Final = f"""
    DELETE FROM delivery WHERE (queue, number) IN (
        SELECT queue, number FROM delivery WHERE queue IN (SELECT id FROM queue WHERE owner IS NULL) LIMIT {DROP_SLICE}
    )"""
_FORGET_DROPPED: Final = "DELETE FROM queue WHERE owner IS NULL"


def _fact_statements(table: FactTable) -> tuple[Insertion, Insertion]:
    values = [column for column in table.columns if column not in table.key and column != "group_name"]
    update = f"UPDATE SET {', '.join(f'{column} = excluded.{column}' for column in values)}" if values else "NOTHING"
    put = Insertion(
        len(table.columns),
        f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ",
        f" ON CONFLICT ({', '.join(table.key)}) DO {update}",
    )
    same = " AND ".join(f"{key} = gone.column{place}" for place, key in enumerate(table.key, 1))
    forget = Insertion(
        len(table.key),
        f"DELETE FROM {table.name} WHERE rowid IN (SELECT {table.name}.rowid FROM (VALUES ",
        f") AS gone CROSS JOIN {table.name} ON {same})",
    )
    return put, forget


_FACT_STATEMENTS: Final = {table: _fact_statements(layout) for table, layout in FACTS.items()}


class Statements:
    """Carries segments and questions out on one connection, inside a transaction that its caller opened."""

    def __init__(self, connection: sqlite3.Connection, spool: Spool) -> None:
        self._connection = connection
        self._spool = spool
        self.rows = 0
        """Rows changed so far."""

    def apply(self, segment: Segment) -> None:
        """Write the net changes of a segment: first what is new, so that no message is gone before it is wanted."""
        self._forget_facts(segment)
        self._put_facts(segment)
        if segment.owners:
            self._set_owners(segment)
        self._add(segment)
        self._mark(segment)
        self._remove([(queue, number) for queue, numbers in segment.removed.items() for number in numbers])

    def answer(self, question: Question) -> Answer:
        """Answer a question; what it returns says the answer."""
        match question:
            case Read():
                return partial(question.then, *self._read(question))
            case Trim():
                return partial(question.then, *self._trim(question))
            case Sweep():
                gone = self._sweep(question)
                return partial(question.then, gone, len(gone) < SWEEP_SLICE)
            case _:
                assert_never(question)

    def clear_dropped(self) -> bool:
        """Remove some deliveries of dropped queues; whether those were the last."""
        if self._execute(_CLEAR_DROPPED) == DROP_SLICE:
            return False
        self._execute(_FORGET_DROPPED)
        return True

    # --- facts ----------------------------------------------------------------------------------------

    def _forget_facts(self, segment: Segment) -> None:
        for table, keys in segment.forgotten.items():
            to_key = FACTS[table].to_key
            self._values(_FACT_STATEMENTS[table][1], [value for key in keys for value in to_key(key)])

    def _put_facts(self, segment: Segment) -> None:
        for table, facts in segment.facts.items():
            to_row = self._retained_row if table is Table.RETAINED else FACTS[table].to_row
            rows = (to_row(key, record) for key, record in facts.items())
            self._values(_FACT_STATEMENTS[table][0], [value for row in rows for value in row])

    def _retained_row(self, key: Any, record: Any) -> Row:
        row = FACTS[Table.RETAINED].to_row(key, record)
        return *row[:2], *self._spool.keep_retained(record.payload), *row[4:]

    # --- queues ---------------------------------------------------------------------------------------

    def _set_owners(self, segment: Segment) -> None:
        # An owner may pass from queue to queue within a segment: let go of all before taking any.
        self._execute(_DISOWN, (json.dumps(list(segment.owners)),))
        owned = [(queue, owner) for queue, owner in segment.owners.items() if owner is not None]
        self._values(_OWN, [value for pair in owned for value in pair])

    def _add(self, segment: Segment) -> None:
        messages: dict[int, Message] = {}
        refs: Counter[int] = Counter()
        deliveries: list[Any] = []
        for queue, added in segment.added.items():
            for number, (message, expires_at, qos, packet_id, released, share) in added.items():
                stored_as = message.stored_as
                messages[stored_as] = message
                refs[stored_as] += 1
                size, expires = len(message.payload), None if expires_at == NEVER else expires_at
                deliveries += (queue, number, stored_as, qos, packet_id, released, share, size, expires)
        rows = (self._message_row(message, refs[number]) for number, message in messages.items())
        self._values(_ADD_MESSAGES, [value for row in rows for value in row])
        self._values(_ADD_DELIVERIES, deliveries)

    def _message_row(self, message: Message, refs: int) -> Row:
        payload, spool = self._spool.keep_message(message.stored_as, message.payload)
        return (
            message.stored_as,
            refs,
            message.topic,
            payload,
            spool,
            message.qos,
            message.retain,
            message.publisher,
            maybe_properties_text(message.properties),
        )

    def _mark(self, segment: Segment) -> None:
        rows = [
            (queue, number, packet_id, int(released))
            for queue, marked in segment.marked.items()
            for number, (packet_id, released) in marked.items()
        ]
        if rows:
            self._execute(_MARK, (json.dumps(rows),))

    def _remove(self, pairs: Sequence[tuple[int, int]]) -> None:
        if pairs:
            self._execute(_REMOVE, (json.dumps(pairs),))

    # --- questions ------------------------------------------------------------------------------------

    def _read(self, question: Read) -> tuple[list[DeliveryRecord], bool]:
        limits = (question.after, question.messages, question.messages, question.size)
        found = self._connection.execute(_READ, (question.queue, *limits)).fetchone()
        payloads = memoryview(found[1] or b"")
        page: list[DeliveryRecord] = []
        start = 0
        for row in json.loads(found[0]):
            size, spool = row[5], row[9]
            payload: bytes | None
            if spool is None:
                payload = bytes(payloads[start : start + size])
                start += size
            elif (payload := self._spool.read(spool, size)) is None:
                continue
            page.append(_delivery(row, payload))
        return page, bool(found[2])

    def _trim(self, question: Trim) -> tuple[int, int]:
        limits = {
            "queue": question.queue,
            "after": question.after,
            "messages": question.messages,
            "size": question.size,
        }
        last, messages, size = self._connection.execute(_TRIM, limits).fetchone()
        if messages:
            self._execute(_REMOVE_UP_TO, (question.queue, question.after, last))
        return messages, size

    def _sweep(self, question: Sweep) -> list[tuple[int, int]]:
        found = self._connection.execute(_SWEEP, (question.before, json.dumps(question.skip))).fetchone()
        gone = json.loads(found[0])
        self._remove([(queue, number) for queue, number, _ in gone])
        return [(queue, size) for queue, _, size in gone]

    # --- execution ------------------------------------------------------------------------------------

    def _execute(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        count = self._connection.execute(statement, parameters).rowcount
        self.rows += count
        return count

    def _values(self, statement: Insertion, values: list[Any]) -> None:
        """Put values into the VALUES list of a statement, row after row, as often as it takes."""
        width = statement.width
        row = f"({', '.join('?' * width)})"
        start = 0
        for rows in _portions(len(values) // width):
            end = start + rows * width
            self._execute(f"{statement.head}{', '.join([row] * rows)}{statement.tail}", values[start:end])
            start = end


def _portions(rows: int) -> Iterator[int]:
    """Cut a number of rows into powers of two and a small rest.

    To compile a statement costs twice as much as to carry it out; of a few sizes all are found compiled.
    """
    while rows > SMALL_REST:
        portion = min(ROWS_PER_STATEMENT, 1 << rows.bit_length() - 1)
        yield portion
        rows -= portion
    if rows:
        yield rows


def _delivery(row: list[Any], payload: bytes) -> DeliveryRecord:
    number, qos, packet_id, released, share, _, expires_at, stored_as, topic, _, sent_qos, retain, publisher, text = row
    message = MessageRecord(
        topic,
        payload,
        sent_qos,
        bool(retain),
        publisher,
        from_maybe_finite(expires_at),
        maybe_properties(text),
        stored_as,
    )
    return DeliveryRecord(number, message, qos, packet_id, bool(released), share)
