"""Histograms of plain numbers."""

from __future__ import annotations

import pytest

from moq.histogram import BYTES, LATENCY_S, SIZES, Histogram, spread


def test_a_value_is_in_the_first_bucket_whose_bound_it_does_not_pass() -> None:
    histogram = Histogram((1.0, 2.0, 5.0))
    for value in (0.0, 1.0, 1.5, 2.0, 5.0, 5.1, 100.0):
        histogram.add(value)
    assert histogram.counts == [2, 2, 1, 2]
    assert histogram.buckets() == [("1.0", 2), ("2.0", 4), ("5.0", 5), ("+Inf", 7)]
    assert histogram.count == 7
    assert histogram.sum == pytest.approx(114.6)


def test_many_equal_values_are_one_addition() -> None:
    one_by_one, together = Histogram(), Histogram()
    for _ in range(1000):
        one_by_one.add(0.003)
    together.add(0.003, 1000)
    assert together.counts == one_by_one.counts
    assert together.sum == pytest.approx(one_by_one.sum)


def test_one_that_nothing_was_added_to_has_all_its_buckets_empty() -> None:
    histogram = Histogram()
    assert [count for _, count in histogram.buckets()] == [0] * (len(LATENCY_S) + 1)


@pytest.mark.parametrize("bounds", [LATENCY_S, SIZES, BYTES])
def test_bounds_rise(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))


def test_bounds_are_spread_in_steps_people_can_read() -> None:
    assert spread(0.001, 0.1) == (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
