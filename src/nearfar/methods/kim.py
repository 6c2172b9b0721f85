"""Kim et al. 2021, "Self-Guided Contrastive Learning for BERT Sentence Representations" (ACL 2021): sg, sg-opt, bt.

Data: raw sentences. The encoder is cloned; F stays frozen, T is trained except for its embedding layer. For sentence i,
c_i is T's embedding (the last layer's [CLS]), and the views h_{i,k} are F's layers k = 0 .. l, pooled over the tokens
(max). With phi(u, v) = exp(cos(f(u), f(v)) / t), f a projection head that is dropped after training (section 3), or the
identity where ``projection`` is ``none`` (Table 5):

``sg``      NT-Xent over {c_i} and {h_i}, h_i the view of a random layer
``sg-opt1``  -log phi(c_i, h_i) / ( sum_{j != i} phi(c_i, c_j) + sum_j phi(c_i, h_j) )
``sg-opt2``  -log phi(c_i, h_i) / sum_j phi(c_i, h_j)
``sg-opt``   the mean over k of -log phi(c_i, h_{i,k}) / ( phi(c_i, h_{i,k}) + sum_{m != i} sum_n phi(c_i, h_{m,n}) )

and to the mean over anchors is added lambda ||theta_F - theta_T||^2, the drift. ``bt`` (appendix A.2) is ``sg`` with
the sentence's back-translation, read by T too, in place of h_i; ``bt+sg-opt`` (section 6) gives the sentence to T and
its back-translation to F.

Defaults: batch 16, AdamW at 5e-5 with betas (0.9, 0.9), one epoch, t = 0.01, lambda = 0.1 (Table 8); a head of two
layers 4096 wide, a GELU after each (section 3.1, footnote 4).

Where paper, authors' code and this module differ (``docs/methods/kim.md`` has more on training and testing):

=================  ====================  ====================================  =======================================
                   paper                 authors' code                         here
=================  ====================  ====================================  =======================================
dropout of F       F is "fixed"          on: ``train()`` on the loss turns it  off; ``guide_dropout``
                                         on again
pooling of views   max                   mean by default                       max; ``view_pooling``
sg and bt          Table 1               stops: b labels for 2b rows           by the formula
sg-opt2            all other views       leaves out one of them                all
layers from a      sampled from those    an index of all layers, among those   drawn from those in use
lower bound        in use                in use
bt+sg-opt          Table 7               not published                         by section 6
equal sentences    negatives             negatives                             left out of each other's denominator
weight decay       not stated            0.01, though 0 is requested           0
=================  ====================  ====================================  =======================================
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from nearfar.config.bounds import BelowOne, Count, File, LearningRate, Length, Steps, Temperature, Weight, Width
from nearfar.config.training import TrainConfig
from nearfar.config.values import Settings
from nearfar.methods import base
from nearfar.methods.settings import MarginSettings, TextColumn
from nearfar.types import Loss, Method, MethodEntry, NearfarError, SelfGuidedVariant

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor, nn

    from nearfar.data.batching import TextBatch, TextBatches
    from nearfar.data.rows import TextData
    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.frozen import Guide

DriftFn: TypeAlias = "Callable[[], Tensor]"
"""The squared distance of the trained weights from the initial ones: a scalar with gradient."""
TextPair: TypeAlias = tuple[str, str]
"""An item: the text that T reads, and the text that F reads."""
ROW = ("sentence", "translation")
"""Names of a row's texts, of which some methods have the first only."""
PAPER = base.bibtex("kim2021self")


@dataclass(frozen=True, kw_only=True)
class KimConfig(MarginSettings, TrainConfig):
    """Settings of all methods of Kim et al. 2021."""

    variant: ClassVar[SelfGuidedVariant] = "sg"
    """The plain contrast: NT-Xent over [CLS] vectors and views."""
    pooling: str | None = "cls"
    freeze_embeddings: bool = True
    """Do not train the embedding layer (Kim et al. 2021, section 3). --no-freeze-embeddings: train it too."""
    temperature: Temperature = 0.01
    """Divides the cosines (Kim et al. 2021, appendix)."""
    drift_weight: Weight = 0.1
    """Lambda: weight of the squared distance between the trained weights and the initial ones."""
    projection: Width | Literal["none"] = 4096
    """Width of the projection head, which is dropped after training; none for no head (Table 5)."""
    batch_size: Count = 16
    learning_rate: LearningRate = 5e-5
    beta2: BelowOne = 0.9
    """AdamW's second beta; the first is 0.9 (Kim et al. 2021, appendix)."""
    train_max_length: Length | None = 128
    evaluate_every: Steps | None = 50
    patience: Steps | None = 10


