"""What every Prometheus client tells of its process, under the usual names.

Not by the library's collector: that counts open files by listing them, which takes a broker with thousands of
connections ten milliseconds, during which no message moves.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

STARTED_AT: Final = time.time()
"""When this was imported, which is as the process starts."""

_STATM: Final = Path("/proc/self/statm")


def process_metrics() -> Iterator[Metric]:
    """Processor time, memory where Linux tells it, and the start."""
    yield CounterMetricFamily("process_cpu_seconds_total", "Processor time of the process", time.process_time())
    yield GaugeMetricFamily("process_start_time_seconds", "Start of the process, in seconds since 1970", STARTED_AT)
    try:
        resident = int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return
    yield GaugeMetricFamily("process_resident_memory_bytes", "Memory of the process that is in use", resident)
