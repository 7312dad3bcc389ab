"""Calibration: what a profile really does to packets, measured before anybody relies on it, and kept with the results.

Three things are compared with the profile, each to ten percent:

* the round trip: packets one by one, sparse enough not to queue; medians, because the machine is not a quiet one. The
  path has a delay of its own. It is measured, and netem is told that much less, so that the total is the profile's;
* the loss: a flood of small packets at half the rate, through the same netem with a queue long enough to drop none;
  beside what arrived, netem's own counters. The interval says how well so many packets can tell;
* the rate: large packets at more than the rate, by when they arrive. As netem does, this counts Ethernet headers.
"""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final

from moq.lab import estimates, netem, records, system
from moq.lab.probes import LARGE_BYTES, SMALL_BYTES, Probes
from moq.lab.profiles import DIRECTIONS, Direction, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.lab.lab import Lab
    from moq.lab.netem import Counters
    from moq.lab.probes import Flow, RoundTrip
    from moq.lab.profiles import Profile

VERSION: Final = 1

NOTHING: Final = State(up=Direction(), down=Direction())
REFERENCE_MS: Final = 10.0
REFERENCE: Final = State(up=Direction(delay_ms=REFERENCE_MS), down=Direction(delay_ms=REFERENCE_MS))

TRIPS: Final = 100
TRIPS_S: Final = 2.0
TRIP_INTERVAL_S: Final = 0.01
GOOD_ENOUGH: Final = 0.04
"""A round trip this near to the wanted one is not corrected any more: medians of so few differ by chance."""
CORRECTIONS: Final = 2

LOSS_PER_S: Final = 11_000.0
"""Small packets in each direction: what the router VM carries without losing one, with something to spare. Where the
bare path loses any at this rate, as on a slow machine, half of it is tried, and so on."""
SLOWEST_PER_S: Final = 500.0
TRIAL_S: Final = 0.3
LOSS_S: Final = 4.5
LOSS_DOUBT_S: Final = 12.0
"""The time for the loss; and that for one which looks wrong, and may do so by chance."""
LONG_QUEUE: Final = 100_000

RATE_EXCESS: Final = 1.4
RATE_S: Final = 1.0
RATE_PACKETS: Final = 100
"""At least: a slow line takes longer."""

BARE_PER_S: Final = 20_000.0
BARE_PACKETS: Final = 10_000

OPEN_TIMEOUT_S: Final = 20.0
PATIENCE_S: Final = 0.3
"""After the last packet, besides the delay of the profile and its queue."""


