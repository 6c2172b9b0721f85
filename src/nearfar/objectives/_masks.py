"""Which candidates may be taken for negatives: masks for the objectives that leave likely positives out."""

import math
from itertools import product

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.objectives._similarity import Similarity, check_alike, check_similarity, row_similarities, similarities
from nearfar.types import NearfarError


def below_positive(
    anchors: Float[Tensor, "anchors dim"],
    positives: Float[Tensor, "anchors dim"],
    candidates: Float[Tensor, "candidates dim"],
    *,
    margin: float,
    similarity: Similarity = "cosine",
) -> Bool[Tensor, "anchors candidates"]:
    """Where a candidate is not suspiciously near: s(a_i, x_k) <= s(a_i, p_i) + margin. No gradient flows.

    A candidate that is nearer to the anchor than the anchor's own positive is likely a positive that nobody marked.
    The mask is what :func:`info_nce` takes, with its positives (and negatives) as the candidates. A candidate that
    differs from the bound by rounding alone is kept: the positive itself, or its equal, at margin 0.

    Raises NearfarError for a margin that is not finite, an unknown similarity, and shapes that do not match.

    Source: the positive-aware mining of Moreira et al. 2024 (NV-Retriever), with a margin that is added.

    >>> anchors, candidates = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> below_positive(anchors, torch.tensor([[3.0, 4.0]]), candidates, margin=0.1)  # cosines 1 and 0 against 0.6
    tensor([[False,  True]])
    """
    check_similarity(similarity)
    check_alike("anchors positives", anchors, positives)
    if candidates.ndim != 2 or candidates.shape[1] != anchors.shape[1]:
        raise NearfarError(
            f"candidates {tuple(candidates.shape)} must be [candidates, dim], as wide as anchors {tuple(anchors.shape)}"
        )
    if not math.isfinite(margin):
        raise NearfarError(f"margin must be a finite number, not {margin}")
    with torch.no_grad():
        found, own = similarities(anchors, candidates, similarity), row_similarities(anchors, positives, similarity)
        lengths = [1.0 if similarity == "cosine" else x.to(found.dtype).norm(dim=1) for x in (anchors, positives)]
        rounding = 16 * torch.finfo(found.dtype).eps * lengths[0] * lengths[1]
        return found <= (own + margin + rounding)[:, None]


def distinct_rows(*ids: Int[Tensor, " batch"]) -> Bool[Tensor, "batch batch"]:
    """Where two rows of a batch share no text: True at [i, j] if no text of row i is a text of row j.

    Each of ``ids`` numbers the texts of one column (anchors, positives, ...), equal texts by equal numbers across the
    columns. The diagonal is False, as each row shares its texts with itself; an objective keeps an anchor's own
    positive whatever the mask says. A hard negative of the anchor's own row is kept by setting the diagonal:
    ``torch.cat([rows, rows | torch.eye(len(rows), dtype=torch.bool)], dim=1)`` is a mask for :func:`info_nce` with one
    negative for each anchor.

    Raises NearfarError without ids, and for columns of different lengths.

    >>> distinct_rows(torch.tensor([0, 1, 2]), torch.tensor([3, 4, 0]))  # rows 0 and 2 share text 0
    tensor([[False,  True, False],
            [ True, False,  True],
            [False,  True, False]])
    """
    if not ids or any(column.ndim != 1 or column.shape != ids[0].shape for column in ids):
        raise NearfarError(f"ids must be one or more columns of the same length, not {[tuple(c.shape) for c in ids]}")
    shared = torch.zeros(len(ids[0]), len(ids[0]), dtype=torch.bool, device=ids[0].device)
    for one, other in product(ids, repeat=2):
        shared |= one[:, None] == other
    return ~shared
