"""InfoNCE: find an anchor's own positive among the batch's, and NT-Xent, the same with two views of every text."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.objectives._contrast import contrast
from nearfar.objectives._contrast_targets import ContrastTargets
from nearfar.objectives._row_masks import RowMask, mask_rows
from nearfar.objectives._similarity import (
    Similarity,
    check_mask,
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
    the anchor's own negative (row i of both) and, unless 0, needs as many negatives as anchors. Without ``negatives``
    the second sum is not there.

    ``mask`` says which candidates, the positives and then the negatives, may stand in an anchor's denominator; the
    anchor's own positive always does. An anchor that keeps nothing else has loss 0. It is a matrix or a function that
    makes some rows of it at a time, a :data:`RowMask`: in large batches the similarities themselves are computed some
    rows at a time, and a matrix would then be the largest thing in memory.

    ``similarity`` is the cosine, which is 0 to a zero vector, or the raw dot product. float16 and bfloat16 vectors are
    compared in float32, under autocast too, and give float32 values; others give their own dtype.

    Raises NearfarError for a temperature that is not positive, an unknown similarity, a weight that is not finite or
    has no negatives to weigh, and shapes that do not match.

    Source: Gao et al. 2021 (SimCSE), the unsupervised objective, without negatives, and the supervised one, with a
    hard negative for each anchor; alpha is from its appendix on hard negatives. The mask is ours.

    >>> same = torch.ones(4, 2)
    >>> info_nce(same, same)  # log 4, the candidates
    tensor([1.3863, 1.3863, 1.3863, 1.3863])
    >>> info_nce(torch.eye(4), torch.eye(4), temperature=1.0)  # log(1 + 3 / e)
    tensor([0.7437, 0.7437, 0.7437, 0.7437])
    """
    check_temperature(temperature)
    check_similarity(similarity)
    check_same_shape("anchors positives", anchors, positives)
    batch = len(anchors)
    if negatives is not None and (negatives.ndim != 2 or negatives.shape[1] != anchors.shape[1]):
        raise NearfarError(
            f"negatives {tuple(negatives.shape)} must be [negatives, dim], as wide as anchors {tuple(anchors.shape)}"
        )
    if not math.isfinite(hard_negative_weight):
        raise NearfarError(f"hard_negative_weight must be a finite number, not {hard_negative_weight}")
    if hard_negative_weight and (negatives is None or len(negatives) != batch):
        given = "none" if negatives is None else len(negatives)
        raise NearfarError(
            f"hard_negative_weight {hard_negative_weight} weighs each anchor's own negative, "
            f"so {batch} anchors need {batch} negatives, but there are {given}"
        )
    candidates = positives if negatives is None else torch.cat([positives, negatives])
    if isinstance(mask, Tensor):
        check_mask(mask, batch, len(candidates))

    def targets_fn(rows: Int[Tensor, " anchors"]) -> ContrastTargets:
        return ContrastTargets(
            positives=rows,
            candidate_mask=mask_rows(mask, rows, len(candidates)),
            own_negatives=batch + rows if hard_negative_weight else None,
            weight=hard_negative_weight,
        )

    return contrast(anchors, candidates, targets_fn, temperature=temperature, similarity=similarity)


def nt_xent(
    first: Float[Tensor, "batch dim"],
    second: Float[Tensor, "batch dim"],
    *,
    temperature: float,
    mask: Bool[Tensor, "batch batch"] | RowMask | None = None,
) -> Float[Tensor, " vectors"]:
    """Pull the two views of each text together, and away from both views of every other text of the batch.

    l(x) = -log[ exp(cos(x, x+) / t) / sum_{y in X, y != x} exp(cos(x, y) / t) ]

    with X the 2 batch vectors of both views, x+ the other view of x and t the temperature. The values of the first
    views come first, then those of the second, ``2 * batch`` in all.

    ``mask`` False at [i, j] leaves both vectors of row j out of the denominators of both vectors of row i; a vector's
    own positive always stays. Precision, and masks for large batches, are those of :func:`info_nce`.

    Raises NearfarError for a temperature that is not positive and shapes that do not match.

    Source: Chen et al. 2020, eq. 1; Kim et al. 2021, the base loss of section 3.1. The mask is ours.

    >>> same = torch.ones(2, 3)
    >>> nt_xent(same, same, temperature=0.1)  # log 3, all vectors but the anchor
    tensor([1.0986, 1.0986, 1.0986, 1.0986])
    """
    check_temperature(temperature)
    check_same_shape("first second", first, second)
    batch = len(first)
    if isinstance(mask, Tensor):
        check_mask(mask, batch, batch)

    def targets_fn(rows: Int[Tensor, " anchors"]) -> ContrastTargets:
        kept = mask_rows(mask, rows % batch, batch)
        # Among [second; first], row i of [first; second] finds its positive in column i, itself half the columns on.
        return ContrastTargets(
            positives=rows,
            candidate_mask=None if kept is None else kept.repeat(1, 2),
            self_column=(rows + batch) % (2 * batch),
        )

    return contrast(
        torch.cat([first, second]), torch.cat([second, first]), targets_fn, temperature=temperature, similarity="cosine"
    )
