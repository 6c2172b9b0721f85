"""InfoNCE in other directions: from positives to anchors, in both, or also within the anchors and the positives."""

import math
from typing import Literal, NamedTuple, TypeAlias, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.objectives._candidate_masks import RowMask, all_row_masks, mask_rows, not_known_positive_row_mask
from nearfar.objectives._contrast import contrast
from nearfar.objectives._contrast_targets import ContrastTargets
from nearfar.objectives._info_nce import check_and_join, info_nce
from nearfar.objectives._similarity import Similarity, prepare_pair
from nearfar.types import NearfarError

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

    if directions == "all":
        candidates = check_and_join(
            anchors,
            positives,
            negatives,
            temperature=temperature,
            hard_negative_weight=hard_negative_weight,
            similarity=similarity,
        )
        return _all_directions(
            anchors, candidates, masks, temperature=temperature, weight=hard_negative_weight, similarity=similarity
        )
    if directions != "query_to_doc":
        backward = info_nce(positives, anchors, temperature=temperature, similarity=similarity, mask=masks.doc_to_query)
        if directions == "doc_to_query":
            return backward
    forward = info_nce(
        anchors,
        positives,
        negatives,
        temperature=temperature,
        hard_negative_weight=hard_negative_weight,
        similarity=similarity,
        mask=masks.query_to_doc,
    )
    return forward if directions == "query_to_doc" else (forward + backward) / 2


def _all_directions(
    anchors: Float[Tensor, "batch dim"],
    documents: Float[Tensor, "candidates dim"],
    masks: DirectionMasks,
    *,
    temperature: float,
    weight: float,
    similarity: Similarity,
) -> Float[Tensor, " batch"]:
    """One softmax over the comparisons of all directions; the positives come first among the documents."""
    batch = len(anchors)
    queries, docs = prepare_pair(anchors, documents, similarity)
    positives = docs[:batch]
    own = (queries * positives).sum(dim=1) / temperature

    def others(
        one: Tensor, other: Tensor, mask: RowMask | None, own_negatives: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, " batch"]:
        """Log-sum-exp of each row's logits, without the one in its own column."""

        def targets_fn(rows: Int[Tensor, " anchors"]) -> ContrastTargets:
            kept = mask_rows(mask, rows, len(other))
            return ContrastTargets(
                positives=None,
                candidate_mask=kept,
                self_column=rows,
                own_negatives=None if own_negatives is None else own_negatives[rows],
                weight=weight,
            )

        return contrast(one, other, targets_fn, temperature=temperature, similarity="dot", mean_reduction=False)

    rows = torch.arange(batch, device=anchors.device)
    negatives = torch.stack(
        [
            others(queries, docs, masks.query_to_doc, batch + rows if weight else None),
            others(positives, queries, masks.doc_to_query),
            others(queries, queries, masks.query_to_query),
            others(positives, docs, masks.doc_to_doc),
        ]
    ).logsumexp(dim=0)
    # -log(e^own / (2 e^own + e^negatives)) = log(2 + e^(negatives - own)), in full precision at any distance.
    return torch.logaddexp(negatives - own, torch.full_like(own, math.log(2)))


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

    Raises NearfarError as :func:`nearfar.objectives.not_known_positive_row_mask` does.

    >>> masks = direction_masks("both", torch.tensor([0, 1, 0]), torch.tensor([2, 3, 4]))
    >>> masks.query_to_doc(torch.tensor([0]))  # row 2 has the same anchor
    tensor([[False,  True, False]])
    >>> masks.doc_to_query(torch.tensor([1]))
    tensor([[ True, False,  True]])
    """
    documents = positives if negatives is None else torch.cat([positives, negatives])
    queries, docs = (
        (anchors, positives) if near is None else map(torch.cat, zip((anchors, positives), near, strict=True))
    )
    first = (_first_occurrences(anchors), _first_occurrences(documents)) if distinct else (None, None)

    def masked(one: Tensor, other: Tensor, candidates: Tensor, kept: Tensor | None) -> RowMask:
        mask = not_known_positive_row_mask(one, other, candidates)
        return mask if kept is None else lambda rows: mask(rows) & kept

    forward = masked(queries, docs, documents, first[1])
    found = DirectionMasks(query_to_doc=forward)
    if directions == "query_to_doc":
        return found
    found = found._replace(doc_to_query=masked(docs, queries, anchors, first[0]))
    if directions != "all":
        return found
    of_other_texts = [forward, masked(docs, queries, documents, None)]
    if negatives is not None:
        owners = anchors if owners is None else owners
        own = torch.cat([anchors, owners]), torch.cat([positives, negatives])
        of_other_texts.append(not_known_positive_row_mask(*own, documents))
    return found._replace(
        query_to_query=masked(queries, docs, anchors, first[0]), doc_to_doc=all_row_masks(*of_other_texts)
    )


def _first_occurrences(ids: Int[Tensor, " texts"]) -> Bool[Tensor, " texts"]:
    """Where an id occurs for the first time."""
    _, number = ids.unique(return_inverse=True)
    places = torch.arange(len(ids), device=ids.device)
    first = torch.full((len(ids),), len(ids), device=ids.device).scatter_reduce(0, number, places, "amin")
    return first[number] == places
