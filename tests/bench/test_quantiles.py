"""What a few repetitions allow to say, checked against a truth that was put in."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest

from moq.bench import quantiles
from moq.bench.quantiles import (
    compare,
    interval,
    percentile,
    percentiles,
    pooled,
    probability_beyond,
    student_quantile,
    student_share,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TRIALS = 250
NOISE = 0.1


def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed() -> None:
    histogram = {10: 50, 20: 40, 30: 9, 40: 1}
    assert percentiles(histogram, [0, 50, 50.1, 90, 99, 99.5, 100]) == [10, 10, 20, 20, 30, 40, 40]
    assert percentile({7: 1}, 99.9) == 7
    assert percentile({}, 50) is None


def test_pooled_histograms_add_up() -> None:
    assert pooled([{1: 2, 3: 4}, {3: 1, 5: 1}]) == {1: 2, 3: 5, 5: 1}


def test_students_distribution_agrees_with_the_tables() -> None:
    known = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 10: 2.228, 30: 2.042}
    assert {freedom: round(student_quantile(0.975, freedom), 3) for freedom in known} == known
    assert student_quantile(0.025, 4) == pytest.approx(-2.776, abs=1e-3)
    assert [student_share(0.0, freedom) for freedom in (1, 2, 7)] == [0.5, 0.5, 0.5]
    assert student_share(1e9, 3) == pytest.approx(1.0)


def skewed(draw: random.Random) -> float:
    """Long on one side, with the median at 1."""
    return math.exp(NOISE * (draw.expovariate(1) - math.log(2)))


def log_normal(draw: random.Random) -> float:
    return math.exp(draw.gauss(0, NOISE))


@pytest.mark.parametrize("repetitions", [3, 5, 10])
@pytest.mark.parametrize("noise", [log_normal, skewed])
def test_nineteen_of_twenty_intervals_contain_the_truth(
    repetitions: int, noise: Callable[[random.Random], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantiles, "RESAMPLES", 150)
    draw = random.Random(repetitions)
    quantiles._spread.cache_clear()
    contained = compared = 0
    for _ in range(TRIALS):
        first, second = ([noise(draw) for _ in range(repetitions)] for _ in range(2))
        found, ratio = interval(first), compare(first, second)
        assert found.low is not None
        assert found.high is not None
        assert ratio is not None
        contained += found.low <= 1 <= found.high
        compared += not ratio.is_shown
    # Of 250 trials at 95 %, 227 succeed with probability 0.999; none may be so wide that it says nothing.
    assert contained >= 227
    assert compared >= 227


def test_an_interval_narrows_with_repetitions_and_still_sees_a_difference() -> None:
    draw = random.Random(1)
    widths = []
    for repetitions in (3, 5, 10, 30):
        found = interval([log_normal(draw) for _ in range(repetitions)])
        assert found.low is not None
        assert found.high is not None
        widths.append(found.high / found.low)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 1.15
    ratio = compare([log_normal(draw) for _ in range(5)], [2.0 * log_normal(draw) for _ in range(5)])
    assert ratio is not None
    assert ratio.is_shown
    assert ratio.probability_greater is not None
    assert ratio.probability_greater > 0.99


def test_a_single_run_has_no_interval_and_allows_no_claim() -> None:
    found = interval([3.0])
    assert (found.estimate, found.low, found.high) == (3.0, None, None)
    ratio = compare([2.0], [4.0, 4.1])
    assert ratio is not None
    assert (ratio.ratio, ratio.low, ratio.probability_greater, ratio.is_shown) == (2.025, None, None, False)


def test_runs_that_agree_to_the_digit_are_not_taken_for_certain() -> None:
    found = interval([100.0, 100.0, 100.0])
    assert found.low is not None
    assert found.low < 100.0
    ratio = compare([100.0] * 3, [100.5] * 3)
    assert ratio is not None
    assert not ratio.is_shown


def test_figures_that_may_be_zero_have_an_interval_but_no_ratio() -> None:
    found = interval([0.0, 1.0, 2.0])
    assert found.estimate == 1.0
    assert found.low is not None
    assert found.low < 0
    assert compare([0.0, 1.0], [1.0, 1.0]) is None
    assert compare([], [1.0]) is None


def test_the_probability_of_a_difference_falls_with_the_bound_it_has_to_pass() -> None:
    first, second = [1.0, 1.01, 0.99, 1.0], [1.2, 1.21, 1.19, 1.2]
    sure, unsure, unlikely = (probability_beyond(first, second, bound) for bound in (1.05, 1.2, 1.4))
    assert sure is not None
    assert unsure is not None
    assert unlikely is not None
    assert sure > 0.99
    assert 0.3 < unsure < 0.7
    assert unlikely < 0.01
