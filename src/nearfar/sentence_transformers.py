"""nearfar's objectives as losses for sentence-transformers' ``SentenceTransformerTrainer``.

Each loss is a module with the interface of that library, ``loss(sentence_features, labels)``, and has the value and the
gradient of the nearfar method of the same objective. Importing this module imports torch and sentence-transformers;
``import nearfar`` does not.

=========================  ====================================================  =====================================
loss                       columns of the data set                               nearfar method
=========================  ====================================================  =====================================
:class:`InfoNceLoss`       anchor, positive, any number of negatives; no label   info-nce, simcse-sup
:class:`PremiseSclLoss`    premise, hypothesis, label 0, 1 or 2                  scl
:class:`SelfGuidedLoss`    sentence, or sentence and back-translation; no label  sg, sg-opt1, sg-opt2, sg-opt, bt+sg-opt
:class:`SupconLoss`        text, integer label                                   supcon-text
=========================  ====================================================  =====================================

The names of the columns do not matter, their order does; a label column is called ``label``, ``labels``, ``score`` or
``scores``. Two texts are equal if they have the same token ids, without the prompts of their columns.

With several processes, each process contrasts the texts of its own batch.
"""

import copy
import sys
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import compress, pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from jaxtyping import Float, Int
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch import Tensor, distributed, nn

from nearfar import objectives
from nearfar.data.batching import TextBatches
from nearfar.encoder.backbone import freeze_embeddings as freeze_embedding_layer
from nearfar.encoder.frozen import Guide
from nearfar.encoder.heads import ProjectionHead, SoftmaxHead
from nearfar.encoder.pretrained import PreTrainedModel
from nearfar.encoder.ragged import choose_route
from nearfar.methods.base import initializer_range
from nearfar.methods.gunel import PAPER as GUNEL
from nearfar.methods.kim import PAPER, draw_layer, trained_weights
from nearfar.methods.liao import PAPER as LIAO
from nearfar.methods.simcse import PAPER as SIMCSE
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["InfoNceLoss", "PremiseBatches", "PremiseSclLoss", "SelfGuidedLoss", "SupconLoss"]
Features: TypeAlias = dict[str, Any]
"""The tokenized texts of one column of a batch."""

EDGES = ("cls", "sep", "bos", "eos", "pad")
"""The special tokens that a tokenizer puts around a text."""


class TextLoss(nn.Module, ABC):
    """A loss on the texts of a batch.

    Args:
        model: the model to train.
        settings: the arguments of the loss by name, which become its attributes; ``locals()`` at the start of
            ``__init__``.
    """

    citation = ""
    """BibTeX of the paper, for the model card."""
    texts: tuple[Container[int], str]
    """How many columns of texts there can be, and their names."""
    classes = ""
    """What the integer labels are; empty for a loss without labels."""

    def __init__(self, model: SentenceTransformer, settings: dict[str, Any]) -> None:
        super().__init__()
        self.model = model
        self._settings = tuple(name for name in settings if name not in ("self", "model", "__class__"))
        for name in self._settings:
            setattr(self, name, settings[name])
        self._name = type(self).__name__
        self._edges = edge_tokens(model)

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        return {name: getattr(self, name) for name in self._settings}

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar.

        Raises:
            NearfarError: other columns than the loss expects, labels that it would ignore, none that it needs, or
                labels that are not one integer for each row.
        """
        columns, (counts, names) = list(sentence_features), self.texts
        if labels is not None and not self.classes:
            raise NearfarError(
                f"{self._name} takes no labels, but the data set has a label column; "
                "remove it by dataset.remove_columns([...]), or choose a loss that reads labels"
            )
        if len(columns) not in counts:
            raise NearfarError(
                f"{self._name} needs the columns {names}, but the data set has {len(columns)} of texts; choose them in "
                "this order by dataset.select_columns([...])"
            )
        ids = text_ids(columns, self._edges)
        return self.loss(columns, ids, self._integers(labels, ids[0]) if self.classes else ids[0])

    @abstractmethod
    def loss(self, columns: Sequence[Features], ids: Sequence[Tensor], labels: Tensor) -> Tensor:
        """The loss of a batch, given its texts, their numbers (:func:`text_ids`), and labels if there are any."""

    def embed(self, columns: Iterable[Features]) -> list[Tensor]:
        """The embeddings of each column, [batch, dim]."""
        return [self.model(features)["sentence_embedding"] for features in columns]

    def _integers(self, labels: Tensor | None, like: Tensor) -> Int[Tensor, " batch"]:
        """The labels of a batch with the rows of ``like``, on its device."""
        rows = len(like)
        if labels is None or labels.is_floating_point() or labels.dtype == torch.bool or labels.numel() != rows:
            found = "none" if labels is None else f"{str(labels.dtype)[6:]} labels of shape {tuple(labels.shape)}"
            raise NearfarError(
                f"{self._name} needs a column label with one integer for each of the {rows} rows of a batch: "
                f"{self.classes}; found {found}"
            )
        return labels.reshape(rows).long().to(like.device)

    def check_parts(self, embeddings: Tensor, width: int, *, without: str | None) -> None:
        """Refuse what the parts of the loss outside the model's forward pass, such as a head, cannot work with.

        ``without`` are the settings that train no such part; None where none is trained.

        Raises:
            NearfarError: embeddings of another width; several processes, as the trainer averages the gradients of the
                model's forward pass alone.
        """
        if embeddings.shape[1] != width:
            raise NearfarError(
                f"{self._name} was made for embeddings of width {width}, but they are {embeddings.shape[1]} wide; "
                f"MatryoshkaLoss, which shortens them, needs a loss without a head ({without})"
            )
        if without and distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            raise NearfarError(
                f"{self._name} has a part outside the model's forward pass, whose gradients the trainer does not "
                f"average over the {distributed.get_world_size()} processes; train in one process, by `nearfar train`, "
                f"or with {without}"
            )


def mean_or_zero(losses: Float[Tensor, " anchors"]) -> Float[Tensor, ""]:
    """The mean of the losses; 0, not 0 / 0, without an anchor."""
    return losses.sum() / max(len(losses), 1)


def edge_tokens(model: SentenceTransformer) -> frozenset[int]:
    """The ids of the special tokens that the model's tokenizer puts around a text."""
    ids = (getattr(model.tokenizer, f"{name}_token_id", None) for name in EDGES)
    return frozenset(token for token in ids if token is not None)


