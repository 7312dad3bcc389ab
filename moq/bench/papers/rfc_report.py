"""What RFC's experiment gave, beside the paper's figures and the arithmetic of periods."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from moq.bench.papers import published
from moq.bench.papers.results import Chart, Comparison, Study, Table, Verdict
from moq.bench.papers.rfc import PACED, STANDARD, VARIANTS

if TYPE_CHECKING:
    from moq.bench.papers.rfc import Plan, Run

    Runs = dict[tuple[str, int], Run]
    """By variant and number of publishers."""

TOLERANCE: Final = 0.05


def study(plan: Plan, runs: list[Run]) -> Study:
    """What the runs say, beside the paper."""
    by_key = {(run.variant, run.publishers): run for run in runs}
    most = published.RFC_REDUCTION_PUBLISHERS
    # A quick run has other numbers of publishers: the largest stands for it.
    judged = most if most in plan.publishers else plan.publishers[-1]
    reduction = {
        publishers: by_key[STANDARD, publishers].written_bytes / by_key[PACED, publishers].written_bytes
        for publishers in plan.publishers
    }
    off = {publishers: abs(by_key[PACED, publishers].share_of_limit - 1) for publishers in plan.publishers}
    missing = {publishers: 1 - by_key[STANDARD, publishers].share_of_limit for publishers in plan.publishers}
    made = Study("RFC", "RFC: reception frequency control", published.RFC, _method(plan))
    made.verdicts = [
        Verdict(
            f"bytes written without periods over those with, {judged} publishers",
            reduction[judged],
            "at least",
            published.RFC_REDUCTION,
        ),
        Verdict("bytes with periods off the arithmetic limit, at worst", max(off.values()), "at most", TOLERANCE),
        Verdict("messages lost without periods, at worst", max(missing.values()), "at most", 0.0),
    ]
    made.comparisons = _comparisons(by_key, judged, reduction)
    made.tables = [_table(plan, by_key, reduction)]
    made.charts = [
        Chart(
            "bytes the broker wrote",
            "publishers",
            "MB",
            {
                variant: [(count, by_key[variant, count].written_bytes / 1e6) for count in plan.publishers]
                for variant in VARIANTS
            }
            | {
                "arithmetic limit with periods": [
                    (count, by_key[PACED, count].limit_bytes / 1e6) for count in plan.publishers
                ]
            },
        )
    ]
    made.charts += [
        Chart(
            f"{publishers} publishers over time",
            "s",
            "MB/s",
            {variant: by_key[variant, publishers].bytes_by_time for variant in VARIANTS},
        )
        for publishers in plan.publishers[-4:]
    ]
    made.figures = {
        "reduction": {str(count): value for count, value in reduction.items()},
        "runs": [{**asdict(run), "share_of_limit": run.share_of_limit} for run in runs],
    }
    return made


def _method(plan: Plan) -> list[str]:
    mix = ", ".join(f"{share:.0%} {f'{period_s:g} s' if period_s else 'none'}" for period_s, share in plan.periods)
    return [
        f"{plan.subscribers} subscribers of one topic, {', '.join(map(str, plan.publishers))} publishers with "
        f"{published.RFC_RATE:g} messages a second of {published.RFC_PAYLOAD_BYTES} bytes for {plan.duration_s:g} s, "
        f"QoS 0, MQTT 3.1.1 over TCP on this machine. Periods of the subscribers: {mix}, asked for as $MRP;N/topic.",
        "The times of all messages are fixed beforehand and publishers take turns; how late the generator was at worst "
        "is in the table. Bytes are those all subscribers received together: payload, topic and MQTT header, without "
        "TCP and IP.",
        "The arithmetic limit: a subscriber without a period gets every message; one with a period p gets the first "
        "message at once and one more as each period that has begun ends, 1 + ⌈span / p⌉ in all, the span being the "
        "time from the first message to the last.",
    ]


def _comparisons(by_key: Runs, judged: int, reduction: dict[int, float]) -> list[Comparison]:
    place = "section 3.3, figure 6"
    slowest = {
        variant: max(run.seconds for (kind, _), run in by_key.items() if kind == variant) for variant in VARIANTS
    }
    return [
        Comparison(
            f"bytes without periods over those with, {judged} publishers",
            f"about {published.RFC_REDUCTION:g}",
            place,
            f"{reduction[judged]:.2f}",
        ),
        Comparison(
            "time to deliver everything, without periods",
            f"more than {published.RFC_TIME_STANDARD_S:g} s",
            place,
            f"at most {slowest[STANDARD]:.1f} s",
        ),
        Comparison(
            "time to deliver everything, with periods",
            f"less than {published.RFC_TIME_RFC_S:g} s",
            place,
            f"at most {slowest[PACED]:.1f} s",
        ),
    ]


def _table(plan: Plan, by_key: Runs, reduction: dict[int, float]) -> Table:
    rows = []
    for publishers in plan.publishers:
        standard, paced = by_key[STANDARD, publishers], by_key[PACED, publishers]
        rows.append(
            [
                str(publishers),
                f"{standard.written_bytes:,}",
                f"{standard.limit_bytes:,}",
                f"{paced.written_bytes:,}",
                f"{paced.limit_bytes:,}",
                f"{paced.share_of_limit - 1:+.2%}",
                f"{reduction[publishers]:.2f}",
                *(f"{run.seconds:.1f}" for run in (standard, paced)),
                *(f"{run.cpu_s:.2f}" for run in (standard, paced)),
                f"{max(standard.late_ms, paced.late_ms):.0f}",
            ]
        )
    headings = [
        "publishers",
        "bytes without",
        "published to all",
        "bytes with",
        "arithmetic limit",
        "off",
        "reduction",
        "s without",
        "s with",
        "CPU s without",
        "CPU s with",
        "generator late, ms",
    ]
    return Table("bytes written, with and without periods", headings, rows)
