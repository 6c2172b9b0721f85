"""Logistic regression against the optimality condition of its solution; tests of probes compare with scikit-learn."""

import numpy as np
import pytest
import torch

from nearfar.evaluation import logistic
from nearfar.evaluation.classifiers import Job

GRID = (0.25, 1.0, 8.0)


def problem(rows, dim, classes, *, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    features = rng.normal(size=(rows, dim)) + 0.4 * rng.normal(size=(classes, dim))[labels] + 2
    return scale * features, labels


def fit(x, y, folds, grid, *, classes):
    """The weights of fits on each of ``folds``."""
    jobs = [Job(rows, rows[:3], grid, np.random.RandomState(0)) for rows in folds]
    fitted = logistic.fit(x, y, jobs, score=lambda _, logits: logits.numpy(), classes=classes)
    return torch.stack([one.weights[0] for one in fitted])


@pytest.mark.parametrize(("classes", "dim", "scale"), [(2, 6, 1.0), (3, 6, 1.0), (4, 50, 0.05)])
def test_the_gradient_is_zero_at_the_solution(classes, dim, scale):
    """Of scikit-learn's objective, also with fewer rows than dimensions."""
    x, y = problem(80, dim, classes, scale=scale)
    part = np.arange(0, 80, 2)
    weights = fit(x, y, [part], (3.0,), classes=classes)[0, 0].requires_grad_()
    logits = torch.as_tensor(x[part]) @ weights[:, :-1].T + weights[:, -1]
    loss = torch.nn.functional.cross_entropy(logits, torch.as_tensor(y[part]), reduction="sum")
    (3 * loss + weights[:, :-1].square().sum() / 2).backward()
    assert weights.detach().abs().max() > 0.01
    assert weights.grad[-1 if classes == 2 else 0 :].abs().max() < 1e-5  # of two classes, the first stays at 0


@pytest.mark.long
def test_fits_do_not_depend_on_other_jobs(monkeypatch):
    x, y = problem(90, 5, 3)
    folds = [np.delete(np.arange(90), np.arange(k, 90, 7)) for k in range(7)]
    together = fit(x, y, folds, GRID, classes=3)
    monkeypatch.setattr(logistic, "_LOGITS", 1)
    assert (together[0] - together[1]).abs().max() > 1e-3  # folds differ
    torch.testing.assert_close(together, fit(x, y, folds, GRID, classes=3), atol=1e-5, rtol=0)