def token_rows(features: Features) -> list[list[int]]:
    """The token ids of each text of a column, without padding.

    Raises:
        NearfarError: the column has no token ids: its rows are not texts.
    """
    ids = features.get("input_ids")
    if not isinstance(ids, Tensor):
        raise NearfarError("the losses of nearfar need texts, but a column of the data set has no token ids")
    if "cu_seq_lens_q" in features:  # texts are concatenated, for attention without padding
        flat, ends = ids.flatten().tolist(), features["cu_seq_lens_q"].tolist()
        return [flat[start:end] for start, end in pairwise(ends)]
    rows: list[Any] = ids.tolist()
    if ids.ndim == 1:  # StaticEmbedding
        return [rows[start:end] for start, end in pairwise([*features["offsets"].tolist(), len(rows)])]
    mask = features.get("attention_mask", torch.ones_like(ids)).tolist()
    return [list(compress(*both)) for both in zip(rows, mask, strict=True)]


def text_ids(columns: Sequence[Features], edges: frozenset[int]) -> list[Int[Tensor, " batch"]]:
    """A number for each text of each column; equal texts have equal numbers in all columns.

    Texts are compared by their token ids without prompt and without the special tokens ``edges``. So texts are equal if
    the model cannot distinguish them, also where they differ only after the maximum length.
    """
    numbers: dict[tuple[int, ...], int] = {}
    every = []
    for features in columns:
        prompt = int(torch.as_tensor(features.get("prompt_length", 0)).flatten()[0])
        keys = (tuple(token for token in tokens[prompt:] if token not in edges) for tokens in token_rows(features))
        ids = [numbers.setdefault(key, len(numbers)) for key in keys]
        every.append(torch.tensor(ids, device=features["input_ids"].device))
    return every


