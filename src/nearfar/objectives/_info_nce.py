"""InfoNCE: identify an anchor's positive among in-batch negatives; NT-Xent: the same with two views of each text."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nearfar.objectives._contrast import RowMask, contrast
from nearfar.objectives._masks import check_mask, full_mask, not_itself
from nearfar.objectives._similarity import (
    Similarity,
    check_as_wide,
    check_finite,
    check_same_shape,
    check_similarity,
    check_temperature,
)
from nearfar.types import NearfarError


def info_nce(
    anchors: Float[Tensor, "batch dim"],
    positives: Float[Tensor, "batch dim"],
    negatives: Float[Tensor, "negatives dim"] | None = None,
    *,
    temperature: float = 0.05,  # Gao et al. 2021, Table D.1
    hard_negative_weight: float = 0.0,
    similarity: Similarity = "cosine",
    mask: Bool[Tensor, "batch candidates"] | RowMask | None = None,
) -> Float[Tensor, " batch"]:
    """Pull each anchor towards its own positive and away from all other positives and all negatives of the batch.

    l_i = -log[ exp(s(a_i, p_i) / t) / ( sum_j exp(s(a_i, p_j) / t) + sum_j alpha^[i = j] exp(s(a_i, n_j) / t) ) ]

    with s the similarity, t the temperature and log alpha the ``hard_negative_weight``, which is added to the logit of
    the anchor's own negative (row i of both). Unless it is 0, there must be as many negatives as anchors. Without
    ``negatives`` the second sum is omitted.

    ``mask`` selects the candidates, the positives and then the negatives, in each anchor's denominator; the anchor's
    own positive is always included. An anchor without other candidates has loss 0. The mask is a matrix, or a
    :class:`RowMask`, whose rows are computed when they are needed: the similarities of large batches are computed in
    blocks of rows, and a full matrix would then be the largest tensor in memory.

    ``similarity`` is the cosine (0 for a zero vector) or the raw dot product. float16 and bfloat16 vectors are
    compared in float32, also under autocast, and give float32 losses; other dtypes are kept.

    Raises NearfarError for a temperature that is not positive, an unknown similarity, a weight that is not finite or
    that is set without negatives, and shapes that do not match.

    Source: Gao et al. 2021 (SimCSE), the unsupervised objective, without negatives, and the supervised one, with one
    hard negative per anchor; alpha is from its appendix on hard negatives. The mask is nearfar's addition.

    >>> same = torch.ones(4, 2)
    >>> info_nce(same, same)  # log 4, the candidates
    tensor([1.3863, 1.3863, 1.3863, 1.3863])
    >>> info_nce(torch.eye(4), torch.eye(4), temperature=1.0)  # log(1 + 3 / e)
    tensor([0.7437, 0.7437, 0.7437, 0.7437])
    """
    batch = len(anchors)
    candidates = check_and_join(
        anchors,
        positives,
        negatives,
        temperature=temperature,
        hard_negative_weight=hard_negative_weight,
        similarity=similarity,
    )
    check_mask(mask, batch, len(candidates))
    own = torch.arange(batch, device=anchors.device)
    return contrast(
        anchors,
        candidates,
        own,
        mask,
        temperature=temperature,
        similarity=similarity,
        raised=batch + own if hard_negative_weight else None,
        weight=hard_negative_weight,
    )


def check_and_join(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor | None,
    *,
    temperature: float,
    hard_negative_weight: float,
    similarity: str,
) -> Tensor:
    """The positives and then the negatives, after checking the arguments of :func:`info_nce`."""
    check_temperature(temperature)
    check_similarity(similarity)
    check_same_shape("anchors positives", anchors, positives)
    batch = len(anchors)
    if negatives is not None:
        check_as_wide("negatives", negatives, anchors)
    check_finite("hard_negative_weight", hard_negative_weight)
    if hard_negative_weight and (negatives is None or len(negatives) != batch):
        given = "none" if negatives is None else len(negatives)
        raise NearfarError(
            f"hard_negative_weight {hard_negative_weight} applies to each anchor's own negative, "
            f"so {batch} anchors need {batch} negatives, but there are {given}"
        )
    return positives if negatives is None else torch.cat([positives, negatives])


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
    check_temperature(temperature)
    check_same_shape("first second", first, second)
    check_mask(mask, len(first), len(first))
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
