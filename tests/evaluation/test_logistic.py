"""Logistic regression against scikit-learn, and against the optimality condition of its solution."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from nearfar.evaluation import logistic
from nearfar.evaluation.logistic import Job, fit, predict

GRID = (0.25, 1.0, 8.0)


def problem(rows, dim, classes, *, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    features = rng.normal(size=(rows, dim)) + 0.4 * rng.normal(size=(classes, dim))[labels] + 2
    return scale * features, labels


@pytest.mark.long
@pytest.mark.parametrize(("classes", "rows", "dim", "scale"), [(2, 120, 9, 0.05), (3, 150, 8, 1.0), (4, 60, 70, 0.05)])
def test_solution_equals_scikit_learn(classes, rows, dim, scale):
    x, y = problem(rows, dim, classes, scale=scale)
    parts = [np.arange(rows), np.random.default_rng(1).permutation(rows)[: rows * 4 // 5]]
    fitted = fit(x, y, [Job(part, GRID) for part in parts], classes=classes)
    for part, weights in zip(parts, fitted, strict=True):
        predicted = predict(weights, x)
        for number, penalty in enumerate(GRID):
            reference = LogisticRegression(C=penalty, tol=1e-9, max_iter=100_000).fit(x[part], y[part])
            assert np.abs(reference.coef_).max() > 0.02
            np.testing.assert_allclose(weights[number, :, :-1], reference.coef_, atol=1e-3)
            logits = x @ weights[number, :, :-1].numpy().T + weights[number, :, -1].numpy()
            if classes == 2:
                probabilities = 1 / (1 + np.exp(-logits[:, 0]))
            else:
                probabilities = torch.softmax(torch.as_tensor(logits), dim=1).numpy()[:, 1]
            np.testing.assert_allclose(probabilities, reference.predict_proba(x)[:, 1], atol=1e-3)
            np.testing.assert_array_equal(predicted[number], reference.predict(x))


@pytest.mark.parametrize("classes", [2, 3])
def test_the_gradient_is_zero_at_the_solution(classes):
    x, y = problem(80, 6, classes)
    part = np.arange(0, 80, 2)
    weights = fit(x, y, [Job(part, (3.0,))], classes=classes)[0][0].clone().requires_grad_()
    logits = torch.as_tensor(x[part]) @ weights[:, :-1].T + weights[:, -1]
    if classes == 2:
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            logits[:, 0], torch.as_tensor(y[part]).double(), reduction="sum"
        )
    else:
        loss = torch.nn.functional.cross_entropy(logits, torch.as_tensor(y[part]), reduction="sum")
    (3 * loss + weights[:, :-1].square().sum() / 2).backward()
    assert weights.detach().abs().max() > 0.1
    assert weights.grad.abs().max() < 1e-5


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
