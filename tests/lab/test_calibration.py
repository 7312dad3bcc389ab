"""How a calibration judges what it has counted."""

from __future__ import annotations

import pytest

from moq.lab import records
from moq.lab.netem import Counters
from moq.lab.probes import SMALL_BYTES, Flow
from moq.lab.profiles import Direction, State


def flow(sent: int, lost: int) -> Flow:
    return Flow(SMALL_BYTES, sent=sent, received=sent - lost)


def both(direction: Direction) -> State:
    return State(up=direction, down=direction)


def test_directions_that_lose_the_same_are_judged_together() -> None:
    record = records.loss_record({"up": flow(10_000, 230), "down": flow(10_000, 175)}, both(Direction(loss_percent=2)))
    assert (record["sent"], record["lost"], record["share"], record["wanted"]) == (20_000, 405, 0.02025, 0.02)
    assert record["is_within_10_percent"]
    interval = record["interval_95"]
    assert isinstance(interval, list)
    assert interval[0] < 0.02 < interval[1]


def test_directions_that_differ_are_judged_each_on_its_own() -> None:
    state = State(up=Direction(loss_percent=4), down=Direction())
    right = records.loss_record({"up": flow(10_000, 400), "down": flow(10_000, 0)}, state)
    swapped = records.loss_record({"up": flow(10_000, 0), "down": flow(10_000, 400)}, state)
    assert right["is_within_10_percent"]
    assert not swapped["is_within_10_percent"]
    assert right["share"] == swapped["share"] == right["wanted"]


def test_rates_are_judged_where_there_are_any() -> None:
    state = State(up=Direction(rate_mbit=10), down=Direction())
    assert records.rate_record({"up": 9.5e6, "down": None}, state) == {
        "up": {"measured": 9_500_000, "wanted": 10_000_000.0, "is_within_10_percent": True},
        "down": None,
        "is_within_10_percent": True,
    }
    assert records.rate_record({"up": 8.9e6, "down": None}, state)["is_within_10_percent"] is False
    assert records.rate_record({"up": None, "down": None}, both(Direction()))["is_within_10_percent"] is None


def test_the_flood_for_the_loss_stays_below_the_rate() -> None:
    per_s, packets = records.loss_plan(both(Direction(rate_mbit=1, limit=50)), 9000)
    assert per_s * SMALL_BYTES * 8 <= 0.5e6
    assert packets == records.LOSS_PACKETS
    per_s, packets = records.loss_plan(State(up=Direction(loss_percent=1), down=Direction()), 9000)
    assert per_s == 9000
    assert packets == pytest.approx(4 * 38_032, abs=10)


def test_what_netem_did_not_drop_was_lost_elsewhere() -> None:
    flows = {"up": flow(1000, 30), "down": flow(1000, 20)}
    counted = {"up": Counters(980, 0, 20), "down": Counters(980, 0, 20)}
    assert records.stray_share(flows, counted) == 10 / 2000


def test_a_flow_counts_losses_repetitions_and_overtaking() -> None:
    counted = Flow(frame_bytes=1000, sent=6)
    for at, number in enumerate([0, 2, 1, 2, 4]):
        counted.on_received(number, float(at))
    assert (counted.received, counted.lost, counted.repeated, counted.disordered) == (4, 2, 1, 1)
    assert counted.rate_bit_s == 3 * 8000 / 4
    assert Flow(frame_bytes=1000).rate_bit_s == 0
    more = counted.joined(Flow(frame_bytes=1000, sent=4, received=4))
    assert (more.sent, more.lost, more.disordered) == (10, 2, 1)
