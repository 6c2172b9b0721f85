"""Statistics against mpmath, for numbers at both ends of floating point and for very many equal texts."""

import mpmath
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearfar.evaluation.correlation import MIN_PAIRS, pearson, scores, spearman, weighted_pearson, weighted_spearman
from nearfar.evaluation.geometry_measures import alignment, uniformity
from nearfar.evaluation.statistics import bootstrap_means, crossed_difference
from nearfar.evaluation.sts import _compare_pairs
from nearfar.neighbours import unit_rows
from tests import exact_reference as exact

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
NUMBERS = st.one_of(
    st.floats(-5, 5), st.integers(-3, 3).map(float), st.sampled_from([5e-324, 1e-310, 1e-200, -1e-200, 1e200, -1e307])
)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=MIN_PAIRS, max_size=8)


@pytest.mark.long
@FEW
@given(pairs=PAIRS)
def test_correlations(pairs: list[tuple[float, float]]) -> None:
    first, second = (list(column) for column in zip(*pairs, strict=True))
    ranks = exact.ranks(first), exact.ranks(second)
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert np.isnan(spearman(first, second))
        assert np.isnan(pearson(first, second))
        return
    assert spearman(first, second) == pytest.approx(float(exact.pearson(*ranks)), abs=1e-12)
    spread = [np.ptp(np.array(column) / max(map(abs, column))) for column in (first, second)]
    if min(spread) > 1e-5:  # nearer numbers differ by their own rounding
        assert pearson(first, second) == pytest.approx(float(exact.pearson(first, second)), abs=1e-9)


LENGTHS = [
    *((np.float32, exponent) for exponent in (-42, -30, -10, 0, 10, 30, 38)),
    *((np.float64, exponent) for exponent in (-310, -160, -42, -30, -10, 0, 10, 30, 38, 160, 300)),
]


@pytest.mark.parametrize(("dtype", "exponent"), LENGTHS)
def test_cosines_of_vectors_of_every_length(dtype: type, exponent: int) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.uniform(-0.5, 0.5, size=(2, 20, 6))
    a = (a * 10.0**exponent).astype(dtype)
    for one, other in ((a, b), (b, a), (a, a[::-1])):
        expected = [float(exact.cosine(*rows)) for rows in zip(exact.rows_of(one), exact.rows_of(other), strict=True)]
        places = np.arange(40).reshape(2, 20).T
        found, zeros = _compare_pairs(np.concatenate([one, other]), places, "cosine")
        assert found * 1e-6 == pytest.approx(expected, abs=2e-6)
        assert zeros == 0
    if dtype is np.float32:
        assert np.linalg.norm(unit_rows(a.copy()), axis=1) == pytest.approx(np.ones(20), abs=1e-6)
    assert alignment(a, a) == pytest.approx(0, abs=1e-12)
    rows = exact.rows_of(a)
    distances = [4 - 4 * exact.cosine(x, y) for i, x in enumerate(rows) for y in rows[i + 1 :]]
    mean = mpmath.fsum(mpmath.exp(-one) for one in distances) / len(distances)
    assert uniformity(a) == pytest.approx(float(mpmath.log(mean)), abs=1e-9)


@pytest.mark.long
def test_very_many_equal_texts() -> None:
    """All similarities are equal: no correlation, no difference, no interval, and no warning."""
    count = 200_000
    gold = np.tile([0.0, 1.0], count // 2)
    equal = np.full((1, count), 0.1)  # the mean of equal numbers is not exactly 0.1
    for weighted in (weighted_spearman, weighted_pearson):
        assert np.isnan(scores(weighted, gold, equal, sizes=[count]).all).all()
    undefined = np.full(1, np.nan), np.full((1, 100), np.nan)
    assert crossed_difference(undefined, undefined, units=count) is None
    assert bootstrap_means(np.full((2, count), 0.1), resamples=50, seed=0).ravel() == pytest.approx(np.full(100, 0.1))
