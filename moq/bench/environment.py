"""What a figure depends on besides the code: versions, processors, and what else the machine was doing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.bench.brokers import BROKER_CPU, GENERATOR_CPU

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moq.bench.brokers import ClientEngines
    from moq.bench.contenders import Contender
    from moq.bench.sites import Site

GOVERNOR: Final = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def capture(
    contenders: Sequence[Contender], site: Site, broker_engine: str, engines: ClientEngines
) -> dict[str, object]:
    """All of it, for the results."""
    is_pinned = (os.cpu_count() or 1) > GENERATOR_CPU
    facts: dict[str, object] = {
        **{f"version of {contender.name}": contender.version() for contender in contenders},
        "broker's QUIC engine": broker_engine,
        "generator's QUIC engine": engines.subscriber,
        "processors": f"broker on {BROKER_CPU}, generator on {GENERATOR_CPU}" if is_pinned else "shared",
        "load average before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "host": site.host,
    }
    if (governor := _read(GOVERNOR)) is not None:
        facts["processor governor"] = governor
    return facts


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
