"""Supervised contrastive loss over the labels of texts, for ``SentenceTransformerTrainer``."""

from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from nearfar.methods.gunel import PAPER
from nearfar.objectives import supcon
from nearfar.sentence_transformers._features import (
    Features,
    columns_of,
    edge_tokens,
    embed,
    integer_labels,
    text_ids,
)


class SupconLoss(nn.Module):
    """Texts of one label are positives of each other, all others negatives.

    The mean of :func:`nearfar.objectives.supcon` over the texts that have another of their label in the batch; 0
    without such a text. A text that comes twice in a batch counts once, with the label of its first row.

    **Columns**: text. **Labels**: integers.

    Use batches in which labels repeat: ``batch_sampler=BatchSamplers.GROUP_BY_LABEL``.

    Args:
        model: the model to train.
        temperature: divides the cosines.

    Raises:
        NearfarError: in the first batch, for other columns, missing labels, labels that are not integers, and a
            temperature that is not positive.

    Source: Gunel et al. 2021, eq. 4, without the cross-entropy; the method ``supcon-text`` has the same loss.
    """

    def __init__(self, model: SentenceTransformer, *, temperature: float = 0.3) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature
        self._edges = edge_tokens(model)

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar."""
        columns = columns_of(self, sentence_features, [1], "text")
        (ids,) = text_ids(columns, self._edges)
        labels = integer_labels(self, labels, len(ids), "the class of the text")
        (embeddings,) = embed(self.model, columns)
        first = _first_rows(ids.tolist(), embeddings.device)
        losses = supcon(embeddings[first], labels.to(embeddings.device)[first], temperature=self.temperature)
        return losses.sum() / max(len(losses), 1)  # 0, not 0 / 0, without an anchor

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        return {"temperature": self.temperature}

    @property
    def citation(self) -> str:
        """BibTeX of the paper, for the model card."""
        return PAPER


def _first_rows(ids: list[int], device: torch.device) -> Tensor:
    """The index of the first row of each distinct text."""
    first: dict[int, int] = {}
    for row, text in enumerate(ids):
        first.setdefault(text, row)
    return torch.tensor(list(first.values()), device=device)