def embedding_width(model: SentenceTransformer) -> int:
    """The width of the model's embeddings.

    Raises:
        NearfarError: the model does not say.
    """
    width = model.get_embedding_dimension()
    if width is None:
        raise NearfarError("the model's modules do not say how wide its embeddings are, so no head fits on them")
    return int(width)


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

    directions: objectives.Directions
    citation = SIMCSE
    texts = range(2, sys.maxsize), "anchor, positive[, negatives]"

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.05,
        directions: objectives.Directions = "query_to_doc",
        hard_negative_weight: float = 0.0,
        similarity: objectives.Similarity = "cosine",
    ) -> None:
        super().__init__(model, locals())

    def loss(self, columns: Sequence[Features], ids: Sequence[Tensor], labels: Tensor) -> Tensor:  # noqa: ARG002
        """See :class:`TextLoss`."""
        anchor_ids, positive_ids, *negative_ids = ids
        anchors, positives, *negatives = self.embed(columns)
        hard = torch.cat(negatives) if negatives else None
        hard_ids = torch.cat(negative_ids) if negatives else None
        owners = anchor_ids.repeat(len(negatives)) if negatives else None
        masks = objectives.direction_masks(self.directions, anchor_ids, positive_ids, hard_ids, owners=owners)
        return objectives.info_nce_directions(anchors, positives, hard, masks=masks, **self.get_config_dict()).mean()


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
    citation = LIAO
    texts = (2,), "premise, hypothesis"
    classes = "0 entailment, 1 neutral, 2 contradiction"

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        scl_weight: float = 0.3,
        temperature: float = 1.0,
        similarity: objectives.Similarity = "dot",
        hard_negatives: objectives.HardNegatives = "all",
        max_positives: int | None = None,
        max_negatives: int | None = None,
        head_layers: Literal[1, 2] = 2,
    ) -> None:
        if not 0 <= scl_weight <= 1:
            raise NearfarError(f"scl_weight must be in [0, 1], not {scl_weight}")
        super().__init__(model, locals())
        self.dim = embedding_width(model)
        self.head = SoftmaxHead(self.dim, layers=head_layers).to(model.device) if scl_weight < 1 else None

    def loss(self, columns: Sequence[Features], ids: Sequence[Tensor], labels: Tensor) -> Tensor:
        """See :class:`TextLoss`."""
        premises, hypotheses = self.embed(columns)
        settings = self.get_config_dict()
        del settings["scl_weight"], settings["head_layers"]
        losses = objectives.premise_scl(premises, hypotheses, ids[0], labels, hypothesis_ids=ids[1], **settings)
        scl = mean_or_zero(losses)
        if self.head is None:
            return scl
        self.check_parts(premises, self.dim, without="scl_weight=1")
        logits = self.head(objectives.nli_softmax_features(premises, hypotheses))
        cross_entropy = objectives.nli_softmax(logits, labels).mean()
        return (1 - self.scl_weight) * cross_entropy + self.scl_weight * scl


class PremiseBatches(DefaultBatchSampler):
    """A ``batch_sampler``: all rows with the same premise are in one batch; premises are shuffled in each epoch.

    Give the class itself to ``SentenceTransformerTrainingArguments(batch_sampler=PremiseBatches)``. The batches are
    those of ``nearfar train scl`` with the same rows, batch size and seed (:class:`nearfar.data.batching.TextBatches`):
    a premise that does not fit starts the next batch, and one with more rows than a batch is a batch by itself. No row
    is dropped, whatever ``drop_last`` says.

    Args:
        dataset: the rows; its first column that is no label has the premises.
        batch_size: maximum number of rows in a batch.
        settings: as sentence-transformers gives them: ``valid_label_columns``, the names of label columns, and
            ``seed``, which with the epoch decides the order; ``drop_last`` and ``generator`` have no effect.

    Raises:
        NearfarError: a data set without rows or without a column of texts.
    """

    def __init__(self, dataset: "Dataset", batch_size: int, **settings: Any) -> None:
        settings = {"drop_last": False, "valid_label_columns": None, "generator": None, "seed": 0, **settings}
        super().__init__(dataset, batch_size=batch_size, **settings)
        columns = [name for name in dataset.column_names if name not in (settings["valid_label_columns"] or ())]
        if not columns:
            raise NearfarError(f"PremiseBatches: the data set has no column of premises, only {dataset.column_names}")
        rows, size = [(premise,) for premise in dataset[columns[0]]], min(batch_size, max(len(dataset), 1))
        self._batches = TextBatches(rows, size, settings["seed"], min_batch_size=1, order="premise")

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
    citation = GUNEL
    texts = (1,), "text"
    classes = "the class of the text"

    def __init__(self, model: SentenceTransformer, *, temperature: float = 0.3) -> None:
        super().__init__(model, locals())

    def loss(self, columns: Sequence[Features], ids: Sequence[Tensor], labels: Tensor) -> Tensor:
        """See :class:`TextLoss`."""
        (embeddings,) = self.embed(columns)
        first = {text: row for row, text in reversed([*enumerate(ids[0].tolist())])}
        distinct = sorted(first.values())
        return mean_or_zero(objectives.supcon(embeddings[distinct], labels[distinct], temperature=self.temperature))


