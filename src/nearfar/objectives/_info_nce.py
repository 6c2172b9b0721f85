"""InfoNCE: identify an anchor's positive among in-batch negatives.

And in other directions: from positives to anchors, in both, or also within the anchors and the positives.
"""

import math
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.objectives._contrast import RowMask, contrast
from nearfar.objectives._masks import check_mask, full_mask, not_itself, not_known_positive, numbered
from nearfar.objectives._similarity import Similarity, check_finite, check_shapes, prepare_pair
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
    candidates = join_candidates(anchors, positives, negatives, hard_negative_weight)
    check_mask(mask, len(anchors), len(candidates))
    own = torch.arange(len(anchors), device=anchors.device)
    return contrast(
        anchors,
        candidates,
        own,
        mask,
        temperature=temperature,
        similarity=similarity,
        raised=len(anchors) + own if hard_negative_weight else None,
        weight=hard_negative_weight,
    )


def join_candidates(anchors: Tensor, positives: Tensor, negatives: Tensor | None, weight: float) -> Tensor:
    """The positives and then the negatives, after a check of their shapes and of the weight of hard negatives."""
    check_shapes("anchors [batch dim], positives [batch dim], negatives [negatives dim]", anchors, positives, negatives)
    check_finite("hard_negative_weight", weight)
    if weight and (negatives is None or len(negatives) != len(anchors)):
        given = "none" if negatives is None else len(negatives)
        raise NearfarError(
            f"hard_negative_weight {weight} applies to each anchor's own negative, "
            f"so {len(anchors)} anchors need {len(anchors)} negatives, but there are {given}"
        )
    return positives if negatives is None else torch.cat([positives, negatives])


# --- other directions ---

Directions: TypeAlias = Literal["query_to_doc", "doc_to_query", "both", "all"]
"""The comparisons of InfoNCE; anchors are queries, positives and negatives are documents.

``query_to_doc`` compares anchors with documents, ``doc_to_query`` positives with anchors, ``both`` is the mean of the
two, and ``all`` is one softmax over these comparisons, those of anchors with each other, and those of positives with
all documents.
"""


class DirectionMasks(NamedTuple):
    """The candidates that are kept in the denominators of each direction; None for all but a row's own texts."""

    query_to_doc: RowMask | None = None
    """Rows are anchors, columns the positives and then the negatives."""
    doc_to_query: RowMask | None = None
    """Rows are positives, columns the anchors."""
    query_to_query: RowMask | None = None
    """Rows and columns are anchors."""
    doc_to_doc: RowMask | None = None
    """Rows are positives, columns the positives and then the negatives."""

    def to(self, device: torch.device) -> "DirectionMasks":
        """The same masks on ``device`` (:meth:`RowMask.to`)."""
        return DirectionMasks(*(None if mask is None else mask.to(device) for mask in self))


