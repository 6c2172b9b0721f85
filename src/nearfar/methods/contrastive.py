"""InfoNCE of methods with anchors, positives and negatives: the loss of each row, the margin, and the terms to log."""

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.methods.settings import InfoNceSettings
from nearfar.objectives import (
    DirectionMasks,
    Directions,
    RowMask,
    Similarity,
    below_positive,
    info_nce_directions,
    masked_fraction,
)


def contrastive_loss(
    config: InfoNceSettings,
    anchors: Float[Tensor, "batch dim"],
    positives: Float[Tensor, "batch dim"],
    negatives: Float[Tensor, "negatives dim"] | None,
    *,
    masks: DirectionMasks,
    own_negatives: RowMask | None = None,
    directions: Directions = "query_to_doc",
    hard_negative_weight: float = 0.0,
    similarity: Similarity = "cosine",
) -> tuple[Float[Tensor, " batch"], dict[str, Tensor]]:
    """The loss of each row, and the terms to log: ``accuracy``, and with a margin ``left_out``.

    ``masks`` are True where a candidate is a negative, judged by the texts alone; there must be one for
    ``query_to_doc``. ``own_negatives`` is True where a document is a hard negative of the row's own anchor, which the
    margin never leaves out. ``accuracy`` is the share of anchors with no negative more similar than their own positive,
    ``left_out`` the share of an anchor's negatives that the margin leaves out.
    """
    documents = positives if negatives is None else torch.cat([positives, negatives])
    known = masks.query_to_doc
    assert known is not None
    # The share of anchors with no negative nearer than the positive; the margin leaves out none of them.
    below = below_positive(anchors, positives, documents, margin=0.0, similarity=similarity)
    terms = {"accuracy": (below | ~known).all_candidates().float().sum() / max(len(anchors), 1)}
    if config.false_negative_margin is not None:
        masks = _with_margin(
            masks, anchors, positives, documents, own_negatives, margin=config.false_negative_margin, kind=similarity
        )
        assert masks.query_to_doc is not None
        terms["left_out"] = masked_fraction(masks.query_to_doc, known)
    losses = info_nce_directions(
        anchors,
        positives,
        negatives,
        directions=directions,
        temperature=config.temperature,
        hard_negative_weight=hard_negative_weight,
        similarity=similarity,
        masks=masks,
    )
    return losses, terms


def _with_margin(
    masks: DirectionMasks,
    anchors: Float[Tensor, "batch dim"],
    positives: Float[Tensor, "batch dim"],
    documents: Float[Tensor, "candidates dim"],
    own_negatives: RowMask | None,
    *,
    margin: float,
    kind: Similarity,
) -> DirectionMasks:
    """The masks without candidates more similar to the row's text than its partner, by more than the margin."""

    def below(known: RowMask | None, one: Tensor, other: Tensor, candidates: Tensor) -> RowMask | None:
        if known is None:
            return None
        return known & below_positive(one, other, candidates, margin=margin, similarity=kind)

    found = DirectionMasks(
        below(masks.query_to_doc, anchors, positives, documents),
        below(masks.doc_to_query, positives, anchors, anchors),
        below(masks.query_to_query, anchors, positives, anchors),
        below(masks.doc_to_doc, positives, anchors, documents),
    )
    if own_negatives is None or found.query_to_doc is None or masks.query_to_doc is None:
        return found
    return found._replace(query_to_doc=found.query_to_doc | (masks.query_to_doc & own_negatives))
