"""Correlations against scipy, on data and on explicit resamples."""

import numpy as np
import pytest
from scipy import stats

from nearfar.evaluation import correlation
from nearfar.evaluation.correlation import bootstrap_scores, pearson, spearman, weighted_pearson, weighted_spearman

SCIPY = [(weighted_spearman, stats.spearmanr), (weighted_pearson, stats.pearsonr)]


def graded(pairs: int, *, systems: int = 1, levels: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Gold scores with many ties, and cosines (whole numbers, some tied) that follow them."""
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, levels, pairs).astype(float)
    return gold, np.rint(20 * (gold + rng.normal(size=(systems, pairs))))


@pytest.mark.parametrize("pairs", [3, 4, 17, 250, 3000])
def test_spearman_and_pearson_equal_scipy(pairs):
    gold, cosines = graded(pairs, seed=pairs)
    assert len(set(cosines[0])) < pairs or pairs < 250  # ties on both sides
    assert spearman(gold, cosines[0]) == pytest.approx(stats.spearmanr(gold, cosines[0]).statistic, abs=1e-13)
    assert pearson(gold, cosines[0]) == pytest.approx(stats.pearsonr(gold, cosines[0]).statistic, abs=1e-13)


def test_spearman_of_tied_values_by_hand():
    # ranks 1.5 1.5 3 4 against 1 2 3 4: covariance 4.5, sums of squares 4.5 and 5
    assert spearman([1, 1, 2, 3], [10, 20, 30, 40]) == pytest.approx(4.5 / np.sqrt(4.5 * 5), abs=1e-15)
    assert spearman([1, 2, 3], [3, 2, 1]) == -1
    assert spearman([1, 2, 3], [1e-300, 1, 1e300]) == 1


@pytest.mark.long
@pytest.mark.parametrize("units", [None, np.r_[np.arange(40), np.arange(118) % 50 + 30]], ids=["pairs", "units"])
@pytest.mark.parametrize(("weighted", "reference"), SCIPY)
def test_bootstrap_equals_scipy_on_written_out_resamples(weighted, reference, units, monkeypatch):
    monkeypatch.setattr(correlation, "_CHUNK", 300)  # blocks of 3 resamples, the last one shorter
    sizes = [40, 25, 33, 9, 51]
    gold, systems = graded(sum(sizes), systems=2)
    drawn = bootstrap_scores(weighted, gold, systems, sizes=sizes, resamples=20, seed=5, units=units)
    counts = np.concatenate(list(correlation._multiplicities(sizes, 20, np.random.default_rng(5), units)))
    assert counts.shape == (20, 158)
    ends = np.cumsum(sizes)
    parts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    for resample, count in enumerate(counts.astype(int)):
        for number, system in enumerate(systems):
            expected = reference(np.repeat(gold, count), np.repeat(system, count)).statistic
            assert drawn.all[number, resample] == pytest.approx(expected, abs=1e-13)
            by_subset = [
                reference(np.repeat(gold[p], count[p]), np.repeat(system[p], count[p])).statistic for p in parts
            ]
            assert drawn.subsets[number, :, resample] == pytest.approx(by_subset, abs=1e-13)
            assert drawn.aggregate("mean")[number, resample] == pytest.approx(sum(by_subset) / 5, abs=1e-13)
            by_pairs = sum(size * score for size, score in zip(sizes, by_subset, strict=True)) / 158
            assert drawn.aggregate("wmean")[number, resample] == pytest.approx(by_pairs, abs=1e-13)


def test_resamples_draw_with_replacement_within_each_subset():
    counts = np.concatenate(list(correlation._multiplicities([10, 300], 2000, np.random.default_rng(0))))
    assert (counts[:, :10].sum(axis=1) == 10).all()
    assert (counts[:, 10:].sum(axis=1) == 300).all()
    assert len(np.unique(counts, axis=0)) == 2000
    # each count is binomial(n, 1/n): mean 1, variance 1 - 1/n
    assert counts[:, :10].mean(axis=0) == pytest.approx(np.ones(10), abs=0.1)
    assert counts[:, :10].var() == pytest.approx(0.9, abs=0.03)
    assert counts[:, 10:].var() == pytest.approx(299 / 300, abs=0.01)


def test_units_are_drawn_whole_from_all_subsets():
    units = [0, 1, 1, 2, 3, 3, 4, 2, 5, 4]
    counts = np.concatenate(list(correlation._multiplicities([4, 6], 4000, np.random.default_rng(0), units)))
    assert counts.shape == (4000, 10)
    for same in ([1, 2], [3, 7], [4, 5], [6, 9]):
        assert np.array_equal(counts[:, same[0]], counts[:, same[1]])
    by_unit = counts[:, [0, 1, 3, 4, 6, 8]]
    assert set(by_unit.sum(axis=1)) == {6}
    assert by_unit.mean(axis=0) == pytest.approx(np.ones(6), abs=0.06)


def test_a_single_unit_has_no_resamples():
    gold, systems = graded(40, seed=1)
    settings = {"resamples": 30, "seed": 0}
    drawn = bootstrap_scores(weighted_spearman, gold, systems, sizes=[36, 4], units=[*range(36)] + 4 * [36], **settings)
    assert np.isnan(drawn.subsets[0]).all(axis=1).tolist() == [False, True]
    assert not np.isnan(drawn.all).any()
    drawn = bootstrap_scores(weighted_spearman, gold, systems, sizes=[40], units=40 * [0], **settings)
    assert np.isnan(drawn.all).all()


def test_a_subset_of_which_no_unit_is_drawn_has_no_correlation():
    gold, systems = graded(40, seed=1)
    units = np.r_[np.arange(36), [0, 0, 0, 1]]  # the second subset's pairs belong to two units of the first
    for weighted in (weighted_spearman, weighted_pearson):
        drawn = bootstrap_scores(weighted, gold, systems, sizes=[36, 4], resamples=200, seed=0, units=units)
        counts = np.concatenate(list(correlation._multiplicities([36, 4], 200, np.random.default_rng(0), units)))
        assert np.isnan(drawn.subsets[0, 1][counts[:, 36:].sum(axis=1) == 0]).all()
        assert not np.isnan(drawn.all).any()


def test_the_aggregate_all_does_not_depend_on_subsets():
    gold, systems = graded(90, systems=2)
    settings = {"sizes": [30, 60], "resamples": 50, "seed": [1, 2]}
    full = bootstrap_scores(weighted_spearman, gold, systems, **settings)
    fast = bootstrap_scores(weighted_spearman, gold, systems, **settings, only="all")
    assert np.array_equal(full.all, fast.all)
    assert np.ptp(fast.all) > 0


@pytest.mark.parametrize("weighted", [weighted_spearman, weighted_pearson])
def test_a_constant_resample_is_undefined_without_a_warning(weighted):
    gold, systems = np.array([0.1, 0.2, 0.7]), np.array([[0.3, 0.1, 0.9]])
    drawn = bootstrap_scores(weighted, gold, systems, sizes=[3], resamples=500, seed=0).all[0]
    counts = np.concatenate(list(correlation._multiplicities([3], 500, np.random.default_rng(0))))
    assert np.array_equal(np.isnan(drawn), counts.max(axis=1) == 3)
    assert np.isnan(drawn).any()
