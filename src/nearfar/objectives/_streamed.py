"""The contrast of many anchors with many candidates in blocks, so that their matrix of logits is never there."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.objectives import _compared
from nearfar.objectives._compared import Compare, Compared, row_blocks
from nearfar.objectives._similarity import Similarity, exact_dtype, prepared
from nearfar.types import NearfarError

_SCALED = 1024
"""Vectors that are scaled at a time, of which there are copies meanwhile."""


class How(NamedTuple):
    """What is asked for."""

    compare: Compare
    temperature: float
    similarity: Similarity
    ahead: bool
    """Compute the gradient of the values' sum with the values, while their logits are there."""


class Streamed(torch.autograd.Function):
    """:func:`nearfar.objectives._contrast.contrast` in blocks of anchors."""

    @staticmethod
    def forward(
        ctx: Any, anchors: Float[Tensor, "anchors dim"], candidates: Float[Tensor, "candidates dim"], how: How
    ) -> Float[Tensor, " anchors"]:
        """The values; keeps the inputs and, if computed ahead, a gradient of the size of each."""
        one, other, _ = ctx.needs_input_grad
        values, *gradients = _sweep(anchors, candidates, how, wanted=(one and how.ahead, other and how.ahead))
        ctx.save_for_backward(anchors, candidates, *gradients)
        ctx.how = how
        return values

    @staticmethod
    def backward(
        ctx: Any, slopes: Float[Tensor, " anchors"]
    ) -> tuple[Float[Tensor, "anchors dim"] | None, Float[Tensor, "candidates dim"] | None, None]:
        """What the values' slopes make of the gradient ahead; or, if they differ, the logits again."""
        anchors, candidates, of_anchors, of_candidates = ctx.saved_tensors
        if torch.is_grad_enabled():  # which create_graph=True asks for
            raise NearfarError(
                f"create_graph=True: a loss of {len(anchors)} anchors and {len(candidates)} candidates is computed in "
                f"blocks and has no second derivative; up to {_compared.BLOCK} similarities it has one, so take a "
                "smaller batch"
            )
        how: How = ctx.how
        one, other, _ = ctx.needs_input_grad
        with torch.autocast(anchors.device.type, enabled=False):
            if not how.ahead:
                _, of_anchors, of_candidates = _sweep(anchors, candidates, how, wanted=(one, other), slopes=slopes)
            else:
                if one:
                    of_anchors = of_anchors * slopes[:, None]
                if other and (slopes == slopes[0]).all():
                    of_candidates = of_candidates * slopes[0]
                elif other:
                    *_, of_candidates = _sweep(anchors, candidates, how, wanted=(False, True), slopes=slopes)
        return (
            of_anchors.to(anchors.dtype) if one else None,
            of_candidates.to(candidates.dtype) if other else None,
            None,
        )


def _sweep(
    anchors: Float[Tensor, "anchors dim"],
    candidates: Float[Tensor, "candidates dim"],
    how: How,
    *,
    wanted: tuple[bool, bool],
    slopes: Float[Tensor, " anchors"] | None = None,
) -> tuple[Float[Tensor, " anchors"], Float[Tensor, "anchors dim"] | None, Float[Tensor, "candidates dim"] | None]:
    """All values and, where ``wanted``, the gradients of their sum, each value times its slope if slopes are given.

    Vectors are scaled here, a few at a time: autograd would keep several copies of all of them. The matrices of a block
    have the same place each time: glibc before 2.38 leaves holes where large tensors were.
    """
    exact = exact_dtype(anchors, candidates)
    others = torch.cat([prepared(piece, exact, how.similarity) for piece in candidates.split(_SCALED)])
    of_anchors = torch.empty_like(anchors, dtype=exact) if wanted[0] else None
    of_others = torch.zeros_like(others) if wanted[1] else None
    blocks = row_blocks(len(anchors), len(candidates), device=anchors.device)
    places = others.new_empty(2, len(blocks[0]), len(candidates))
    values = []
    for rows in blocks:
        compared = how.compare(rows)
        given, scaled = _scaled(anchors[rows].to(exact), how.similarity, how.temperature)
        logits, log_shares = places[:, : len(rows)]
        torch.mm(scaled.detach(), others.T, out=logits)
        _log_shares(logits, compared, out=log_shares)
        values.append(_values(logits, log_shares, compared))
        if not any(wanted):
            continue
        slope = _slope(log_shares, compared, spare=logits)
        if slopes is not None:
            slope *= slopes[rows, None]
        if of_anchors is not None:
            (of_anchors[rows],) = torch.autograd.grad(scaled, given, slope @ others)
        if of_others is not None:
            of_others.addmm_(slope.T, scaled.detach())
    if of_others is not None:
        for piece, slope in zip(candidates.split(_SCALED), of_others.split(_SCALED), strict=True):
            given, scaled = _scaled(piece.to(exact), how.similarity, 1.0)
            slope.copy_(*torch.autograd.grad(scaled, given, slope))
    return torch.cat(values), of_anchors, of_others


