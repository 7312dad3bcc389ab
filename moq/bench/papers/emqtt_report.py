"""What E-MQTT's experiment gave, beside the paper's figures."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from moq.bench.papers import published
from moq.bench.papers.emqtt import (
    ASYNCHRONOUS,
    DELAY_KINDS,
    END_TO_END,
    PLAIN,
    SYNCHRONOUS,
    VARIANTS,
    WARM_UP,
    publish_bytes,
)
from moq.bench.papers.exchanges import ANSWERED, PAYLOAD
from moq.bench.papers.results import Chart, Comparison, Study, Table, Verdict

if TYPE_CHECKING:
    from moq.bench.papers.emqtt import Plan, Run

    Runs = dict[tuple[str, int], Run]
    """By variant and number of subscribers."""


def study(plan: Plan, runs: list[Run]) -> Study:
    """What the runs say, beside the paper."""
    by_key = {(run.variant, run.subscribers): run for run in runs}
    means = {
        kind: {
            variant: statistics.fmean(by_key[variant, count].mean_ms(kind) for count in plan.subscribers)
            for variant in VARIANTS
        }
        for kind in DELAY_KINDS
    }
    made = Study("E-MQTT", "E-MQTT: confirmed publishing", published.EMQTT, _method(plan))
    made.verdicts = _verdicts(plan, by_key, means)
    made.comparisons = _comparisons(by_key, means)
    made.tables = [_delay_table(plan, by_key), _message_table(plan, by_key), _size_table()]
    made.charts = [
        Chart(
            f"{kind} delay",
            "subscribers",
            "ms",
            {
                variant: [(count, by_key[variant, count].mean_ms(kind)) for count in plan.subscribers]
                for variant in VARIANTS
            },
        )
        for kind in DELAY_KINDS
    ]
    made.charts.append(
        Chart(
            "messages of one query",
            "subscribers",
            "packets",
            {
                variant: [(count, statistics.fmean(by_key[variant, count].messages)) for count in plan.subscribers]
                for variant in VARIANTS
            },
        )
    )
    made.figures = {
        "mean_delay_ms": means,
        "publish_bytes": {"qos 2": publish_bytes(None)}
        | {str(count): publish_bytes(count) for count in published.EMQTT_PUBLISH_BYTES},
        "runs": [
            {
                "variant": run.variant,
                "subscribers": run.subscribers,
                "messages": run.messages,
                "set_up_messages": run.set_up,
                "delays_ms": run.delays_ms,
            }
            for run in runs
        ],
    }
    return made


def _method(plan: Plan) -> list[str]:
    return [
        f"One publisher and {', '.join(map(str, plan.subscribers))} subscribers, {plan.publishes} queries each after "
        f"{WARM_UP} that do not count; a topic of {len(ANSWERED)} byte and a payload of {len(PAYLOAD)}. MMQP over TCP "
        "on this machine; the paper had the publisher on a laptop behind Wi-Fi. The variants take turns on the same "
        "connections; a query begins when every exchange of the last one has ended. Broker, publisher and subscribers "
        "are three processes.",
        "Plain is QoS 2 both ways: each subscriber publishes a response as soon as it has the query, and the publisher "
        "knows with the last response. Asynchronous is QoS 3 with confirm = 0, which is answered by the first "
        "subscriber; synchronous waits for all of them.",
        "Messages are packets counted at the clients' links, sent and received; each passes exactly one of these "
        "links. The end-to-end and publish-completion delays are taken at the publisher. The broker-subscriber delay "
        "is taken inside the broker, in runs of their own on a broker that notes the time of every write and read: "
        "from PUBREQ handed to the link to the subscriber's answer read.",
    ]


def _verdicts(plan: Plan, by_key: Runs, means: dict[str, dict[str, float]]) -> list[Verdict]:
    delays = means[END_TO_END]
    verdicts = [
        Verdict(f"{variant} end-to-end delay, of the plain one", delays[variant] / delays[PLAIN], "at most", bound)
        for variant, bound in published.EMQTT_BOUND.items()
    ]
    for variant in (ASYNCHRONOUS, SYNCHRONOUS):
        shares = [
            max(by_key[variant, count].messages) / min(by_key[PLAIN, count].messages) for count in plan.subscribers
        ]
        paper = published.EMQTT_MESSAGES[variant] / published.EMQTT_MESSAGES[PLAIN]
        verdicts.append(
            Verdict(f"{variant} messages of a query, of the plain ones, at worst", max(shares), "at most", paper)
        )
    growth = [
        (publish_bytes(count) - publish_bytes(1)) / (count - 1) for count in published.EMQTT_PUBLISH_BYTES if count > 1
    ]
    verdicts.append(
        Verdict("PUBREQ grows with each identifier after the first by", max(growth), "at most", 2.0, " bytes")
    )
    verdicts.append(
        Verdict(
            "PUBREQ of QoS 3 is longer than of QoS 2 by", publish_bytes(0) - publish_bytes(None), "at most", 2, " bytes"
        )
    )
    return verdicts


def _comparisons(by_key: Runs, means: dict[str, dict[str, float]]) -> list[Comparison]:
    rows = []
    for kind in DELAY_KINDS:
        paper, ours, place = published.EMQTT_DELAY_MS[kind], means[kind], published.EMQTT_DELAY_AT[kind]
        rows += [
            Comparison(
                f"{kind} delay, {variant}",
                f"{paper[variant]:.2f} ms, {paper[variant] / paper[PLAIN]:.2f} of plain",
                place,
                f"{ours[variant]:.2f} ms, {ours[variant] / ours[PLAIN]:.2f} of plain",
            )
            for variant in VARIANTS
        ]
    rows += [
        Comparison(
            f"messages to confirm one query at one subscriber, {variant}",
            str(published.EMQTT_MESSAGES[variant]),
            "section 3.1, figures 1 and 3",
            str(by_key[variant, 1].set_up + max(by_key[variant, 1].messages)),
        )
        for variant in VARIANTS
    ]
    return rows


def _delay_table(plan: Plan, by_key: Runs) -> Table:
    headings = ["subscribers", *(f"{kind}, {variant}" for kind in DELAY_KINDS for variant in VARIANTS)]
    rows = [
        [str(count), *(f"{by_key[variant, count].mean_ms(kind):.2f}" for kind in DELAY_KINDS for variant in VARIANTS)]
        for count in plan.subscribers
    ]
    return Table("mean delays, ms", headings, rows)


def _message_table(plan: Plan, by_key: Runs) -> Table:
    rows = [
        [str(count), *(_range(by_key[variant, count].messages) for variant in VARIANTS)]
        for count in (1, *plan.subscribers)
    ]
    return Table("messages of one query", ["subscribers", *VARIANTS], rows)


def _range(numbers: list[int]) -> str:
    return str(numbers[0]) if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"


def _size_table() -> Table:
    rows = [["QoS 2", str(published.EMQTT_PUBLISH_BYTES_QOS2), str(publish_bytes(None))]]
    rows += [
        [f"QoS 3, {count} identifiers", str(paper), str(publish_bytes(count))]
        for count, paper in published.EMQTT_PUBLISH_BYTES.items()
    ]
    return Table("PUBREQ with its topic spelt out, bytes (paper: table 3)", ["PUBREQ", "paper", "ours"], rows)
