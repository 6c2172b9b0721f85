"""Logistic regression solved to convergence, many fits on subsets of one embedding matrix in one batch.

The objective is scikit-learn's, for a fit on the rows T with inverse penalty C::

    C sum_{i in T} -log p(y_i | x_i) + 1/2 ||W||^2        (the bias b is not penalised)

where p is the softmax of W x + b, or for two classes the sigmoid of w . x + b with one vector w. It is strictly convex
in W, so the solution does not depend on the solver. All fits share the same two matrix products over all rows; rows
outside T have weight 0.

The solver is L-BFGS in the coordinates of the principal axes of the rows, where ``C h n lambda + 1`` bounds the
curvature along each axis (Böhning 1992; h is 1/4 for two classes, 1/2 for more). The inverse of this bound is the
initial estimate of the inverse Hessian, so the number of steps depends little on the scale of the embeddings.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

TOLERANCE = 1e-6
"""Tolerance of the gradient's norm, which bounds the error of W because the penalty has curvature 1."""
_MEMORY = 8  # pairs of steps and changes of gradient that L-BFGS remembers
_MAX_EVALUATIONS = 1000
_BLOCK = 2**20  # numbers in a block of logits
_MAX_WEIGHTS = 2**20  # weights of the fits that are solved at a time


class Job(NamedTuple):
    """Training rows, and a grid of inverse penalties C."""

    rows: NDArray[np.intp]
    inverse_penalties: tuple[float, ...]


