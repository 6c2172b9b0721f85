"""The contrastive loss of large batches in blocks of anchors, without ever storing the full matrix of logits."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.objectives import _contrast_targets
from nearfar.objectives._contrast_targets import ContrastTargets, TargetsFn, row_blocks
from nearfar.objectives._similarity import Similarity, compute_dtype, prepare_vectors
from nearfar.types import NearfarError

_SCALE_CHUNK = 1024
"""Number of vectors that are scaled at a time; each chunk is copied temporarily."""


class StreamConfig(NamedTuple):
    """The settings of a blocked contrastive loss."""

    targets_fn: TargetsFn
    temperature: float
    similarity: Similarity
    precompute_grad: bool
    """Compute the gradient of the sum of the losses in the forward pass, while their logits are in memory."""


class StreamedContrast(torch.autograd.Function):
    """:func:`nearfar.objectives._contrast.contrast` in blocks of anchors."""

    @staticmethod
    def forward(
        ctx: Any,
        anchors: Float[Tensor, "anchors dim"],
        candidates: Float[Tensor, "candidates dim"],
        config: StreamConfig,
    ) -> Float[Tensor, " anchors"]:
        """Return the losses; saves the inputs and, if precomputed, a gradient of the size of each."""
        one, other, _ = ctx.needs_input_grad
        values, *gradients = _streamed_pass(
            anchors, candidates, config, needs_grad=(one and config.precompute_grad, other and config.precompute_grad)
        )
        ctx.save_for_backward(anchors, candidates, *gradients)
        ctx.config = config
        return values

    @staticmethod
    def backward(
        ctx: Any, grad_output: Float[Tensor, " anchors"]
    ) -> tuple[Float[Tensor, "anchors dim"] | None, Float[Tensor, "candidates dim"] | None, None]:
        """Scale the precomputed gradients by grad_output, or recompute the logits if grad_output is not constant."""
        anchors, candidates, grad_anchors, grad_candidates = ctx.saved_tensors
        if torch.is_grad_enabled():  # set by create_graph=True
            raise NearfarError(
                f"create_graph=True: a loss of {len(anchors)} anchors and {len(candidates)} candidates is computed in "
                f"blocks and has no second derivative. Use a smaller batch, of at most {_contrast_targets.BLOCK} "
                "similarities"
            )
        config: StreamConfig = ctx.config
        one, other, _ = ctx.needs_input_grad
        with torch.autocast(anchors.device.type, enabled=False):
            if not config.precompute_grad:
                _, grad_anchors, grad_candidates = _streamed_pass(
                    anchors, candidates, config, needs_grad=(one, other), grad_output=grad_output
                )
            else:
                if one:
                    grad_anchors = grad_anchors * grad_output[:, None]
                if other and (grad_output == grad_output[0]).all():
                    grad_candidates = grad_candidates * grad_output[0]
                elif other:
                    *_, grad_candidates = _streamed_pass(
                        anchors, candidates, config, needs_grad=(False, True), grad_output=grad_output
                    )
        return (
            grad_anchors.to(anchors.dtype) if one else None,
            grad_candidates.to(candidates.dtype) if other else None,
            None,
        )


def _streamed_pass(
    anchors: Float[Tensor, "anchors dim"],
    candidates: Float[Tensor, "candidates dim"],
    config: StreamConfig,
    *,
    needs_grad: tuple[bool, bool],
    grad_output: Float[Tensor, " anchors"] | None = None,
) -> tuple[Float[Tensor, " anchors"], Float[Tensor, "anchors dim"] | None, Float[Tensor, "candidates dim"] | None]:
    """Return the losses and, if ``needs_grad``, the gradients of their sum, weighted by grad_output if it is given.

    Vectors are scaled here in chunks: autograd would keep several copies of all of them. All blocks share the same
    buffers: glibc before 2.38 fragments the heap when large tensors are freed and allocated again.
    """
    exact = compute_dtype(anchors, candidates)
    others = torch.cat([prepare_vectors(chunk, exact, config.similarity) for chunk in candidates.split(_SCALE_CHUNK)])
    grad_anchors = torch.empty_like(anchors, dtype=exact) if needs_grad[0] else None
    grad_others = torch.zeros_like(others) if needs_grad[1] else None
    blocks = row_blocks(len(anchors), len(candidates), device=anchors.device)
    buffers = others.new_empty(2, len(blocks[0]), len(candidates))
    values = []
    for rows in blocks:
        targets = config.targets_fn(rows)
        leaf, scaled = _scaled(anchors[rows].to(exact), config.similarity, config.temperature)
        logits, log_probs = buffers[:, : len(rows)]
        torch.mm(scaled.detach(), others.T, out=logits)
        _log_softmax(logits, targets, out=log_probs)
        values.append(_values(logits, log_probs, targets))
        if not any(needs_grad):
            continue
        grad_logits = _logit_grad(log_probs, targets, workspace=logits)
        if grad_output is not None:
            grad_logits *= grad_output[rows, None]
        if grad_anchors is not None:
            (grad_anchors[rows],) = torch.autograd.grad(scaled, leaf, grad_logits @ others)
        if grad_others is not None:
            grad_others.addmm_(grad_logits.T, scaled.detach())
    if grad_others is not None:
        for chunk, grad_chunk in zip(candidates.split(_SCALE_CHUNK), grad_others.split(_SCALE_CHUNK), strict=True):
            leaf, scaled = _scaled(chunk.to(exact), config.similarity, 1.0)
            grad_chunk.copy_(*torch.autograd.grad(scaled, leaf, grad_chunk))
    return torch.cat(values), grad_anchors, grad_others


def _scaled(
    vectors: Float[Tensor, "vectors dim"], similarity: Similarity, temperature: float
) -> tuple[Float[Tensor, "vectors dim"], Float[Tensor, "vectors dim"]]:
    """Return the leaf tensor for the gradient, and the vectors as they are compared."""
    with torch.enable_grad():
        leaf = vectors.detach().requires_grad_()
        return leaf, prepare_vectors(leaf, vectors.dtype, similarity) / temperature


def _log_softmax(
    logits: Float[Tensor, "anchors candidates"], targets: ContrastTargets, *, out: Float[Tensor, "anchors candidates"]
) -> None:
    """Log-softmax over the kept candidates. Changes the logits in place: adds weights, masks the other candidates."""
    if targets.own_negatives is not None:
        logits[torch.arange(len(logits), device=logits.device), targets.own_negatives] += targets.weight
    least, positives = torch.finfo(logits.dtype).min, targets.positives
    if targets.candidate_mask is not None:
        named = None if positives is None or positives.dtype == torch.bool else positives[:, None]
        own = None if named is None else logits.gather(1, named)
        torch.where(targets.candidate_mask, logits, logits.new_tensor(least), out=logits)
        if named is not None and own is not None:
            logits.scatter_(1, named, own)
    if targets.self_column is not None:
        logits.scatter_(1, targets.self_column[:, None], least)
    torch.log_softmax(logits, dim=1, out=out)


def _values(
    logits: Float[Tensor, "anchors candidates"],
    log_probs: Float[Tensor, "anchors candidates"],
    targets: ContrastTargets,
) -> Float[Tensor, " anchors"]:
    """Return -1/|P| sum_{j in P} log p_j; without positives, the log-sum-exp of the logits."""
    positives = targets.positives
    if positives is None:
        return logits.amax(dim=1) - log_probs.amax(dim=1)
    if positives.dtype == torch.bool:
        # torch.where, not a product with the mask: -inf times 0 would be NaN. The logits are no longer needed.
        total = torch.where(positives, log_probs, log_probs.new_zeros(()), out=logits).sum(dim=1)
        return -total / logits.copy_(positives).sum(dim=1)  # the sum of a bool tensor would make a copy in int64
    return -log_probs.gather(1, positives[:, None]).squeeze(1)


def _logit_grad(
    log_probs: Float[Tensor, "anchors candidates"],
    targets: ContrastTargets,
    *,
    workspace: Float[Tensor, "anchors candidates"],
) -> Float[Tensor, "anchors candidates"]:
    """Return the gradient of each loss by each logit: softmax over the kept candidates, minus 1/|P| at each positive.

    Overwrites ``log_probs``.
    """
    grad_logits, positives = log_probs.exp_(), targets.positives
    if positives is not None and positives.dtype == torch.bool:
        workspace.copy_(positives)
        grad_logits -= workspace.div_(workspace.sum(dim=1, keepdim=True))
    elif positives is not None:
        grad_logits[torch.arange(len(grad_logits), device=grad_logits.device), positives] -= 1
    return grad_logits