@dataclass(frozen=True, kw_only=True)
class GuidedConfig(KimConfig):
    """Settings of the methods in which a frozen copy of the encoder guides the trained one."""

    variant: ClassVar[SelfGuidedVariant] = "opt3"
    """The contrast in which all views are positives of their row."""
    views: str = "all"
    """Layers of the frozen copy that guide: all, or first-last such as 6-12, 0 being the embedding layer."""
    view_pooling: Literal["max", "mean"] = "max"
    """Pooling of a layer into a vector: max over tokens (Kim et al. 2021, section 3), or mean (the authors' code)."""
    guide_dropout: bool = False
    """Leave the frozen copy's dropout on, as the authors' code does."""


@dataclass(frozen=True, kw_only=True)
class SgConfig(TextColumn, GuidedConfig):
    """sg: NT-Xent between [CLS] and a random layer of a frozen copy (Kim et al. 2021)."""

    variant: ClassVar[SelfGuidedVariant] = "sg"
    """The contrast with the view of one layer, NT-Xent."""
    data: tuple[File, ...] = ("stsb-text",)
    """Sentences: text files with one a line, tables, or stsb-text (the paper's), wiki1m, wiki, microworld, vocabulary
    (texts of random words of MODEL's vocabulary)."""


@dataclass(frozen=True, kw_only=True)
class SgOpt1Config(SgConfig):
    """sg-opt1: sg with [CLS] vectors as the only anchors (Kim et al. 2021, first refinement)."""

    variant: ClassVar[SelfGuidedVariant] = "opt1"
    """The contrast with [CLS] vectors as the only anchors."""


@dataclass(frozen=True, kw_only=True)
class SgOpt2Config(SgConfig):
    """sg-opt2: sg-opt1 without [CLS] vectors as each other's negatives (Kim et al. 2021, second refinement)."""

    variant: ClassVar[SelfGuidedVariant] = "opt2"
    """The contrast without [CLS] vectors as negatives."""


@dataclass(frozen=True, kw_only=True)
class SgOptConfig(SgConfig):
    """sg-opt: sg-opt2 with all layers of the frozen copy as positives (Kim et al. 2021, SG-OPT)."""

    variant: ClassVar[SelfGuidedVariant] = "opt3"
    """The contrast in which all views are positives of their row."""


@dataclass(frozen=True, kw_only=True)
class TranslationRows(Settings):
    """Methods that train on sentences and their back-translations."""

    # --- Rows ---

    data: tuple[File, ...] = ()
    """Files with a sentence and its back-translation, as nearfar back-translate makes them; or flickr8k, microworld."""
    sentence_column: str = "sentence"
    """Column of the sentences."""
    translation_column: str = "translation"
    """Column of their back-translations."""


@dataclass(frozen=True, kw_only=True)
class BtConfig(TranslationRows, KimConfig):
    """bt: NT-Xent between a sentence and its back-translation (a baseline of Kim et al. 2021)."""


@dataclass(frozen=True, kw_only=True)
class BtSgOptConfig(TranslationRows, GuidedConfig):
    """bt+sg-opt: sg-opt where the frozen copy reads the back-translation (Kim et al. 2021, section 6)."""


