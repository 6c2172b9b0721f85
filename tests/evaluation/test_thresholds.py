"""Thresholds with a bound: exact p-values, the order of the tests, the guarantee in simulations, calibration."""

from fractions import Fraction
from math import ceil, comb, e, exp, log

import numpy as np
import pytest

from nearfar.evaluation.thresholds import Candidates, Shown, ThresholdSearch, calibrate, p_values, what_is_shown


def binomial(most: int, count: int, share: Fraction) -> float:
    """P(Binomial(count, share) <= most), exactly."""
    return float(sum(comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(most + 1)))


@pytest.mark.parametrize(("wrong", "count"), [(0, 59), (0, 58), (3, 120), (7, 80), (50, 50), (0, 0)])
def test_the_p_value_of_single_hits_is_the_binomial_one(wrong: int, count: int) -> None:
    share = wrong / count if count else 0.0
    found = p_values(share, count, 0.05, binary=True)
    assert float(found) == pytest.approx(binomial(wrong, count, Fraction(1, 20)), rel=1e-12)


@pytest.mark.parametrize(("share", "count"), [(0.0, 59), (0.0123, 200), (0.04, 500), (0.05, 70), (0.5, 10)])
def test_the_p_value_of_shares_is_that_of_hoeffding_and_bentkus(share: float, count: int) -> None:
    error, low = 0.05, min(share, 0.05)
    divergence = (low * log(low / error) if low else 0.0) + (1 - low) * log((1 - low) / (1 - error))
    bentkus = e * binomial(ceil(share * count), count, Fraction(1, 20))
    found = float(p_values(share, count, error, binary=False))
    assert found == pytest.approx(min(exp(-count * divergence), bentkus), rel=1e-9)


def test_59_right_hits_are_the_fewest_for_5_percent() -> None:
    found = p_values([0.0, 0.0], [58, 59], 0.05, binary=True) <= 0.05
    assert found.tolist() == [False, True]


def test_a_query_counts_once_however_many_hits_it_shows() -> None:
    candidates = Candidates(
        np.array([0, 0, 0, 1, 2, 2]), np.array([0.9, 0.8, 0.7, 0.8, 0.3, 0.9]), np.array([1, 0, 1, 1, 0, 0], bool)
    )
    assert what_is_shown(candidates, 0.75) == Shown(3, 4, 2, (1 / 2 + 0 + 1) / 3)
    assert what_is_shown(candidates, 0.95) == Shown(0, 0, 0, 0.0)
    part = candidates.of_queries(np.array([2, 0]))
    assert part.queries.tolist() == [1, 1, 1, 0, 0]
    assert part.scores.tolist() == [0.9, 0.8, 0.7, 0.3, 0.9]


def draw(rng: np.random.Generator, queries: int, hits: int) -> Candidates:
    """Queries with 1 to ``hits`` candidates that share their luck; few are wrong at high scores, but not the fewest at
    the highest."""
    counts = rng.integers(1, hits + 1, queries)
    number = np.repeat(np.arange(queries), counts)
    scores = rng.random(len(number))
    luck = rng.random(queries)[number]
    wrong = np.where(scores > 0.95, 0.3, np.clip(0.9 - scores, 0.02, 1))
    return Candidates(number, scores, (luck if hits > 1 else rng.random(len(number))) >= wrong)


@pytest.mark.long
@pytest.mark.parametrize("hits", [1, 4])
def test_the_bound_holds_in_as_many_draws_as_it_says(hits: int) -> None:
    """Of 300 draws at most a tenth may exceed it: 30, or by chance, once in a million times, 56."""
    population, steps = draw(np.random.default_rng(1), 100_000, hits), np.linspace(0, 0.975, 40)
    truth = [what_is_shown(population, step).share for step in steps]
    exceeded = chosen = 0
    for seed in range(300):
        choice = ThresholdSearch(draw(np.random.default_rng([2, seed]), 400, hits), 0.9, seed).choose(0.2)
        if choice is not None:
            chosen += 1
            exceeded += np.interp(choice[0], steps, truth) > 0.2
    assert chosen > 150
    assert exceeded <= 56


def test_only_tested_queries_count_and_the_first_failure_ends_the_tests() -> None:
    search = ThresholdSearch(draw(np.random.default_rng(0), 2000, 1), 0.95, 3)
    choice = search.choose(0.2)
    assert choice is not None
    threshold, seen = choice
    assert seen == what_is_shown(search.tested, threshold)
    assert search.pilot.queries.max() + 1 == 400
    assert search.tested.queries.max() + 1 == 1600
    values = [
        float(p_values(now.share, now.shown, 0.2, binary=True))
        for now in (what_is_shown(search.tested, step) for step in search.thresholds)
    ]
    place = search.thresholds.tolist().index(threshold)
    assert values[place] <= 0.05 < values[place + 1]
    assert 0 < search.lower_limit(seen) < seen.share


def test_the_lower_limit_is_that_of_clopper_and_pearson_over_all_thresholds() -> None:
    search = ThresholdSearch(draw(np.random.default_rng(0), 500, 1), 0.9, 0)
    limit = search.lower_limit(Shown(100, 100, 10, 0.1))
    at_least_10 = 1 - binomial(9, 100, Fraction(limit))
    assert at_least_10 == pytest.approx(0.1 / len(search.thresholds), rel=1e-6)
    assert search.lower_limit(Shown(100, 100, 0, 0.0)) == 0


def test_few_queries_and_wrong_hits_have_no_threshold() -> None:
    few = draw(np.random.default_rng(0), 60, 1)
    assert ThresholdSearch(few, 0.95, 0).choose(0.01) is None
    assert 60 < ThresholdSearch(few, 0.95, 0).queries_for(0.3) < 100_000
    wrong = few._replace(right=np.zeros(60, bool))
    assert ThresholdSearch(wrong, 0.95, 0).choose(0.5) is None
    assert ThresholdSearch(wrong, 0.95, 0).queries_for(0.5) == np.inf
    alone = Candidates(np.array([0]), np.array([0.5]), np.array([True]))
    assert ThresholdSearch(alone, 0.95, 0).choose(0.5) is None


def test_the_estimated_number_of_queries_is_enough() -> None:
    """Of 40 draws of this size 8 in 10 should find a threshold; 24 or fewer have a chance of 0.002."""
    needed = int(ThresholdSearch(draw(np.random.default_rng(0), 2000, 1), 0.95, 0).queries_for(0.17))
    found = [
        ThresholdSearch(draw(np.random.default_rng([5, seed]), needed, 1), 0.95, seed).choose(0.17)
        for seed in range(40)
    ]
    assert sum(one is not None for one in found) > 24


def test_probabilities_are_the_pooled_adjacent_violators() -> None:
    scores, right = np.array([0.1, 0.2, 0.3, 0.4, 0.5]), np.array([0, 1, 0, 1, 1], bool)
    candidates = Candidates(np.arange(5), scores, right)
    known = calibrate(candidates, candidates)
    assert np.interp(scores, known["scores"], known["probabilities"]).tolist() == [0, 0.5, 0.5, 1, 1]
    assert known["calibration_error"] == pytest.approx(0)
    other = Candidates(np.arange(2), np.array([0.05, 0.9]), np.array([True, True]))
    assert calibrate(candidates, other)["calibration_error"] == pytest.approx((1 + 0) / 2)
