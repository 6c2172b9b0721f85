"""Which candidates may be taken for negatives: masks for the objectives that leave likely positives out."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.objectives._row_masks import below_positive_row_mask, distinct_row_mask
from nearfar.objectives._similarity import Similarity


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
    differs from the bound by rounding alone is kept: the positive self_column, or its equal, at margin 0. For large
    batches :func:`below_positive_row_mask` makes the same mask, some rows at a time.

    Raises NearfarError for a margin that is not finite, an unknown similarity, and shapes that do not match.

    Source: the positive-aware mining of Moreira et al. 2024 (NV-Retriever), with a margin that is added.

    >>> anchors, candidates = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> below_positive(anchors, torch.tensor([[3.0, 4.0]]), candidates, margin=0.1)  # cosines 1 and 0 against 0.6
    tensor([[False,  True]])
    """
    mask = below_positive_row_mask(anchors, positives, candidates, margin=margin, similarity=similarity)
    return mask(torch.arange(len(anchors), device=anchors.device))


def distinct_rows(*ids: Int[Tensor, " batch"]) -> Bool[Tensor, "batch batch"]:
    """Where two rows of a batch share no text: True at [i, j] if no text of row i is a text of row j.

    Each of ``ids`` numbers the texts of one column (anchors, positives, ...), equal texts by equal numbers across the
    columns. The diagonal is False, as each row shares its texts with itself; an objective keeps an anchor's own
    positive whatever the mask says. A hard negative of the anchor's own row is kept by setting the diagonal:
    ``torch.cat([rows, rows | torch.eye(len(rows), dtype=torch.bool)], dim=1)`` is a mask for :func:`info_nce` with one
    negative for each anchor. For large batches :func:`distinct_row_mask` makes the same mask, some rows at a time.

    Raises NearfarError without ids, and for columns of different lengths.

    >>> distinct_rows(torch.tensor([0, 1, 2]), torch.tensor([3, 4, 0]))  # rows 0 and 2 share text 0
    tensor([[False,  True, False],
            [ True, False,  True],
            [False,  True, False]])
    """
    mask = distinct_row_mask(*ids)
    return mask(torch.arange(len(ids[0]), device=ids[0].device))