class Calibrator:
    """Measures a lab, and remembers what its path adds to each state."""

    def __init__(self, lab: Lab, progress: Callable[[str], None]) -> None:
        self._lab = lab
        self._progress = progress
        self._overhead_ms = dict.fromkeys(DIRECTIONS, 0.0)
        self._by_state: dict[State, dict[str, float]] = {NOTHING: dict.fromkeys(DIRECTIONS, 0.0)}
        self._loss_per_s = LOSS_PER_S
        self.bare_path: dict[str, object] = {}

    def compensated(self, state: State, direction: str) -> Direction:
        """What netem is told, so that with the path's own delay the total is what the state says."""
        return netem.compensated(state[direction], self._by_state.get(state, self._overhead_ms)[direction])

    def measure_bare_path(self) -> None:
        """The path with nothing added, and what it adds to a delay."""
        self._progress("measuring the bare path")
        with system.urgent(), self._probes() as probes:
            self._lab.set_state(NOTHING)
            probes.wait_until_open(OPEN_TIMEOUT_S)
            trips = probes.round_trips(TRIPS, TRIP_INTERVAL_S, PATIENCE_S)
            self._loss_per_s = _lossless_rate(probes)
            flows = {
                direction: probes.flood([direction], BARE_PACKETS, BARE_PER_S, LARGE_BYTES, PATIENCE_S)[direction]
                for direction in DIRECTIONS
            }
            self._by_state[REFERENCE] = dict.fromkeys(DIRECTIONS, 0.0)
            self._lab.set_state(REFERENCE)
            delayed = probes.round_trips(TRIPS, TRIP_INTERVAL_S, PATIENCE_S)
        for direction in DIRECTIONS:
            self._overhead_ms[direction] = max(_median_ms(delayed, direction) - REFERENCE_MS, 0.0)
        self.bare_path = {
            "rtt_ms": estimates.summary([trip.rtt_ms for trip in trips]),
            "rate_bit_s": {direction: round(flow.rate_bit_s) for direction, flow in flows.items()},
            "offered_bit_s": round(BARE_PER_S * LARGE_BYTES * 8),
            "lost": {direction: flow.lost for direction, flow in flows.items()},
            "lossless_packets_s": self._loss_per_s,
            "added_to_a_delay_ms": {direction: round(added, 3) for direction, added in self._overhead_ms.items()},
        }

    def calibrate(self, profile: Profile) -> dict[str, object]:
        """Measure every state of a profile. The record is that of its start, with all states beside it."""
        began = time.monotonic()
        states = profile.states
        records = []
        for number, state in enumerate(states, start=1):
            which = f"{profile.name}, state {number} of {len(states)}" if len(states) > 1 else profile.name
            self._progress(f"calibrating {which}")
            records.append(self._measure(state))
        return {
            "version": VERSION,
            "profile": profile.to_dict(),
            "backend": self._lab.network.name,
            "network": self._lab.network.describe(),
            "measured_at": time.time(),
            "took_s": round(time.monotonic() - began, 1),
            "bare_path": self.bare_path,
            "is_within_10_percent": all(record["is_within_10_percent"] for record in records),
            **{name: value for name, value in records[0].items() if name != "is_within_10_percent"},
            "states": records,
        }

    def _measure(self, state: State) -> dict[str, object]:
        with system.urgent(), self._probes() as probes:
            trips = [] if records.is_closed(state) else self._round_trips(probes, state)
            flows, counted = self._loss(probes, state)
            rates = {direction: self._rate(probes, state, direction) for direction in DIRECTIONS}
        record: dict[str, object] = {
            "rtt_ms": records.rtt_record(trips, state),
            "loss": records.loss_record(flows, state),
            "rate_bit_s": records.rate_record(rates, state),
        }
        verdicts = [part["is_within_10_percent"] for part in record.values() if isinstance(part, dict)]
        record["directions"] = {
            direction: {
                "delay_ms": estimates.summary([_one_way(trip, direction) for trip in trips])
                | {"wanted": state[direction].delay_ms}
                | {"configured": round(self.compensated(state, direction).delay_ms, 3)},
                "loss": {"sent": flows[direction].sent, "lost": flows[direction].lost}
                | {"share": round(flows[direction].lost / flows[direction].sent, 6)}
                | {
                    "wanted": round(state[direction].loss_share, 6),
                    "counted_by_netem": {"passed": counted[direction].packets, "dropped": counted[direction].drops},
                },
                "disordered_share": round(flows[direction].disordered / max(flows[direction].received, 1), 5),
                "tc": " ".join(netem.options(self.compensated(state, direction))),
            }
            for direction in DIRECTIONS
        }
        record["is_within_10_percent"] = all(verdict is not False for verdict in verdicts)
        return record

    def _round_trips(self, probes: Probes, state: State) -> list[RoundTrip]:
        """Measure, and correct the delay netem is told until the total is right."""
        # Where there is a rate, packets stay in order: of those close to each other, a slow one would hold up the next.
        jitter_s = max(state[direction].jitter_ms for direction in DIRECTIONS) / 1e3
        interval_s = max(TRIP_INTERVAL_S, 5 * jitter_s)
        count = min(TRIPS, int(TRIPS_S / interval_s))
        overheads = self._by_state.setdefault(state, dict(self._overhead_ms))
        for attempt in range(CORRECTIONS + 1):
            self._lab.set_state(state)
            trips = probes.round_trips(count, interval_s, state.rtt_ms / 1e3 + PATIENCE_S)
            off_ms = {direction: _median_ms(trips, direction) - state[direction].delay_ms for direction in DIRECTIONS}
            is_right = abs(sum(off_ms.values())) <= GOOD_ENOUGH * state.rtt_ms
            if is_right or not state.rtt_ms or not trips or attempt == CORRECTIONS:
                break
            for direction in DIRECTIONS:
                corrected = overheads[direction] + off_ms[direction]
                overheads[direction] = min(max(corrected, 0.0), state[direction].delay_ms)
        return trips

    def _loss(self, probes: Probes, state: State) -> tuple[dict[str, Flow], dict[str, Counters]]:
        """As many packets as tell enough, or as there is time for.

        A loss that looks wrong gets more of them, or, if packets were lost elsewhere than in netem, slower ones.
        """
        per_s, needed = records.loss_plan(state, self._loss_per_s)
        deadline = time.monotonic() + LOSS_DOUBT_S
        flows: dict[str, Flow] = {}
        while True:
            if not flows:
                self._lengthen_queues(state)
            packets = min(needed, int(per_s * LOSS_S))
            flooded = probes.flood(DIRECTIONS, packets, per_s, SMALL_BYTES, _patience_s(state))
            flows = {name: flows[name].joined(flow) if flows else flow for name, flow in flooded.items()}
            counted = {name: self._lab.counters(name) for name in DIRECTIONS}
            if records.loss_record(flows, state)["is_within_10_percent"] or time.monotonic() > deadline:
                break
            if records.stray_share(flows, counted) > estimates.STRAY_LOSS:
                per_s, flows = per_s / 2, {}
        self._lab.set_state(state)
        return flows, counted

    def _lengthen_queues(self, state: State) -> None:
        """The same, with counters at zero and room for every packet: what is lost is netem's loss, not the queue's."""
        commands = []
        for direction in DIRECTIONS:
            long = replace(self.compensated(state, direction), limit=LONG_QUEUE)
            commands += netem.replace_commands(direction, long)
        self._lab.tc(commands)

    def _rate(self, probes: Probes, state: State, direction: str) -> float | None:
        wanted = state[direction]
        if not wanted.rate_mbit or wanted.is_closed:
            return None
        per_s = wanted.rate_mbit * 1e6 * RATE_EXCESS / (1 - wanted.loss_share) / LARGE_BYTES / 8
        packets = max(round(per_s * RATE_S), RATE_PACKETS)
        return probes.flood([direction], packets, per_s, LARGE_BYTES, _patience_s(state))[direction].rate_bit_s

    def _probes(self) -> Probes:
        return Probes(self._lab.client, self._lab.server)


def _lossless_rate(probes: Probes) -> float:
    """How many small packets a second the bare path carries each way without losing any."""
    per_s = LOSS_PER_S
    while per_s > SLOWEST_PER_S:
        flows = probes.flood(DIRECTIONS, int(per_s * TRIAL_S), per_s, SMALL_BYTES, PATIENCE_S)
        if not any(flow.lost for flow in flows.values()):
            break
        per_s /= 2
    return per_s


def _one_way(trip: RoundTrip, direction: str) -> float:
    return trip.up_ms if direction == DIRECTIONS[0] else trip.down_ms


def _median_ms(trips: list[RoundTrip], direction: str) -> float:
    return median(_one_way(trip, direction) for trip in trips) if trips else 0.0


def _patience_s(state: State) -> float:
    """How long the last packet may take: its delay, with jitter, and a full queue."""
    both = (state[direction] for direction in DIRECTIONS)
    return max(one.delay_ms + 4 * one.jitter_ms + (one.queue_ms or 0) for one in both) / 1e3 + PATIENCE_S
