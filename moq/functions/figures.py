"""What has been processed and what went wrong with it, as plain integers that `/metrics` reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class FunctionFigures:
    """Of one broker, since its start."""

    calls: int = 0
    """Payloads that were taken, whatever became of them."""
    errors: int = 0
    """Calls that a function answered with an error, or whose payload was too large."""
    timeouts: int = 0
    crashes: int = 0
    """Calls that ended their worker."""
    refused_queue_full: int = 0
    """Payloads that were not taken."""
    busy_ns: int = 0
    """Time for which workers had a call, all together."""
