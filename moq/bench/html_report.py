"""Results of benchmarks as one HTML page that needs nothing else."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moq.bench.results import Results, Run


def render(results: Results) -> str:
    """The whole page."""
    rows = "\n".join(_row(run) for run in results.runs)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Benchmark</title></head><body>'
        f"<h1>Benchmark</h1><p><code>{escape(results.command)}</code></p><table>{rows}</table></body></html>\n"
    )


def _row(run: Run) -> str:
    p50, p99 = run.percentile_us(50), run.percentile_us(99)
    cells = (run.profile, run.scenario, run.contender, f"{run.deliveries_per_s:,.0f}/s", f"{p50} µs", f"{p99} µs")
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
