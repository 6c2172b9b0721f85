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
layers 4096 wide, a GELU after each (section 3.1, footnote 4). The layers that guide, their
pooling, F's dropout and T's frozen embedding layer are set in :mod:`nearfar.methods.kim.build`.

Where paper, authors' code and this module differ: ``docs/methods/kim.md``.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias, get_args

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from nearfar import objectives
from nearfar.data.batching import TextBatch, TextBatches
from nearfar.encoder.heads import ProjectionHead
from nearfar.methods.base import EmbedFn, Loss, Method
from nearfar.methods.describe import describe_anchor, pluralize
from nearfar.methods.kim import BtConfig, GuidedConfig, KimConfig
from nearfar.objectives import (
    RowMask,
    SelfGuidedVariant,
    below_positive,
    distinct_rows,
    masked_fraction,
    nt_xent,
)
from nearfar.runtime.transfer import to_device
from nearfar.types import NearfarError

DriftFn: TypeAlias = Callable[[], Tensor]
"""The squared distance of the trained weights from the initial ones: a scalar with gradient."""
GuideFn: TypeAlias = Callable[[Sequence[str]], Tensor]
"""Texts -> views [batch, layers, dim] of the frozen copy, without gradient."""
TextPair: TypeAlias = tuple[str, str]
"""An item: the text that T reads, and the text that F reads."""

VARIANT_NAMES: dict[SelfGuidedVariant, str] = {"sg": "sg", "opt1": "sg-opt1", "opt2": "sg-opt2", "opt3": "sg-opt"}


def self_guided(
    config: GuidedConfig,
    embed: EmbedFn,
    guide: GuideFn,
    dim: int,
    batches: TextBatches,
    *,
    drift: DriftFn,
    variant: SelfGuidedVariant = "opt3",
    head_std: float = 0.02,  # authors' code: BERT's initializer_range
    views: str = "all layers",
    name: str | None = None,
) -> Method:
    """Train by the contrast of c_i with the views, by one of the formulas above, + drift_weight * drift.

    With one text a row, T and F read the same sentence; with two, T reads the first and F the second, its
    back-translation. ``dim`` is the width of embeddings and views; ``name`` is the method's, by default the variant's.

    Every row is an anchor, and rows that share a text are not each other's negatives. With ``false_negative_margin``
    row j is not a negative of anchor i either if cos(f(c_i), f(h_j)) > cos(f(c_i), f(h_i)) + margin, for
    opt3 with means over the layers on both sides. c_i is compared with views, and not with c_j: the [CLS] vectors of an
    encoder that was not trained to distinguish sentences are all similar, so every row would be left out at the start.
    The margin must not be negative: a collapsed encoder would then leave out everything, with a loss of 0.

    The layer of each row (sg, opt1, opt2) is drawn in each step from torch's global generator on the CPU. Views get no
    gradient, whatever ``guide`` returns. ``views`` describes them in words, for ``describe``.

    Terms: the contrast, under the variant's name (``sg-opt`` for opt3), ``drift`` before its weight, and, with a
    margin, ``left_out``, the share of other rows that the margin leaves out.
    Raises NearfarError for an unknown variant, rows with another number of texts than the method reads, rows that all
    have the same text, and, with the first batch, embeddings whose width differs from that of the views.
    """
    if variant not in get_args(SelfGuidedVariant):
        raise NearfarError(f"variant must be one of {', '.join(get_args(SelfGuidedVariant))}, not {variant!r}")
    name = name or ("bt+" if len(batches.texts[0]) == 2 else "") + VARIANT_NAMES[variant]
    _require_columns(name, batches, 2 if name.startswith("bt+") else 1)
    margin = config.false_negative_margin
    head = _projection_head(config, dim, head_std)

    def represent(items: Sequence[TextPair]) -> Float[Tensor, "items views dim"]:
        """The row of c_i and its views."""
        own, guiding = embed([text for text, _ in items]), guide([text for _, text in items])
        if own.shape[1] != guiding.shape[2]:
            raise NearfarError(
                f"{name}: the embeddings are {own.shape[1]} wide, but the frozen copy's layers {guiding.shape[2]}; "
                "start from an encoder without a Dense layer after its pooling"
            )
        rows = torch.cat([own[:, None], guiding], dim=1)
        return rows.to(torch.promote_types(rows.dtype, torch.float32))

    def loss_fn(batch: TextBatch, representations: Tensor) -> Loss:
        own, guiding = representations[:, :1], representations[:, 1:].detach()
        if variant != "opt3":
            guiding = draw_layer(guiding)
        projected = _project(head, torch.cat([own, guiding], dim=1))
        cls, seen = projected[:, 0], projected[:, 1:]
        logged_terms: dict[str, Tensor] = {}
        known = mask = _negatives_mask(batch).to(cls.device)
        if margin is not None:
            # The mean cosine with several views is the dot product with the mean of their unit vectors.
            mean = functional.normalize(seen.detach(), dim=2).mean(dim=1)
            unit = functional.normalize(cls.detach(), dim=1)
            mask = known & below_positive(unit, mean, mean, margin=margin, similarity="dot")
            logged_terms["left_out"] = masked_fraction(mask, known)
        contrast = objectives.self_guided(
            cls, seen if variant == "opt3" else seen[:, 0], temperature=config.temperature, variant=variant, mask=mask
        ).mean()
        return _total_loss(config, VARIANT_NAMES[variant], contrast, drift, logged_terms)

    def describe(batch: TextBatch) -> list[str]:
        drawn = "each a positive by itself" if variant == "opt3" else "one drawn at each step"
        sides = [
            (f"{own} (trained copy)", f"{guiding} (frozen copy: {views}; {drawn})")
            for own, guiding in _text_pairs(batch)
        ]
        lines = _describe_rows(batch, sides, "views" if variant in ("opt2", "opt3") else "embeddings and views")
        if variant == "sg":
            lines.append("each view is an anchor too, and its row's embedding the positive")
        return lines + _describe_margin(margin)

    return Method(name, batches, _text_pairs, represent, loss_fn, describe, head)


