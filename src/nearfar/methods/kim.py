"""Kim et al. 2021, "Self-Guided Contrastive Learning for BERT Sentence Representations" (ACL 2021): sg, sg-opt, bt.

Data: raw sentences. The encoder is cloned; F stays as it is, T is trained but for its embedding layer. For sentence i,
c_i is T's embedding (the last layer's [CLS]), and the views h_{i,k} are F's layers k = 0 .. l, pooled over the tokens
(max). With phi(u, v) = exp(cos(f(u), f(v)) / t), f a projection head that is dropped after training (section 3):

``sg``      NT-Xent over {c_i} and {h_i}, h_i the view of a layer drawn for i
``sg-opt1``  -log phi(c_i, h_i) / ( sum_{j != i} phi(c_i, c_j) + sum_j phi(c_i, h_j) )
``sg-opt2``  -log phi(c_i, h_i) / sum_j phi(c_i, h_j)
``sg-opt``   the mean over k of -log phi(c_i, h_{i,k}) / ( phi(c_i, h_{i,k}) + sum_{m != i} sum_n phi(c_i, h_{m,n}) )

and to the mean over anchors is added lambda ||theta_F - theta_T||^2, the drift. ``bt`` (appendix A.2) is ``sg`` with
the sentence's back-translation, read by T too, in place of h_i; ``bt+sg-opt`` (section 6) gives the sentence to T and
its back-translation to F.

Defaults: batch 16, AdamW at 5e-5 with betas (0.9, 0.9), one epoch, t = 0.01, lambda = 0.1 (Table 8); a head of two
layers 4096 wide, a GELU after each (section 3.1, footnote 4). Which layers guide, how they are pooled, and that F's
dropout is off and T's embedding layer frozen is settled where ``guide`` and ``drift`` are made.

Where paper, authors' code and this page differ: ``docs/methods/kim.md``.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias, get_args

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from nearfar import objectives
from nearfar.data.batching import TextBatch, TextBatches
from nearfar.encoder.heads import ProjectionHead
from nearfar.methods import EmbedFn, Loss, Method
from nearfar.methods.describe import describe_anchor, pluralize
from nearfar.objectives import (
    RowMask,
    SelfGuidedVariant,
    all_row_masks,
    below_positive_row_mask,
    distinct_row_mask,
    masked_fraction,
    nt_xent,
)
from nearfar.types import NearfarError

DriftFn: TypeAlias = Callable[[], Tensor]
"""The squared distance of the trained weights from where they began: a scalar with gradient."""
GuideFn: TypeAlias = Callable[[Sequence[str]], Tensor]
"""Texts -> views [batch, layers, dim] of the frozen copy, without gradient."""
TextPair: TypeAlias = tuple[str, str]
"""An item: the text that T reads, and the text that F reads."""

VARIANT_NAMES: dict[SelfGuidedVariant, str] = {"sg": "sg", "opt1": "sg-opt1", "opt2": "sg-opt2", "opt3": "sg-opt"}


def self_guided(
    embed: EmbedFn,
    guide: GuideFn,
    drift: DriftFn,
    dim: int,
    batches: TextBatches,
    *,
    variant: SelfGuidedVariant = "opt3",
    temperature: float = 0.01,  # Kim et al. 2021, Tables 5 and 8
    drift_weight: float = 0.1,  # lambda, ibid.
    width: int = 4096,  # section 3.1, footnote 4
    head_std: float = 0.02,  # authors' code: BERT's initializer_range
    false_negative_margin: float | None = None,  # ours
    views: str = "all layers",
    name: str | None = None,
) -> Method:
    """Train by the contrast of c_i with the views, by one of the formulas above, + drift_weight * drift.

    With one text a row, T and F read the same sentence; with two, T reads the first and F the second, its
    back-translation. ``dim`` is the width of embeddings and views, ``name`` the method's if not that of the variant.

    Every row is an anchor, and rows that share a text are not each other's negatives. With ``false_negative_margin``
    neither is row j for anchor i if cos(f(c_i), f(h_j)) > cos(f(c_i), f(h_i)) + margin, for opt3 both as means over
    the layers. It is the views that are compared, not c_i with c_j: the [CLS] vectors of an encoder that was never
    trained to tell sentences apart are all alike, so that every row would be left out at the start. The margin can't
    be negative: then a collapsed encoder would leave out everything, at a loss of 0.

    A layer for each row (sg, opt1, opt2) is drawn anew in each step from torch's global generator on the CPU. Views
    get no gradient, whatever ``guide`` returns. ``views`` says in words what they are, for ``describe``.

    Terms: the contrast, under the variant's name (``sg-opt`` for opt3), ``drift`` before its weight, and, with a
    margin, ``left_out``, the share of other rows that it leaves out.
    Raises NearfarError for an unknown variant, a setting out of its range, rows that do not have the number of texts
    that the name stands for, rows that all have the same text, and, with the first batch, embeddings that are not as
    wide as the views.
    """
    if variant not in get_args(SelfGuidedVariant):
        raise NearfarError(f"variant must be one of {', '.join(get_args(SelfGuidedVariant))}, not {variant!r}")
    name = name or ("bt+" if len(batches.texts[0]) == 2 else "") + VARIANT_NAMES[variant]
    _require_columns(name, batches, 2 if name.startswith("bt+") else 1)
    _require_settings(temperature, drift_weight, width, false_negative_margin)
    head = ProjectionHead(dim, width=width, std=head_std)

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
            guiding = _draw_layer(guiding)
        projected = head(torch.cat([own, guiding], dim=1))
        cls, seen = projected[:, 0], projected[:, 1:]
        logged_terms: dict[str, Tensor] = {}
        known = mask = _negative_row_mask(batch, cls.device)
        if false_negative_margin is not None:
            # The mean cosine with several views is the dot product with the mean of their unit vectors.
            mean = functional.normalize(seen.detach(), dim=2).mean(dim=1)
            unit = functional.normalize(cls.detach(), dim=1)
            below = below_positive_row_mask(unit, mean, mean, margin=false_negative_margin, similarity="dot")
            mask = all_row_masks(known, below)
            logged_terms["left_out"] = masked_fraction(mask, known, len(cls), len(cls), device=cls.device)
        contrast = objectives.self_guided(
            cls, seen if variant == "opt3" else seen[:, 0], temperature=temperature, variant=variant, mask=mask
        ).mean()
        return _total_loss(VARIANT_NAMES[variant], contrast, drift, drift_weight, logged_terms)

    def describe(batch: TextBatch) -> list[str]:
        drawn = "each a positive by itself" if variant == "opt3" else "one drawn at each step"
        sides = [
            (f"{own} (trained copy)", f"{guiding} (frozen copy: {views}; {drawn})")
            for own, guiding in _text_pairs(batch)
        ]
        lines = _describe_rows(batch, sides, "views" if variant in ("opt2", "opt3") else "embeddings and views")
        if variant == "sg":
            lines.append("each view is an anchor too, and its row's embedding the positive")
        return lines + _describe_margin(false_negative_margin)

    return Method(name, batches, _text_pairs, represent, loss_fn, describe, head)


def back_translation(
    embed: EmbedFn,
    dim: int,
    batches: TextBatches,
    *,
    drift: DriftFn | None = None,  # of the paper; None leaves it out
    temperature: float = 0.01,  # Kim et al. 2021, appendix A.2: as for sg
    drift_weight: float = 0.1,
    width: int = 4096,
    head_std: float = 0.02,
    false_negative_margin: float | None = None,  # ours
) -> Method:
    """Train by NT-Xent between sentences and their back-translations, both read by T, + drift_weight * drift.

    ``dim`` is the width of the embeddings. Each distinct text of a batch is encoded once; a back-translation that came
    back as the sentence itself is one vector with it. Rows that share a text are not each other's negatives. With
    ``false_negative_margin`` neither is row j for row i if one of its two texts is nearer to one of row i's, by more
    than the margin, than these two are to each other, by cosines after the head.

    Terms: ``bt``, the contrast, and ``drift`` and ``left_out`` as for :func:`self_guided`.
    Raises NearfarError for a setting out of its range, rows that do not have two texts, and rows that all have the
    same sentence or the same back-translation.
    """
    _require_columns("bt", batches, 2)
    _require_settings(temperature, drift_weight, width, false_negative_margin)
    head = ProjectionHead(dim, width=width, std=head_std)

    def loss_fn(batch: TextBatch, embeddings: Tensor) -> Loss:
        projected = head(embeddings)
        first, second = projected[batch.columns[0]], projected[batch.columns[1]]
        logged_terms: dict[str, Tensor] = {}
        known = mask = _negative_row_mask(batch, first.device)
        if false_negative_margin is not None:
            both = torch.cat([first, second])
            one = below_positive_row_mask(first, second, both, margin=false_negative_margin)
            other = below_positive_row_mask(second, first, both, margin=false_negative_margin)
            mask = all_row_masks(known, lambda rows: (one(rows) & other(rows)).unflatten(1, (2, len(first))).all(dim=1))
            logged_terms["left_out"] = masked_fraction(mask, known, len(first), len(both), device=first.device)
        contrast = nt_xent(first, second, temperature=temperature, mask=mask).mean()
        return _total_loss("bt", contrast, drift, drift_weight, logged_terms)

    def describe(batch: TextBatch) -> list[str]:
        lines = _describe_rows(batch, _text_pairs(batch), "both texts")
        lines.append("each positive is an anchor too, and its anchor the positive")
        return lines + _describe_margin(false_negative_margin)

    return Method("bt", batches, _sentences, embed, loss_fn, describe, head)


def _sentences(batch: TextBatch) -> list[str]:
    return batch.sentences


def _text_pairs(batch: TextBatch) -> list[TextPair]:
    """Each row's text for T and for F: the same one if the row has one."""
    own, guiding = batch.columns[0], batch.columns[-1]
    return [(batch.sentences[first], batch.sentences[second]) for first, second in zip(own, guiding, strict=True)]


