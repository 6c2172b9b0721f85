"""Masks of likely positives for large batches: some rows at a time, as the objectives ask for them."""

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
"""Numbers of some anchors [rows] -> which candidates may stand in their denominators, bool [rows, candidates].

It is asked for the same anchors again when gradients are computed, and must say the same.
"""


def below_positive_row_mask(
    anchors: Float[Tensor, "anchors dim"],
    positives: Float[Tensor, "anchors dim"],
    candidates: Float[Tensor, "candidates dim"],
    *,
    margin: float,
    similarity: Similarity = "cosine",
) -> RowMask:
    """Rows of :func:`below_positive`: where s(a_i, x_k) <= s(a_i, p_i) + margin. No gradient flows.

    Raises NearfarError for what :func:`below_positive` refuses.

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
        bounds = own + margin + 16 * torch.finfo(one.dtype).eps * lengths[0] * lengths[1]  # and rounding

    def mask(rows: Int[Tensor, " anchors"]) -> Bool[Tensor, "anchors candidates"]:
        with torch.no_grad(), torch.autocast(one.device.type, enabled=False):
            return one[rows] @ other.T <= bounds[rows, None]

    return mask


def distinct_row_mask(*ids: Int[Tensor, " batch"]) -> RowMask:
    """Rows of :func:`distinct_rows`: False at [i, j] where two rows of a batch share a text.

    Raises NearfarError for what :func:`distinct_rows` refuses.

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
    """Where no row names a candidate's text as near: it is not the anchor's, nor a positive of any equal anchor.

    False at [i, k] where candidate k has the text of anchor i, or that of a positive of any row whose anchor has the
    text of anchor i. All are numbers from 0 up, equal texts by equal numbers.

    Raises NearfarError for numbers below 0 and for columns of different lengths.

    >>> anchors, positives = torch.tensor([0, 1, 0]), torch.tensor([2, 3, 4])
    >>> not_known_positive_row_mask(anchors, positives, torch.tensor([2, 3, 4, 0]))(torch.tensor([0, 1]))
    tensor([[False,  True, False, False],
            [ True, False,  True,  True]])
    """
    if anchors.ndim != 1 or positives.shape != anchors.shape or candidates.ndim != 1:
        shapes = [tuple(x.shape) for x in (anchors, positives, candidates)]
        raise NearfarError("anchors {} and positives {} must be as many, and candidates {} a row".format(*shapes))
    both = torch.cat([anchors, positives, candidates])
    if (both < 0).any():
        raise NearfarError(f"texts are numbered from 0 up, but there is a number {both.min()}")
    texts = int(both.max()) + 1 if len(both) else 0
    # Who is near to whom: pairs of texts, each once and in order, and the places of each text's pairs and candidates.
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
    """Where all of these are True.

    >>> texts, others = distinct_row_mask(torch.tensor([0, 0, 1])), distinct_row_mask(torch.tensor([0, 1, 1]))
    >>> all_row_masks(texts, others)(torch.tensor([0]))
    tensor([[False, False,  True]])
    """
    return lambda rows: torch.stack([mask(rows) for mask in masks]).all(dim=0)


def masked_fraction(mask: RowMask, known: RowMask, anchors: int, candidates: int, *, device: torch.device) -> Tensor:
    """The share of the known negatives that a mask leaves out, over all anchors; 0 if there are none known.

    >>> known, mask = distinct_row_mask(torch.arange(3)), distinct_row_mask(torch.tensor([0, 0, 1]))
    >>> masked_fraction(mask, known, 3, 3, device=torch.device("cpu"))  # 2 of 6
    tensor(0.3333)
    """
    counts = torch.zeros(2, dtype=torch.long, device=device)
    for rows in row_blocks(anchors, candidates, device=device):
        here = known(rows)
        counts += torch.stack([(here & ~mask(rows)).sum(), here.sum()])
    return counts[0] / counts[1].clamp(min=1)


def mask_rows(
    mask: Tensor | RowMask | None, rows: Int[Tensor, " anchors"], candidates: int
) -> Bool[Tensor, "anchors candidates"] | None:
    """These rows of a mask of either kind, or None. Raises NearfarError for a RowMask that gives something else."""
    if mask is None or isinstance(mask, Tensor):
        return None if mask is None else mask[rows]
    found = mask(rows)
    check_mask(found, len(rows), candidates)
    return found


def _group_offsets(groups: Tensor, count: int) -> Tensor:
    """Where the members of each group begin, once sorted by group, and where the last ones end."""
    return torch.cat([groups.new_zeros(1), groups.bincount(minlength=count).cumsum(0)])


def _group_members(groups: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """All members of some groups: the place of their group in ``groups``, and their own in the sorted order."""
    starts, counts = bounds[groups], bounds[groups + 1] - bounds[groups]
    whose = torch.arange(len(groups), device=groups.device).repeat_interleave(counts)
    before = counts.cumsum(0) - counts
    return whose, torch.arange(len(whose), device=groups.device) + (starts - before)[whose]
