"""What MQTT+'s experiments gave, beside the paper's equations and claims."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from moq.bench.papers import published
from moq.bench.papers.equations import ratio
from moq.bench.papers.mqttplus import (
    MESSAGES_PER_RESULT,
    PLAIN,
    PROCESSED,
    RPT,
    SKR,
    is_stand_in,
    operator,
    parameters,
)
from moq.bench.papers.results import Chart, Comparison, Study, Table, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.bench.papers.mqttplus import Plan, Run

    Runs = dict[tuple[str, int, int], Run]
    """By variant, sensors and subscribers."""

TOLERANCE: Final = 0.05


def study(plan: Plan, runs: list[Run], pictures: list[Run]) -> Study:
    """What the runs say, beside the paper."""
    scalar = {(run.variant, run.sensors, run.subscribers): run for run in runs}
    images = {(run.variant, run.sensors, run.subscribers): run for run in pictures}
    made = Study("MQTT+", "MQTT+: the broker computes", published.MQTTPLUS, _method(plan))
    made.verdicts = _verdicts(plan, scalar, images)
    made.comparisons = _comparisons(plan, scalar, images)
    made.tables = [_traffic_table(plan, scalar), _cost_table(scalar), _image_table(images)]
    made.charts = [*_scalar_charts(plan, scalar), *_image_charts(plan, images)]
    made.figures = {
        "parameters": asdict(parameters(plan)) | {"messages_per_result": MESSAGES_PER_RESULT},
        "is_stand_in": is_stand_in(),
        "scalar": [asdict(run) for run in runs],
        "images": [asdict(run) for run in pictures],
    }
    return made


def measured_ratio(runs: Runs, variant: str, shape: tuple[int, int]) -> float:
    """Downlink bytes without the broker's computing over those with."""
    return runs[PLAIN, *shape].downlink_bytes / max(1, runs[variant, *shape].downlink_bytes)


def predicted_ratio(plan: Plan, variant: str, sensors: int, *, is_exact: bool) -> float:
    """Equation (5) or (6), as printed or with every byte counted."""
    lengths = parameters(plan)
    if variant == SKR:
        q = lengths.exact_skr() if is_exact else lengths.skr()
    else:
        q = lengths.exact_rpt(sensors) if is_exact else lengths.rpt(sensors)
    return ratio(MESSAGES_PER_RESULT, sensors, lengths.p, q)


def _off(plan: Plan, runs: Runs, variant: str, shape: tuple[int, int], *, is_exact: bool) -> float:
    return measured_ratio(runs, variant, shape) / predicted_ratio(plan, variant, shape[0], is_exact=is_exact) - 1


def _worst(plan: Plan, runs: Runs, variant: str, *, is_exact: bool) -> float:
    return max(abs(_off(plan, runs, variant, shape, is_exact=is_exact)) for shape in plan.shapes)


def _verdicts(plan: Plan, scalar: Runs, images: Runs) -> list[Verdict]:
    wrong = sum(run.wrong for run in (*scalar.values(), *images.values()))
    saved = min(measured_ratio(images, PROCESSED, shape) for shape in plan.image_shapes)
    return [
        Verdict(
            "aggregates named by keyword (SKR): traffic off equation (5) as printed, at worst",
            _worst(plan, scalar, SKR, is_exact=False),
            "at most",
            TOLERANCE,
        ),
        Verdict(
            "aggregates named by participants (RPT): traffic off equation (6), names with their separators, at worst",
            _worst(plan, scalar, RPT, is_exact=True),
            "at most",
            TOLERANCE,
        ),
        Verdict(
            "pictures: traffic saved by $CNTPPL, of I/P, at worst",
            saved / published.MQTTPLUS_IMAGE_RATIO,
            "at least",
            1 - TOLERANCE,
        ),
        Verdict("results that were not the expected ones", wrong, "at most", 0),
    ]


