"""Intervals and tests against formulas, plain loops and simulations."""

import numpy as np
import pytest
from scipy import stats

from nearfar.evaluation import correlation, statistics
from nearfar.evaluation.statistics import (
    bootstrap_means,
    bootstrap_test,
    holm,
    mcnemar,
    mean_difference,
    percentile_interval,
    permutation_test,
    rank_test_over_seeds,
    t_test_over_seeds,
)


def test_the_interval_is_the_middle_95_percent_of_the_defined_values():
    draws = np.r_[np.nan, np.arange(1001.0), np.nan]
    assert percentile_interval(draws) == pytest.approx((25, 975))
    assert percentile_interval(np.array([np.nan])) is None
    assert percentile_interval(np.array([])) is None


def test_p_counts_both_tails_and_adds_one():
    # 3 of 9 draws at or below 0, 7 at or above: 2 * (1 + 3) / (1 + 9)
    draws = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert bootstrap_test(2.0, draws).p == pytest.approx(2 * 4 / 10)
    assert bootstrap_test(-2.0, -draws).p == pytest.approx(2 * 4 / 10)
    assert bootstrap_test(1.0, np.arange(1.0, 100.0)).p == pytest.approx(2 * 1 / 100)
    assert bootstrap_test(0.0, np.zeros(99)).p == 1
    assert bootstrap_test(1.0, np.r_[np.nan, np.arange(1.0, 100.0)]).p == pytest.approx(2 * 1 / 100)
    assert bootstrap_test(0.0, np.full(5, np.nan)) is None


def paired_bootstrap(gold, first, second, *, sizes=None, aggregate="all", resamples, seed=0):
    """Test the difference of the mean Spearman of ``first`` and ``second`` [seeds, pairs] on the same resamples."""
    a, b = np.atleast_2d(first), np.atleast_2d(second)
    systems, sizes = np.concatenate([a, b]).astype(float), sizes or [len(gold)]
    spearman = correlation.weighted_spearman, np.asarray(gold, dtype=float), systems
    point = correlation.scores(*spearman, sizes=sizes).aggregate(aggregate)
    drawn = correlation.bootstrap_scores(*spearman, sizes=sizes, resamples=resamples, seed=seed).aggregate(aggregate)
    return bootstrap_test(float(mean_difference(point, len(a))[0]), mean_difference(drawn, len(a)))


def two_sides(pairs: int, noise: tuple[float, float], *, seeds: int = 1, seed: int = 0):
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, 11, pairs) / 2
    first, second = (gold + scale * rng.normal(size=(seeds, pairs)) for scale in noise)
    return gold, first, second


def test_a_clear_difference_has_the_smallest_p_and_swapping_sides_negates_it():
    gold, first, second = two_sides(400, (1.0, 3.0))
    found = paired_bootstrap(gold, first[0], second[0], resamples=999)
    expected = stats.spearmanr(gold, first[0]).statistic - stats.spearmanr(gold, second[0]).statistic
    assert found.difference == pytest.approx(expected, abs=1e-12)
    assert 0 < found.low < found.difference < found.high
    assert found.p == pytest.approx(2 / 1000)
    swapped = paired_bootstrap(gold, second[0], first[0], resamples=999)
    assert swapped[:4] == pytest.approx((-found.difference, -found.high, -found.low, found.p), abs=1e-12)


def test_equal_sides_do_not_differ():
    gold, first, _ = two_sides(60, (1.0, 1.0))
    assert paired_bootstrap(gold, first, np.exp(first), resamples=99)[:4] == (0, 0, 0, 1)


@pytest.mark.long
@pytest.mark.parametrize("aggregate", ["all", "mean", "wmean"])
def test_seeds_are_averaged_on_the_same_resamples(aggregate):
    gold, first, second = two_sides(50, (1.0, 1.5), seeds=3)
    second = second[:2]  # sides may have different numbers of runs
    found = paired_bootstrap(gold, first, second, sizes=[20, 30], aggregate=aggregate, resamples=40, seed=9)

    def score(system, count):
        def rho(part):
            x, y = np.repeat(gold[part], count[part]), np.repeat(system[part], count[part])
            return stats.spearmanr(x, y).statistic

        a, b = rho(slice(0, 20)), rho(slice(20, 50))
        return {"all": rho(slice(0, 50)), "mean": (a + b) / 2, "wmean": (20 * a + 30 * b) / 50}[aggregate]

    def difference(count):
        return np.mean([score(s, count) for s in first]) - np.mean([score(s, count) for s in second])

    counts = np.concatenate(list(correlation._multiplicities([20, 30], 40, np.random.default_rng(9)))).astype(int)
    draws = np.array([difference(count) for count in counts])
    assert found.difference == pytest.approx(difference(np.ones(50, dtype=int)), abs=1e-12)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])), abs=1e-12)
    tails = min((1 + np.sum(draws <= 0)) / 41, (1 + np.sum(draws >= 0)) / 41)
    assert found.p == pytest.approx(min(1, 2 * tails))


