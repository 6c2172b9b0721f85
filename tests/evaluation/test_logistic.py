"""Logistic regression against scikit-learn, and against the optimality condition of its solution."""

import numpy as np
import pytest
import torch

from nearfar.evaluation import logistic
from nearfar.evaluation.logistic import Job, fit, predict

GRID = (0.25, 1.0, 8.0)


def problem(rows, dim, classes, *, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    features = rng.normal(size=(rows, dim)) + 0.4 * rng.normal(size=(classes, dim))[labels] + 2
    return scale * features, labels


@pytest.mark.parametrize(("classes", "dim", "scale"), [(2, 6, 1.0), (3, 6, 1.0), (4, 50, 0.05)])
def test_the_gradient_is_zero_at_the_solution(classes, dim, scale):
    """Of scikit-learn's objective, also with fewer rows than dimensions."""
    x, y = problem(80, dim, classes, scale=scale)
    part = np.arange(0, 80, 2)
    weights = fit(x, y, [Job(part, (3.0,))], classes=classes)[0][0].clone().requires_grad_()
    logits = torch.as_tensor(x[part]) @ weights[:, :-1].T + weights[:, -1]
    logits = torch.cat([torch.zeros_like(logits), logits], dim=1) if classes == 2 else logits
    loss = torch.nn.functional.cross_entropy(logits, torch.as_tensor(y[part]), reduction="sum")
    (3 * loss + weights[:, :-1].square().sum() / 2).backward()
    assert weights.detach().abs().max() > 0.01
    assert weights.grad.abs().max() < 1e-5
    assert predict(weights.detach()[None], x[part]).tolist() == [logits.argmax(dim=1).tolist()]


@pytest.mark.long
def test_fits_do_not_depend_on_other_jobs(monkeypatch):
    x, y = problem(90, 5, 3)
    jobs = [Job(np.delete(np.arange(90), np.arange(k, 90, 7)), GRID) for k in range(7)]
    together = torch.cat(fit(x, y, jobs, classes=3))
    monkeypatch.setattr(logistic, "_MAX_WEIGHTS", 1)
    monkeypatch.setattr(logistic, "_BLOCK", 1)
    one_by_one = torch.cat(fit(x, y, jobs, classes=3))
    assert (together[:3] - together[3:6]).abs().max() > 1e-3  # folds differ
    torch.testing.assert_close(together, one_by_one, atol=1e-5, rtol=0)


def test_constant_rows_give_the_majority_and_ties_the_lower_class():
    x = np.ones((30, 4), dtype=np.float32)
    y = np.array([0, 1, 1] * 10)
    (weights,) = fit(x, y, [Job(np.arange(30), GRID)], classes=2)
    assert (predict(weights, x) == 1).all()
    (weights,) = fit(x, 1 - y, [Job(np.arange(30), GRID)], classes=2)
    assert (predict(weights, x) == 0).all()
    assert predict(torch.zeros(1, 1, 5).double(), x[:1]) == 0
    assert predict(torch.zeros(1, 3, 5).double(), x[:1]) == 0
