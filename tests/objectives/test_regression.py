"""Regression on scored pairs: against reference loops and in closed form."""

import pytest
import torch

from nearfar.objectives import cosine_regression, regression_features
from tests import reference_objectives as references
from tests.objectives.checks import assert_same, vectors


def targets(count):
    return torch.linspace(-1, 1, count + 2, dtype=torch.float64)[1:-1]


@pytest.mark.parametrize("count", [1, 2, 7])
def test_cosine_regression_matches_the_reference(count):
    y = targets(count)
    assert_same(
        lambda *x: cosine_regression(*x, y), lambda *x: references.cosine_regression(*x, y), *vectors(2, count, 5)
    )


@pytest.mark.parametrize("count", [1, 2, 7])
def test_features_matches_the_reference(count):
    assert_same(regression_features, references.regression_features, *vectors(2, count, 4))


def test_closed_forms():
    u = torch.tensor([[2.0, 0.0], [1.0, 1.0], [0.0, 3.0]], dtype=torch.float64)
    y = torch.tensor([0.5, -1.0, 1.0], dtype=torch.float64)
    assert cosine_regression(u, 5 * u, y).tolist() == pytest.approx([0.25, 4, 0])
    assert cosine_regression(u, -u, y).tolist() == pytest.approx([2.25, 0, 4])
    assert cosine_regression(u, u.flip(1), y).tolist() == pytest.approx([0.25, 4, 1])


def test_an_empty_batch_gives_an_empty_loss():
    empty = torch.zeros(0, 4)
    assert cosine_regression(empty, empty, torch.zeros(0)).shape == (0,)
    assert regression_features(empty, empty).shape == (0, 8)
