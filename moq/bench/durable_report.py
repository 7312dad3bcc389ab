"""The tables of `moq bench durable`, and the curve as a drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.bench.drawing import COLOURS, Chart, Series, draw_file
from moq.bench.report import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from moq.bench.durable_measure import Absence, Point

RIVAL_NOTE = """\
Mosquitto acknowledges a message once it is in its memory. With persistence on it writes all it has to one file now and
then (here not within a run, or once a second) and at its end: kill -9 loses what was acknowledged since. Ours never
acknowledges before a commit: `full` waits until the disk has it, `relaxed` until the operating system has it."""


def absence_table(results: Mapping[str, Absence], against: str, *, markdown: bool) -> str:
    """One row for each contender."""
    headings = (
        *("contender", "published/s", "ratio", "PUBACK p50 ms", "p99 ms", "messages/commit", "commit ms"),
        *("taken/s", "ratio", "first ms", "CPU s", "RSS MB", "checked"),
    )
    rival = results.get(against)
    return table(headings, [_absence_row(name, result, rival) for name, result in results.items()], markdown=markdown)


def _absence_row(name: str, result: Absence, rival: Absence | None) -> list[str]:
    return [
        name,
        f"{result.published_per_s:,.0f}",
        f"{result.published_per_s / rival.published_per_s:.2f}" if rival else "",
        f"{result.answered_p50_us / 1000:.2f}",
        f"{result.answered_p99_us / 1000:.2f}",
        f"{result.messages_per_commit:,.0f}" if result.messages_per_commit else "",
        f"{result.commit_ms:.1f}" if result.messages_per_commit else "",
        f"{result.taken_per_s:,.0f}",
        f"{result.taken_per_s / rival.taken_per_s:.2f}" if rival and rival.taken_per_s else "",
        f"{result.first_message_s * 1000:.1f}",
        f"{result.broker_cpu_s:.2f}",
        f"{result.broker_rss_bytes / 1e6:.0f}",
        "all arrived" if result.is_clean else f"{result.faults:,.0f} AMISS",
    ]


def curve_table(points: Sequence[Point], *, markdown: bool) -> str:
    """One row for each rate."""
    headings = (
        *("offered/s", "answered/s", "messages/commit", "commits/s", "commit ms", "PUBACK p50 ms", "p99 ms"),
        *("broker busy", "kept up"),
    )
    rows = [
        [
            f"{point.offered_per_s:,.0f}",
            f"{point.answered_per_s:,.0f}",
            f"{point.messages_per_commit:,.1f}",
            f"{point.commits_per_s:,.0f}",
            f"{point.commit_ms:.2f}",
            f"{point.answered_p50_us / 1000:.2f}",
            f"{point.answered_p99_us / 1000:.2f}",
            f"{point.broker_cpu_share:.0%}",
            "NO" if point.is_overloaded else "yes",
        ]
        for point in points
    ]
    return table(headings, rows, markdown=markdown)


def curve_drawing(curves: Mapping[str, Sequence[Point]], caption: str) -> str:
    """Both curves against the offered load, as SVG: how transactions grow, and what a publisher waits."""
    kept_up = {name: [point for point in points if not point.is_overloaded] for name, points in curves.items()}
    colours = dict(zip(kept_up, COLOURS, strict=False))
    batching = [
        Series(name, [(point.offered_per_s, point.messages_per_commit) for point in points], colours[name])
        for name, points in kept_up.items()
    ]
    waiting = [
        Series(
            f"{name} {label}",
            [(point.offered_per_s, getattr(point, field) / 1000) for point in points],
            colours[name],
            is_dashed,
        )
        for name, points in kept_up.items()
        for label, field, is_dashed in (("p50", "answered_p50_us", False), ("p99", "answered_p99_us", True))
    ]
    charts = [
        Chart(title, "messages/s offered", unit, series, is_x_logarithmic=True, is_y_logarithmic=True)
        for title, unit, series in (
            ("messages per commit", "messages", batching),
            ("publish to PUBACK", "ms", waiting),
        )
    ]
    return draw_file(charts, caption)
