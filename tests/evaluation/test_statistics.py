"""Intervals and tests against formulas, plain loops and simulations."""

import numpy as np
import pytest
from scipy import stats

from nearfar.evaluation import statistics
from nearfar.evaluation.statistics import bootstrap_means, holm, percentile_interval


def test_the_interval_is_the_middle_95_percent_of_the_defined_values():
    draws = np.r_[np.nan, np.arange(1001.0), np.nan]
    assert percentile_interval(draws) == pytest.approx((25, 975))
    assert percentile_interval(np.array([np.nan])) is None
    assert percentile_interval(np.array([])) is None


def test_holm_by_hand():
    # sorted 0.01 0.03 0.04 times 3 2 1: 0.03 0.06 0.04, then never decreasing
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.long
def test_the_bootstrap_of_means_equals_that_of_rows():
    rng = np.random.default_rng(1)
    right = (rng.random((2, 300)) < [[0.8], [0.6]]).astype(float)
    draws = bootstrap_means(right, resamples=20_000, seed=0)
    rows = rng.integers(0, 300, size=(20_000, 300))
    by_rows = right[:, rows].mean(axis=2)
    assert draws.shape == (2, 20_000)
    np.testing.assert_allclose(draws.mean(axis=1), right.mean(axis=1), atol=1e-3)
    np.testing.assert_allclose(draws.std(axis=1), by_rows.std(axis=1), rtol=0.03)
    paired = (draws[0] - draws[1]).std()
    assert paired == pytest.approx((by_rows[0] - by_rows[1]).std(), rel=0.03)


def test_units_are_drawn_whole():
    """Copies of a row that are one unit change nothing; apart they would count as new rows."""
    values = np.random.default_rng(2).integers(0, 4, (2, 40)) / 3
    once = bootstrap_means(values, resamples=500, seed=1)
    units = np.tile(np.arange(40), 3)
    np.testing.assert_allclose(
        bootstrap_means(np.tile(values, 3), resamples=500, seed=1, units=units), once, atol=1e-12
    )
    apart = bootstrap_means(np.tile(values, 3), resamples=500, seed=1)
    np.testing.assert_allclose(once.std(axis=1) / apart.std(axis=1), np.sqrt(3), rtol=0.15)
    assert np.isnan(bootstrap_means(values, resamples=9, seed=1, units=40 * [0])).all(), "one unit has no resamples"


def test_a_mean_over_units_of_many_sizes_has_the_spread_of_their_sums():
    rng = np.random.default_rng(3)
    units = np.repeat(np.arange(60), rng.integers(1, 9, 60))
    values = rng.random(60)[units] + 0.1 * rng.random(len(units))
    residuals = np.bincount(units, weights=values - values.mean())
    draws = bootstrap_means(values[None], resamples=20_000, seed=0, units=units)[0]
    assert draws.mean() == pytest.approx(values.mean(), abs=2e-3)
    assert draws.std() == pytest.approx(np.sqrt(residuals @ residuals) / len(units), rel=0.03)


def test_resamples_are_the_same_in_one_block_and_in_many(monkeypatch):
    values = np.random.default_rng(3).random((2, 50))
    whole = bootstrap_means(values, resamples=300, seed=4)
    monkeypatch.setattr(statistics, "_BLOCK_NUMBERS", 70)  # one resample in a block
    assert bootstrap_means(values, resamples=300, seed=4) == pytest.approx(whole, abs=1e-12)
    assert bootstrap_means(values, resamples=0, seed=4).shape == (2, 0)


@pytest.mark.parametrize("order", [None, [2, 0, 1]])
def test_scores_of_runs_alone_have_the_interval_of_their_t_test(order):
    a, b = np.array([0.70, 0.72, 0.75]), np.array([0.66, 0.69, 0.65])
    found = statistics.crossed_difference((a, a[:, None]), (b, b[:, None]), units=1, order=order)
    tested = stats.ttest_rel(a, b[order]) if order else stats.ttest_ind(a, b, equal_var=False)
    expected = (a.mean() - b.mean(), *tested.confidence_interval(), tested.pvalue)
    assert found[:4] == pytest.approx(expected, rel=1e-4)
    alone = statistics.crossed_difference((a, a[:, None]), (np.zeros(1), np.zeros((1, 1))), units=1)
    assert alone[1:3] == pytest.approx(stats.ttest_1samp(a, 0).confidence_interval(), rel=1e-6)
