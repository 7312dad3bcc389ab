"""Records as rows that a person can read with the sqlite3 shell, and back."""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from moq.broker.message import Properties, Will
from moq.broker.store import (
    AggregateRecord,
    CollectionRecord,
    ConfirmationRecord,
    MessageRecord,
    RegistrationRecord,
    SessionRecord,
    SubscriptionRecord,
    Table,
    TopicRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from moq.broker.store import Record

Row = tuple[Any, ...]

_DEFAULTS: Final = {field.name: field.default for field in fields(Properties)}


def maybe_finite(value: float) -> float | None:
    """NULL for never."""
    return value if math.isfinite(value) else None


def from_maybe_finite(value: float | None) -> float:
    """Never for NULL."""
    return math.inf if value is None else value


def maybe_properties_text(properties: Properties | None) -> str | None:
    """Properties that are not as usual, as JSON."""
    return None if properties is None else json.dumps(_properties_object(properties))


def maybe_properties(text: str | None) -> Properties | None:
    """The properties a text was made of."""
    return None if text is None else _properties(json.loads(text))


def _properties_object(properties: Properties) -> dict[str, Any]:
    shown = {name: getattr(properties, name) for name in _DEFAULTS}
    shown = {name: value for name, value in shown.items() if value != _DEFAULTS[name]}
    if properties.correlation_data is not None:
        shown["correlation_data"] = b64encode(properties.correlation_data).decode()
    return shown


def _properties(shown: dict[str, Any]) -> Properties:
    properties = Properties(**shown)
    properties.user = tuple((name, value) for name, value in properties.user)
    if "correlation_data" in shown:
        properties.correlation_data = b64decode(shown["correlation_data"])
    return properties


def _maybe_will_text(will: Will | None) -> str | None:
    if will is None:
        return None
    shown = {field.name: getattr(will, field.name) for field in fields(Will)}
    shown["payload"] = b64encode(will.payload).decode()
    shown["properties"] = None if will.properties is None else _properties_object(will.properties)
    return json.dumps(shown)


def _maybe_will(text: str | None) -> Will | None:
    if text is None:
        return None
    shown = json.loads(text)
    shown["payload"] = b64decode(shown["payload"])
    shown["properties"] = None if shown["properties"] is None else _properties(shown["properties"])
    return Will(**shown)


# --- one pair of functions for each table: any key and record there are those of the table -----------------


def _session_row(key: Any, record: Any) -> Row:
    first, final = record.wills
    return (
        key,
        record.user,
        maybe_finite(record.expiry_s),
        maybe_finite(record.expires_at),
        _maybe_will_text(first),
        _maybe_will_text(final),
        _maybe_will_text(record.last_will),
    )


def _session(row: Row) -> tuple[Hashable, Record]:
    client_id, user, expiry_s, expires_at, first, final, last = row
    wills = (_maybe_will(first), _maybe_will(final))
    expiry_s, expires_at = from_maybe_finite(expiry_s), from_maybe_finite(expires_at)
    return client_id, SessionRecord(expiry_s, expires_at, wills, _maybe_will(last), user)


def _subscription_row(key: Any, record: Any) -> Row:
    return (
        *key,
        record.qos,
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


def _subscription(row: Row) -> tuple[Hashable, Record]:
    client_id, filter_, group, qos, requests, no_local, alias, priority, retain, identifier, answers, period, names = (
        row
    )
    return (client_id, filter_, group), SubscriptionRecord(
        qos,
        group,
        bool(requests),
        bool(no_local),
        alias,
        priority,
        bool(retain),
        identifier,
        bool(answers),
        period,
        bool(names),
    )


def _registration_row(key: Any, record: Any) -> Row:
    return *key, int(record.mode), record.expiry_s, record.alias


def _registration(row: Row) -> tuple[Hashable, Record]:
    return row[:2], RegistrationRecord(*row[2:])


def _topic_row(key: Any, record: Any) -> Row:
    return (
        key,
        int(record.mode),
        record.expiry_s,
        record.format,
        record.media_type,
        record.schema,
        record.type_id,
    )


def _topic(row: Row) -> tuple[Hashable, Record]:
    return row[0], TopicRecord(*row[1:])


def _retained_row(key: Any, record: Any) -> Row:
    return (
        *key,
        record.payload,
        None,
        len(record.payload),
        record.qos,
        record.retain,
        record.publisher,
        maybe_finite(record.expires_at),
        maybe_properties_text(record.properties),
    )


def _retained(row: Row) -> tuple[Hashable, Record]:
    topic, number, payload, _, _, qos, retain, publisher, expires_at, properties = row
    expires_at = from_maybe_finite(expires_at)
    return (topic, number), MessageRecord(
        topic, payload, qos, bool(retain), publisher, expires_at, maybe_properties(properties)
    )


def _received_row(key: Any, record: Any) -> Row:
    return tuple(key)


def _received(row: Row) -> tuple[Hashable, Record]:
    return row, None


def _paced_row(key: Any, record: Any) -> Row:
    return (
        *key,
        record.payload,
        record.qos,
        record.retain,
        record.publisher,
        maybe_finite(record.expires_at),
        maybe_properties_text(record.properties),
    )


def _paced(row: Row) -> tuple[Hashable, Record]:
    client_id, label, topic, payload, qos, retain, publisher, expires_at, properties = row
    return (client_id, label, topic), MessageRecord(
        topic, payload, qos, bool(retain), publisher, from_maybe_finite(expires_at), maybe_properties(properties)
    )


def _aggregate_row(key: Any, record: Any) -> Row:
    return *key, record.window, *record.statistics


def _aggregate(row: Row) -> tuple[Hashable, Record]:
    return row[:2], AggregateRecord(row[2], row[3:])


def _collection_row(key: Any, record: Any) -> Row:
    return (
        *key,
        record.number,
        record.topic,
        record.qos,
        record.waited,
        json.dumps(record.subscribers),
        record.began_at,
        record.deadline,
        json.dumps(record.places),
        record.reason,
    )


def _collection(row: Row) -> tuple[Hashable, Record]:
    number, topic, qos, waited, subscribers, began_at, deadline, places, reason = row[2:]
    subscribers, places = tuple(json.loads(subscribers)), tuple(json.loads(places))
    return row[:2], CollectionRecord(number, topic, qos, waited, subscribers, began_at, deadline, places, reason)


def _confirmation_row(key: Any, record: Any) -> Row:
    return *key, record.subscriber, record.after_s, record.reply


def _confirmation(row: Row) -> tuple[Hashable, Record]:
    return row[:3], ConfirmationRecord(*row[3:])


def _whole_key(key: Any) -> Row:
    return (key,)


def _subscription_key(key: Any) -> Row:
    client_id, filter_, group = key
    return client_id, filter_, b"" if group is None else group


@dataclass(frozen=True, slots=True)
class FactTable:
    """How the facts of one table are rows: its columns begin with those of the key."""

    name: str
    key: tuple[str, ...]
    """The expressions that are unique."""
    columns: tuple[str, ...]
    to_row: Callable[[Any, Any], Row]
    from_row: Callable[[Row], tuple[Hashable, Record]]
    to_key: Callable[[Any], Row] = tuple


FACTS: Final = {
    Table.SESSION: FactTable(
        "session",
        ("client_id",),
        ("client_id", "user", "expiry_s", "expires_at", "first_will", "final_will", "last_will"),
        _session_row,
        _session,
        _whole_key,
    ),
    Table.SUBSCRIPTION: FactTable(
        "subscription",
        ("client_id", "filter", "ifnull(group_name, x'')"),
        (
            "client_id",
            "filter",
            "group_name",
            *(field.name for field in fields(SubscriptionRecord) if field.name != "group"),
        ),
        _subscription_row,
        _subscription,
        _subscription_key,
    ),
    Table.REGISTRATION: FactTable(
        "registration",
        ("client_id", "filter"),
        ("client_id", "filter", "mode", "expiry_s", "alias"),
        _registration_row,
        _registration,
    ),
    Table.TOPIC: FactTable(
        "topic",
        ("topic",),
        ("topic", "mode", "expiry_s", "format", "media_type", "schema", "type_id"),
        _topic_row,
        _topic,
        _whole_key,
    ),
    Table.RETAINED: FactTable(
        "retained",
        ("topic", "number"),
        ("topic", "number", "payload", "spool", "size", "qos", "retain", "publisher", "expires_at", "properties"),
        _retained_row,
        _retained,
    ),
    Table.RECEIVED: FactTable(
        "received", ("client_id", "exchange"), ("client_id", "exchange"), _received_row, _received
    ),
    Table.PACED: FactTable(
        "paced",
        ("client_id", "label", "topic"),
        ("client_id", "label", "topic", "payload", "qos", "retain", "publisher", "expires_at", "properties"),
        _paced_row,
        _paced,
    ),
    Table.AGGREGATE: FactTable(
        "aggregate",
        ("computation", "topic"),
        ("computation", "topic", "window", "count", "total", "least", "greatest"),
        _aggregate_row,
        _aggregate,
    ),
    Table.COLLECTION: FactTable(
        "collection",
        ("client_id", "packet_id"),
        ("client_id", "packet_id", *(field.name for field in fields(CollectionRecord))),
        _collection_row,
        _collection,
    ),
    Table.CONFIRMATION: FactTable(
        "confirmation",
        ("client_id", "packet_id", "place"),
        ("client_id", "packet_id", "place", "subscriber", "after_s", "reply"),
        _confirmation_row,
        _confirmation,
    ),
}
