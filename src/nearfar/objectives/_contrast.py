"""Positives against all candidates, for one anchor after another: what most contrastive objectives are made of."""

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.objectives._contrast_targets import ContrastTargets, TargetsFn, fits_in_one_block
from nearfar.objectives._similarity import Similarity, masked_nll, prepare_pair
from nearfar.objectives._streamed import StreamConfig, StreamedContrast


def contrast(
    anchors: Float[Tensor, "anchors dim"],
    candidates: Float[Tensor, "candidates dim"],
    targets_fn: TargetsFn,
    *,
    temperature: float,
    similarity: Similarity,
    mean_reduction: bool = True,
) -> Float[Tensor, " anchors"]:
    """l_i = log sum_{k in C} exp(x_ik) - 1/|P| sum_{j in P} x_ij, the second term only where there are positives.

    x_ik is s(a_i, c_k) / t, plus the weight if k is the anchor's own negative. Computed in float32 or better, under
    autocast too.

    Where the logits are more than :data:`nearfar.objectives._contrast_targets.BLOCK`, those of some anchors are
    computed at a time, and none are kept: memory grows with the number of vectors, not with its square. With
    ``mean_reduction`` the gradient of the values' sum is computed along with them, for a loss that is their mean or
    another multiple of it; that takes as many products of matrices as the whole does. Values of unequal weight have
    their right gradient too, but their logits are then computed again, as all are without ``mean_reduction``. In blocks
    there is no second derivative: NearfarError if one is asked for.
    """
    # Autocast would round the products to bfloat16: three digits, and raw dot products reach hundreds.
    with torch.autocast(anchors.device.type, enabled=False):
        if not fits_in_one_block(len(anchors), len(candidates)):
            config = StreamConfig(
                targets_fn, temperature, similarity, precompute_grad=mean_reduction and torch.is_grad_enabled()
            )
            return StreamedContrast.apply(anchors, candidates, config)  # type: ignore[no-untyped-call]
        anchors, candidates = prepare_pair(anchors, candidates, similarity)
        logits = anchors @ candidates.T / temperature
        return _dense_contrast(logits, targets_fn(torch.arange(len(anchors), device=anchors.device)))


def _dense_contrast(logits: Float[Tensor, "anchors candidates"], targets: ContrastTargets) -> Float[Tensor, " anchors"]:
    """The values from a whole matrix, for autograd."""
    positives, candidate_mask, self_column, own_negatives, weight = targets
    if own_negatives is not None:
        column = own_negatives[:, None]
        logits = logits.scatter_add(1, column, logits.new_full(column.shape, weight))
    # Not -inf: the logarithm of nothing at all would have a NaN gradient.
    least = torch.finfo(logits.dtype).min
    if candidate_mask is not None:
        if positives is not None and positives.dtype != torch.bool:
            candidate_mask = candidate_mask.scatter(1, positives[:, None], value=True)
        logits = logits.masked_fill(~candidate_mask, least)
    if self_column is not None:
        logits = logits.scatter(1, self_column[:, None], least)
    if positives is None:
        return logits.logsumexp(dim=1)
    if positives.dtype == torch.bool:
        return masked_nll(logits, positives)
    return -logits.log_softmax(dim=1).gather(1, positives[:, None]).squeeze(1)
