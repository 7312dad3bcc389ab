"""The processing functions of a running broker: results enter the core as events of their own, figures leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from moq.functions.pool import FunctionPool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from moq.broker.operators.functions import Then
    from moq.config import BrokerConfig
    from moq.server.server import Server

NS_PER_S = 1_000_000_000


def make_functions(server: Server, config: BrokerConfig) -> FunctionPool:
    """The functions of a server; to be opened before its core is made."""

    def deliver(then: Then, result: bytes | None, error: str | None) -> None:
        server.broker.environment.now = server.clock()
        then(result, error)
        server.arm()
        server.watch.look()

    return FunctionPool(config.function_workers, config.limits, deliver)


def function_figures(functions: FunctionPool) -> Iterator[Metric]:
    """Every figure as Prometheus knows it."""
    figures = functions.figures
    yield GaugeMetricFamily(
        "moq_function_calls_outstanding", "Payloads waiting for a function or with one", functions.outstanding
    )
    for name, what, value in (
        ("calls", "Payloads given to functions", figures.calls),
        ("errors", "Payloads that functions answered with an error", figures.errors),
        ("timeouts", "Payloads that took too long", figures.timeouts),
        ("crashes", "Payloads that ended their worker", figures.crashes),
        ("refused", "Payloads that found the queue full", figures.refused_queue_full),
        ("busy_seconds", "Time for which workers had a payload, all together", figures.busy_ns / NS_PER_S),
    ):
        yield CounterMetricFamily(f"moq_function_{name}", what, value)
