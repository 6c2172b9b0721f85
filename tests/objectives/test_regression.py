"""Regression on scored pairs: against reference loops, in closed form, and invalid arguments."""

import inspect

import pytest
import torch

from nearfar.objectives import cosine_regression, regression_features
from nearfar.types import NearfarError
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


def test_targets_are_cast_to_the_dtype_of_the_vectors():
    u, v = vectors(2, 3, 4)
    assert cosine_regression(u.float(), v.float(), targets(3)).dtype == torch.float32
    assert cosine_regression(u, v, targets(3).float()).dtype == torch.float64


def test_an_empty_batch_gives_an_empty_loss():
    empty = torch.zeros(0, 4)
    assert cosine_regression(empty, empty, torch.zeros(0)).shape == (0,)
    assert regression_features(empty, empty).shape == (0, 8)


@pytest.mark.parametrize("target", [1.01, -2.0, 5.0, float("nan")])
def test_targets_outside_the_cosine_range_raise(target):
    u = torch.ones(2, 3)
    with pytest.raises(NearfarError, match=r"targets must be in -1\.\.1, as cosines are, found"):
        cosine_regression(u, u, torch.tensor([0.5, target]))


def test_mismatched_shapes_raise():
    u, y = torch.ones(2, 3), torch.zeros(2)
    unchecked, features = inspect.unwrap(cosine_regression), inspect.unwrap(regression_features)
    with pytest.raises(NearfarError, match=r"first \(2, 3\) and second \(1, 3\)"):
        unchecked(u, u[:1], y)
    with pytest.raises(NearfarError, match=r"targets \(1,\) must be one for each of the 2 pairs"):
        unchecked(u, u, y[:1])
    with pytest.raises(NearfarError, match=r"first \(2, 3\) and second \(2, 2\)"):
        features(u, u[:, :2])
