"""Runs as Parquet: one row each, histogram and timeline as lists, so that a notebook or Spark can go on from there."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING

from moq.bench.results import Run, Slice
from moq.bench.results_json import NUMBERS, TEXTS, WHOLE
from moq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any


def is_available() -> bool:
    """Whether pyarrow is there."""
    return importlib.util.find_spec("pyarrow") is not None


def write(runs: Sequence[Run], path: Path) -> None:
    """One row for each run."""
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.Table.from_pylist([_to_row(run) for run in runs], schema=_schema())
    parquet.write_table(table, path, compression="zstd")


def read(path: Path) -> list[Run]:
    """The runs of a file."""
    if not is_available():
        raise ConfigError(f"{path} cannot be read without pyarrow: pip install 'moq-broker[trace]'")
    from pyarrow import parquet

    return [_from_row(row) for row in parquet.read_table(path).to_pylist()]


def _schema() -> Any:
    import pyarrow

    bins = pyarrow.struct([("us", pyarrow.int64()), ("count", pyarrow.int64())])
    part = pyarrow.struct(
        [
            ("at_s", pyarrow.float64()),
            ("count", pyarrow.int64()),
            *((name, pyarrow.float64()) for name in ("p50_us", "p99_us", "max_us")),
        ]
    )
    return pyarrow.schema(
        [
            *((name, pyarrow.string()) for name in TEXTS),
            *((name, pyarrow.int64()) for name in WHOLE),
            *((name, pyarrow.float64()) for name in NUMBERS),
            ("is_overloaded", pyarrow.bool_()),
            ("parameters", pyarrow.string()),
            ("latency_us", pyarrow.list_(bins)),
            ("timeline", pyarrow.list_(part)),
            ("extra", pyarrow.map_(pyarrow.string(), pyarrow.float64())),
        ]
    )


def _to_row(run: Run) -> dict[str, object]:
    row: dict[str, object] = {name: getattr(run, name) for name in (*TEXTS, *WHOLE, *NUMBERS, "is_overloaded")}
    # Their values are of several types, which a column cannot be: a JSON object is what readers can take apart.
    row["parameters"] = json.dumps(dict(run.parameters), ensure_ascii=False)
    row["latency_us"] = [{"us": key, "count": run.latency_us[key]} for key in sorted(run.latency_us)]
    row["timeline"] = [{name: getattr(part, name) for name in Slice.__dataclass_fields__} for part in run.timeline]
    row["extra"] = list(run.extra.items())
    return row


def _from_row(row: dict[str, Any]) -> Run:
    row["parameters"] = json.loads(row["parameters"])
    row["latency_us"] = {part["us"]: part["count"] for part in row["latency_us"]}
    row["timeline"] = [Slice(**part) for part in row["timeline"]]
    row["extra"] = dict(row["extra"])
    return Run(**row)