def back_translation(
    config: BtConfig,
    embed: EmbedFn,
    dim: int,
    batches: TextBatches,
    *,
    drift: DriftFn | None = None,
    head_std: float = 0.02,
) -> Method:
    """Train by NT-Xent between sentences and their back-translations, both read by T, + drift_weight * drift.

    ``dim`` is the width of the embeddings; without ``drift`` that term is left out. Each distinct text of a batch is
    encoded once; a back-translation equal to its sentence has the same vector. Rows that share a text are not each
    other's negatives. With ``false_negative_margin`` row j is not a negative of row i either if the cosine, after the
    head, of one of its texts with one of row i's exceeds the cosine of row i's two texts by more than the margin.

    Terms: ``bt``, the contrast, and ``drift`` and ``left_out`` as for :func:`self_guided`.
    Raises NearfarError for rows that do not have two texts, and rows that all have the same sentence or the same
    back-translation.
    """
    _require_columns("bt", batches, 2)
    margin = config.false_negative_margin
    head = _projection_head(config, dim, head_std)

    def loss_fn(batch: TextBatch, embeddings: Tensor) -> Loss:
        projected = _project(head, embeddings)
        first, second = projected[batch.columns[0]], projected[batch.columns[1]]
        logged_terms: dict[str, Tensor] = {}
        known = mask = _negatives_mask(batch).to(first.device)
        if margin is not None:
            both = torch.cat([first, second])
            of_both = below_positive(first, second, both, margin=margin) & below_positive(
                second, first, both, margin=margin
            )
            mask = known & RowMask(lambda rows: of_both[rows].unflatten(1, (2, len(first))).all(dim=1), known.shape)
            logged_terms["left_out"] = masked_fraction(mask, known)
        contrast = nt_xent(first, second, temperature=config.temperature, mask=mask).mean()
        return _total_loss(config, "bt", contrast, drift, logged_terms)

    def describe(batch: TextBatch) -> list[str]:
        lines = _describe_rows(batch, _text_pairs(batch), "both texts")
        lines.append("each positive is an anchor too, and its anchor the positive")
        return lines + _describe_margin(margin)

    return Method("bt", batches, _sentences, embed, loss_fn, describe, head)