def _scaled(
    vectors: Float[Tensor, "vectors dim"], similarity: Similarity, temperature: float
) -> tuple[Float[Tensor, "vectors dim"], Float[Tensor, "vectors dim"]]:
    """Vectors to take the gradient of, and as they are compared."""
    with torch.enable_grad():
        given = vectors.detach().requires_grad_()
        return given, prepared(given, vectors.dtype, similarity) / temperature


def _log_shares(
    logits: Float[Tensor, "anchors candidates"], compared: Compared, *, out: Float[Tensor, "anchors candidates"]
) -> None:
    """Log-softmax over what is kept. Changes the logits in place: weights are added, what is not kept is least."""
    if compared.own_negatives is not None:
        logits[torch.arange(len(logits), device=logits.device), compared.own_negatives] += compared.weight
    least, positives = torch.finfo(logits.dtype).min, compared.positives
    if compared.kept is not None:
        named = None if positives is None or positives.dtype == torch.bool else positives[:, None]
        own = None if named is None else logits.gather(1, named)
        torch.where(compared.kept, logits, logits.new_tensor(least), out=logits)
        if named is not None and own is not None:
            logits.scatter_(1, named, own)
    if compared.itself is not None:
        logits.scatter_(1, compared.itself[:, None], least)
    torch.log_softmax(logits, dim=1, out=out)


def _values(
    logits: Float[Tensor, "anchors candidates"], log_shares: Float[Tensor, "anchors candidates"], compared: Compared
) -> Float[Tensor, " anchors"]:
    """-1/|P| sum_{j in P} of the log-shares; the log-sum-exp of the logits without positives."""
    positives = compared.positives
    if positives is None:
        return logits.amax(dim=1) - log_shares.amax(dim=1)
    if positives.dtype == torch.bool:
        # Selected by where, not multiplied by the mask: -inf times 0 would be NaN. The logits have had their use.
        total = torch.where(positives, log_shares, log_shares.new_zeros(()), out=logits).sum(dim=1)
        return -total / logits.copy_(positives).sum(dim=1)  # the sum of a bool tensor would make a copy in int64
    return -log_shares.gather(1, positives[:, None]).squeeze(1)


def _slope(
    log_shares: Float[Tensor, "anchors candidates"], compared: Compared, *, spare: Float[Tensor, "anchors candidates"]
) -> Float[Tensor, "anchors candidates"]:
    """Of each value by each logit: the softmax over what is kept, less 1/|P| at each positive. In place."""
    slope, positives = log_shares.exp_(), compared.positives
    if positives is not None and positives.dtype == torch.bool:
        spare.copy_(positives)
        slope -= spare.div_(spare.sum(dim=1, keepdim=True))
    elif positives is not None:
        slope[torch.arange(len(slope), device=slope.device), positives] -= 1
    return slope
