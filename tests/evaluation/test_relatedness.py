"""Learned relatedness against the reference, and the mean of soft labels."""

import numpy as np
import pytest
from scipy import stats

from nearfar.evaluation.classifiers import Schedule
from nearfar.evaluation.probes import fit_relatedness, pair_features, soft_labels
from tests import reference_senteval as reference


def problem(pairs=200, dim=6, *, low=1.0, seed=0):
    """Return scores from ``low`` to 5 that depend on the distance of two vectors."""
    rng = np.random.default_rng(seed)
    u, v = rng.normal(size=(2, pairs, dim)).astype(np.float32)
    v += rng.uniform(0, 4, size=(pairs, 1)).astype(np.float32) * (u - v) / 4
    distance = np.abs(u - v).sum(axis=1) + rng.normal(size=pairs)
    ranks = stats.rankdata(-distance) / pairs
    return pair_features(u, v), np.round(low + (5 - low) * ranks, 1)


def test_pair_features():
    u, v = np.float32([[1, 2]]), np.float32([[3, -1]])
    assert pair_features(u, v).tolist() == [[2, 3, 3, -2]]


@pytest.mark.parametrize("low", [0.0, 1.0])
def test_soft_labels_match_the_reference(low):
    scores = np.round(np.arange(low, 5.01, 0.1), 1)
    np.testing.assert_allclose(soft_labels(scores), reference.soft_labels(scores), atol=1e-6)


def test_the_mean_grade_under_a_soft_label_is_the_score_if_at_least_1():
    scores = np.round(np.arange(0, 5.01, 0.2), 1)
    labels = soft_labels(scores)
    # also below 1, where the shares do not add up to 1
    np.testing.assert_allclose(labels @ np.arange(1, 6), scores, atol=1e-6)
    np.testing.assert_allclose(labels.sum(axis=1), np.minimum(scores, 1), atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("low", [0.0, 1.0])
def test_relatedness_matches_the_reference(low):
    x, scores = problem(low=low)
    train, dev, test = np.split(np.arange(200), [100, 150])
    expected, best = reference.relatedness(x[train], scores[train], x[dev], scores[dev], x[test])
    found, pearson = fit_relatedness(x, scores, train, dev, test)
    assert stats.pearsonr(expected, scores[test]).statistic > 0.6
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert pearson == pytest.approx(best, abs=1e-4)
    assert ((found >= 1) & (found <= 5)).all()


def test_equal_pairs_get_equal_predictions():
    x, scores = np.ones((60, 4), dtype=np.float32), np.linspace(1, 5, 60)
    train, dev, test = np.split(np.arange(60), 3)
    found, pearson = fit_relatedness(x, scores, train, dev, test, schedule=Schedule(tenacity=3, max_epochs=8))
    assert pearson is None
    assert np.ptp(found) < 1e-6
