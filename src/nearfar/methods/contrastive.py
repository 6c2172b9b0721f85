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
    known, margin = masks.query_to_doc, config.false_negative_margin
    assert known is not None
    # The share of anchors with no negative nearer than the positive; the margin leaves out none of them.
    below = below_positive(anchors, positives, documents, margin=0.0, similarity=similarity)
    terms = {"accuracy": (below | ~known).all_candidates().float().sum() / max(len(anchors), 1)}
    if margin is not None:
        of_directions = (  # an anchor, its positive, and the candidates
            (anchors, positives, documents),
            (positives, anchors, anchors),
            (anchors, positives, anchors),
            (positives, anchors, documents),
        )
        query_to_doc, *others = (
            None if mask is None else mask & below_positive(*vectors, margin=margin, similarity=similarity)
            for mask, vectors in zip(masks, of_directions, strict=True)
        )
        assert query_to_doc is not None
        if own_negatives is not None:
            query_to_doc |= known & own_negatives
        masks = DirectionMasks(query_to_doc, *others)
        terms["left_out"] = masked_fraction(query_to_doc, known)
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
