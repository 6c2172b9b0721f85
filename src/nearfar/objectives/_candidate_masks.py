"""Masks that exclude likely positives from the negatives: full matrices, and row blocks for large batches."""

import math
from collections.abc import Callable
from itertools import product
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.objectives._contrast_targets import row_blocks
from nearfar.objectives._similarity import (
    Similarity,
    check_mask,
    check_same_shape,
    check_similarity,
    prepare_pair,
    row_similarities,
)
from nearfar.types import NearfarError

RowMask: TypeAlias = Callable[[Tensor], Tensor]
"""Indices of anchors [rows] -> the candidates kept in their denominators, bool [rows, candidates].

It is called again for the same anchors when gradients are computed, and must return the same mask.
"""


def below_positive_row_mask(
    anchors: Float[Tensor, "anchors dim"],
    positives: Float[Tensor, "anchors dim"],
    candidates: Float[Tensor, "candidates dim"],
    *,
    margin: float,
    similarity: Similarity = "cosine",
) -> RowMask:
    """Return the rows of :func:`below_positive`: True where s(a_i, x_k) <= s(a_i, p_i) + margin. Has no gradient.

    Raises NearfarError as :func:`below_positive` does.

    >>> anchors, candidates = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> mask = below_positive_row_mask(anchors, torch.tensor([[3.0, 4.0]]), candidates, margin=0.1)
    >>> mask(torch.tensor([0]))  # cosines 1 and 0 against 0.6
    tensor([[False,  True]])
    """
    check_similarity(similarity)
    check_same_shape("anchors positives", anchors, positives)
    if candidates.ndim != 2 or candidates.shape[1] != anchors.shape[1]:
        raise NearfarError(
            f"candidates {tuple(candidates.shape)} must be [candidates, dim], as wide as anchors {tuple(anchors.shape)}"
        )
    if not math.isfinite(margin):
        raise NearfarError(f"margin must be a finite number, not {margin}")
    with torch.no_grad():
        own = row_similarities(anchors, positives, similarity)
        lengths = [1.0 if similarity == "cosine" else x.to(own.dtype).norm(dim=1) for x in (anchors, positives)]
        one, other = prepare_pair(anchors, candidates, similarity)
        bounds = own + margin + 16 * torch.finfo(one.dtype).eps * lengths[0] * lengths[1]  # tolerance for rounding

    def mask(rows: Int[Tensor, " anchors"]) -> Bool[Tensor, "anchors candidates"]:
        with torch.no_grad(), torch.autocast(one.device.type, enabled=False):
            return one[rows] @ other.T <= bounds[rows, None]

    return mask


def distinct_row_mask(*ids: Int[Tensor, " batch"]) -> RowMask:
    """Return the rows of :func:`distinct_rows`: False at [i, j] where rows i and j of a batch share a text.

    Raises NearfarError as :func:`distinct_rows` does.

    >>> distinct_row_mask(torch.tensor([0, 1, 2]), torch.tensor([3, 4, 0]))(torch.tensor([2]))
    tensor([[False,  True, False]])
    """
    if not ids or any(column.ndim != 1 or column.shape != ids[0].shape for column in ids):
        raise NearfarError(f"ids must be one or more columns of the same length, not {[tuple(c.shape) for c in ids]}")

    def mask(rows: Int[Tensor, " anchors"]) -> Bool[Tensor, "anchors candidates"]:
        shared = torch.zeros(len(rows), len(ids[0]), dtype=torch.bool, device=rows.device)
        for one, other in product(ids, repeat=2):
            shared |= one[rows, None] == other
        return ~shared

    return mask


