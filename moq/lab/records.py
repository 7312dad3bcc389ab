"""What a calibration writes down: counts and times beside what the profile wants, and whether they agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moq.lab import estimates
from moq.lab.probes import SMALL_BYTES
from moq.lab.profiles import DIRECTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from moq.lab.netem import Counters
    from moq.lab.probes import Flow, RoundTrip
    from moq.lab.profiles import Direction, State

LOSS_PACKETS: Final = 2_000
"""At least, and where no loss is wanted."""
LOSS_RATE_SHARE: Final = 0.5
"""Of the rate, for packets that measure the loss: none of them shall wait."""


def loss_plan(state: State, most_per_s: float) -> tuple[float, int]:
    """How fast packets are sent in each direction to measure the loss, and how many tell it well enough."""
    slowest = min(state[direction].rate_mbit or float("inf") for direction in DIRECTIONS)
    per_s = min(most_per_s, slowest * 1e6 * LOSS_RATE_SHARE / SMALL_BYTES / 8)
    return per_s, max(LOSS_PACKETS, *(_packets_needed(state[direction]) for direction in DIRECTIONS))


def _packets_needed(direction: Direction) -> int:
    return estimates.packets_for(direction.loss_share, estimates.TOLERANCE / 2, _inflation(direction))


def _inflation(direction: Direction) -> float:
    return estimates.inflation(direction.burst_start_percent / 100, direction.burst_end_percent / 100)


def loss_record(flows: dict[str, Flow], state: State) -> dict[str, object]:
    """Both directions together, if they should lose the same; otherwise each has to be right."""
    sent, lost = (sum(getattr(flow, name) for flow in flows.values()) for name in ("sent", "lost"))
    wanted = {direction: state[direction].loss_share for direction in DIRECTIONS}
    inflated = max(_inflation(state[direction]) for direction in DIRECTIONS)
    low, high = estimates.loss_interval(lost, sent, inflated)
    share, mean = lost / sent, sum(wanted.values()) / len(wanted)
    if len(set(wanted.values())) == 1:
        is_within = estimates.is_loss_within(share, mean)
    else:
        is_within = all(
            estimates.is_loss_within(flow.lost / flow.sent, wanted[direction]) for direction, flow in flows.items()
        )
    return {
        "sent": sent,
        "lost": lost,
        "share": round(share, 6),
        "interval_95": [round(low, 6), round(high, 6)],
        "wanted": round(mean, 6),
        "is_within_10_percent": is_within,
    }


def rate_record(rates: dict[str, float | None], state: State) -> dict[str, object]:
    """Each direction that has a rate; null for one that has none."""
    record: dict[str, object] = {}
    verdicts = []
    for direction, rate in rates.items():
        wanted = state[direction].rate_mbit * 1e6
        if rate is None:
            record[direction] = None
            continue
        verdicts.append(estimates.is_within(rate, wanted))
        record[direction] = {"measured": round(rate), "wanted": wanted, "is_within_10_percent": verdicts[-1]}
    return {**record, "is_within_10_percent": all(verdicts) if verdicts else None}


def stray_share(flows: Mapping[str, Flow], counted: Mapping[str, Counters]) -> float:
    """Of packets lost elsewhere than in netem."""
    lost = sum(flow.lost for flow in flows.values()) - sum(counters.drops for counters in counted.values())
    return lost / sum(flow.sent for flow in flows.values())


def rtt_record(trips: list[RoundTrip], state: State) -> dict[str, object]:
    """Nothing to compare where nothing arrives or no delay is wanted."""
    found = estimates.summary([trip.rtt_ms for trip in trips]) if trips else {"count": 0}
    has_none = is_closed(state) or not state.rtt_ms
    is_within = None if has_none else estimates.is_within(found.get("p50", 0), state.rtt_ms)
    return {**found, "wanted": state.rtt_ms, "is_within_10_percent": is_within}


def is_closed(state: State) -> bool:
    """Nothing comes back."""
    return any(state[direction].is_closed for direction in DIRECTIONS)
