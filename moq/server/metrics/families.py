"""Every metric of the broker, declared once: name, kind, labels, meaning.

What is exposed, `docs/reference/metrics.md` and the dashboard's test all follow from it. Names are those of Prometheus:
base units as a suffix, `_total` for what only grows. Labels come from small fixed sets, never from topics or clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


def _counter(name: str, what: str, *labels: str) -> Family:
    return Family(f"moq_{name}_total", "counter", what, labels)


def _gauge(name: str, what: str, *labels: str) -> Family:
    return Family(f"moq_{name}", "gauge", what, labels)


def _histogram(name: str, what: str, *labels: str) -> Family:
    return Family(f"moq_{name}", "histogram", what, labels)


_OF_CONNECTION: Final = ("transport", "dialect")
_OF_MESSAGE: Final = ("transport", "dialect", "qos")

SECTIONS: Final[dict[str, tuple[Family, ...]]] = {
    "The broker": (
        _gauge("ready", "1 while clients should be sent here"),
        _gauge("build_info", "1, with the version that runs", "version"),
        _counter("reloads", "Times the files were read again", "outcome"),
        _histogram("event_loop_lag_seconds", "How late the event loop was for its timer, twice a second"),
    ),
    "Messages": (
        _counter("messages_received", "Messages that clients published", *_OF_MESSAGE),
        _counter("received_bytes", "Their payloads", *_OF_MESSAGE),
        _counter("messages_sent", "Messages sent to subscribers, repetitions included", *_OF_MESSAGE),
        _counter("sent_bytes", "Their payloads", *_OF_MESSAGE),
        _counter("messages_dropped", "Messages not delivered", "reason"),
        _counter("refused", "What was refused, by the limit it ran into", "limit"),
        _counter("superseded", "Messages that a newer one replaced before a reception period was over"),
        _counter("superseded_bytes", "Their payloads: what need not be sent"),
        _counter("unpaced", "Messages sent without regard to a period, because too many of their subscriber's run"),
        _counter("unreadable_encrypted", "Messages that operators were to read and cannot, because they are encrypted"),
        _counter("left_out_of_aggregates", "Values of topics past max_topics_per_computation"),
        _counter("functions_failed", "Messages of which a processing function made nothing"),
        _counter("requests_opened", "Requests that wait for a response, or did"),
        _counter("requests_failed", "Requests that got none"),
        _counter("traced_messages", "Deliveries recorded in the trace"),
        _counter("traced_messages_lost", "Deliveries not recorded because the disk is too slow, or full"),
        _counter("confirmations_opened", "Messages whose publisher waits for confirmations, or did"),
        _counter("confirmations_failed", "Those that did not get as many, in time or at all"),
        _counter("protocol_errors", "Connections ended because their client broke the protocol, or was silent"),
    ),
    "Latency": (
        _histogram("delivery_residence_seconds", "From a message's bytes read to its delivery on a lane", "path"),
        _histogram("delivery_end_to_end_seconds", "From the time its publisher stamped on a message to the same"),
        _histogram("acknowledgement_seconds", "From a message taken to its acknowledgement leaving", "qos"),
        _histogram("subscriber_acknowledgement_seconds", "From a message sent to its receipt acknowledged", "qos"),
    ),
    "Queues and memory": (
        _gauge("messages_waiting", "Messages in queues, in memory and in the store"),
        _gauge("messages_waiting_max", "Those in the longest queue"),
        _gauge("waiting_bytes", "Payloads of messages in queues"),
        _gauge("messages_inflight", "Messages sent and not acknowledged"),
        _gauge("messages_inflight_max", "Those of one session at most"),
        _gauge("held_bytes", "What is held for clients, of the watermark"),
        _gauge("pressure_level", "0 calm, 1 publishers slowed, 2 QoS 0 dropped, 3 connections refused"),
        _gauge("lanes_slowed", "Lanes of publishers that wait for their turn"),
    ),
    "Connections": (
        _gauge("connections_open", "Clients that are connected", *_OF_CONNECTION),
        _counter("connections_accepted", "Clients let in", *_OF_CONNECTION),
        _counter("connections_refused", "Clients told that they are not let in", *_OF_CONNECTION, "reason"),
        _counter("connections_closed", "Connections of clients that ended", *_OF_CONNECTION, "reason"),
        _gauge("sessions", "Sessions, by whether their client is connected or away", "state"),
        _gauge("subscriptions", "Subscriptions of all sessions"),
        _gauge("computations", "Different subscriptions with operators"),
        _gauge("topics", "Topic names known"),
        _gauge("retained_messages", "Messages retained"),
        _gauge("retained_bytes", "Their payloads"),
    ),
    "Links and their networks": (
        _gauge("links_open", "Links that are open, whatever was said on them"),
        _counter("links_accepted", "Links taken", "transport"),
        _counter("links_refused", "Links turned away before their client could say who it is", "transport", "reason"),
        _counter("handshakes_failed", "Handshakes of TLS or QUIC that did not come about", "transport", "reason"),
        _counter("handshakes_resumed", "Handshakes shortened by a session ticket", "transport"),
        _counter("early_data", "QUIC clients that sent data with their first packet", "transport", "outcome"),
        _counter("migrations", "Times that a QUIC client went on from another address", "transport"),
        _counter("packets_sent", "QUIC packets, TCP segments", "transport"),
        _counter("packets_received", "QUIC packets, TCP segments", "transport"),
        _counter("packets_lost", "QUIC packets declared lost, TCP segments sent again", "transport"),
        _histogram("round_trip_seconds", "Smoothed round trip of the links, at scrapes", "transport"),
        _histogram("congestion_window_bytes", "Congestion window of the links, at scrapes", "transport"),
        _histogram("in_flight_bytes", "Sent and not acknowledged by the peer's network, at scrapes", "transport"),
        _histogram("unsent_bytes", "Written to a link and not taken by the network, at scrapes", "transport"),
    ),
    "Streams": (
        _gauge("streams_open", "Streams that are open, on transports that have them", "transport", "direction"),
        _counter("streams_opened", "Streams opened: in by clients, out by the broker", "transport", "direction"),
        _counter("streams_closed", "Streams that ended, by how", "transport", "direction", "reason"),
        _counter(
            "streams_reset", "Streams that clients abandoned, by the reason code they gave", "transport", "reason"
        ),
    ),
    "The store": (
        _gauge("store_pending", "Changes that are not safe yet"),
        _gauge("store_failing", "1 while nothing can be made safe"),
        _counter("store_batches", "Transactions committed"),
        _counter("store_changes", "Changes made safe, those that cancelled each other included"),
        _counter("store_rows", "Rows written, altered or removed for them"),
        _counter("store_failures", "Transactions that failed and were tried again"),
        _counter("store_spooled_bytes", "Bytes of payloads written to files of their own"),
        _histogram("store_batch_changes", "Changes per transaction"),
        _histogram("store_commit_seconds", "Time per transaction"),
    ),
    "Processing functions": (
        _gauge("function_calls_outstanding", "Payloads waiting for a function or with one"),
        _counter("function_calls", "Payloads given to functions"),
        _counter("function_errors", "Payloads that functions answered with an error"),
        _counter("function_timeouts", "Payloads that took too long"),
        _counter("function_crashes", "Payloads that ended their worker"),
        _counter("function_refused", "Payloads that found the queue full"),
        _counter("function_busy_seconds", "Time for which workers had a payload, all together"),
    ),
}

FAMILIES: Final = {family.name: family for families in SECTIONS.values() for family in families}
