"""Reads the numbers of a running server, each from whoever counts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.server.metrics import network
from moq.server.phase import Phase
from moq.version import __version__

if TYPE_CHECKING:
    from moq.functions.figures import FunctionFigures
    from moq.server.metrics.exposition import Samples
    from moq.server.server import Server

NS_PER_S = 1_000_000_000


def everything(server: Server, samples: Samples) -> None:
    """All there is to tell at this moment; while the broker starts that is little."""
    samples.add("moq_ready", int(server.obstacle is None))
    samples.add("moq_build_info", 1, __version__)
    if server.phase is Phase.STARTING:
        return
    samples.add("moq_reloads_total", server.reloader.done, "done")
    samples.add("moq_reloads_total", server.reloader.failed, "failed")
    samples.add_histogram("moq_event_loop_lag_seconds", server.lag.seconds)
    _counters(server, samples)
    _latencies(server, samples)
    _state(server, samples)
    _sessions(server, samples)
    _store(server, samples)
    _functions(server, samples)
    network.traffic(server, samples)
    network.links(server, samples)
    network.streams(server, samples)


def _counters(server: Server, samples: Samples) -> None:
    for name, value in server.broker.figures.counters().items():
        group, _, rest = name.partition("_")
        if group == "dropped":
            samples.add("moq_messages_dropped_total", value, rest)
        elif group == "refused":
            samples.add("moq_refused_total", value, rest)
        else:
            samples.add(f"moq_{name}_total", value)


def _latencies(server: Server, samples: Samples) -> None:
    latencies = server.latencies
    samples.add_histogram("moq_delivery_residence_seconds", latencies.direct, "direct")
    samples.add_histogram("moq_delivery_residence_seconds", latencies.queued, "queued")
    samples.add_histogram("moq_delivery_end_to_end_seconds", latencies.end_to_end)
    for qos in (1, 2):
        samples.add_histogram("moq_acknowledgement_seconds", latencies.acknowledgement[qos], str(qos))
    for qos in (1, 2, 3):
        histogram = latencies.subscriber_acknowledgement[qos]
        samples.add_histogram("moq_subscriber_acknowledgement_seconds", histogram, str(qos))


def _state(server: Server, samples: Samples) -> None:
    broker = server.broker
    samples.add("moq_subscriptions", broker.subscriptions.count)
    samples.add("moq_computations", len(broker.stages))
    samples.add("moq_topics", len(broker.topics))
    samples.add("moq_retained_messages", broker.topics.retained_count)
    samples.add("moq_retained_bytes", broker.topics.retained_bytes)
    pressure = broker.environment.pressure
    samples.add("moq_held_bytes", pressure.held_bytes)
    samples.add("moq_pressure_level", pressure.level)
    samples.add("moq_lanes_slowed", pressure.slowed)


def _sessions(server: Server, samples: Samples) -> None:
    """One pass over all of them, and a short one: there may be many, hardly any with something to tell."""
    outbounds = [session.outbound for session in server.broker.sessions]
    connected = sum(outbound.peer is not None for outbound in outbounds)
    busy = [outbound for outbound in outbounds if not outbound.is_empty]
    samples.add("moq_sessions", connected, "connected")
    samples.add("moq_sessions", len(outbounds) - connected, "away")
    samples.add("moq_messages_waiting", sum(outbound.waiting for outbound in busy))
    samples.add("moq_messages_waiting_max", max((outbound.waiting for outbound in busy), default=0))
    samples.add("moq_waiting_bytes", sum(outbound.waiting_bytes for outbound in busy))
    samples.add("moq_messages_inflight", sum(outbound.inflight for outbound in busy))
    samples.add("moq_messages_inflight_max", max((outbound.inflight for outbound in busy), default=0))


def _store(server: Server, samples: Samples) -> None:
    store = server.storage.store
    samples.add("moq_store_pending", store.last - store.durable)
    samples.add("moq_store_failing", int(store.failure is not None))
    if server.storage.sqlite is None:
        return
    figures = server.storage.sqlite.figures
    for name in ("batches", "changes", "rows", "failures", "spooled_bytes"):
        samples.add(f"moq_store_{name}_total", getattr(figures, name))
    samples.add_histogram("moq_store_batch_changes", figures.batch_changes)
    samples.add_histogram("moq_store_commit_seconds", figures.commit_seconds)


def _functions(server: Server, samples: Samples) -> None:
    figures: FunctionFigures = server.functions.figures
    samples.add("moq_function_calls_outstanding", server.functions.outstanding)
    samples.add("moq_function_calls_total", figures.calls)
    samples.add("moq_function_errors_total", figures.errors)
    samples.add("moq_function_timeouts_total", figures.timeouts)
    samples.add("moq_function_crashes_total", figures.crashes)
    samples.add("moq_function_refused_total", figures.refused_queue_full)
    samples.add("moq_function_busy_seconds_total", figures.busy_ns / NS_PER_S)