class SelfGuidedLoss(TextLoss):
    """A sentence's embedding against the layers of a frozen copy of the model (SG-OPT), plus the drift of the weights.

    The mean of :func:`nearfar.objectives.self_guided` over the sentences, plus ``drift_weight`` times the squared
    distance of the trained weights from the initial ones. The frozen copy is that of the model when the loss is made.
    Its views of a sentence are its hidden layers, pooled over all tokens. Embeddings and views pass a projection head,
    which is trained along and dropped afterwards. Rows that share a text are not each other's negatives.

    **Columns**: sentence; or sentence and its back-translation, which the frozen copy then reads (the method
    ``bt+sg-opt``). **Labels**: none.

    The paper's model has the pooling ``cls``, and AdamW has ``adam_beta2=0.9``.

    Args:
        model: the model to train: a transformer and a pooling, without a Dense that changes the width.
        variant: ``opt3``, all layers are views (SG-OPT); or, with a random layer for each sentence, ``sg``, ``opt1`` or
            ``opt2``.
        temperature: divides the cosines.
        drift_weight: lambda, the weight of the drift.
        projection: width of the projection head; None for no head.
        views: first and last layer of the views; None for all. 0 is the embedding layer.
        view_pooling: ``max`` over tokens as in the paper, or ``mean`` as in the authors' code.
        guide_dropout: leave the frozen copy's dropout on, as the authors' code does.
        freeze_embeddings: do not train the embedding layer. This changes ``model`` when the loss is made.

    Raises:
        NearfarError: for a model without a transformer or with LoRA adapters and a ``drift_weight``, an embedding of
            another width than the layers, and layers that the model does not have; in the first batch, for other
            columns, for labels, other settings out of range, and in several processes with a projection head or
            a drift, whose gradients the trainer does not average.

    Source: Kim et al. 2021, section 3; the methods ``sg``, ``sg-opt1``, ``sg-opt2``, ``sg-opt`` and ``bt+sg-opt`` have
    the same loss, with these defaults.
    """

    variant: objectives.SelfGuidedVariant
    temperature: float
    drift_weight: float
    citation = PAPER
    texts = (1, 2), "sentence[, back-translation]"

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        variant: objectives.SelfGuidedVariant = "opt3",
        temperature: float = 0.01,
        drift_weight: float = 0.1,
        projection: int | None = 4096,
        views: tuple[int, int] | None = None,
        view_pooling: Literal["max", "mean"] = "max",
        guide_dropout: bool = False,
        freeze_embeddings: bool = True,
    ) -> None:
        settings = locals()
        backbone = _backbone(model)
        dim = embedding_width(model)
        if dim != backbone.config.hidden_size:
            raise NearfarError(
                f"SelfGuidedLoss: the model's embeddings are {dim} wide, its layers {backbone.config.hidden_size}; the "
                "loss compares the two, so they must be equally wide"
            )
        if drift_weight and hasattr(backbone, "peft_config"):
            raise NearfarError(
                "SelfGuidedLoss: adapters do not change the model's weights, so there is no drift to regularise; set "
                "drift_weight=0"
            )
        super().__init__(model, settings)
        self.dim = dim
        self.head: ProjectionHead | None = None
        if projection is not None:
            self.head = ProjectionHead(dim, projection, std=initializer_range(backbone)).to(model.device)
        # Not of ``backbone`` itself: choosing a route sets an attention function that padded batches do not have.
        copied = copy.deepcopy(backbone)
        how: dict[str, Any] = {"pooling": view_pooling, "layers": views, "dropout": guide_dropout}
        self.guide = Guide(copied, choose_route(copied), **how)
        if freeze_embeddings:
            freeze_embedding_layer(backbone)
        self.views = list(self.guide.layers)

    def loss(self, columns: Sequence[Features], ids: Sequence[Tensor], labels: Tensor) -> Tensor:  # noqa: ARG002
        """See :class:`TextLoss`."""
        views = self.guide.views(token_rows(columns[-1]))
        (embeddings,) = self.embed(columns[:1])
        outside = self.head is not None or self.drift_weight
        self.check_parts(embeddings, self.dim, without="projection=None and drift_weight=0" if outside else None)
        if self.variant != "opt3":
            views = draw_layer(views)
        rows = torch.cat([embeddings[:, None], views.to(embeddings.device)], dim=1)
        projected = (self.head or nn.Identity())(rows.to(torch.promote_types(rows.dtype, torch.float32)))
        targets = projected[:, 1:] if self.variant == "opt3" else projected[:, 1]
        how: dict[str, Any] = {"temperature": self.temperature, "variant": self.variant}
        mask = objectives.distinct_rows(*ids)
        contrast = objectives.self_guided(projected[:, 0], targets, mask=mask, **how).mean()
        if not self.drift_weight:
            return contrast
        drift = objectives.squared_distance(*trained_weights(_backbone(self.model), self.guide.backbone))
        return contrast + self.drift_weight * drift


def _backbone(model: nn.Module) -> PreTrainedModel:
    """The transformer of a model, which the trainer may have wrapped.

    Raises:
        NearfarError: it has none.
    """
    model = getattr(model, "module", model)  # of DistributedDataParallel
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    backbone = getattr(model, "transformers_model", None)
    if backbone is None:
        raise NearfarError("SelfGuidedLoss needs a model with a transformer: the views are its layers")
    return backbone
