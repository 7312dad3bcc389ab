"""The registry that Prometheus reads: collects plain numbers when somebody asks, and writes them in its format."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from moq.server.metrics import collect
from moq.server.metrics.families import FAMILIES
from moq.server.metrics.process import process_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from moq.histogram import Histogram
    from moq.server.server import Server

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Samples:
    """Values of one scrape, by metric: only what is declared can be told, and with the labels declared."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        for family in FAMILIES.values():
            made: Metric
            match family.kind:
                case "counter":
                    made = CounterMetricFamily(family.name, family.help, labels=family.labels)
                case "gauge":
                    made = GaugeMetricFamily(family.name, family.help, labels=family.labels)
                case "histogram":
                    made = HistogramMetricFamily(family.name, family.help, labels=family.labels)
            self._metrics[family.name] = made

    def add(self, name: str, value: float, *labels: str) -> None:
        """One value of a counter or gauge; labels in the order of the declaration."""
        metric = self._metrics[name]
        assert isinstance(metric, CounterMetricFamily | GaugeMetricFamily)
        assert len(labels) == len(FAMILIES[name].labels), f"{name} has labels {FAMILIES[name].labels}"
        metric.add_metric(labels, value)

    def add_histogram(self, name: str, histogram: Histogram, *labels: str) -> None:
        """One histogram."""
        metric = self._metrics[name]
        assert isinstance(metric, HistogramMetricFamily)
        assert len(labels) == len(FAMILIES[name].labels), f"{name} has labels {FAMILIES[name].labels}"
        metric.add_metric(labels, histogram.buckets(), histogram.sum)

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._metrics.values())


class Metrics(Collector):
    """The metrics of one server and of its process."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def exposition(self) -> bytes:
        """Everything, in the text format of Prometheus."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client`."""
        samples = Samples()
        collect.everything(self._server, samples)
        return chain(samples, process_metrics())
