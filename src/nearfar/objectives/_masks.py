"""Masks of candidates that are no negatives of an anchor: equal texts, known positives, likely positives."""

from functools import reduce
from itertools import product
from operator import or_

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.objectives._contrast import RowMask, by_rows
from nearfar.objectives._similarity import Similarity, check_finite, check_shapes, prepare_pair, prepare_vectors
from nearfar.types import NearfarError


def distinct_rows(*ids: Int[Tensor, " batch"]) -> RowMask:
    """Mask rows that share a text: True at [i, j] if no text of row i is a text of row j.

    Each of ``ids`` holds the text ids of one column (anchors, positives, ...); equal texts have equal ids in all
    columns. The diagonal is False, because each row shares its texts with itself; an objective keeps an anchor's own
    positive whatever the mask says.

    Raises NearfarError for columns of different lengths.

    >>> distinct_rows(torch.tensor([0, 1, 2]), torch.tensor([3, 4, 0]))[:]  # rows 0 and 2 share text 0
    tensor([[False,  True, False],
            [ True, False,  True],
            [False,  True, False]])
    """
    check_shapes(", ".join(f"ids{number} [batch]" for number in range(len(ids))), *ids)
    shared = [RowMask.equal(one, other) for one, other in product(ids, repeat=2)]
    return ~reduce(or_, shared)


def not_known_positive(
    anchors: Int[Tensor, " anchors"], positives: Int[Tensor, " anchors"], candidates: Int[Tensor, " candidates"]
) -> RowMask:
    """Mask known positives: False at [i, k] if candidate k is a known positive of anchor i, or equal to it.

    A known positive is a text that is the positive of any row whose anchor has the same text as anchor i. All arguments
    are text ids; equal texts have equal ids.

    Raises NearfarError for columns of different lengths.

    >>> anchors, positives = torch.tensor([0, 1, 0]), torch.tensor([2, 3, 4])
    >>> not_known_positive(anchors, positives, torch.tensor([2, 3, 4, 0]))[:2]
    tensor([[False,  True, False, False],
            [ True, False,  True,  True]])
    """
    check_shapes("anchors [anchors], positives [anchors], candidates [candidates]", anchors, positives, candidates)
    ids = numbered(torch.cat([anchors, positives, candidates]))
    anchors, positives, candidates = ids.split([len(anchors), len(anchors), len(candidates)])

    def unknown(rows: slice) -> Bool[Tensor, "rows candidates"]:
        own = anchors[rows, None]
        known = torch.zeros(len(own), len(ids) + 1, dtype=torch.bool, device=ids.device)
        known.scatter_(1, torch.where(own == anchors, positives, len(ids)), value=True)  # the last column is of no text
        return ~known.scatter_(1, own, value=True)[:, candidates]

    return RowMask(unknown, (len(anchors), len(candidates)))


def numbered(ids: Int[Tensor, " texts"]) -> Int[Tensor, " texts"]:
    """The place of each id among the distinct ones, in ascending order, from 0.

    As ``unique`` gives it, by operations whose shapes depend on no value, which a CUDA graph can repeat.

    >>> numbered(torch.tensor([30, 10, 30]))
    tensor([1, 0, 1])
    """
    ordered, order = ids.sort()
    new = torch.cat([ordered.new_zeros(min(len(ids), 1)), (ordered.diff() != 0).long()])
    return torch.empty_like(ids).scatter_(0, order, new.cumsum(0))


