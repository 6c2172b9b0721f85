"""Self-guided contrastive learning with a frozen copy of the model, for ``SentenceTransformerTrainer``."""

import copy
from collections.abc import Iterable
from typing import Literal

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from nearfar.encoder.backbone import freeze_embeddings as freeze_embedding_layer
from nearfar.encoder.guide import Guide
from nearfar.encoder.heads import ProjectionHead
from nearfar.encoder.pretrained import PreTrainedModel
from nearfar.encoder.ragged import choose_route
from nearfar.methods.base import initializer_range
from nearfar.methods.kim import PAPER, draw_layer, trained_weights
from nearfar.objectives import SelfGuidedVariant, distinct_rows, self_guided, squared_distance
from nearfar.sentence_transformers._features import Features, TextLoss, embedding_width, token_rows
from nearfar.types import NearfarError


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

    variant: SelfGuidedVariant
    temperature: float
    drift_weight: float
    paper = PAPER

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        variant: SelfGuidedVariant = "opt3",
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
        dim = _common_width(model, backbone)
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
        self.guide = Guide(
            copied, choose_route(copied), pooling=view_pooling, layers=views, dropout=guide_dropout, keep=False
        )
        if freeze_embeddings:
            freeze_embedding_layer(backbone)
        self.views = list(self.guide.layers)

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar."""
        self.refuse_labels(labels)
        if self.head is not None or self.drift_weight:
            self.refuse_processes(without="projection=None and drift_weight=0")
        columns = self.columns_of(sentence_features, [1, 2], "sentence[, back-translation]")
        ids = self.text_ids(columns)
        views = self.guide.views(token_rows(columns[-1]))
        (embeddings,) = self.embed(columns[:1])
        self.check_width(embeddings, self.dim, without="there is none here, as layers cannot be shortened alike")
        if self.variant != "opt3":
            views = draw_layer(views)
        rows = torch.cat([embeddings[:, None], views.to(embeddings.device)], dim=1)
        projected = rows.to(torch.promote_types(rows.dtype, torch.float32))
        if self.head is not None:
            projected = self.head(projected)
        contrast = self_guided(
            projected[:, 0],
            projected[:, 1:] if self.variant == "opt3" else projected[:, 1],
            temperature=self.temperature,
            variant=self.variant,
            mask=distinct_rows(*ids),
        ).mean()
        if not self.drift_weight:
            return contrast
        drift = squared_distance(*trained_weights(_backbone(self.model), self.guide.backbone))
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


def _common_width(model: SentenceTransformer, backbone: PreTrainedModel) -> int:
    """The width of embeddings and layers."""
    width = embedding_width(model)
    if width != backbone.config.hidden_size:
        raise NearfarError(
            f"SelfGuidedLoss: the model's embeddings are {width} wide, its layers {backbone.config.hidden_size}; the "
            "loss compares the two, so they must be equally wide"
        )
    return width
