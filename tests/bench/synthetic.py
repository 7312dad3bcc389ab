"""Results with a known truth: what a report or a comparison must find in them is what was put in."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from moq.bench.quantiles import percentile
from moq.bench.results import Results, Run, Slice, sparse

if TYPE_CHECKING:
    from collections.abc import Mapping

P99_SIGMAS = 2.3263
"""How many standard deviations above the middle 99 % of a normal distribution end."""

TRUTH = {"moq quic": 4.0, "moq quic single-stream": 9.0, "moq tls": 9.5, "mosquitto tls": 10.0}
"""The median latency over the lossy network, in milliseconds."""


def make_run(
    *,
    contender: str = "moq quic",
    p50_ms: float = 5.0,
    sigma: float = 0.5,
    repetition: int = 0,
    noise: float = 0.05,
    messages: int = 4000,
    seed: int = 0,
    outage: tuple[float, float] | None = None,
    scenario: str = "telemetry",
    profile: str = "lossy",
    rate: float = 500.0,
    lost: int = 0,
    is_overloaded: bool = False,
    cpu_s: float = 1.2,
    others_cpu_share: float = 0.02,
    parameters: Mapping[str, float | int | str] | None = None,
    extra: Mapping[str, float] | None = None,
    duration_s: float = 10.0,
    has_timeline: bool = True,
) -> Run:
    """Log-normal latencies around a median that varies by `noise` from run to run."""
    draw = random.Random(f"{contender} {profile} {scenario} {rate} {repetition} {seed} {parameters}")
    middle_us = p50_ms * 1000 * math.exp(draw.gauss(0, noise))
    counts: dict[int, int] = {}
    slices: dict[int, list[int]] = {}
    for number in range(messages):
        at_s = duration_s * number / messages
        latency_us = round(draw.lognormvariate(math.log(middle_us), sigma))
        if outage and outage[0] <= at_s < outage[1]:
            latency_us += round((outage[1] - at_s) * 1e6)
        counts[latency_us] = counts.get(latency_us, 0) + 1
        slices.setdefault(int(at_s * 10), []).append(latency_us)
    timeline = [
        Slice(
            at_s=number / 10,
            count=len(values),
            p50_us=percentile(dict.fromkeys(values, 1), 50) or 0.0,
            p99_us=percentile(dict.fromkeys(values, 1), 99) or 0.0,
            max_us=float(max(values)),
        )
        for number, values in slices.items()
        if has_timeline
    ]
    return Run(
        scenario=scenario,
        contender=contender,
        profile=profile,
        repetition=repetition,
        parameters=parameters or {"publishers": 8, "subscribers": 1, "topics": 8, "payload_bytes": 100, "qos": 0},
        rate=rate,
        started_at=1.7e9 + 60 * repetition,
        duration_s=duration_s,
        sent=messages + lost,
        expected=messages + lost,
        received=messages,
        lost=lost,
        is_overloaded=is_overloaded,
        latency_us=sparse(counts),
        timeline=timeline,
        broker_cpu_s=cpu_s * draw.uniform(0.95, 1.05),
        broker_rss_bytes=60_000_000,
        generator_cpu_s=0.8,
        others_cpu_share=others_cpu_share,
        extra=extra or {},
    )


def make_results(runs: list[Run], command: str = "moq bench matrix --repeat 5") -> Results:
    """On a machine that does not exist."""
    calibrations: dict[str, Mapping[str, object]] = {
        "lossy": {
            "rtt_ms": {"p50": 51.2, "wanted": 50, "is_within_10_percent": True},
            "loss": {"sent": 5000, "lost": 103, "share": 0.0206, "wanted": 0.02, "is_within_10_percent": True},
            "rate_bit_s": {
                "up": {"measured": 19.1e6, "wanted": 20e6, "is_within_10_percent": True},
                "down": None,
                "is_within_10_percent": True,
            },
            "directions": {"up": {"delay_ms": {"p50": 25.1, "wanted": 25}}},
            "is_within_10_percent": True,
        },
        "outage": {
            "profile": {
                "steps": [
                    {"at_s": 4, "state": {"up": {"loss_percent": 100}, "down": {"loss_percent": 100}}},
                    {"at_s": 7, "state": {"up": {"loss_percent": 0}, "down": {"loss_percent": 0}}},
                ]
            },
            "rtt_ms": {"p50": 36.0, "wanted": 30, "is_within_10_percent": False},
        },
    }
    machine = {"date": "2026-11-18 12:00 UTC", "processor": "2 x Imagined", "python": "3.11.7", "moq": "0.1.0"}
    return Results(
        command=command,
        machine=machine,
        environment={"kernel": "Linux 6.18", "governor": "performance"},
        calibrations=calibrations,
        runs=runs,
    )


def lossy(repetitions: int = 5) -> list[Run]:
    """A stream per topic is more than twice as fast as the rest, which do not differ much."""
    return [
        make_run(contender=name, p50_ms=p50_ms, repetition=repetition)
        for repetition in range(repetitions)
        for name, p50_ms in TRUTH.items()
    ]


def everything(repetitions: int = 5) -> Results:
    """Several networks, scenarios, rates, an outage, an overload, a loss, and a scenario with figures of its own."""
    runs = lossy(repetitions)
    for repetition in range(repetitions):
        for number, name in enumerate((*TRUTH, "amqtt")):
            outage = (4.0, 7.0 + 0.3 * number)
            runs.append(
                make_run(contender=name, profile="outage", repetition=repetition, outage=outage, p50_ms=20, sigma=0.2)
            )
            for step, rate in enumerate((1000.0, 4000.0, 16_000.0, 32_000.0)):
                is_over = name == "amqtt" and rate >= 16_000
                runs.append(
                    make_run(
                        contender=name,
                        scenario="fan-out",
                        profile="none",
                        rate=rate,
                        repetition=repetition,
                        p50_ms=0.3 * (1 + number) * 1.9**step,
                        messages=int(rate / 8),
                        is_overloaded=is_over,
                        lost=200 if is_over else 0,
                        cpu_s=(0.4 + 0.2 * number) * 2**step,
                    )
                )
        for name, count in (("moq tcp", 8_000.0), ("moq quic", 70_000.0)):
            extra = {"idle_connections": 10_000.0, "idle_bytes_per_connection": count, "idle_cpu_percent": 1.5}
            runs.append(
                make_run(contender=name, scenario="idle", profile="none", rate=0.0, repetition=repetition, extra=extra)
            )
    return make_results(runs)