def _projection_head(config: KimConfig, dim: int, std: float) -> ProjectionHead | None:
    return None if config.projection == "none" else ProjectionHead(dim, width=config.projection, std=std)


def _project(head: ProjectionHead | None, vectors: Tensor) -> Tensor:
    """The vectors in the space of the loss: f(v), or v in float32 or more where there is no head."""
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32)) if head is None else head(vectors)


def _sentences(batch: TextBatch) -> list[str]:
    return batch.sentences


def _text_pairs(batch: TextBatch) -> list[TextPair]:
    """Each row's text for T and for F: the same text twice if the row has one."""
    own, guiding = batch.columns[0], batch.columns[-1]
    return [(batch.sentences[first], batch.sentences[second]) for first, second in zip(own, guiding, strict=True)]


def _negatives_mask(batch: TextBatch) -> RowMask:
    """Whether row j may be a negative of row i: it shares no text with it."""
    return distinct_rows(*(torch.tensor(column) for column in batch.columns))


def draw_layer(views: Float[Tensor, "batch layers dim"]) -> Float[Tensor, "batch 1 dim"]:
    """The view of a layer for each row, drawn uniformly from torch's global generator on the CPU (section 3.1)."""
    layers = to_device(torch.randint(views.shape[1], (len(views),)), views.device)
    return views[torch.arange(len(views), device=views.device), layers][:, None]


def _total_loss(
    config: KimConfig, name: str, contrast: Tensor, drift: DriftFn | None, logged_terms: dict[str, Tensor]
) -> Loss:
    """The contrast, under ``name``, plus the drift; ``logged_terms`` are not part of the loss."""
    terms = {name: contrast.detach()} | logged_terms
    if drift is None:
        return Loss(contrast, terms)
    distance = drift()
    return Loss(contrast, terms | {"drift": distance.detach()}, config.drift_weight * distance)


def _describe_rows(batch: TextBatch, sides: Sequence[TextPair], negatives: str) -> list[str]:
    """Each row's anchor and positive, and how many other rows are its negatives."""
    lines: list[str] = []
    for (anchor, positive), negative in zip(sides, _negatives_mask(batch)[:].tolist(), strict=True):
        others = sum(negative)
        equal = len(sides) - 1 - others
        lines += describe_anchor(
            anchor,
            positives=[positive],
            negatives=[f"{negatives} of {pluralize(others, 'other row', 'other rows')}"],
            left_out=f"{pluralize(equal, 'other row', 'other rows')} with a text of this one" if equal else None,
        )
    return lines


def _describe_margin(margin: float | None) -> list[str]:
    if margin is None:
        return []
    over = "" if margin == 0 else f" by over {margin:g}"
    return [f"at each step, rows that are more similar to the anchor than its positive{over} are left out"]


def _require_columns(name: str, batches: TextBatches, wanted: int) -> None:
    rows = batches.texts
    found = f"{pluralize(len(rows[0]), 'text', 'texts')} a row"
    if len(rows[0]) != wanted == 2:
        raise NearfarError(
            f"{name} needs a sentence and its back-translation in each row, but the data has {found}; "
            "nearfar back-translate makes such rows from sentences"
        )
    if len(rows[0]) != wanted:
        raise NearfarError(
            f"{name} takes one sentence a row, but the data has {found}; give sentences, or, "
            f"if the second text is a back-translation, use the method bt+sg-opt"
        )
    for column, kind in zip(range(wanted), ("sentence", "back-translation"), strict=False):
        if all(row[column] == rows[0][column] for row in rows):
            raise NearfarError(
                f"all {len(rows)} rows have the same {kind}, {rows[0][column]!r}, so there is nothing to push it away "
                "from; add rows of other texts"
            )