def _comparisons(plan: Plan, scalar: Runs, images: Runs) -> list[Comparison]:
    largest = plan.shapes[-1]
    sensors, subscribers = largest
    cost = {variant: scalar[variant, *largest] for variant in (PLAIN, SKR, RPT)}
    memory = cost[SKR].rss_bytes / cost[PLAIN].rss_bytes - 1
    heaviest = plan.image_shapes[-1]
    plain, processed = images[PLAIN, *heaviest], images[PROCESSED, *heaviest]
    rows = [
        Comparison(
            f"traffic saved by aggregation, {variant}, {sensors} sensors",
            f"{predicted_ratio(plan, variant, sensors, is_exact=False):,.1f} times less",
            f"equation ({number})",
            f"{measured_ratio(scalar, variant, largest):,.1f} times less",
        )
        for variant, number in ((SKR, 5), (RPT, 6))
    ]
    return [
        *rows,
        Comparison(
            "traffic of RPT off equation (6) as printed, at worst",
            "approximately none",
            "equation (6)",
            f"{_worst(plan, scalar, RPT, is_exact=False):.1%}; the separators in t1;t2 alone are a tenth",
        ),
        Comparison(
            f"processor time of aggregation, {sensors} sensors, {subscribers} subscribers",
            "less than plain forwarding",
            "section 4.1.1, figure 2 (b)",
            f"{cost[SKR].cpu_s / cost[PLAIN].cpu_s:.2f} of plain forwarding",
        ),
        Comparison(
            "memory of aggregation",
            f"1 to {published.MQTTPLUS_RAM_INCREASE:.0%} more",
            "section 4.1.1, figure 2 (c)",
            f"{memory:+.1%}",
        ),
        Comparison(
            "traffic saved by processing pictures",
            f"about I/P = {published.MQTTPLUS_IMAGE_RATIO:g}",
            "section 4.1.2, figure 3 (a)",
            f"{measured_ratio(images, PROCESSED, heaviest):.1f}",
        ),
        Comparison(
            f"processor time of processing pictures, {heaviest[0]} cameras",
            "greatly affected",
            "section 4.1.2, figure 3 (b)",
            f"{processed.cpu_s / plain.cpu_s:.0f} times plain forwarding, workers included",
        ),
        Comparison(
            "memory of processing pictures",
            "greatly affected",
            "section 4.1.2, figure 3 (c)",
            f"{(processed.rss_bytes + processed.worker_rss_bytes) / plain.rss_bytes:.1f} times, workers included",
        ),
    ]


def _method(plan: Plan) -> list[str]:
    lengths = parameters(plan)
    faster = published.MQTTPLUS_WINDOW_S / plan.window_s
    who = (
        "OpenCV is not installed: a stand-in that takes some 20 ms of a processor for a picture does the work, so its "
        "cost is not that of a detector; the traffic is the same."
        if is_stand_in()
        else "People are counted by OpenCV's detector, in worker processes, whose cost is included."
    )
    return [
        f"Numbers: m sensors publish a number of {published.MQTTPLUS_TOPIC}sensorID, P = {lengths.p} bytes as in the "
        f"paper, and n subscribers ask for {operator(plan)}. Time runs {faster:g} times as fast: a window is "
        f"{plan.window_s} s instead of 900 and a sensor publishes {MESSAGES_PER_RESULT} messages in it, as in the "
        f"paper, so λ/λA is {MESSAGES_PER_RESULT} and O = {lengths.o} instead of {len(published.MQTTPLUS_OPERATOR)}. "
        f"{plan.windows} whole windows are measured, aligned to the clock.",
        "Downlink bytes are those all subscribers received: MQTT 3.1.1 packets of QoS 0 over TCP on this machine, "
        "without TCP and IP; the paper counted frames. Averages are written with as many digits as the values. "
        "The paper's numbers of sensors and subscribers exist only in images that were not available.",
        "The equations are approximations: (5) leaves out the slash between operator and topic and that $AGGREGATE is "
        "longer than a sensor's name, (6) leaves out the separators between names and counts one name twice. (6) is "
        "judged with both counted, for no broker that writes t1;t2 as the paper does could keep it as printed; how far "
        "off that is stands in the tables.",
        f"Pictures: every camera publishes one of I = {published.MQTTPLUS_IMAGE_RATIO:g} times a result's size every "
        f"{plan.image_interval_s:g} s, {plan.images} in all. {who}",
        "Processor time is the broker's, normalised to plain forwarding from one sensor to one subscriber as in "
        "equation (1); memory is its resident size at the end.",
    ]


