"""The report: one HTML page that needs nothing else, with the verdicts first and every figure behind them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from moq.bench import drawing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from moq.bench.papers.results import Chart, Study, Table, Verdict

STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { border-bottom: 1px solid #ddd; padding: .25em .8em; text-align: right; }
th:first-child, td:first-child, td.text { text-align: left; }
caption { text-align: left; font-weight: 600; padding: .3em 0; }
.met { color: #1a7f37; font-weight: 600; }
.missed { color: #c62828; font-weight: 600; }
.charts { display: flex; flex-wrap: wrap; gap: 1em; }
svg { width: 36em; max-width: 100%; }
.note { color: #555; }
"""


def render(studies: Sequence[Study], machine: Mapping[str, str], command: str) -> str:
    """The whole page."""
    facts = ", ".join(f"{name} {value}" for name, value in machine.items())
    verdicts = [(study, verdict) for study in studies for verdict in study.verdicts]
    met = sum(verdict.is_met for _, verdict in verdicts)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Three papers, paper / ours</title>',
            f"<style>{STYLE}</style></head><body>",
            "<h1>Three MQTT papers: their experiments on this broker</h1>",
            f'<p class="note">{escape(facts)}</p><p class="note"><code>{escape(command)}</code></p>',
            f"<h2>Verdicts: {met} of {len(verdicts)} bounds met</h2>",
            _table("", ["bound", "measured", "", "wanted", "verdict"], (_verdict_row(*pair) for pair in verdicts)),
            *(_study(study) for study in studies),
            "</body></html>\n",
        ]
    )


def _study(study: Study) -> str:
    comparisons = (
        [escape(row.quantity), escape(row.paper), escape(row.place), escape(row.ours)] for row in study.comparisons
    )
    return "\n".join(
        [
            f'<h2 id="{study.name}">{escape(study.title)}</h2><p class="note">{escape(study.reference)}</p>',
            *(f"<p>{escape(paragraph)}</p>" for paragraph in study.method),
            _table("paper / ours", ["quantity", "paper", "where", "ours"], comparisons),
            f'<div class="charts">{"".join(_chart(chart) for chart in study.charts)}</div>',
            *(_plain_table(table) for table in study.tables),
        ]
    )


def _verdict_row(study: Study, verdict: Verdict) -> list[str]:
    kind, word = ("met", "met") if verdict.is_met else ("missed", "NOT MET")
    return [
        f'<a href="#{study.name}">{escape(study.name)}</a>: {escape(verdict.claim)}',
        f"{verdict.measured:.4g}{escape(verdict.unit)}",
        verdict.relation,
        f"{verdict.bound:.4g}{escape(verdict.unit)}",
        f'<span class="{kind}">{word}</span>',
    ]


def _chart(chart: Chart) -> str:
    series = [drawing.Series(name, points) for name, points in chart.series.items()]
    return drawing.draw(drawing.Chart(chart.title, chart.x, chart.y, series, is_y_logarithmic=chart.is_logarithmic))


def _plain_table(table: Table) -> str:
    return _table(table.title, table.headings, ([escape(cell) for cell in row] for row in table.rows))


def _table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML already."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