@pytest.mark.long
def test_without_a_difference_p_values_are_calibrated():
    p = [paired_bootstrap(*two_sides(80, (1.0, 1.0), seed=s), resamples=199).p for s in range(300)]
    # binomial(300, 0.05): 15 expected, standard deviation 3.8
    assert 4 <= np.sum(np.array(p) < 0.05) <= 28


def test_welch_matches_the_formula():
    a, b = np.array([0.70, 0.72, 0.75]), np.array([0.66, 0.69, 0.65, 0.68])
    found = t_test_over_seeds(a, b, paired=False)
    parts = a.var(ddof=1) / 3, b.var(ddof=1) / 4
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 3)
    t = (a.mean() - b.mean()) / np.sqrt(sum(parts))
    half = stats.t.ppf(0.975, freedom) * np.sqrt(sum(parts))
    assert found[:4] == pytest.approx(
        (a.mean() - b.mean(), a.mean() - b.mean() - half, a.mean() - b.mean() + half, 2 * stats.t.sf(t, freedom))
    )
    assert found.test == "Welch's t-test over seeds"


def test_paired_runs_are_tested_on_their_differences():
    a, b = np.array([0.70, 0.60, 0.80]), np.array([0.68, 0.59, 0.79])
    found = t_test_over_seeds(a, b, paired=True)
    t = (a - b).mean() / ((a - b).std(ddof=1) / np.sqrt(3))
    assert found.p == pytest.approx(2 * stats.t.sf(t, 2))
    assert found.p < t_test_over_seeds(a, b, paired=False).p
    assert found.test == "paired t-test over seeds"


@pytest.mark.parametrize(
    ("first", "second", "paired"),
    [([0.7], [0.6, 0.5], False), ([0.7, 0.8], [0.6, 0.7], True), ([0.7, 0.7], [0.6, 0.6], False)],
)
def test_without_variance_there_is_no_test_over_seeds(first, second, paired):
    assert t_test_over_seeds(first, second, paired=paired) is None


def test_holm_by_hand():
    # sorted 0.01 0.03 0.04 times 3 2 1: 0.03 0.06 0.04, then never decreasing
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_mcnemar_equals_a_binomial_test_of_the_discordant_rows():
    first = np.array([1] * 9 + [0] * 2 + [1] * 30 + [0] * 5, dtype=bool)
    second = np.array([0] * 9 + [1] * 2 + [1] * 30 + [0] * 5, dtype=bool)
    # P(9 or more of 11) on both sides: 2 * (C(11,9) + C(11,10) + C(11,11)) / 2^11
    assert mcnemar(first, second) == mcnemar(second, first) == pytest.approx(2 * (55 + 11 + 1) / 2**11)
    assert mcnemar(first, first) == 1


def test_sign_flips_approximate_mcnemar():
    rng = np.random.default_rng(0)
    first, second = rng.random(400) < 0.8, rng.random(400) < 0.73
    differences = first.astype(float) - second
    p = permutation_test(differences, resamples=200_000, seed=1)
    assert p == pytest.approx(mcnemar(first, second), rel=0.1)
    assert permutation_test(-differences, resamples=1000, seed=1) == pytest.approx(p, abs=0.05)
    assert permutation_test(np.zeros(9), resamples=99, seed=0) == 1


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


def test_ranks_of_seeds():
    a, b = np.array([3.0, 5.0, 4.0, 6.0]), np.array([1.0, 2.0, 3.5, 2.5])
    p, name = rank_test_over_seeds(a, b, paired=True)
    assert (p, name) == (pytest.approx(2 / 2**4), "Wilcoxon's signed-rank test over seeds")
    p, name = rank_test_over_seeds(a, b, paired=False)
    assert (p, name) == (pytest.approx(stats.mannwhitneyu(a, b).pvalue), "Wilcoxon's rank-sum test over seeds")
    assert rank_test_over_seeds(a, a, paired=True) is None
    assert rank_test_over_seeds(a[:1], b, paired=False) is None


def test_resamples_are_the_same_in_one_block_and_in_many(monkeypatch):
    values = np.random.default_rng(3).random((2, 50))
    whole = bootstrap_means(values, resamples=300, seed=4)
    p = permutation_test(values[0] - values[1], resamples=300, seed=4)
    monkeypatch.setattr(statistics, "_BLOCK_NUMBERS", 70)  # one resample in a block
    assert bootstrap_means(values, resamples=300, seed=4) == pytest.approx(whole, abs=1e-12)
    assert permutation_test(values[0] - values[1], resamples=300, seed=4) == p
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
