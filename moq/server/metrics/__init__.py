"""Metrics for Prometheus: `Metrics(server).exposition()` is the text of `/metrics`."""

from moq.server.metrics.exposition import Metrics

__all__ = ["Metrics"]
