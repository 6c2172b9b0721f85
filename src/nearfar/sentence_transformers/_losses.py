"""InfoNCE, premise-anchored SCL and SupCon for ``SentenceTransformerTrainer``, and batches of whole premises."""

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch import Tensor

from nearfar.data.batching import NliBatches
from nearfar.encoder.heads import SoftmaxHead
from nearfar.methods.gunel import PAPER as GUNEL
from nearfar.methods.liao import PAPER as LIAO
from nearfar.methods.simcse import PAPER as SIMCSE
from nearfar.objectives import (
    Directions,
    HardNegatives,
    Similarity,
    direction_masks,
    info_nce_directions,
    nli_softmax,
    nli_softmax_features,
    premise_scl,
    supcon,
)
from nearfar.sentence_transformers._features import Features, TextLoss, embedding_width, mean_or_zero
from nearfar.types import ENTAILMENT, NearfarError, NliRow

if TYPE_CHECKING:
    from datasets import Dataset


class InfoNceLoss(TextLoss):
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

    temperature: float
    directions: Directions
    hard_negative_weight: float
    similarity: Similarity
    paper = SIMCSE

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.05,
        directions: Directions = "query_to_doc",
        hard_negative_weight: float = 0.0,
        similarity: Similarity = "cosine",
    ) -> None:
        super().__init__(model, locals())

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar."""
        self.refuse_labels(labels)
        columns = self.columns_of(sentence_features, range(2, sys.maxsize), "anchor, positive[, negatives]")
        anchor_ids, positive_ids, *negative_ids = self.text_ids(columns)
        anchors, positives, *negatives = self.embed(columns)
        hard = torch.cat(negatives) if negatives else None
        hard_ids = torch.cat(negative_ids) if negatives else None
        owners = anchor_ids.repeat(len(negatives)) if negatives else None
        masks = direction_masks(self.directions, anchor_ids, positive_ids, hard_ids, owners=owners)
        return info_nce_directions(anchors, positives, hard, masks=masks, **self.get_config_dict()).mean()


class PremiseSclLoss(TextLoss):
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

    scl_weight: float
    paper = LIAO

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
        if not 0 <= scl_weight <= 1:
            raise NearfarError(f"scl_weight must be in [0, 1], not {scl_weight}")
        super().__init__(model, locals())
        self.dim = embedding_width(model)
        self.head = SoftmaxHead(self.dim, layers=head_layers).to(model.device) if scl_weight < 1 else None

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar."""
        if self.head is not None:
            self.refuse_processes(without="scl_weight=1")
        columns = self.columns_of(sentence_features, [2], "premise, hypothesis")
        premise_ids, hypothesis_ids = self.text_ids(columns)
        labels = self.integer_labels(labels, premise_ids, "0 entailment, 1 neutral, 2 contradiction")
        premises, hypotheses = self.embed(columns)
        losses = premise_scl(
            premises,
            hypotheses,
            premise_ids,
            labels,
            hypothesis_ids=hypothesis_ids,
            **{name: getattr(self, name) for name in self._settings if name not in ("scl_weight", "head_layers")},
        )
        scl = mean_or_zero(losses)
        if self.head is None:
            return scl
        self.check_width(premises, self.dim, without="scl_weight=1")
        cross_entropy = nli_softmax(self.head(nli_softmax_features(premises, hypotheses)), labels).mean()
        return (1 - self.scl_weight) * cross_entropy + self.scl_weight * scl


class PremiseBatches(DefaultBatchSampler):
    """A ``batch_sampler``: all rows with the same premise are in one batch; premises are shuffled in each epoch.

    Give the class itself to ``SentenceTransformerTrainingArguments(batch_sampler=PremiseBatches)``. The batches are
    those of ``nearfar train scl`` with the same rows, batch size and seed (:class:`nearfar.data.batching.NliBatches`):
    a premise that does not fit starts the next batch, and one with more rows than a batch is a batch by itself. No row
    is dropped, whatever ``drop_last`` says.

    Args:
        dataset: the rows; its first column that is no label has the premises.
        batch_size: maximum number of rows in a batch.
        drop_last: has no effect.
        valid_label_columns: the names of label columns.
        generator: has no effect; the order depends on ``seed`` and the epoch.
        seed: seed of the order.

    Raises:
        NearfarError: a data set without rows or without a column of texts.
    """

    def __init__(
        self,
        dataset: "Dataset",
        batch_size: int,
        *,
        drop_last: bool = False,
        valid_label_columns: list[str] | None = None,
        generator: torch.Generator | None = None,
        seed: int = 0,
    ) -> None:
        shared: dict[str, Any] = {"valid_label_columns": valid_label_columns, "generator": generator, "seed": seed}
        super().__init__(dataset, batch_size=batch_size, drop_last=drop_last, **shared)
        columns = [name for name in dataset.column_names if name not in (valid_label_columns or ())]
        if not columns:
            raise NearfarError(f"PremiseBatches: the data set has no column of premises, only {dataset.column_names}")
        rows = [NliRow(premise, "", ENTAILMENT) for premise in dataset[columns[0]]]
        self._batches = NliBatches(rows, min(batch_size, max(len(rows), 1)), seed=seed)

    def __iter__(self) -> Iterator[list[int]]:
        """The row indices of each batch of the epoch that ``set_epoch`` chose."""
        for batch in self._batches.epoch(self.epoch):
            yield batch.rows

    def __len__(self) -> int:
        """The number of batches of this epoch."""
        return self._batches.steps(self.epoch)


class SupconLoss(TextLoss):
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

    temperature: float
    paper = GUNEL

    def __init__(self, model: SentenceTransformer, *, temperature: float = 0.3) -> None:
        super().__init__(model, locals())

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar."""
        columns = self.columns_of(sentence_features, [1], "text")
        (ids,) = self.text_ids(columns)
        labels = self.integer_labels(labels, ids, "the class of the text")
        (embeddings,) = self.embed(columns)
        first: dict[int, int] = {}
        for row, text in enumerate(ids.tolist()):
            first.setdefault(text, row)
        distinct = list(first.values())
        return mean_or_zero(supcon(embeddings[distinct], labels[distinct], temperature=self.temperature))
