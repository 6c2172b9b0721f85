"""Self-guided contrastive learning: a sentence's vector against the views of it from a frozen clone's layers."""

from typing import Literal, TypeAlias, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.objectives._candidate_masks import RowMask, mask_rows
from nearfar.objectives._contrast import contrast
from nearfar.objectives._contrast_targets import ContrastTargets
from nearfar.objectives._info_nce import info_nce, nt_xent
from nearfar.objectives._similarity import check_mask, check_temperature, prepare_pair
from nearfar.types import NearfarError

SelfGuidedVariant: TypeAlias = Literal["sg", "opt1", "opt2", "opt3"]
"""Which loss of Kim et al. 2021: sg, sg-opt1, sg-opt2 or sg-opt (opt3)."""


def self_guided(
    cls: Float[Tensor, "batch dim"],
    views: Float[Tensor, "batch dim"] | Float[Tensor, "batch layers dim"],
    *,
    temperature: float,
    variant: SelfGuidedVariant,
    mask: Bool[Tensor, "batch batch"] | RowMask | None = None,
) -> Float[Tensor, " values"]:
    """Pull each sentence's vector towards its own views, and away from the vectors and views of other sentences.

    With phi(u, v) = exp(cos(u, v) / t), c_i the vector of sentence i, h_i its view, h_{i,k} its view at layer k:

    - sg: NT-Xent of the vectors c and the views h (:func:`nt_xent`), two losses per sentence
    - opt1: l_i = -log[ phi(c_i, h_i) / ( sum_{j != i} phi(c_i, c_j) + sum_j phi(c_i, h_j) ) ]
    - opt2: l_i = -log[ phi(c_i, h_i) / sum_j phi(c_i, h_j) ]
    - opt3: l_{i,k} = -log[ phi(c_i, h_{i,k}) / ( phi(c_i, h_{i,k}) + sum_{m != i} sum_n phi(c_i, h_{m,n}) ) ],
      and l_i its mean over k

    ``cls`` and ``views`` are outputs of the projection head. ``views`` is [batch, layers, dim] for opt3 and
    [batch, dim] for the others. The result is [2 * batch] for sg, the losses of ``cls`` first, else [batch].

    ``mask`` False at [i, j] excludes the vector and the views of sentence j from the denominators of sentence i; a
    sentence's own positives are always kept. Precision, and masks for large batches, are as in :func:`info_nce`.

    Raises NearfarError for a temperature that is not positive, an unknown variant, and shapes that do not match the
    variant or one another.

    Source: Kim et al. 2021, sections 3.1 (sg) and 3.2 (the others; Table 5 compares them). opt2 keeps all negatives
    of the formula; the authors' code omits one of them. The mask is nearfar's addition.

    >>> cls = torch.eye(3)
    >>> views = cls[:, None].expand(3, 2, 3)  # two layers
    >>> self_guided(cls, views, temperature=1.0, variant="opt3")  # log(1 + 2 layers * 2 others / e)
    tensor([0.9048, 0.9048, 0.9048])
    """
    check_temperature(temperature)
    if variant not in get_args(SelfGuidedVariant):
        raise NearfarError(f"variant must be one of {', '.join(get_args(SelfGuidedVariant))}, not {variant!r}")
    shape = "[batch, layers, dim]" if variant == "opt3" else "[batch, dim]"
    matching = views.shape[:1] + views.shape[2:] if variant == "opt3" else views.shape
    if cls.ndim != 2 or matching != cls.shape or (variant == "opt3" and views.shape[1] == 0):
        raise NearfarError(
            f"variant {variant} compares cls [batch, dim] with views {shape}, "
            f"but cls is {tuple(cls.shape)} and views {tuple(views.shape)}"
        )
    if isinstance(mask, Tensor):
        check_mask(mask, len(cls), len(cls))

    if variant == "sg":
        return nt_xent(cls, views, temperature=temperature, mask=mask)
    if variant == "opt2":
        return info_nce(cls, views, temperature=temperature, mask=mask)
    if variant == "opt3":
        return _all_layers(cls, views, temperature, mask)

    def targets_fn(rows: Int[Tensor, " anchors"]) -> ContrastTargets:
        kept = mask_rows(mask, rows, len(cls))
        return ContrastTargets(
            positives=rows, candidate_mask=None if kept is None else kept.repeat(1, 2), self_column=len(cls) + rows
        )

    return contrast(cls, torch.cat([views, cls]), targets_fn, temperature=temperature, similarity="cosine")


def _all_layers(
    cls: Float[Tensor, "batch dim"],
    views: Float[Tensor, "batch layers dim"],
    temperature: float,
    mask: Bool[Tensor, "batch batch"] | RowMask | None,
) -> Float[Tensor, " batch"]:
    """Compute opt3. A sentence's views at its other layers are not among its negatives."""
    batch, layers = views.shape[:2]
    one, other = prepare_pair(cls, views.flatten(0, 1), "cosine")
    own = (one[:, None] * other.unflatten(0, (batch, layers))).sum(dim=2) / temperature

    def targets_fn(rows: Int[Tensor, " anchors"]) -> ContrastTargets:
        known = mask_rows(mask, rows, batch)
        known = torch.ones(len(rows), batch, dtype=torch.bool, device=cls.device) if known is None else known
        others = known.scatter(1, rows[:, None], value=False)
        return ContrastTargets(positives=None, candidate_mask=others.repeat_interleave(layers, dim=1))

    negatives = contrast(one, other, targets_fn, temperature=temperature, similarity="dot", mean_reduction=False)
    # -log(e^own / (e^own + e^negatives)) = log(1 + e^(negatives - own)), in full precision at any distance.
    return torch.logaddexp(negatives[:, None] - own, torch.zeros_like(own)).mean(dim=1)