def build_self_guided(config: KimConfig, context: base.BuildContext, rows: "TextData") -> base.BuiltMethod:
    """Build a method of the paper: one of the formulas above, + drift_weight * drift.

    With one text a row, T and F read the same sentence; with two, T reads the first and F the second, its
    back-translation. In bt, T reads the second too, and its embedding is the only view.

    Every row is an anchor, and rows that share a text are not each other's negatives. With ``false_negative_margin``
    row j is not a negative of anchor i either if cos(f(c_i), f(h_j)) > cos(f(c_i), f(h_i)) + margin, for
    opt3 with means over the layers on both sides. c_i is compared with views, and not with c_j: the [CLS] vectors of an
    encoder that was not trained to distinguish sentences are all similar, so every row would be left out at the start.
    The margin must not be negative: a collapsed encoder would then leave out everything, with a loss of 0.

    The layer of each row (sg, opt1, opt2) is drawn in each step from torch's global generator on the CPU. Views of F
    get no gradient.

    Terms: the contrast, under the method's name (without ``bt+``), ``drift`` before its weight, and, with a margin,
    ``left_out``, the share of other rows that the margin leaves out.

    Raises:
        NearfarError: rows that all have the same text, an encoder whose embeddings and layers differ in width, layers
            that it does not have, and LoRA with a drift.
    """
    import torch
    from torch.nn import functional

    from nearfar.objectives import below_positive, distinct_rows, masked_fraction, self_guided

    variant, margin, guided = config.variant, config.false_negative_margin, isinstance(config, GuidedConfig)
    name = next(name for name, entry in METHODS.items() if entry.config is type(config))
    embed, encoder = context.encoder.embed, context.encoder.encoder
    batches, guide = _batches(config, context, rows), _guide(config, encoder)
    drift = _drift(config, encoder, guide)
    views, project = context.encoder.views(guide), _projection(config, encoder)

    def represent(items: Sequence[TextPair]) -> 'Float[Tensor, "items views dim"]':
        """The row of c_i and its views."""
        if not guided:
            return embed([text for pair in items for text in pair]).unflatten(0, (len(items), 2))
        return torch.cat([embed([own for own, _ in items])[:, None], views([guiding for _, guiding in items])], dim=1)

    def tensors(batch: "TextBatch") -> "Sequence[Tensor | None]":
        layers = guide.layers[1] - guide.layers[0] + 1 if guided else 1
        drawn = None if variant == "opt3" else torch.randint(layers, (len(batch.rows),))
        return [torch.tensor(batch.columns), drawn]

    def loss_fn(batch: "TextBatch | tuple[Tensor | None, ...]", representations: "Tensor") -> Loss:
        ids, drawn = batch if isinstance(batch, tuple) else tensors(batch)
        assert ids is not None
        own, guiding = representations[: ids.shape[1]].split([1, representations.shape[1] - 1], dim=1)
        guiding = guiding.detach() if guided else guiding
        projected = project(torch.cat([own, guiding if drawn is None else views_of_layers(guiding, drawn)], dim=1))
        cls, seen = projected[:, 0], projected[:, 1:]
        left_out: dict[str, Tensor] = {}
        known = mask = distinct_rows(*ids).to(cls.device)
        if margin is not None:
            # The mean cosine with several views is the dot product with the mean of their unit vectors.
            mean = functional.normalize(seen.detach(), dim=2).mean(dim=1)
            unit = functional.normalize(cls.detach(), dim=1)
            mask = known & below_positive(unit, mean, mean, margin=margin, similarity="dot")
            left_out["left_out"] = masked_fraction(mask, known)
        contrast = self_guided(
            cls, seen if variant == "opt3" else seen[:, 0], temperature=config.temperature, variant=variant, mask=mask
        ).mean()
        distance = drift()
        terms = {name.removeprefix("bt+"): contrast.detach(), "drift": distance.detach()} | left_out
        return Loss(contrast, terms, config.drift_weight * distance)

    def count_tokens(items: Sequence[TextPair]) -> list[int]:
        own, guiding = (context.encoder.lengths([pair[side] for pair in items]) for side in (0, 1))
        return own if guided else [first + second for first, second in zip(own, guiding, strict=True)]

    head = None if config.projection == "none" else project
    describe = partial(base.describe_rows, names=ROW)
    method = Method(name, batches, _text_pairs, represent, loss_fn, describe, head, count_tokens, tensors=tensors)
    return base.BuiltMethod(method, base.text_facts(rows))


# --- parts of the losses ---


def _projection(config: KimConfig, encoder: "Encoder") -> "nn.Module":
    """f: the projection head, or the identity."""
    from torch import nn

    from nearfar.encoder.heads import ProjectionHead

    if config.projection == "none":
        return nn.Identity()
    return ProjectionHead(encoder.dim, width=config.projection, std=base.initializer_range(encoder.backbone))


def _text_pairs(batch: "TextBatch") -> list[TextPair]:
    """Each row's text for T and for F: the same text twice if the row has one."""
    own, guiding = batch.columns[0], batch.columns[-1]
    return [(batch.sentences[first], batch.sentences[second]) for first, second in zip(own, guiding, strict=True)]


def draw_layer(views: 'Float[Tensor, "batch layers dim"]') -> 'Float[Tensor, "batch 1 dim"]':
    """The view of a layer for each row, drawn uniformly from torch's global generator on the CPU (section 3.1)."""
    import torch

    return views_of_layers(views, torch.randint(views.shape[1], (len(views),)))


def views_of_layers(
    views: 'Float[Tensor, "batch layers dim"]', layers: 'Int[Tensor, " batch"]'
) -> 'Float[Tensor, "batch 1 dim"]':
    """The view of each row's layer."""
    import torch

    from nearfar.objectives import to_device

    return views[torch.arange(len(views), device=views.device), to_device(layers, views.device)][:, None]


