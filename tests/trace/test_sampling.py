"""Which messages are recorded: the same ones by all roles, as many as there may be, and each with its weight."""

from __future__ import annotations

from random import Random

import pytest

from moq.trace.sampling import Sampler

STAMPS = range(1_700_000_000_000_000_000, 1_700_000_000_000_000_000 + 50_000 * 1_000_003, 1_000_003)


def sampler(probability: float = 1.0, max_rate: float = 1e12) -> Sampler:
    return Sampler(probability, max_rate, 0.1, Random(7).random)


def chosen(by: Sampler) -> set[int]:
    return {stamp for stamp in STAMPS if by.weigh(stamp)}


def test_everything_is_chosen_by_default() -> None:
    by = sampler()
    assert chosen(by) == set(STAMPS)
    assert by.choose(1000) == list(range(1000))
    assert by.weigh(0) == 1.0
    assert by.offered == len(STAMPS) + 1001


def test_two_roles_choose_the_same_messages() -> None:
    assert chosen(sampler(0.2)) == chosen(sampler(0.2))


def test_the_smaller_probability_chooses_some_of_what_the_larger_one_does() -> None:
    small, large = chosen(sampler(0.05)), chosen(sampler(0.3))
    assert small < large
    assert len(small) == pytest.approx(0.05 * len(STAMPS), rel=0.05)
    assert len(large) == pytest.approx(0.3 * len(STAMPS), rel=0.05)


@pytest.mark.parametrize("spacing_ns", [1, 1_000, 1_000_000, 1_000_000_000])
def test_stamps_at_any_spacing_are_chosen_with_the_probability(spacing_ns: int) -> None:
    by = sampler(0.1)
    taken = sum(by.weigh(1_700_000_000_000_000_000 + number * spacing_ns) > 0 for number in range(20_000))
    assert taken == pytest.approx(2_000, rel=0.1)


@pytest.mark.parametrize("subscribers", [1, 2, 10, 16])
def test_counting_favours_no_subscriber_of_several(subscribers: int) -> None:
    by = sampler(1 / 16)
    taken = [0] * subscribers
    for number in range(160_000):
        taken[number % subscribers] += by.weigh(0) > 0
    for count in taken:
        assert count == pytest.approx(10_000 / subscribers, rel=0.2)


@pytest.mark.parametrize("length", [1, 7, 250, 5000])
def test_runs_are_sampled_like_single_messages(length: int) -> None:
    by = sampler(0.01)
    places = [by.choose(length) for _ in range(200_000 // length)]
    assert all(0 <= place < length for run in places for place in run)
    assert sum(map(len, places)) == pytest.approx(2_000, rel=0.1)


def test_past_the_rate_the_probability_is_lowered_and_the_weight_tells() -> None:
    by = sampler(max_rate=10_000)
    weights: list[float] = []
    for _ in range(20):
        weights.append(sum(weight for _ in range(50_000) if (weight := by.weigh(0))))
        by.tick()
    assert by.probability < 1 / 32
    assert by.weight == 1 / by.probability
    # However few are recorded, they stand for all there were.
    assert sum(weights[5:]) == pytest.approx(50_000 * 15, rel=0.1)


def test_the_bound_holds_once_the_probability_has_settled() -> None:
    by = sampler(max_rate=10_000)
    taken = [0] * 13
    for tick in range(13):
        for _ in range(2_000):
            taken[tick] += len(by.choose(250))
        by.tick()
    assert taken[0] <= 10_000
    assert sum(taken[3:]) <= 10_000 * 1.2


def test_with_less_to_record_the_probability_comes_back() -> None:
    by = sampler(0.5, max_rate=10_000)
    by.choose(1_000_000)
    assert by.probability < 0.5
    for _ in range(40):
        by.tick()
    assert by.probability == 0.5