def not_known_positive_row_mask(
    anchors: Int[Tensor, " anchors"], positives: Int[Tensor, " anchors"], candidates: Int[Tensor, " candidates"]
) -> RowMask:
    """Return a mask of the candidates that are not known positives of the anchor.

    False at [i, k] if candidate k has the same text as anchor i, or as the positive of any row whose anchor has the
    same text as anchor i. All arguments are text ids, integers >= 0; equal texts have equal ids.

    Raises NearfarError for negative ids and for columns of different lengths.

    >>> anchors, positives = torch.tensor([0, 1, 0]), torch.tensor([2, 3, 4])
    >>> not_known_positive_row_mask(anchors, positives, torch.tensor([2, 3, 4, 0]))(torch.tensor([0, 1]))
    tensor([[False,  True, False, False],
            [ True, False,  True,  True]])
    """
    if anchors.ndim != 1 or positives.shape != anchors.shape or candidates.ndim != 1:
        shapes = [tuple(x.shape) for x in (anchors, positives, candidates)]
        raise NearfarError("anchors {} and positives {} must have the same length, candidates {} 1-D".format(*shapes))
    both = torch.cat([anchors, positives, candidates])
    if (both < 0).any():
        raise NearfarError(f"text ids must be 0 or more, found {both.min()}")
    texts = int(both.max()) + 1 if len(both) else 0
    # Known positives: distinct sorted pairs of texts, and the offsets of each text's pairs and candidates.
    pairs = torch.cat([anchors * texts + positives, anchors * texts + anchors]).unique()
    of_anchor, near = _group_offsets(pairs // max(texts, 1), texts), pairs % max(texts, 1)
    of_text, columns = _group_offsets(candidates, texts), candidates.argsort()

    def mask(rows: Int[Tensor, " anchors"]) -> Bool[Tensor, "anchors candidates"]:
        row, pair = _group_members(anchors[rows], of_anchor)
        which, place = _group_members(near[pair], of_text)
        not_known_positive = torch.ones(len(rows), len(candidates), dtype=torch.bool, device=rows.device)
        not_known_positive[row[which], columns[place]] = False
        return not_known_positive

    return mask


def all_row_masks(*masks: RowMask) -> RowMask:
    """Combine masks by logical and: True where all of them are True.

    >>> texts, others = distinct_row_mask(torch.tensor([0, 0, 1])), distinct_row_mask(torch.tensor([0, 1, 1]))
    >>> all_row_masks(texts, others)(torch.tensor([0]))
    tensor([[False, False,  True]])
    """
    return lambda rows: torch.stack([mask(rows) for mask in masks]).all(dim=0)


def masked_fraction(mask: RowMask, known: RowMask, anchors: int, candidates: int, *, device: torch.device) -> Tensor:
    """Return the fraction of the known negatives that a mask excludes, over all anchors; 0 without known negatives.

    >>> known, mask = distinct_row_mask(torch.arange(3)), distinct_row_mask(torch.tensor([0, 0, 1]))
    >>> masked_fraction(mask, known, 3, 3, device=torch.device("cpu"))  # 2 of 6
    tensor(0.3333)
    """
    counts = torch.zeros(2, dtype=torch.long, device=device)
    for rows in row_blocks(anchors, candidates, device=device):
        here = known(rows)
        counts += torch.stack([(here & ~mask(rows)).sum(), here.sum()])
    return counts[0] / counts[1].clamp(min=1)


def below_positive(
    anchors: Float[Tensor, "anchors dim"],
    positives: Float[Tensor, "anchors dim"],
    candidates: Float[Tensor, "candidates dim"],
    *,
    margin: float,
    similarity: Similarity = "cosine",
) -> Bool[Tensor, "anchors candidates"]:
    """Mask likely false negatives: True where s(a_i, x_k) <= s(a_i, p_i) + margin. Has no gradient.

    A candidate that is more similar to the anchor than the anchor's own positive is likely an unlabelled positive.
    The result is a ``mask`` for :func:`info_nce`, with its positives (and negatives) as the candidates. A candidate
    within rounding of the bound is kept, such as the positive itself, or its duplicate, at margin 0. For large batches
    :func:`below_positive_row_mask` returns the same mask in row blocks.

    Raises NearfarError for a margin that is not finite, an unknown similarity, and shapes that do not match.

    Source: the positive-aware mining of Moreira et al. 2024 (NV-Retriever), with an additive margin.

    >>> anchors, candidates = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> below_positive(anchors, torch.tensor([[3.0, 4.0]]), candidates, margin=0.1)  # cosines 1 and 0 against 0.6
    tensor([[False,  True]])
    """
    mask = below_positive_row_mask(anchors, positives, candidates, margin=margin, similarity=similarity)
    return mask(torch.arange(len(anchors), device=anchors.device))


def distinct_rows(*ids: Int[Tensor, " batch"]) -> Bool[Tensor, "batch batch"]:
    """Mask rows that share a text: True at [i, j] if no text of row i is a text of row j.

    Each of ``ids`` holds the text ids of one column (anchors, positives, ...); equal texts have equal ids in all
    columns. The diagonal is False, because each row shares its texts with itself; an objective keeps an anchor's own
    positive whatever the mask says. To keep the hard negative of the anchor's own row, set the diagonal:
    ``torch.cat([rows, rows | torch.eye(len(rows), dtype=torch.bool)], dim=1)`` is a mask for :func:`info_nce` with one
    negative per anchor. For large batches :func:`distinct_row_mask` returns the same mask in row blocks.

    Raises NearfarError without ids, and for columns of different lengths.

    >>> distinct_rows(torch.tensor([0, 1, 2]), torch.tensor([3, 4, 0]))  # rows 0 and 2 share text 0
    tensor([[False,  True, False],
            [ True, False,  True],
            [False,  True, False]])
    """
    mask = distinct_row_mask(*ids)
    return mask(torch.arange(len(ids[0]), device=ids[0].device))


def mask_rows(
    mask: Tensor | RowMask | None, rows: Int[Tensor, " anchors"], candidates: int
) -> Bool[Tensor, "anchors candidates"] | None:
    """Return these rows of a matrix or RowMask, or None without a mask.

    Raises NearfarError if a RowMask returns anything but a bool tensor [rows, candidates].
    """
    if mask is None or isinstance(mask, Tensor):
        return None if mask is None else mask[rows]
    found = mask(rows)
    check_mask(found, len(rows), candidates)
    return found


def _group_offsets(groups: Tensor, count: int) -> Tensor:
    """Return the offsets of each group's members after sorting by group, and the end of the last group."""
    return torch.cat([groups.new_zeros(1), groups.bincount(minlength=count).cumsum(0)])


def _group_members(groups: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """List all members of some groups: the index of their group in ``groups``, and their own in the sorted order."""
    starts, counts = bounds[groups], bounds[groups + 1] - bounds[groups]
    whose = torch.arange(len(groups), device=groups.device).repeat_interleave(counts)
    before = counts.cumsum(0) - counts
    return whose, torch.arange(len(whose), device=groups.device) + (starts - before)[whose]
