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


@pytest.mark.parametrize("order", [None, [2, 0, 1]])
def test_scores_of_runs_alone_have_the_interval_of_their_t_test(order):
    a, b = np.array([0.70, 0.72, 0.75]), np.array([0.66, 0.69, 0.65])
    found = statistics.crossed_difference((a, a[:, None]), (b, b[:, None]), units=1, order=order)
    tested = stats.ttest_rel(a, b[order]) if order else stats.ttest_ind(a, b, equal_var=False)
    expected = (a.mean() - b.mean(), *tested.confidence_interval(), tested.pvalue)
    assert found[:4] == pytest.approx(expected, rel=1e-4)
    alone = statistics.crossed_difference((a, a[:, None]), (np.zeros(1), np.zeros((1, 1))), units=1)
    assert alone[1:3] == pytest.approx(stats.ttest_1samp(a, 0).confidence_interval(), rel=1e-6)


def paired_runs(first, second):
    """Two runs on the same resamples."""
    scores = np.array([first, second], dtype=float)
    points, draws = scores.mean(axis=1), bootstrap_means(scores, resamples=20_000, seed=5)
    return (points[:1], draws[:1]), (points[1:], draws[1:])


@pytest.mark.long
def test_one_run_on_each_side_has_the_interval_of_the_paired_t_test():
    rng = np.random.default_rng(0)
    first = 1 / rng.integers(1, 6, 300)
    second = np.where(rng.random(300) < 0.3, 1 / rng.integers(1, 9, 300), first)
    found = statistics.crossed_difference(*paired_runs(first, second), units=300)
    tested = stats.ttest_rel(first, second)
    assert found.difference == pytest.approx((first - second).mean(), abs=1e-12)
    assert found[1:3] == pytest.approx(tuple(tested.confidence_interval()), abs=0.03 * (found.high - found.low))
    assert found.p == pytest.approx(tested.pvalue, rel=0.15)
    bootstrap = stats.bootstrap((first - second,), np.mean, n_resamples=2000, rng=1, method="basic")
    assert found[1:3] == pytest.approx(tuple(bootstrap.confidence_interval), abs=0.06 * (found.high - found.low))


@pytest.mark.parametrize(("only_first", "only_second"), [(0, 0), (1, 0), (3, 1), (20, 8)])
def test_few_units_that_differ_have_the_variance_of_two_more(only_first, only_second):
    """Two more units, one of which differs, with a variance around the mean of those that are there."""
    units, differing = 200, only_first + only_second
    first, second = np.ones(units), np.ones(units)
    second[:only_first], first[only_first : only_first + only_second] = 0, 0
    found = statistics.crossed_difference(*paired_runs(first, second), units=units, bound=1)
    mean = (only_first - only_second) / units
    variance = (differing - units * mean**2 + 1) / (units + 2) ** 2 * units / (units - 1)
    half = stats.t.ppf(0.975, units - 1) * variance**0.5
    assert found[:3] == pytest.approx((mean, mean - half, mean + half), abs=0.02 * half)
    assert found.p == pytest.approx(2 * stats.t.sf(mean / variance**0.5, units - 1), abs=0.01)


def test_equal_sides_have_an_interval_and_so_have_runs_that_are_equal_by_chance():
    same = statistics.crossed_difference(*paired_runs([1.0, 0.5, 0.2] * 30, [1.0, 0.5, 0.2] * 30), units=90)
    assert (same.difference, same.p) == (0, 1)
    assert same.high == -same.low == pytest.approx(stats.t.ppf(0.975, 89) / 92 * (90 / 89) ** 0.5)
    right = np.eye(40)[:4]  # each run is right on a unit of its own
    points, draws = right.mean(axis=1), bootstrap_means(right, resamples=500, seed=0)
    runs = statistics.crossed_difference((points[:2], draws[:2]), (points[2:], draws[2:]), units=40)
    assert runs.high > 0.01


