"""Snapshots of `$SYS/top` made by hand, for tests of what `moq top` shows."""

from __future__ import annotations

from typing import Any

REASONS = ("congested", "queue_full", "expired", "undeliverable", "not_authorized", "no_room_to_retain", "memory")


def make_connection(client_id: str, rate: float = 0.0, **fields: object) -> dict[str, Any]:
    return {
        "client_id": client_id,
        "user": None,
        "transport": "quic",
        "dialect": "mmqp",
        "peer": "127.0.0.1:50123",
        "connected_s": 75.0,
        "messages_in_per_s": rate,
        "bytes_in_per_s": rate * 100,
        "messages_out_per_s": 0.0,
        "bytes_out_per_s": 0.0,
        "waiting": 0,
        "inflight": 0,
        "unsent_bytes": 0,
        "streams_in": 1,
        "streams_out": 4,
        "rtt_s": 0.0021,
        "congestion_window_bytes": 12_000,
        "bytes_in_flight": 0,
        "lost": 0,
        **fields,
    }


def make_stream(client_id: str, topic: str | None, rate: float = 1.0) -> dict[str, Any]:
    return {
        "client_id": client_id,
        "direction": "out",
        "stream": 7,
        "topic": topic,
        "messages_per_s": rate,
        "bytes_per_s": rate * 10,
        "unsent_bytes": 0,
    }


def make_topic(topic: str | None, rate: float = 1.0) -> dict[str, Any]:
    return {
        "topic": topic,
        "messages_in_per_s": rate,
        "bytes_in_per_s": rate * 10,
        "messages_out_per_s": rate * 2,
        "bytes_out_per_s": rate * 20,
        "subscribers": 2,
        "retained": 1,
    }


def make_snapshot(
    connections: list[dict[str, Any]] | None = None,
    streams: list[dict[str, Any]] | None = None,
    topics: list[dict[str, Any]] | None = None,
    **broker: object,
) -> dict[str, Any]:
    connections, streams, topics = connections or [], streams or [], topics or []
    return {
        "version": 1,
        "at": 1_790_000_000.0,
        "interval_s": 1.0,
        "broker": {
            "version": "0.1.0",
            "uptime_s": 11_520.0,
            "loop_lag_s": 0.0004,
            "connections": len(connections),
            "connected": len(connections),
            "sessions": len(connections),
            "subscriptions": 3,
            "topics": len(topics),
            "retained": 1,
            "active_streams": len(streams),
            "active_topics": len(topics),
            "messages_in_per_s": 12_345.0,
            "bytes_in_per_s": 1_234_500.0,
            "messages_out_per_s": 24_690.0,
            "bytes_out_per_s": 2_469_000.0,
            "drops": {reason: {"per_s": 0.0, "total": 0} for reason in REASONS},
            "queued": 0,
            "inflight": 0,
            "held_bytes": 4096,
            "watermark_bytes": 1 << 30,
            "pressure": "calm",
            "store_pending": 0,
            "cpu_share": 0.25,
            "rss_bytes": 60 << 20,
            **broker,
        },
        "connections": connections,
        "streams": streams,
        "topics": topics,
    }
