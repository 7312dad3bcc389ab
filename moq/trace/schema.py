"""The contract with whoever reads traces: tables, columns and their meaning, and the version they have together.

A version stays readable: columns are added at the end of a table, with nulls in older files. Removing one, or giving it
another meaning, makes a new version. `docs/reference/trace.md` has the same tables; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

VERSION: Final = 1

VERSION_KEY: Final = b"moq.trace.version"
"""The key of the version in the metadata of every file."""

BROKER: Final = "broker"
CLIENT: Final = "client"

ROLES: Final = (BROKER, "publisher", "subscriber")
"""Of rows about messages; records have their place here."""
BROKER_ROLE, PUBLISHER_ROLE, SUBSCRIBER_ROLE = range(len(ROLES))

KINDS: Final = ("publish", "request", "response")
"""By their number on the wire."""


CLOCK: Final = "$SYS/clock"
"""Where a traced client asks for the broker's time: what it sends and gets there is not part of the trace."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    type: str
    """As Arrow calls it: string, bool, int8, int32, int64 or float64."""
    meaning: str
    null: str = ""
    """When it is null; empty: never."""


_VERSION: Final = Column("version", "int32", "of this schema")
_PROCESS: Final = Column("process", "string", "host, process id and a random part; connections are numbered within it")
_WRITER: Final = (_VERSION, Column("role", "string", "who wrote the row: `broker` or `client`"), _PROCESS)

_CONNECTION: Final = (
    Column("connection", "int64", "number of the connection within the process"),
    Column("client_id", "string", "the client's identifier: with `topic` and `sent_at_ns` it joins the roles"),
    Column("transport", "string", "`quic`, `tcp`, `tls`, `ws` or `wss`"),
    Column("dialect", "string", "`mmqp`, `mqtt3` or `mqtt5`"),
)

MESSAGES: Final = (
    _VERSION,
    Column("role", "string", "who saw the message: `broker`, `publisher` or `subscriber`"),
    _PROCESS,
    *_CONNECTION,
    Column("stream_id", "int64", "the QUIC stream it travelled on; 0 is the control stream, and all there is on TCP"),
    Column("topic", "string", "the topic's name"),
    Column("alias", "int32", "what the connection calls the topic", "it has no alias there"),
    Column("qos", "int8", "of this delivery"),
    Column("kind", "string", "`publish`, `request` or `response`"),
    Column("payload_bytes", "int64", "size of the payload"),
    Column("queue_bytes", "int64", "unsent on the lane once it was put there, itself included", "a subscriber's row"),
    Column("queue_messages", "int64", "waiting for the same client", "not known to the role, or a response"),
    Column("sent_at_ns", "int64", "the publisher's stamp", "the publisher gave none"),
    Column("broker_in_ns", "int64", "the broker read it", "not the broker's row, or it waited in the store"),
    Column("broker_out_ns", "int64", "the broker put it on the lane", "not the broker's row"),
    Column("received_at_ns", "int64", "the subscriber read it", "not a subscriber's row"),
    Column("is_duplicate", "bool", "sent again, with DUP, after an earlier connection was lost"),
    Column("sequence", "int64", "number of the message on its topic", "only the load generator knows it"),
    Column("weight", "float64", "how many messages this row stands for: one over the probability it was sampled with"),
)

CONNECTIONS: Final = (
    *_WRITER,
    Column("at_ns", "int64", "when the connection was looked at"),
    *_CONNECTION,
    Column("peer", "string", "address of the other end"),
    Column("round_trip_ns", "int64", "smoothed round trip time", "not measured yet"),
    Column("congestion_window_bytes", "int64", "how much may be on its way"),
    Column("bytes_in_flight", "int64", "how much is"),
    Column("packets_sent", "int64", "since the connection began; TCP: segments"),
    Column("packets_received", "int64", "since the connection began; TCP: segments"),
    Column("losses", "int64", "QUIC: STREAM frames declared lost; TCP: segments sent again"),
    Column("open_streams", "int64", "QUIC streams open in either direction", "TCP"),
    Column("unsent_bytes", "int64", "on all lanes, not taken by the network yet"),
)

CLOCKS: Final = (
    *_WRITER,
    Column("at_ns", "int64", "when the answer arrived"),
    Column("client_id", "string", "of the client that asked"),
    Column("peer", "string", "address of the broker that answered"),
    Column("offset_ns", "int64", "the broker's clock minus this writer's: add it to compare with the broker's times"),
    Column("round_trip_ns", "int64", "of the question; the offset is off by half of it at most"),
    Column("is_best", "bool", "no earlier answer on this connection had a shorter round trip"),
)

TOTALS: Final = (
    *_WRITER,
    Column("at_ns", "int64", "end of the interval, about a second long"),
    Column("offered", "int64", "messages that could have been recorded in it"),
    Column("recorded", "int64", "messages that were"),
    Column("dropped", "int64", "messages that were sampled and lost: no buffer was free, or nothing could be written"),
    Column("probability", "float64", "with which messages are sampled at its end"),
)

TABLES: Final = {"messages": MESSAGES, "connections": CONNECTIONS, "clocks": CLOCKS, "totals": TOTALS}