@pytest.mark.long
@pytest.mark.parametrize("order", [None, [1, 2, 0]])
def test_units_and_runs_are_crossed(order):
    """Against the formula, from scores instead of resamples: U/J from the units, R/I + E/(IJ) from the runs."""
    rng, runs, units = np.random.default_rng(3), 3, 60
    scores = rng.normal(size=(2, 1, units)) + rng.normal(size=(2, runs, 1)) + rng.normal(size=(2, runs, units))
    draws = bootstrap_means(scores.reshape(2 * runs, units), resamples=20_000, seed=1).reshape(2, runs, -1)
    points = scores.mean(axis=2)
    found = statistics.crossed_difference((points[0], draws[0]), (points[1], draws[1]), units=units, order=order)
    sides = scores if order is None else [scores[0] - scores[1][order]]
    difference = scores[0].mean(axis=0) - scores[1].mean(axis=0)
    of_runs = [side.mean(axis=1).var(ddof=1) / runs for side in sides]
    together = [(side - side.mean(axis=0)).var(axis=1).mean() / units / (runs - 1) for side in sides]
    of_units = (difference.var() / units - sum(together)) * units / (units - 1)
    assert (found.of_units, found.of_runs) == pytest.approx((of_units, sum(of_runs)), rel=0.03)
    free = sum(of_runs) ** 2 / sum(of**2 / (runs - 1) for of in of_runs)
    quantiles = stats.t.ppf(0.975, [units - 1, free])
    error = (of_units + sum(of_runs)) ** 0.5
    half = (of_units * quantiles[0] + sum(of_runs) * quantiles[1]) / error
    assert found[1:3] == pytest.approx((found.difference - half, found.difference + half), abs=0.03 * half)


@pytest.mark.parametrize("difference", [0.004, -0.002, -0.03])
def test_so_many_more_units_tell(difference):
    def tested(units):
        of_units = 0.09 / units
        half = 1.96 * (of_units + 1e-6) ** 0.5
        return statistics.CrossedDifference(difference, difference - half, difference + half, 0.1, of_units, 1e-6)

    more = statistics.units_to_tell(tested(100), 100, 0.005)
    said = statistics.verdict(*(100 * end for end in tested(100 + more)[1:3]))
    assert said != "cannot tell"
    assert statistics.verdict(*(100 * end for end in tested(90 + more)[1:3])) == "cannot tell"
    varied = tested(100)._replace(of_runs=1.0)
    assert statistics.units_to_tell(varied._replace(high=difference + 2), 100, 0.005) is None


def test_the_smallest_difference_that_a_test_finds():
    assert statistics.TYPICAL_SPREAD == 0.4
    # (1.965757 + 0.842529) * sqrt(V), V = 2 * 0.1 * 0.4^2 / 412, or (V * 412^2 + 1) / 414^2
    assert statistics.smallest_difference(412, 0.9) == pytest.approx(0.024749, abs=2e-6)
    assert statistics.smallest_difference(412, 0.9, bound=1) == pytest.approx(0.025547, abs=2e-6)
    assert statistics.SIMILARITY_TO_START == {"mrr@10": 0.9, "spearman": 0.9, "accuracy": 0.5}
    rng, units = np.random.default_rng(2), 80
    spread, correlation = 0.3, 0.9
    shift = statistics.smallest_difference(units, correlation, spread)
    start = spread * rng.normal(size=(4000, units))
    trained = shift + correlation * start + (1 - correlation**2) ** 0.5 * spread * rng.normal(size=start.shape)
    found = stats.ttest_rel(trained, start, axis=1)
    assert np.mean((found.pvalue < 0.05) & (found.statistic > 0)) == pytest.approx(0.8, abs=0.02)  # its error is 0.006


def test_the_spread_of_a_correlation():
    rng = np.random.default_rng(4)
    gold = rng.normal(size=(1000, 200))
    values = 0.8 * gold + 0.6 * rng.normal(size=gold.shape)
    ranks = [np.argsort(np.argsort(numbers, axis=1), axis=1) for numbers in (gold, values)]
    centred = [rank - rank.mean() for rank in ranks]
    measured = (centred[0] * centred[1]).mean(axis=1) / centred[0].var()
    assert statistics.correlation_spread(measured.mean()) == pytest.approx(measured.std() * 200**0.5, rel=0.08)


@pytest.mark.parametrize("shift", [0.0, 0.02, 0.05, 0.08, 0.2, -0.05, -0.2])
def test_p_is_below_5_percent_where_the_interval_leaves_out_0(shift):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(6, 50)) / 10
    scores[:3] += shift
    points, draws = scores.mean(axis=1), bootstrap_means(scores, resamples=200, seed=1)
    found = statistics.crossed_difference((points[:3], draws[:3]), (points[3:], draws[3:]), units=50)
    assert (found.p < 0.05) == (found.low > 0 or found.high < 0)
