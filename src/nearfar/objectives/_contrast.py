"""The contrastive loss that most objectives share: the positives of each anchor against all its candidates."""

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.objectives._blocked_contrast import StreamConfig, StreamedContrast
from nearfar.objectives._contrast_targets import ContrastTargets, TargetsFn, fits_in_one_block
from nearfar.objectives._similarity import Similarity, masked_nll, prepare_pair


def contrast(
    anchors: Float[Tensor, "anchors dim"],
    candidates: Float[Tensor, "candidates dim"],
    targets_fn: TargetsFn,
    *,
    temperature: float,
    similarity: Similarity,
    mean_reduction: bool = True,
) -> Float[Tensor, " anchors"]:
    """Return l_i = log sum_{k in C} exp(x_ik) - 1/|P| sum_{j in P} x_ij; without positives only the first term.

    The logit x_ik is s(a_i, c_k) / t, plus the hard-negative weight if k is the anchor's own negative. Computed in
    float32 or better, also under autocast.

    If there are more logits than :data:`nearfar.objectives._contrast_targets.BLOCK`, they are computed in blocks of
    anchors and not kept: memory is linear, not quadratic, in the number of vectors. ``mean_reduction`` says that the
    loss is the mean of the values, or another multiple of their sum: the gradient of the sum is then computed in the
    forward pass, with as many matrix products as without blocks. A loss that weights the values differently still gets
    the correct gradient, but its logits are recomputed in the backward pass, as they are without ``mean_reduction``.
    Blocks have no second derivative; asking for one raises NearfarError.
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
    """Compute the losses from the full matrix of logits, differentiable by autograd."""
    positives, candidate_mask, self_column, own_negatives, weight = targets
    if own_negatives is not None:
        column = own_negatives[:, None]
        logits = logits.scatter_add(1, column, logits.new_full(column.shape, weight))
    # Not -inf: a row in which every logit is masked would have a NaN gradient.
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
