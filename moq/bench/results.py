"""The results of benchmarks: runs as they were measured, written as JSON, as Parquet and as a page to read.

A run keeps its latencies as a sparse histogram of whole microseconds in three significant digits: half a percent of
error at most, a few hundred numbers however long it was, and runs can be added up or resampled afterwards.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from moq.bench.quantiles import percentile
from moq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

VERSION: Final = 1
"""Of the files; another one is refused."""

RESULTS: Final = "results.json"
TABLE: Final = "runs.parquet"
REPORT: Final = "report.html"

CLOSED_LOOP: Final = 0.0
"""The rate of a run that sends as much as the broker takes."""

OUTSIDE: Final = "none"
"""The profile of a run outside the lab."""

SLICE_S: Final = 0.1
"""What a slice of the timeline covers."""

Parameter = float | int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The messages that were due in one tenth of a second, counted from the start of the counted time."""

    at_s: float
    count: int
    p50_us: float
    p99_us: float
    max_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One scenario, once, on one broker and one network."""

    scenario: str
    contender: str
    profile: str = OUTSIDE
    repetition: int = 0
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    """What the scenario was made of: publishers, subscribers, topics, payload_bytes, qos and so on."""
    rate: float = CLOSED_LOOP
    """Messages that were due in a second; 0 for a closed loop."""
    started_at: float = 0.0
    """Unix time."""
    duration_s: float
    sent: int
    expected: int
    """Deliveries, if nothing is lost."""
    received: int
    lost: int = 0
    repeated: int = 0
    disordered: int = 0
    is_overloaded: bool = False
    latency_us: Mapping[int, int] = field(default_factory=dict)
    """How many deliveries took so many microseconds (three significant digits) from when they were due."""
    timeline: Sequence[Slice] = field(default_factory=list)
    broker_cpu_s: float = 0.0
    broker_rss_bytes: int = 0
    generator_cpu_s: float = 0.0
    others_cpu_share: float = 0.0
    """Processors that other processes kept busy meanwhile."""
    extra: Mapping[str, float] = field(default_factory=dict)
    """What only this scenario has."""

    @property
    def deliveries_per_s(self) -> float:
        """What subscribers received in a second."""
        return self.received / self.duration_s if self.duration_s else 0.0

    @property
    def broker_cpu_share(self) -> float:
        """Of one processor."""
        return self.broker_cpu_s / self.duration_s if self.duration_s else 0.0

    @property
    def lost_share(self) -> float:
        """Of the deliveries that were expected."""
        return self.lost / self.expected if self.expected else 0.0

    def percentile_us(self, percent: float) -> float | None:
        """The latency that so many percent of the deliveries do not exceed; None if nothing was delivered."""
        return percentile(self.latency_us, percent)


@dataclass(slots=True, kw_only=True)
class Results:
    """Runs, and all that is needed to take them again."""

    command: str
    machine: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, object] = field(default_factory=dict)
    calibrations: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """By profile: what the network was asked for and what was measured on it."""
    runs: list[Run] = field(default_factory=list)

    def add(self, run: Run) -> None:
        """One more."""
        self.runs.append(run)

    def write(self, directory: Path, say: Callable[[str], None] | None = None) -> list[Path]:
        """Write the JSON, the Parquet where pyarrow is there, and the page; returns what was written."""
        from moq.bench import html_report, results_json, results_parquet

        directory.mkdir(parents=True, exist_ok=True)
        written = [directory / RESULTS, directory / REPORT]
        _replace(directory / RESULTS, lambda path: path.write_text(results_json.encode(self)))
        _replace(directory / REPORT, lambda path: path.write_text(html_report.render(self)))
        if results_parquet.is_available():
            _replace(directory / TABLE, lambda path: results_parquet.write(self.runs, path))
            written.append(directory / TABLE)
        else:
            (say or _say)(f"{directory / TABLE} is left out: it needs pip install 'moq-broker[trace]'")
        return written

    @classmethod
    def read(cls, path: Path) -> Results:
        """Results from a file, or from the directory they were written to."""
        from moq.bench import results_json

        file = path / RESULTS if path.is_dir() else path
        try:
            text = file.read_text()
        except FileNotFoundError:
            raise ConfigError(f"{file} does not exist; results of moq bench are expected there") from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"{file} is no JSON: {error}") from None
        return results_json.decode(text, str(file))


def merge(several: Sequence[Results]) -> Results:
    """All runs together; what was done to get them, one after the other."""
    if not several:
        raise ConfigError("there are no results to merge")
    merged = Results(command="\n".join(dict.fromkeys(results.command for results in several)))
    merged.machine = _merged([results.machine for results in several])
    merged.environment = _merged([results.environment for results in several])
    merged.calibrations = {
        name: calibration for results in several for name, calibration in results.calibrations.items()
    }
    merged.runs = [run for results in several for run in results.runs]
    return merged


def rounded_us(latency_us: float) -> int:
    """Whole microseconds in three significant digits, as the histograms have them."""
    whole = round(latency_us)
    if whole < 1000:
        return max(0, whole)
    step = int(10 ** (len(str(whole)) - 3))
    return (whole + step // 2) // step * step


def sparse(counts: Mapping[int, int]) -> dict[int, int]:
    """A histogram of microseconds with its keys rounded, in order."""
    found: dict[int, int] = {}
    for latency_us in sorted(counts):
        key = rounded_us(latency_us)
        found[key] = found.get(key, 0) + counts[latency_us]
    return found


def _merged(facts: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """What all agree on as it is; where they differ, each value once."""
    found: dict[str, list[object]] = {}
    for each in facts:
        for name, value in each.items():
            values = found.setdefault(name, [])
            if value not in values:
                values.append(value)
    return {
        name: values[0] if len(values) == 1 else " | ".join(str(value) for value in values)
        for name, values in found.items()
    }


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Readers see the old file or the whole new one."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _say(text: str) -> None:
    print(f"moq: {text}", file=sys.stderr, flush=True)
