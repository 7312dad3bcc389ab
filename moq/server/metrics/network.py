"""Reads what is counted by transport: messages, connections, links and streams."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from moq.broker.traffic import QOS_LEVELS

if TYPE_CHECKING:
    from moq.server.metrics.exposition import Samples
    from moq.server.server import Server


def traffic(server: Server, samples: Samples) -> None:
    """Messages and connections of each transport and dialect that was seen."""
    for kind in server.traffic:
        of = (kind.transport, kind.dialect)
        for qos in range(QOS_LEVELS):
            samples.add("moq_messages_received_total", kind.messages_in[qos], *of, str(qos))
            samples.add("moq_received_bytes_total", kind.bytes_in[qos], *of, str(qos))
            samples.add("moq_messages_sent_total", kind.messages_out[qos], *of, str(qos))
            samples.add("moq_sent_bytes_total", kind.bytes_out[qos], *of, str(qos))
        samples.add("moq_connections_open", kind.open, *of)
        samples.add("moq_connections_accepted_total", kind.accepted, *of)
        for reason, count in kind.refused.items():
            samples.add("moq_connections_refused_total", count, *of, reason)
        for reason, count in kind.closed.items():
            samples.add("moq_connections_closed_total", count, *of, reason)


def links(server: Server, samples: Samples) -> None:
    """Links, their handshakes and their networks."""
    samples.add("moq_links_open", server.connections)
    server.links.sample(server.served)
    for transport, network in server.links.by_transport.items():
        samples.add("moq_links_accepted_total", network.accepted, transport)
        for reason, count in network.refused.items():
            samples.add("moq_links_refused_total", count, transport, reason)
        samples.add("moq_packets_sent_total", network.packets_sent, transport)
        samples.add("moq_packets_received_total", network.packets_received, transport)
        samples.add("moq_packets_lost_total", network.packets_lost, transport)
        samples.add_histogram("moq_round_trip_seconds", network.round_trip_s, transport)
        samples.add_histogram("moq_congestion_window_bytes", network.congestion_window, transport)
        samples.add_histogram("moq_in_flight_bytes", network.bytes_in_flight, transport)
        samples.add_histogram("moq_unsent_bytes", network.unsent_bytes, transport)
    for transport, listener in server.listeners.items():
        figures = listener.figures
        if transport in {"tls", "wss", "quic"}:
            for reason, count in figures.handshakes_failed.items():
                samples.add("moq_handshakes_failed_total", count, transport, reason)
        if transport == "quic":
            samples.add("moq_handshakes_resumed_total", figures.handshakes_resumed, transport)
            samples.add("moq_early_data_total", figures.early_data_accepted, transport, "accepted")
            samples.add("moq_early_data_total", figures.early_data_refused, transport, "refused")
            samples.add("moq_migrations_total", figures.migrations, transport)


def streams(server: Server, samples: Samples) -> None:
    """Streams, on transports that have them: those of clients the dialects count, those of the broker the transport."""
    quic = server.listeners.get("quic")
    if quic is None:
        return
    figures, ended, reset = quic.figures, Counter[str](), Counter[str]()
    opened = open_now = 0
    for kind in server.traffic:
        if kind.transport == "quic":
            opened += kind.lanes_opened
            open_now += kind.lanes_open
            ended.update(kind.lanes_ended)
            reset.update(kind.lanes_reset)
    samples.add("moq_streams_opened_total", opened, "quic", "in")
    samples.add("moq_streams_opened_total", figures.lanes_opened, "quic", "out")
    samples.add("moq_streams_open", open_now, "quic", "in")
    samples.add("moq_streams_open", figures.lanes_open, "quic", "out")
    for reason, count in ended.items():
        samples.add("moq_streams_closed_total", count, "quic", "in", reason)
    for reason, count in figures.lanes_ended.items():
        samples.add("moq_streams_closed_total", count, "quic", "out", reason)
    for reason, count in reset.items():
        samples.add("moq_streams_reset_total", count, "quic", reason)