def info_nce_directions(
    anchors: Float[Tensor, "batch dim"],
    positives: Float[Tensor, "batch dim"],
    negatives: Float[Tensor, "negatives dim"] | None = None,
    *,
    directions: Directions = "query_to_doc",
    temperature: float = 0.05,
    hard_negative_weight: float = 0.0,
    similarity: Similarity = "cosine",
    masks: DirectionMasks | None = None,
) -> Float[Tensor, " batch"]:
    """InfoNCE with the comparisons that ``directions`` names.

    With s the similarity, t the temperature, anchors a, positives p, negatives n and documents d (the positives and the
    negatives), e(x, y) = exp(s(x, y) / t):

    - ``query_to_doc``: :func:`info_nce`, -log[ e(a_i, p_i) / sum_k e(a_i, d_k) ]
    - ``doc_to_query``: -log[ e(a_i, p_i) / sum_j e(p_i, a_j) ]
    - ``both``: the mean of the two
    - ``all``: -log[ e(a_i, p_i) / ( sum_k e(a_i, d_k) + sum_j e(p_i, a_j) + sum_{j != i} e(a_i, a_j)
      + sum_{k != i} e(p_i, d_k) ) ], in which the own pair occurs twice

    ``masks`` has a mask of the candidates for each direction; a row's own positive is always kept where it is a
    candidate, and a row is never its own negative. ``hard_negative_weight`` is added to the logit of the own negative
    of an anchor, in ``query_to_doc``, ``both`` and ``all``. Precision and masks for large batches are as in
    :func:`info_nce`.

    Raises NearfarError for unknown directions, a ``hard_negative_weight`` with ``doc_to_query``, and as
    :func:`info_nce` does.

    Source: ``both`` Günther et al. 2023 (Jina Embeddings 2), ``all`` Li et al. 2023 (GTE), section 3.3;
    sentence-transformers' MultipleNegativesRankingLoss has the same comparisons and their names. Masks are nearfar's
    addition.

    >>> same = torch.ones(4, 2)
    >>> info_nce_directions(same, same, directions="all")  # log(4 + 4 + 3 + 3)
    tensor([2.6391, 2.6391, 2.6391, 2.6391])
    """
    if directions not in get_args(Directions):
        raise NearfarError(f"directions must be one of {', '.join(get_args(Directions))}, not {directions!r}")
    masks = DirectionMasks() if masks is None else masks
    if directions == "doc_to_query" and hard_negative_weight:
        raise NearfarError("hard_negative_weight applies to an anchor's negative, and doc_to_query has no negatives")
    settings: dict[str, Any] = {"temperature": temperature, "similarity": similarity}
    if directions in ("query_to_doc", "both"):
        forward = info_nce(
            anchors,
            positives,
            negatives,
            mask=masks.query_to_doc,
            hard_negative_weight=hard_negative_weight,
            **settings,
        )
        if directions == "query_to_doc":
            return forward
    if directions in ("doc_to_query", "both"):
        backward = info_nce(positives, anchors, mask=masks.doc_to_query, **settings)
        return backward if directions == "doc_to_query" else (forward + backward) / 2

    batch, documents = len(anchors), join_candidates(anchors, positives, negatives, hard_negative_weight)
    queries, docs = prepare_pair(anchors, documents, similarity)
    own_logits = (queries * docs[:batch]).sum(dim=1) / temperature

    def others(one: Tensor, other: Tensor, mask: RowMask | None, weight: float = 0.0) -> Float[Tensor, " batch"]:
        """Log-sum-exp of each row's logits, without the one in its own column."""
        return contrast(
            one,
            other,
            None,
            full_mask(mask, batch, other) & not_itself(batch, other),
            temperature=temperature,
            similarity="dot",
            raised=batch + torch.arange(batch, device=anchors.device) if weight else None,
            weight=weight,
            mean_reduction=False,
        )

    of_directions = (
        others(queries, docs, masks.query_to_doc, hard_negative_weight),
        others(docs[:batch], queries, masks.doc_to_query),
        others(queries, queries, masks.query_to_query),
        others(docs[:batch], docs, masks.doc_to_doc),
    )
    # -log(e^own / (2 e^own + e^negatives)) = log(2 + e^(negatives - own)), in full precision at any distance.
    return torch.logaddexp(
        torch.stack(of_directions).logsumexp(dim=0) - own_logits, torch.full_like(own_logits, math.log(2))
    )


def direction_masks(
    directions: Directions,
    anchors: Int[Tensor, " batch"],
    positives: Int[Tensor, " batch"],
    negatives: Int[Tensor, " negatives"] | None = None,
    *,
    owners: Int[Tensor, " negatives"] | None = None,
    near: tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]] | None = None,
    distinct: bool = False,
) -> DirectionMasks:
    """The masks of ``directions`` by text ids, integers >= 0; equal texts have equal ids.

    Left out are candidates with the text of the row itself, known positives of its text (the partners of equal texts in
    other rows), and in ``doc_to_doc`` the texts of the negatives of the row's anchor. ``owners`` are the anchors of the
    negatives, by default those of the same rows. ``near`` are further pairs (anchors, documents) that are no negatives
    of each other. With ``distinct`` a text that occurs several times among the candidates is one candidate.

    >>> masks = direction_masks("both", torch.tensor([0, 1, 0]), torch.tensor([2, 3, 4]))
    >>> masks.query_to_doc[:1]  # row 2 has the same anchor
    tensor([[False,  True, False]])
    >>> masks.doc_to_query[1:2]
    tensor([[ True, False,  True]])
    """
    documents = positives if negatives is None else torch.cat([positives, negatives])
    queries, docs = anchors, positives
    if near is not None:
        queries, docs = torch.cat([queries, near[0]]), torch.cat([docs, near[1]])

    def unknown(one: Tensor, other: Tensor, candidates: Tensor, *, distinct: bool = distinct) -> RowMask:
        every = not_known_positive(one, other, candidates)
        mask = RowMask(every.__getitem__, (len(anchors), len(candidates)))  # without the rows of ``near``
        return mask & RowMask.columns(_first_occurrences(candidates), len(anchors)) if distinct else mask

    masks = DirectionMasks(query_to_doc=unknown(queries, docs, documents))
    if directions == "query_to_doc":
        return masks
    masks = masks._replace(doc_to_query=unknown(docs, queries, anchors))
    if directions != "all":
        return masks
    of_positives = unknown(queries, docs, documents) & unknown(docs, queries, documents, distinct=False)
    if negatives is not None:
        of_anchors = torch.cat([anchors, anchors if owners is None else owners])
        of_positives &= unknown(of_anchors, torch.cat([positives, negatives]), documents, distinct=False)
    return masks._replace(query_to_query=unknown(queries, docs, anchors), doc_to_doc=of_positives)


def _first_occurrences(ids: Int[Tensor, " texts"]) -> Bool[Tensor, " texts"]:
    """Where an id occurs for the first time."""
    number, places = numbered(ids), torch.arange(len(ids), device=ids.device)
    first = torch.full((len(ids),), len(ids), device=ids.device).scatter_reduce(0, number, places, "amin")
    return first[number] == places
