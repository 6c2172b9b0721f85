"""Premise-anchored supervised contrastive learning on NLI rows, for ``SentenceTransformerTrainer``."""

from collections.abc import Iterable
from typing import Any, Literal

from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from nearfar.encoder.heads import SoftmaxHead
from nearfar.methods.liao import PAPER
from nearfar.objectives import HardNegatives, Similarity, nli_softmax, nli_softmax_features, premise_scl
from nearfar.sentence_transformers._features import (
    Features,
    columns_of,
    edge_tokens,
    embed,
    integer_labels,
    text_ids,
)
from nearfar.sentence_transformers._heads import check_width, embedding_width, refuse_processes
from nearfar.types import NearfarError


class PremiseSclLoss(nn.Module):
    """(1 - scl_weight) cross-entropy + scl_weight SCL, on rows of natural language inference.

    SCL is the mean over the entailment pairs of a batch of :func:`nearfar.objectives.premise_scl`: each premise is
    pulled towards the hypotheses that it entails, and away from its others and those of other premises. A hypothesis
    equal to the premise, or to one that the premise entails, is not a negative. SCL of a batch without an entailment is
    0. The cross-entropy is that of a classifier over (u, v, abs(u - v)), which is trained along and dropped afterwards.

    **Columns**: premise, hypothesis. **Labels**: 0 entailment, 1 neutral, 2 contradiction (as in SNLI, MultiNLI and
    all-nli on the hub); rows with the label -1 have to be removed.

    Use :class:`PremiseBatches` as ``batch_sampler``, so that all rows of a premise are in one batch, as in the paper.

    Args:
        model: the model to train. With ``similarity="dot"`` it should not end in a Normalize module.
        scl_weight: lambda, the weight of SCL, from 0 to 1; with 1 there is no classifier.
        temperature: divides the similarities.
        similarity: ``dot``, as in the authors' code, or ``cosine``.
        hard_negatives: negatives with the anchor's own premise: ``all`` that are not entailed, ``contradiction``, or
            ``none``.
        max_positives: maximum number of positives of an anchor, drawn at random; None for all.
        max_negatives: maximum number of negatives of an anchor, drawn at random; None for all.
        head_layers: linear layers of the classifier: 2 as in the paper, or 1 as in SBERT.

    Raises:
        NearfarError: for a ``scl_weight`` outside 0..1; in the first batch, for other columns, missing labels or labels
            other than 0, 1, 2, other settings out of range, and in several processes with a classifier, whose gradient
            the trainer does not average.

    Source: Liao 2021, eq. 2 and 3; the method ``scl`` has the same loss, with these defaults.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        scl_weight: float = 0.3,
        temperature: float = 1.0,
        similarity: Similarity = "dot",
        hard_negatives: HardNegatives = "all",
        max_positives: int | None = None,
        max_negatives: int | None = None,
        head_layers: Literal[1, 2] = 2,
    ) -> None:
        super().__init__()
        if not 0 <= scl_weight <= 1:
            raise NearfarError(f"scl_weight must be in [0, 1], not {scl_weight}")
        self.model = model
        self.scl_weight = scl_weight
        self.temperature = temperature
        self.similarity: Similarity = similarity
        self.hard_negatives: HardNegatives = hard_negatives
        self.max_positives = max_positives
        self.max_negatives = max_negatives
        self.head_layers = head_layers
        self.dim = embedding_width(model)
        self.head = SoftmaxHead(self.dim, layers=head_layers).to(model.device) if scl_weight < 1 else None
        self._edges = edge_tokens(model)

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar."""
        if self.head is not None:
            refuse_processes(self, without="scl_weight=1")
        columns = columns_of(self, sentence_features, [2], "premise, hypothesis")
        premise_ids, hypothesis_ids = text_ids(columns, self._edges)
        labels = integer_labels(self, labels, len(premise_ids), "0 entailment, 1 neutral, 2 contradiction")
        premises, hypotheses = embed(self.model, columns)
        labels = labels.to(premises.device)
        losses = premise_scl(
            premises,
            hypotheses,
            premise_ids,
            labels,
            temperature=self.temperature,
            similarity=self.similarity,
            hard_negatives=self.hard_negatives,
            max_positives=self.max_positives,
            max_negatives=self.max_negatives,
            hypothesis_ids=hypothesis_ids,
        )
        scl = losses.sum() / max(len(losses), 1)  # 0, not 0 / 0, without an anchor
        if self.head is None:
            return scl
        check_width(self, premises, self.dim, without="scl_weight=1")
        cross_entropy = nli_softmax(self.head(nli_softmax_features(premises, hypotheses)), labels).mean()
        return (1 - self.scl_weight) * cross_entropy + self.scl_weight * scl

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        names = ("scl_weight", "temperature", "similarity", "hard_negatives", "max_positives", "max_negatives")
        return {name: getattr(self, name) for name in (*names, "head_layers")}

    @property
    def citation(self) -> str:
        """BibTeX of the paper, for the model card."""
        return PAPER