# --- rows, the frozen copy, the drift ---


def read_sentences(config: SgConfig, own: Iterable[str] | None = None) -> "TextData":
    """Read single sentences, or make them of the words of the model's vocabulary; ``own`` are those called ``own``."""
    from nearfar.data.named_sets import OWN, VOCABULARY
    from nearfar.data.rows import load_sentences
    from nearfar.encoder.tokens import vocabulary_texts

    generated: dict[str, Iterable[str]] = {}
    if VOCABULARY in config.data:
        generated[VOCABULARY] = vocabulary_texts(config.model)
    if own is not None:
        generated[OWN] = own
    return load_sentences(config.data, column=config.text_column, limit=config.limit, generated=generated)


def read_translations(config: BtConfig | BtSgOptConfig) -> "TextData":
    """Read sentences and their back-translations."""
    from nearfar.data.triplets import load_tuples

    data = base.require_data(config, "bt" if isinstance(config, BtConfig) else "bt+sg-opt")
    return load_tuples(data, columns=(config.sentence_column, config.translation_column), limit=config.limit)


def _batches(config: KimConfig, context: base.BuildContext, rows: "TextData") -> "TextBatches":
    """Batches of the rows, after a check that something can be learned from them."""
    if config.lora_rank is not None and config.drift_weight:
        raise NearfarError(
            "--lora-rank: adapters do not change the encoder's weights, so there is no drift to regularise; "
            "set --drift-weight 0 with it."
        )
    batches = context.batches(config, rows)
    for column, kind in enumerate(("sentence", "back-translation")[: len(rows.rows[0])]):
        base.require_different((row[column] for row in rows.rows), kind)
    return batches


def _guide(config: KimConfig, encoder: "Encoder") -> "Guide":
    """The frozen copy: the encoder as it is before training."""
    from nearfar.encoder.frozen import Guide

    if not isinstance(config, GuidedConfig):
        return Guide(encoder.backbone, encoder.route)
    if encoder.dim != encoder.backbone.config.hidden_size:
        raise NearfarError(
            f"{config.model}: a Dense module makes its embeddings {encoder.dim} wide, its layers are "
            f"{encoder.backbone.config.hidden_size}; the loss compares the two, so they must be equally wide."
        )
    return Guide(
        encoder.backbone,
        encoder.route,
        pooling=config.view_pooling,
        layers=_layers(config.views),
        dropout=config.guide_dropout,
    )


def _layers(views: str) -> tuple[int, int] | None:
    if views == "all":
        return None
    layers = views.split("-")
    if len(layers) > 2 or not all(layer.isdecimal() for layer in layers):
        raise NearfarError(f"--views {views}: must be all, a layer such as 6, or a range such as 6-12.")
    return int(layers[0]), int(layers[-1])


def _drift(config: KimConfig, encoder: "Encoder", initial: "Guide") -> DriftFn:
    """The squared distance of the trained weights from the initial ones; freezes what is not trained."""
    import torch

    from nearfar.encoder.backbone import freeze_embeddings
    from nearfar.objectives import squared_distance

    if config.freeze_embeddings:
        freeze_embeddings(encoder.backbone)
    if not config.drift_weight:
        return lambda: torch.zeros((), device=encoder.device)
    # Found once, with the first step, which is after the last change of what is trained.
    weights = cache(partial(trained_weights, encoder.backbone, initial.backbone))
    return lambda: squared_distance(*weights())


def trained_weights(backbone: "nn.Module", initial: "nn.Module") -> "tuple[list[nn.Parameter], list[Tensor]]":
    """The trained weights of a backbone, and the initial ones, from which they drift; frozen ones have not moved."""
    trained = {name: weight for name, weight in backbone.named_parameters() if weight.requires_grad}
    return list(trained.values()), [initial.get_parameter(name) for name in trained]


METHODS = {
    name: MethodEntry(config=kind, read_rows=read_rows, build=build_self_guided, papers=(PAPER,))
    for name, kind, read_rows in (
        ("sg", SgConfig, read_sentences),
        ("sg-opt1", SgOpt1Config, read_sentences),
        ("sg-opt2", SgOpt2Config, read_sentences),
        ("sg-opt", SgOptConfig, read_sentences),
        ("bt", BtConfig, read_translations),
        ("bt+sg-opt", BtSgOptConfig, read_translations),
    )
}
