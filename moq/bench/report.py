"""Results in words: aligned tables for people, the same as Markdown for the documentation, JSON for machines."""

from __future__ import annotations

import os
import platform
import pstats
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, cast

from moq.bench.brokers import find_mosquitto
from moq.bench.latencies import PERCENTILES
from moq.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moq.bench.measure import Result

HEADINGS = (
    "contender",
    "deliveries/s",
    "ratio",
    *(f"p{percent:g} ms" for percent in PERCENTILES),
    "CPU s",
    "µs/delivery",
    "RSS MB",
    "broker busy",
    "generator busy",
    "checked",
)

NOTEWORTHY_SHARE = 0.1
PROFILED_FUNCTIONS = 20


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, markdown: bool) -> str:
    """Columns as wide as they need to be; the first one names its row, the others are figures."""
    widths = [max(len(row[column]) for row in (headings, *rows)) for column in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |" if markdown else "  ".join(padded).rstrip()

    rule = "|" + "|".join("-" * (width + 1) + (":" if column else "-") for column, width in enumerate(widths)) + "|"
    return "\n".join([line(headings), *([rule] if markdown else []), *map(line, rows)])


def rows(results: dict[str, Result], against: str | None) -> list[list[str]]:
    """One row for each contender, its ratio to one of them."""
    rival = results.get(against) if against is not None else None
    return [_row(name, result, rival) for name, result in results.items()]


def _row(name: str, result: Result, rival: Result | None) -> list[str]:
    deliveries = result.deliveries_per_s * result.duration_s
    return [
        name,
        f"{result.deliveries_per_s:,.0f}",
        f"{result.deliveries_per_s / rival.deliveries_per_s:.2f}" if rival and rival.deliveries_per_s else "",
        *(_milliseconds(result.latency_us.get(f"p{percent:g}")) for percent in PERCENTILES),
        f"{result.broker_cpu_s:.2f}",
        f"{result.broker_cpu_s / deliveries * 1e6:.2f}" if deliveries else "",
        f"{result.broker_rss_bytes / 1e6:.0f}",
        f"{result.broker_cpu_share:.0%}",
        f"{result.generator_cpu_share:.0%}",
        _verdict(result),
    ]


def _milliseconds(latency_us: float | None) -> str:
    return "" if latency_us is None else f"{latency_us / 1000:.2f}"


def _verdict(result: Result) -> str:
    """Whether every message came once and in order."""
    faults = [
        f"{count} {name}"
        for name, count in (
            ("LOST", result.lost),
            ("REPEATED", result.repeated),
            ("OUT OF ORDER", result.disordered),
        )
        if count
    ]
    if result.is_overloaded:
        faults.append("OVERLOADED")
    return ", ".join(faults) or "all arrived"


def disturbance(results: Sequence[Result]) -> str:
    """A warning if other processes took part of the machine."""
    share = max(result.others_cpu_share for result in results)
    if share < NOTEWORTHY_SHARE:
        return ""
    return f"Other processes kept {share:.1f} of {os.cpu_count()} processors busy meanwhile: the figures are too low."


def profile(path: Path, *, markdown: bool) -> str:
    """The functions in which the broker spent its time, and their share of it."""
    stats = cast("dict[tuple[str, int, str], tuple[int, int, float, float, object]]", pstats.Stats(str(path)).stats)  # type: ignore[attr-defined]
    busy = {function: row for function, row in stats.items() if "select.epoll" not in function[2]}
    total_s = sum(own_s for _, _, own_s, _, _ in busy.values())
    longest = sorted(busy.items(), key=lambda item: item[1][2], reverse=True)[:PROFILED_FUNCTIONS]
    cells = [[_function(*function), f"{row[2] / total_s:.1%}", f"{row[1]:,}"] for function, row in longest]
    return table(("function", "of its time", "calls"), cells, markdown=markdown)


def _function(path: str, line: int, name: str) -> str:
    """Built-in functions have no file."""
    return name.strip("<>") if path == "~" else f"{'/'.join(Path(path).parts[-2:])}:{line} {name}"


def machine() -> dict[str, str]:
    """Where and when: figures without it mean nothing."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{os.cpu_count()} x {_processor()}",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "moq": __version__,
        **{name: version for name in ("aioquic", "qh3") if (version := _installed(name))},
        **({"mosquitto": version} if (version := _mosquitto_version()) else {}),
    }


def machine_line() -> str:
    """The same as one line."""
    facts = machine()
    return f"{facts.pop('date')}; " + ", ".join(f"{name} {value}" for name, value in facts.items())


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _mosquitto_version() -> str | None:
    program = find_mosquitto()
    if program is None:
        return None
    said = subprocess.run([program, "-h"], capture_output=True, text=True, check=False).stdout
    return said.partition("version ")[2].partition("\n")[0] or None