def _negative_row_mask(batch: TextBatch, device: torch.device | None = None) -> RowMask:
    """Which rows j may be negatives of row i: those that share no text with it."""
    return distinct_row_mask(*(torch.tensor(column, device=device) for column in batch.columns))


def _draw_layer(views: Float[Tensor, "batch layers dim"]) -> Float[Tensor, "batch 1 dim"]:
    """A layer for each row, uniformly (section 3.1)."""
    layers = torch.randint(views.shape[1], (len(views),)).to(views.device)
    return views[torch.arange(len(views), device=views.device), layers][:, None]


def _total_loss(
    name: str, contrast: Tensor, drift: DriftFn | None, drift_weight: float, logged_terms: dict[str, Tensor]
) -> Loss:
    """The contrast, by its name, and the drift; other terms are only watched."""
    terms = {name: contrast.detach()} | logged_terms
    if drift is None:
        return Loss(contrast, terms)
    distance = drift()
    return Loss(contrast + drift_weight * distance, terms | {"drift": distance.detach()})


def _describe_rows(batch: TextBatch, sides: Sequence[TextPair], negatives: str) -> list[str]:
    """Each row's anchor and positive, and how many other rows are its negatives."""
    lines: list[str] = []
    mask = _negative_row_mask(batch)
    for row, (anchor, positive) in enumerate(sides):
        others = int(mask(torch.tensor([row])).sum())
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
            f"{name} takes one sentence a row, but the data has {found}; bring sentences, or, "
            f"if the second text is a back-translation, use the method bt+sg-opt"
        )
    for column, kind in zip(range(wanted), ("sentence", "back-translation"), strict=False):
        if all(row[column] == rows[0][column] for row in rows):
            raise NearfarError(
                f"all {len(rows)} rows have the same {kind}, {rows[0][column]!r}, so there is nothing to push it away "
                "from; bring rows of other texts"
            )


def _require_settings(temperature: float, drift_weight: float, width: int, margin: float | None) -> None:
    if not 0 < temperature < math.inf:
        raise NearfarError(f"--temperature must be a positive number, not {temperature}")
    if not 0 <= drift_weight < math.inf:
        raise NearfarError(f"--drift-weight must be a number from 0 up, not {drift_weight}")
    if width < 1:
        raise NearfarError(f"--projection must be at least 1, not {width}")
    if margin is not None and not 0 <= margin < math.inf:
        raise NearfarError(f"--false-negative-margin must be 0 or more, not {margin}")
