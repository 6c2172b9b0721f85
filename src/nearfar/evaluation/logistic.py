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

TOLERANCE = 1e-6
"""Maximum of the gradient's components."""
_LOGITS = 2**22  # of the fits that are solved at a time


def fit(
    features: NDArray[np.floating],
    labels: NDArray[np.intp],
    folds: Sequence[NDArray[np.intp]],
    grids: Sequence[Sequence[float]],
    *,
    classes: int,
) -> list[Tensor]:
    """Return the fitted weights of each of ``folds`` [grid, classes, dim + 1], the bias last.

    Args:
        features: [rows, dim].
        labels: label of each row, 0 to ``classes - 1`` [rows].
        folds: the training rows of each.
        grids: the inverse penalties C of each fold, as many for all.
        classes: number of classes; of two, the first has the weights 0.
    """
    matrix = torch.as_tensor(np.asarray(features, dtype=np.float64))
    centred = matrix - (centre := matrix.mean(dim=0))
    squares, axes = torch.linalg.eigh(centred.T @ centred)
    rotated = torch.cat([centred @ axes, torch.ones(len(matrix), 1, dtype=matrix.dtype)], dim=1)
    curvature = torch.cat([squares.clamp(min=0) / len(matrix), torch.ones(1, dtype=matrix.dtype)])
    targets = torch.as_tensor(labels[:, None] == np.arange(classes)[-1 if classes == 2 else 0 :]).double()
    masks = torch.zeros(len(folds), len(matrix), dtype=matrix.dtype)
    for mask, rows in zip(masks, folds, strict=True):
        mask[torch.from_numpy(rows)] = 1
    inverse = torch.tensor(grids, dtype=matrix.dtype)
    together = max(1, _LOGITS // (targets.numel() * inverse.shape[1]))
    parts = zip(masks.split(together), inverse.split(together), strict=True)
    solved = torch.cat([_solve(rotated, targets, curvature, *part) for part in parts])
    weights = solved[..., :-1] @ axes.T
    whole = torch.cat([weights, solved[..., -1:] - (weights @ centre)[..., None]], dim=-1)
    return list(torch.cat([torch.zeros_like(whole), whole], dim=2) if classes == 2 else whole)


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

    optimiser.step(objective)  # type: ignore[no-untyped-call]
    return (point * bound.rsqrt()).detach()