def _traffic_table(plan: Plan, runs: Runs) -> Table:
    rows = []
    for shape in plan.shapes:
        sensors, subscribers = shape
        cells = [str(sensors), str(subscribers)]
        cells += [f"{runs[variant, *shape].downlink_bytes:,}" for variant in (PLAIN, SKR, RPT)]
        for variant in (SKR, RPT):
            cells += [
                f"{measured_ratio(runs, variant, shape):,.1f}",
                f"{predicted_ratio(plan, variant, sensors, is_exact=False):,.1f}",
                f"{_off(plan, runs, variant, shape, is_exact=False):+.1%}",
                f"{_off(plan, runs, variant, shape, is_exact=True):+.1%}",
            ]
        rows.append(cells)
    headings = ["m", "n", "bytes plain", "bytes SKR", "bytes RPT"]
    headings += ["saved, SKR", "equation (5)", "off", "off, to the byte"]
    headings += ["saved, RPT", "equation (6)", "off", "off, to the byte"]
    return Table("aggregation: downlink traffic", headings, rows)


def _cost_table(runs: Runs) -> Table:
    reference = next(iter(runs.values())).cpu_s
    rows = [
        [
            f"{run.sensors} sensors, {run.subscribers} subscribers, {run.variant}",
            f"{run.cpu_s:.3f}",
            f"{run.cpu_s / reference:.2f}",
            f"{run.rss_bytes / 1e6:.1f}",
        ]
        for run in runs.values()
    ]
    return Table("aggregation: cost", ["run", "CPU s", "normalised", "RSS MB"], rows)


def _image_table(runs: Runs) -> Table:
    reference = next(iter(runs.values())).cpu_s
    rows = [
        [
            f"{run.sensors} cameras, {run.subscribers} subscribers, {run.variant}",
            f"{run.downlink_bytes:,}",
            f"{measured_ratio(runs, PROCESSED, (run.sensors, run.subscribers)):.1f}"
            if run.variant == PROCESSED
            else "",
            f"{run.cpu_s:.3f}",
            f"{run.cpu_s / reference:.1f}",
            f"{run.rss_bytes / 1e6:.1f}",
            f"{run.worker_rss_bytes / 1e6:.1f}",
        ]
        for run in runs.values()
    ]
    headings = ["run", "downlink bytes", "saved", "CPU s", "normalised", "RSS MB", "workers' RSS MB"]
    return Table("pictures: downlink traffic and cost", headings, rows)


def _scalar_charts(plan: Plan, runs: Runs) -> list[Chart]:
    subscribers = plan.shapes[-1][1]
    counts = sorted({sensors for sensors, n in plan.shapes if n == subscribers})
    reference = next(iter(runs.values())).cpu_s

    def curves(figure: Callable[[Run], float]) -> dict[str, list[tuple[float, float]]]:
        return {
            variant: [(count, figure(runs[variant, count, subscribers])) for count in counts]
            for variant in (PLAIN, SKR, RPT)
        }

    who = f"sensors, {subscribers} subscribers"
    return [
        Chart(
            "aggregation: downlink traffic", who, "bytes", curves(lambda run: run.downlink_bytes), is_logarithmic=True
        ),
        Chart("aggregation: normalised CPU load", who, "of C₁,₁", curves(lambda run: run.cpu_s / reference)),
        Chart("aggregation: memory", who, "MB", curves(lambda run: run.rss_bytes / 1e6)),
    ]


def _image_charts(plan: Plan, runs: Runs) -> list[Chart]:
    subscribers = plan.image_shapes[0][1]
    counts = sorted({cameras for cameras, n in plan.image_shapes if n == subscribers})
    reference = next(iter(runs.values())).cpu_s

    def curves(figure: Callable[[Run], float]) -> dict[str, list[tuple[float, float]]]:
        return {
            variant: [(count, figure(runs[variant, count, subscribers])) for count in counts]
            for variant in (PLAIN, PROCESSED)
        }

    who = f"cameras, {subscribers} subscriber{'s' if subscribers > 1 else ''}"
    return [
        Chart("pictures: downlink traffic", who, "bytes", curves(lambda run: run.downlink_bytes), is_logarithmic=True),
        Chart("pictures: normalised CPU load", who, "of C₁,₁", curves(lambda run: run.cpu_s / reference)),
        Chart(
            "pictures: memory, workers included",
            who,
            "MB",
            curves(lambda run: (run.rss_bytes + run.worker_rss_bytes) / 1e6),
        ),
    ]