def fit(features: NDArray[np.floating], labels: NDArray[np.intp], jobs: Sequence[Job], *, classes: int) -> list[Tensor]:
    """Return the fitted weights of each of ``jobs`` [grid, units, dim + 1], the bias last.

    Args:
        features: [rows, dim].
        labels: label of each row, 0 to ``classes - 1`` [rows].
        jobs: the fits.
        classes: number of classes; two classes have one unit (the logit of the second), more have one unit each.
    """
    matrix = torch.as_tensor(np.asarray(features, dtype=np.float64))
    centre = matrix.mean(dim=0)
    axes, variances = _principal_axes(matrix - centre)
    rotated = torch.cat([(matrix - centre) @ axes, torch.ones(len(matrix), 1, dtype=matrix.dtype)], dim=1)
    units = 1 if classes == 2 else classes
    targets = torch.as_tensor(labels[:, None] == np.arange(classes)[-units:]).double()
    fitted: list[Tensor] = []
    together = max(1, _MAX_WEIGHTS // (units * rotated.shape[1] * max(len(job.inverse_penalties) for job in jobs)))
    for start in range(0, len(jobs), together):
        some = jobs[start : start + together]
        solved = _solve(rotated, targets, variances, some)
        weights = solved[..., :-1] @ axes.T
        whole = torch.cat([weights, solved[..., -1:] - (weights @ centre)[..., None]], dim=2)
        fitted += whole.split([len(job.inverse_penalties) for job in some])
    return fitted


def predict(weights: Tensor, features: NDArray[np.floating]) -> NDArray[np.intp]:
    """The most probable class of each row by each of ``weights``: [grid, rows]; a tie goes to the lower class."""
    matrix = torch.as_tensor(np.asarray(features, dtype=np.float64))
    logits = weights[..., :-1] @ matrix.T + weights[..., -1:]
    best = (logits[:, 0] > 0).long() if weights.shape[1] == 1 else logits.argmax(dim=1)
    return best.numpy().astype(np.intp)


def _principal_axes(centred: Tensor) -> tuple[Tensor, Tensor]:
    """Axes that span the rows [dim, rank] and the mean square of the rows along each [rank]."""
    rows, dim = centred.shape
    if dim <= rows:
        squares, axes = torch.linalg.eigh(centred.T @ centred)
    else:
        _, lengths, across = torch.linalg.svd(centred, full_matrices=False)
        squares, axes = lengths**2, across.T
    return axes, squares.clamp(min=0) / rows


def _solve(matrix: Tensor, targets: Tensor, variances: Tensor, jobs: Sequence[Job]) -> Tensor:
    """L-BFGS with backtracking, for all fits at once [fits, units, rank + 1]; converged fits are removed."""
    rows, units = targets.shape
    inverse = torch.tensor([penalty for job in jobs for penalty in job.inverse_penalties], dtype=matrix.dtype)
    column_of = torch.tensor([column for column, job in enumerate(jobs) for _ in job.inverse_penalties])
    train_mask = torch.zeros(rows, len(jobs), dtype=matrix.dtype)
    for column, job in enumerate(jobs):
        train_mask[torch.from_numpy(job.rows), column] = 1

    bound = 0.25 if units == 1 else 0.5
    sizes = train_mask.sum(dim=0)[column_of]
    along = torch.cat([variances, torch.ones(1, dtype=matrix.dtype)])
    curvature = bound * (inverse * sizes)[:, None, None] * along
    curvature[..., :-1] += 1

    active = torch.arange(len(inverse))
    solved = torch.zeros(len(inverse), units, matrix.shape[1], dtype=matrix.dtype)
    point = solved.clone()
    value, gradient = _objective(point, matrix, targets, train_mask, column_of=column_of, inverse=inverse)
    allowed = TOLERANCE + 1e-12 * gradient.flatten(1).norm(dim=1)
    steps: list[Tensor] = []
    changes: list[Tensor] = []
    direction = -gradient / curvature
    length = torch.ones(len(inverse), dtype=matrix.dtype)
    for _ in range(_MAX_EVALUATIONS):
        trial = point + length[:, None, None] * direction
        trial_value, trial_gradient = _objective(
            trial, matrix, targets, train_mask, column_of=column_of[active], inverse=inverse[active]
        )
        enough = value + 1e-4 * length * _dot(gradient, direction) + 1e-13 * value.abs()
        accepted = (trial_value <= enough)[:, None, None]
        steps = [*steps[1 - _MEMORY :], torch.where(accepted, trial - point, 0)]
        changes = [*changes[1 - _MEMORY :], torch.where(accepted, trial_gradient - gradient, 0)]
        point, gradient = torch.where(accepted, trial, point), torch.where(accepted, trial_gradient, gradient)
        value = torch.where(accepted[:, 0, 0], trial_value, value)
        fresh = _lbfgs_direction(gradient, steps, changes, curvature)
        direction = torch.where(accepted, fresh, direction)
        length = torch.where(accepted[:, 0, 0], 1.0, length / 2)
        unconverged = (gradient.flatten(1).norm(dim=1) > allowed) & (length > 1e-10)
        if not unconverged.all():
            solved[active] = point
            active, point, gradient, curvature, value, direction, length, allowed = (
                of_fits[unconverged]
                for of_fits in (active, point, gradient, curvature, value, direction, length, allowed)
            )
            steps, changes = [step[unconverged] for step in steps], [change[unconverged] for change in changes]
            if not len(active):
                break
    solved[active] = point
    return solved


def _objective(
    point: Tensor, matrix: Tensor, targets: Tensor, train_mask: Tensor, *, column_of: Tensor, inverse: Tensor
) -> tuple[Tensor, Tensor]:
    """The objective of each fit [fits] and its gradient [fits, units, dim + 1], over blocks of rows."""
    fits, units, width = point.shape
    flat = point.reshape(fits * units, width)
    total = torch.zeros(fits, dtype=matrix.dtype)
    gradient = torch.zeros_like(flat)
    block = max(64, _BLOCK // (fits * units))
    for start in range(0, len(matrix), block):
        rows = slice(start, start + block)
        logits = (matrix[rows] @ flat.T).view(-1, fits, units)
        target, counts = targets[rows, None], train_mask[rows][:, column_of]
        if units == 1:
            losses = torch.nn.functional.softplus(logits)[..., 0]
            grad_logits = torch.sigmoid(logits)
        else:
            losses = logits.logsumexp(dim=2)
            grad_logits = torch.softmax(logits, dim=2)
        losses = losses - (logits * target).sum(dim=2)
        total += (losses * counts).sum(dim=0)
        grad_logits = (grad_logits - target) * counts[..., None]
        gradient += grad_logits.view(-1, fits * units).T @ matrix[rows]
    penalised = point.clone()
    penalised[..., -1] = 0
    gradient = inverse[:, None, None] * gradient.view_as(point) + penalised
    return inverse * total + _dot(penalised, penalised) / 2, gradient


def _lbfgs_direction(gradient: Tensor, steps: Sequence[Tensor], changes: Sequence[Tensor], curvature: Tensor) -> Tensor:
    """The L-BFGS direction (Nocedal & Wright 2006, algorithm 7.4); a rejected trial step leaves a pair of zeros."""
    inverses = []
    for step, change in zip(steps, changes, strict=True):
        product = _dot(step, change)
        inverses.append(torch.where(product > 0, 1 / product, 0))
    left, shares = gradient, []
    for step, change, inverse in reversed(list(zip(steps, changes, inverses, strict=True))):
        share = inverse * _dot(step, left)
        shares.append(share)
        left = left - share[:, None, None] * change
    # The ratio of the curvature to its bound, from the latest step.
    scale = torch.ones(len(gradient), dtype=gradient.dtype)
    for step, change in zip(steps, changes, strict=True):
        product = _dot(step, change)
        scale = torch.where(product > 0, product / _dot(change, change / curvature), scale)
    found = scale[:, None, None] * left / curvature
    for step, change, inverse, share in zip(steps, changes, inverses, reversed(shares), strict=True):
        found = found + (share - inverse * _dot(change, found))[:, None, None] * step
    return -found


def _dot(first: Tensor, second: Tensor) -> Tensor:
    return (first * second).flatten(1).sum(dim=1)
