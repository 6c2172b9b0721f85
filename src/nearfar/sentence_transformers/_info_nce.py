"""InfoNCE without known positives among the negatives, for ``SentenceTransformerTrainer``."""

import sys
from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from nearfar.methods.simcse import PAPER
from nearfar.objectives import Directions, Similarity, direction_masks, info_nce_directions
from nearfar.sentence_transformers._features import Features, columns_of, edge_tokens, embed, refuse_labels, text_ids


class InfoNceLoss(nn.Module):
    """InfoNCE with in-batch negatives, of which those that the rows show to be positives are left out.

    The mean over the rows of :func:`nearfar.objectives.info_nce_directions`. Left out as negatives of an anchor are
    texts equal to it, and the positives of all rows with the same anchor text. Other losses need batches without
    repeated texts for this; here every batch will do.

    **Columns**: anchor, positive, and any number of negatives, in this order. **Labels**: none.

    For single sentences (SimCSE without supervision) give the same column twice; dropout makes the two views.

    Args:
        model: the model to train.
        temperature: divides the similarities.
        directions: ``query_to_doc`` compares anchors with positives and negatives, ``doc_to_query`` positives with
            anchors, ``both`` is the mean of the two, ``all`` one softmax over all comparisons.
        hard_negative_weight: added to the logit of an anchor's own negative (log alpha of Gao et al. 2021); with one
            column of negatives.
        similarity: ``cosine`` or ``dot``.

    Raises:
        NearfarError: in the first batch, for other columns, for labels, and for settings out of range.

    Source: Gao et al. 2021 (SimCSE). The masks are nearfar's addition; the method ``info-nce`` has the same loss.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.05,
        directions: Directions = "query_to_doc",
        hard_negative_weight: float = 0.0,
        similarity: Similarity = "cosine",
    ) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature
        self.directions: Directions = directions
        self.hard_negative_weight = hard_negative_weight
        self.similarity: Similarity = similarity
        self._edges = edge_tokens(model)

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar."""
        refuse_labels(self, labels)
        columns = columns_of(self, sentence_features, range(2, sys.maxsize), "anchor, positive[, negatives]")
        anchor_ids, positive_ids, *negative_ids = text_ids(columns, self._edges)
        anchors, positives, *negatives = embed(self.model, columns)
        masks = direction_masks(
            self.directions,
            anchor_ids,
            positive_ids,
            torch.cat(negative_ids) if negatives else None,
            owners=anchor_ids.repeat(len(negatives)) if negatives else None,
        )
        losses = info_nce_directions(
            anchors,
            positives,
            torch.cat(negatives) if negatives else None,
            directions=self.directions,
            temperature=self.temperature,
            hard_negative_weight=self.hard_negative_weight,
            similarity=self.similarity,
            masks=masks,
        )
        return losses.mean()

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        return {
            "temperature": self.temperature,
            "directions": self.directions,
            "hard_negative_weight": self.hard_negative_weight,
            "similarity": self.similarity,
        }

    @property
    def citation(self) -> str:
        """BibTeX of the paper, for the model card."""
        return PAPER