def below_positive(
    anchors: Float[Tensor, "anchors dim"],
    positives: Float[Tensor, "anchors dim"],
    candidates: Float[Tensor, "candidates dim"],
    *,
    margin: float,
    similarity: Similarity = "cosine",
) -> RowMask:
    """Mask likely false negatives: True where s(a_i, x_k) <= s(a_i, p_i) + margin. Has no gradient.

    A candidate that is more similar to the anchor than the anchor's own positive is likely an unlabelled positive.
    The result is a ``mask`` for :func:`info_nce`, with its positives (and negatives) as the candidates. A candidate
    within rounding of the bound is kept, such as the positive itself, or its duplicate, at margin 0.

    Raises NearfarError for a margin that is not finite, an unknown similarity, and shapes that do not match.

    Source: the positive-aware mining of Moreira et al. 2024 (NV-Retriever), with an additive margin.

    >>> anchors, candidates = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> below_positive(anchors, torch.tensor([[3.0, 4.0]]), candidates, margin=0.1)[:]  # cosines 1 and 0 against 0.6
    tensor([[False,  True]])
    """
    expected = "anchors [anchors dim], positives [anchors dim], candidates [candidates dim]"
    check_shapes(expected, anchors, positives, candidates)
    check_finite("margin", margin)
    with torch.no_grad():
        one, other = prepare_pair(anchors, candidates, similarity)
        near = other if positives is candidates else prepare_vectors(positives, one.dtype, similarity)
        own = (one * near).sum(dim=1)
        lengths = [1.0 if similarity == "cosine" else vectors.norm(dim=1) for vectors in (one, near)]
        bounds = own + margin + 16 * torch.finfo(one.dtype).eps * lengths[0] * lengths[1]  # tolerance for rounding

    def below(rows: slice) -> Bool[Tensor, "rows candidates"]:
        with torch.no_grad(), torch.autocast(one.device.type, enabled=False):
            return one[rows] @ other.T <= bounds[rows, None]

    return RowMask(below, (len(anchors), len(candidates)))


def masked_fraction(mask: RowMask, known: RowMask) -> Float[Tensor, ""]:
    """Return the fraction of the known negatives that a mask excludes, over all anchors; 0 without known negatives.

    >>> known, mask = distinct_rows(torch.arange(3)), distinct_rows(torch.tensor([0, 0, 1]))
    >>> masked_fraction(mask, known)  # 2 of 6
    tensor(0.3333)
    """
    return (known & ~mask).sum() / known.sum().clamp(min=1)


def capped(
    members: RowMask,
    count: int | None,
    generator: torch.Generator | None,
    *,
    always: Int[Tensor, " anchors"] | None = None,
) -> RowMask:
    """Keep at most ``count`` members of each row, drawn without replacement, the column in ``always`` among them.

    They are drawn here, once, and stored as column indices; a row with fewer members is padded with the number of
    columns.
    """
    if count is None:
        return members

    def draw(rows: slice) -> Int[Tensor, "anchors places"]:
        among = members[rows]
        keys = torch.rand(among.shape, generator=generator, device=among.device)
        if always is not None:
            keys.scatter_(1, always[rows, None], 1.0)  # above every key drawn
        places = keys.masked_fill_(~among, -1.0).topk(min(count, among.shape[1]), dim=1).indices
        return places.masked_fill_(~among.gather(1, places), among.shape[1])

    drawn = by_rows(draw, *members.shape)

    def kept(rows: slice) -> Bool[Tensor, "anchors pairs"]:
        mask = torch.zeros(len(drawn[rows]), members.shape[1] + 1, dtype=torch.bool, device=drawn.device)
        return mask.scatter_(1, drawn[rows], value=True)[:, :-1]

    return RowMask(kept, members.shape)


def full_mask(mask: Bool[Tensor, "anchors candidates"] | RowMask | None, anchors: int, candidates: Tensor) -> RowMask:
    """The mask of ``anchors`` rows and the candidates, on their device; all True if there is none.

    Raises NearfarError unless the mask is None, or a RowMask or a boolean tensor of this shape.
    """
    shape, device = (anchors, len(candidates)), candidates.device
    if mask is None:
        return RowMask.columns(torch.ones(len(candidates), dtype=torch.bool, device=device), anchors)
    check_mask(mask, *shape)
    return (mask if isinstance(mask, RowMask) else RowMask(mask.__getitem__, shape)).to(device)


def not_itself(anchors: int, candidates: Tensor) -> RowMask:
    """All candidates but the one in the column of each anchor's own number."""
    device = candidates.device
    return ~RowMask.equal(torch.arange(anchors, device=device), torch.arange(len(candidates), device=device))


def check_mask(mask: Tensor | RowMask | None, rows: int, columns: int) -> None:
    """Raise NearfarError unless the mask is None, or a RowMask or a boolean tensor [rows, columns]."""
    dtype = mask.dtype if isinstance(mask, Tensor) else torch.bool
    if mask is not None and (dtype != torch.bool or tuple(mask.shape) != (rows, columns)):
        raise NearfarError(
            f"mask must be a bool tensor of shape {(rows, columns)}, not {dtype} of shape {tuple(mask.shape)}"
        )
