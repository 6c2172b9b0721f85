"""Logistic regression solved to convergence, many fits on subsets of one embedding matrix in one batch.

The objective is scikit-learn's, for a fit on the rows T with inverse penalty C::

    C sum_{i in T} -log p(y_i | x_i) + 1/2 ||W||^2        (the bias b is not penalised)

where p is the softmax of W x + b, or for two classes the sigmoid of w . x + b with one vector w. It is strictly convex
in W, so the solution does not depend on the solver, torch's L-BFGS on the sum of the objectives. All fits share the
same two matrix products over all rows; rows outside T have weight 0.

It runs in the coordinates of the principal axes of the rows, where ``C h n lambda + 1`` bounds the curvature along each
axis (Böhning 1992; h is 1/4 for two classes, 1/2 for more). Divided by the root of this bound, all axes and fits have
similar curvatures, so the number of steps depends little on the scale of the embeddings.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from nearfar.evaluation.classifiers import FittedClassifiers, Job, Score, outputs

TOLERANCE = 1e-6
"""Maximum of the gradient's components."""
_LOGITS = 2**22  # of the fits that are solved at a time


def fit(
    features: NDArray[np.floating], labels: NDArray[np.intp], jobs: Sequence[Job], *, score: Score, classes: int
) -> list[FittedClassifiers]:
    """Fit the classifiers of all ``jobs``, whose penalties are C here; their weights are [grid, classes, dim + 1].

    Args:
        features: [rows, dim].
        labels: label of each row, 0 to ``classes - 1`` [rows].
        jobs: the jobs; all have the same number of penalties.
        score: scores the outputs for the check rows.
        classes: number of classes; of two, the first has the weights 0.
    """
    matrix = torch.as_tensor(np.asarray(features, dtype=np.float64))
    centred = matrix - (centre := matrix.mean(dim=0))
    squares, axes = torch.linalg.eigh(centred.T @ centred)
    rotated = torch.cat([centred @ axes, torch.ones(len(matrix), 1, dtype=matrix.dtype)], dim=1)
    curvature = torch.cat([squares.clamp(min=0) / len(matrix), torch.ones(1, dtype=matrix.dtype)])
    targets = torch.as_tensor(labels[:, None] == np.arange(classes)[-1 if classes == 2 else 0 :]).double()
    masks = torch.zeros(len(jobs), len(matrix), dtype=matrix.dtype)
    for mask, job in zip(masks, jobs, strict=True):
        mask[torch.from_numpy(job.train)] = 1
    inverse = torch.tensor([job.penalties for job in jobs], dtype=matrix.dtype)
    together = max(1, _LOGITS // (targets.numel() * inverse.shape[1]))
    parts = zip(masks.split(together), inverse.split(together), strict=True)
    solved = torch.cat([_solve(rotated, targets, curvature, *part) for part in parts])
    weights = solved[..., :-1] @ axes.T
    whole = torch.cat([weights, solved[..., -1:] - (weights @ centre)[..., None]], dim=-1)
    if classes == 2:
        whole = torch.cat([torch.zeros_like(whole), whole], dim=2)
    scores = [score(job.check, outputs([one], matrix[job.check])) for one, job in zip(whole, jobs, strict=True)]
    return [FittedClassifiers(*of_job) for of_job in zip(scores, [(one,) for one in whole], strict=True)]


def _solve(matrix: Tensor, targets: Tensor, curvature: Tensor, masks: Tensor, inverse: Tensor) -> Tensor:
    """The weights [folds, grid, units, dim + 1] of fits on the rows of ``masks`` [folds, rows]."""
    units = targets.shape[1]
    bound = (0.25 if units == 1 else 0.5) * (inverse * masks.sum(dim=1, keepdim=True))[..., None, None] * curvature
    bound[..., :-1] += 1
    point = torch.zeros(*inverse.shape, units, len(curvature), dtype=matrix.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [point], max_iter=1000, tolerance_grad=TOLERANCE, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def objective() -> Tensor:
        optimiser.zero_grad()
        weights = point * bound.rsqrt()
        logits = (matrix @ weights.flatten(0, 2).T).view(-1, *inverse.shape, units)
        normalisers = softplus(logits)[..., 0] if units == 1 else logits.logsumexp(dim=3)
        losses = normalisers - (logits * targets[:, None, None]).sum(dim=3)
        total = (losses * masks.T[..., None] * inverse).sum() + weights[..., :-1].square().sum() / 2
        total.backward()
        return total

    optimiser.step(objective)
    return (point * bound.rsqrt()).detach()
