"""The arithmetic of calibration, against values worked out elsewhere."""

from __future__ import annotations

import math
import random

import pytest

from moq.lab import estimates


def test_percentiles_are_interpolated() -> None:
    assert estimates.percentile([1, 2, 3, 4], 0.5) == 2.5
    assert estimates.percentile([7], 0.99) == 7
    assert math.isnan(estimates.percentile([], 0.5))
    assert estimates.summary([3, 1, 2])["p50"] == 2


def test_wilsons_interval_is_the_published_one() -> None:
    low, high = estimates.loss_interval(1, 10)
    assert low == pytest.approx(0.01788, abs=1e-4)
    assert high == pytest.approx(0.40415, abs=1e-4)
    assert estimates.loss_interval(0, 0) == (0.0, 1.0)
    assert estimates.loss_interval(0, 4000)[1] == pytest.approx(0.00096, abs=1e-5)


def test_one_percent_to_a_tenth_takes_forty_thousand_packets() -> None:
    assert estimates.packets_for(0.01) == pytest.approx(38_032, abs=2)
    assert estimates.packets_for(0.01, 0.05) == pytest.approx(4 * 38_032, abs=10)
    assert estimates.packets_for(0) == estimates.packets_for(1) == 0


def test_bursts_tell_less_than_single_losses() -> None:
    """The spread of a simulated Gilbert-Elliott channel is what the inflation says."""
    start, end, packets, rng = 0.01, 0.25, 5_000, random.Random(1)
    shares = []
    for _ in range(300):
        is_bad, lost = False, 0
        for _ in range(packets):
            is_bad = rng.random() >= end if is_bad else rng.random() < start
            lost += is_bad
        shares.append(lost / packets)
    mean = sum(shares) / len(shares)
    variance = sum((share - mean) ** 2 for share in shares) / (len(shares) - 1)
    inflated = variance / (mean * (1 - mean) / packets)
    assert mean == pytest.approx(1 / 26, rel=0.05)
    assert inflated == pytest.approx(estimates.inflation(start, end), rel=0.25)
    assert estimates.inflation(0, 0) == 1


def test_within_ten_percent() -> None:
    assert estimates.is_within(55, 50)
    assert estimates.is_within(45, 50)
    assert not estimates.is_within(55.1, 50)
    assert not estimates.is_within(44.9, 50)


def test_no_loss_is_none_but_for_a_stray_packet() -> None:
    assert estimates.is_loss_within(0.001, 0)
    assert not estimates.is_loss_within(0.0011, 0)
    assert estimates.is_loss_within(0.021, 0.02)
    assert not estimates.is_loss_within(0.023, 0.02)
