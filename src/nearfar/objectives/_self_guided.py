"""NT-Xent: the two views of each text among those of the batch; self-guided contrastive learning.

There, a sentence's vector is compared with the views of it from a frozen clone's layers.

And the drift, the squared distance of the trained parameters from the clone's, which keeps training near its start.
"""

from collections.abc import Sequence
from functools import reduce
from typing import get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nearfar.objectives._contrast import RowMask, contrast
from nearfar.objectives._info_nce import info_nce
from nearfar.objectives._masks import full_mask, not_itself
from nearfar.objectives._similarity import check_shapes, prepare_pair
from nearfar.types import NearfarError, SelfGuidedVariant


def nt_xent(
    first: Float[Tensor, "batch dim"],
    second: Float[Tensor, "batch dim"],
    *,
    temperature: float,
    mask: Bool[Tensor, "batch batch"] | RowMask | None = None,
) -> Float[Tensor, " vectors"]:
    """Pull the two views of each text together, and away from both views of every other text of the batch.

    l(x) = -log[ exp(cos(x, x+) / t) / sum_{y in X, y != x} exp(cos(x, y) / t) ]

    with X the 2 batch vectors of both views, x+ the other view of x and t the temperature. The losses of the first
    views come first, then those of the second, ``2 * batch`` in total.

    ``mask`` False at [i, j] excludes both vectors of row j from the denominators of both vectors of row i; a vector's
    own positive is always kept. Precision, and masks for large batches, are as in :func:`info_nce`.

    Raises NearfarError for a temperature that is not positive and shapes that do not match.

    Source: Chen et al. 2020, eq. 1; Kim et al. 2021, the base loss of section 3.1. The mask is nearfar's addition.

    >>> same = torch.ones(2, 3)
    >>> nt_xent(same, same, temperature=0.1)  # log 3, all vectors but the anchor
    tensor([1.0986, 1.0986, 1.0986, 1.0986])
    """
    check_shapes("first [batch dim], second [batch dim]", first, second)
    return torch.cat(
        [view_loss(*views, temperature=temperature, mask=mask) for views in ((first, second), (second, first))]
    )


def view_loss(
    anchors: Float[Tensor, "batch dim"],
    views: Float[Tensor, "batch dim"],
    *,
    temperature: float,
    mask: Bool[Tensor, "batch batch"] | RowMask | None,
) -> Float[Tensor, " batch"]:
    """Each anchor's own view against the other anchors and all views; the arguments are those of :func:`nt_xent`.

    l_i = -log[ exp(cos(a_i, v_i) / t) / ( sum_j exp(cos(a_i, v_j) / t) + sum_{j != i} exp(cos(a_i, a_j) / t) ) ]
    """
    own = torch.arange(len(anchors), device=anchors.device)
    among = full_mask(mask, len(anchors), views)
    kept = among.beside(among & not_itself(len(anchors), anchors))
    candidates = torch.cat([views, anchors])
    return contrast(anchors, candidates, own, kept, temperature=temperature, similarity="cosine")


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
    if variant not in get_args(SelfGuidedVariant):
        raise NearfarError(f"variant must be one of {', '.join(get_args(SelfGuidedVariant))}, not {variant!r}")
    check_shapes(f"cls [batch dim], views [batch {'layers ' * (variant == 'opt3')}dim]", cls, views)
    if variant == "sg":
        return nt_xent(cls, views, temperature=temperature, mask=mask)
    if variant == "opt1":
        return view_loss(cls, views, temperature=temperature, mask=mask)
    if variant == "opt2":
        return info_nce(cls, views, temperature=temperature, mask=mask)

    # A sentence's views at its other layers are not among its negatives.
    batch, layers = views.shape[:2]
    one, other = prepare_pair(cls, views.flatten(0, 1), "cosine")
    own_logits = (one[:, None] * other.unflatten(0, (batch, layers))).sum(dim=2) / temperature
    others = (full_mask(mask, batch, cls) & not_itself(batch, cls)).repeated(layers)
    negatives = contrast(one, other, None, others, temperature=temperature, similarity="dot", mean_reduction=False)
    # -log(e^own / (e^own + e^negatives)) = log(1 + e^(negatives - own)), in full precision at any distance.
    return torch.logaddexp(negatives[:, None] - own_logits, torch.zeros_like(own_logits)).mean(dim=1)


def squared_distance(parameters: Sequence[Tensor], references: Sequence[Tensor]) -> Float[Tensor, ""]:
    """Sum of (theta - theta')^2 over pairs of tensors of the same shape: the drift of trained parameters.

    The references get no gradient. float16 and bfloat16 parameters are compared in float32.

    Raises NearfarError for another number of tensors, or tensors of other shapes.

    Source: Kim et al. 2021, section 3.1, the regulariser ||theta_F - theta_T||_2^2.

    >>> squared_distance([torch.ones(2, 2)], [torch.full((2, 2), 4.0)])  # 4 * 3^2
    tensor(36.)
    """
    shapes = [[tuple(tensor.shape) for tensor in tensors] for tensors in (parameters, references)]
    if shapes[0] != shapes[1]:
        raise NearfarError(f"parameters {shapes[0]} and references {shapes[1]} must have the same shapes")
    if not parameters:
        return torch.zeros(())
    exact = reduce(torch.promote_types, (parameter.dtype for parameter in parameters), torch.float32)
    # A GPU starts one kernel for many small tensors, not several for each.
    differences = torch._foreach_sub(
        [parameter.to(exact) for parameter in parameters], [reference.detach().to(exact) for reference in references]
    )
    return torch.stack(torch._foreach_norm(differences)).square().sum()
