"""Liao 2021, "Sentence Embeddings using Supervised Contrastive Learning" (arXiv 2106.04791): sbert, scl, augment.

Data: NLI rows (premise, hypothesis, label); SNLI train in the paper. A batch is 64 rows (section 4.2) in which, here,
all rows of a premise meet. Each distinct sentence is encoded once, so a premise has one dropout draw in a batch, while
the authors encode it again for each of its rows.

``sbert``, the baseline (eq. 1; Reimers & Gurevych 2019): embeddings u, v of premise and hypothesis, logits =
head([u; v; |u - v|]), and the loss is CE = the mean cross-entropy over the pairs.

``scl`` (eq. 2 and 3): (1 - scl_weight) CE + scl_weight SCL, where SCL is the mean over the anchors, the batch's
entailment pairs, of :func:`nearfar.objectives.premise_scl`. ``max_positives`` and ``max_negatives`` are the paper's
"3p3n", "3palln", "allpalln". Best on STS: all, all, weight 0.3, temperature 1.0 (Table 2); best on transfer: weight 0.1
(Table 3).

``augment`` (the paper's "3p3n-Augment", "allpalln-Augment"): no SCL, but its (anchor, positive) and (anchor, negative)
sets as further labelled pairs for CE.

The loop (section 4.2): 1 epoch at batch 64, warm-up over the first 10% of the steps. The learning rate, 2e-5, is the
code's; the paper's text does not give it.

Where paper, authors' code and this module differ:

================  ========================  =============================  ==============================
                  paper                     authors' code                  here
================  ========================  =============================  ==============================
row order         not given                 file order, not shuffled       premises shuffled; or ``file``
negatives         3 or all                  3 in early versions; all in    ``max_negatives`` is kept
                                            the last, whatever is set
false negatives   negatives                 negatives                      left out where texts are equal
no anchor         0 / 0                     0 / 0                          SCL counts as 0
augment's labels  not given                 not published                  see :func:`augmented_pairs`
pooling           mean without [CLS]        that, over the padded length;  the encoder's
                                            with padding in ``encode``
schedule          linear after warm-up      constant after warm-up         the loop's
optimiser         Adam                      AdamW                          the loop's
================  ========================  =============================  ==============================
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, Literal

from nearfar.config.bounds import Cap, File, Fraction, Temperature
from nearfar.config.training import TrainConfig
from nearfar.methods.base import BuildContext, BuiltMethod, EmbedFn, Loss, Method
from nearfar.methods.describe import describe_anchor, pluralize
from nearfar.methods.nli import (
    Pairs,
    batch_nli,
    describe_silent,
    items_by_role,
    nli_facts,
    read_nli,
    require_anchors,
    vectors_by_role,
)
from nearfar.methods.roles import NO_PROMPTS, Roles
from nearfar.methods.settings import MarginSettings, NliColumns
from nearfar.types import CONTRADICTION, ENTAILMENT, LABEL_NAMES, MethodEntry, NearfarError, NliRow

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor, nn

    from nearfar.data.batching import NliBatch, NliBatches
    from nearfar.data.nli import NliData
    from nearfar.objectives import HardNegatives

PAPER = """@misc{liao2021sentence,
  title  = {Sentence Embeddings using Supervised Contrastive Learning},
  author = {Liao, Danqi},
  year   = {2021},
  eprint = {2106.04791},
  archivePrefix = {arXiv}
}"""
SBERT_PAPER = """@inproceedings{reimers2019sentence,
  title     = {Sentence-{BERT}: Sentence Embeddings using Siamese {BERT}-Networks},
  author    = {Reimers, Nils and Gurevych, Iryna},
  booktitle = {Proceedings of EMNLP-IJCNLP},
  year      = {2019}
}"""


@dataclass(frozen=True, kw_only=True)
class SbertConfig(NliColumns, TrainConfig):
    """sbert: softmax cross-entropy over (u, v, |u - v|) on NLI rows (Reimers & Gurevych 2019, as run by Liao 2021)."""

    data: tuple[File, ...] = ("snli",)
    """NLI rows: snli, mnli, snli+mnli, snli:dev+test, microworld, or files; several are joined."""
    pooling: str | None = "mean_without_cls"
    """cls, mean, mean_without_cls (Liao 2021, section 3), max, first_last, embeddings_last, last_two, layer:K; 'own'
    for the model's own."""
    order: Literal["premise", "file", "rows"] = "premise"
    """premise: shuffled, all rows of a premise in one batch; file: not shuffled (the authors' code); rows: shuffled."""
    head_layers: Literal[1, 2] = 2
    """Linear layers of the classifier: 2 in Liao 2021 (3h, 3h/2, 3; no activation between), 1 in SBERT."""


@dataclass(frozen=True, kw_only=True)
class SclConfig(MarginSettings, SbertConfig):
    """scl: (1 - lambda) cross-entropy + lambda premise-anchored supervised contrastive loss (Liao 2021, eq. 2, 3)."""

    scl_weight: Fraction = 0.3
    """Lambda, the weight of the contrastive loss: best on STS 0.3, on transfer tasks 0.1 (Liao 2021, tables 2, 3)."""
    temperature: Temperature = 1.0
    """Divides the similarities (Liao 2021, section 4.4); with cosine, 0.05 is usual."""
    similarity: Literal["dot", "cosine"] = "dot"
    """Dot product, as in the authors' code, or cosine."""
    hard_negatives: Literal["all", "contradiction", "none"] = "all"
    """Negatives with the anchor's own premise: all not entailed (the paper), contradictions only, or none."""
    max_positives: Cap = "all"
    """Maximum number of positives of an anchor, the entailed hypotheses of its premise; or all."""
    max_negatives: Cap = "all"
    """Maximum number of negatives of an anchor, other hypotheses of the batch; or all."""


@dataclass(frozen=True, kw_only=True)
class AugmentConfig(SbertConfig):
    """augment: cross-entropy with the pairs of scl as extra rows (3p3n- and allpalln-Augment of Liao 2021)."""

    max_positives: Cap = 3
    """Maximum number of positives of an anchor, the entailed hypotheses of its premise; or all (allpalln)."""
    max_negatives: Cap = 3
    """Maximum number of negatives of an anchor, other hypotheses of the batch; or all (allpalln)."""


def sbert(config: SbertConfig, embed: EmbedFn, dim: int, batches: "NliBatches", roles: Roles = NO_PROMPTS) -> Method:
    """Train by classifying pairs: total = CE. ``dim`` is the width of the embeddings.

    Here and below, premises are encoded as queries, hypotheses as documents, with the prompts of ``roles``.

    Terms: ``ce`` and ``accuracy``, the share of pairs classified correctly, both over the batch.
    Raises NearfarError if all rows have the same label.
    """
    from nearfar.encoder.heads import SoftmaxHead

    _require_two_labels(batches.rows)
    head = SoftmaxHead(dim, layers=config.head_layers)

    def loss_fn(batch: "NliBatch", embeddings: "Tensor") -> Loss:
        ce, accuracy = _classify(head, vectors_by_role(roles, batch, embeddings), Pairs.of(batch, embeddings.device))
        return Loss(ce.mean(), {"ce": ce.mean().detach(), "accuracy": accuracy.mean()})

    return Method("sbert", batches, partial(items_by_role, roles), embed, loss_fn, describe_labels, head)


def scl(config: SclConfig, embed: EmbedFn, dim: int, batches: "NliBatches", roles: Roles = NO_PROMPTS) -> Method:
    """Train by (1 - scl_weight) CE + scl_weight SCL. ``dim`` is the width of the embeddings.

    SCL of a batch without an entailment is 0. With ``scl_weight=1`` there is no CE and no head. Positives and negatives
    beyond their maximum number are left out at random, with torch's global generator.

    Terms: ``scl``, and ``ce`` and ``accuracy`` if there is a head.
    Raises NearfarError if no row is an entailment, if all rows have the same premise, and if all have the same label
    though CE has a weight.
    """
    from nearfar.encoder.heads import SoftmaxHead
    from nearfar.objectives import premise_scl

    scl_weight = config.scl_weight
    most_positives, most_negatives = _cap(config.max_positives), _cap(config.max_negatives)
    require_anchors(batches, otherwise=", or use the method sbert")
    if scl_weight < 1:
        _require_two_labels(batches.rows)
    head = SoftmaxHead(dim, layers=config.head_layers) if scl_weight < 1 else None

    def loss_fn(batch: "NliBatch", embeddings: "Tensor") -> Loss:
        pairs, ids = Pairs.of(batch, embeddings.device), Pairs.of(batch)
        queries, documents = by_role = vectors_by_role(roles, batch, embeddings)
        per_anchor = premise_scl(
            queries[pairs.premises],
            documents[pairs.hypotheses],
            ids.premises,
            ids.labels,
            temperature=config.temperature,
            similarity=config.similarity,
            hard_negatives=config.hard_negatives,
            hypothesis_ids=ids.hypotheses,
            false_negative_margin=config.false_negative_margin,
            max_positives=most_positives,
            max_negatives=most_negatives,
        )
        contrast = per_anchor.sum() / max(len(per_anchor), 1)  # 0, not 0 / 0, without an anchor
        terms = {"scl": contrast.detach()}
        if head is None:
            return Loss(contrast, terms)
        ce, accuracy = _classify(head, by_role, pairs)
        total = (1 - scl_weight) * ce.mean() + scl_weight * contrast
        return Loss(total, terms | {"ce": ce.mean().detach(), "accuracy": accuracy.mean()})

    def describe(batch: "NliBatch") -> list[str]:
        return describe_anchors(
            batch,
            hard_negatives=config.hard_negatives,
            max_positives=most_positives,
            max_negatives=most_negatives,
        )

    return Method("scl", batches, partial(items_by_role, roles), embed, loss_fn, describe, head)


def augment(
    config: AugmentConfig, embed: EmbedFn, dim: int, batches: "NliBatches", roles: Roles = NO_PROMPTS
) -> Method:
    """Train by CE over the batch's rows and the pairs that :func:`augmented_pairs` adds to them.

    Terms: ``ce`` over all of these pairs, ``accuracy`` over the batch's own rows, comparable with that of ``sbert``.
    Raises NearfarError if no row is an entailment, and if all rows have the same premise.
    """
    import torch

    from nearfar.encoder.heads import SoftmaxHead
    from nearfar.runtime.transfer import to_device

    require_anchors(batches, otherwise=", or use the method sbert")
    most_positives, most_negatives = _cap(config.max_positives), _cap(config.max_negatives)
    head = SoftmaxHead(dim, layers=config.head_layers)

    def loss_fn(batch: "NliBatch", embeddings: "Tensor") -> Loss:
        own = Pairs.of(batch)
        added = augmented_pairs(own, max_positives=most_positives, max_negatives=most_negatives)
        pairs = Pairs(*(to_device(torch.cat(both), embeddings.device) for both in zip(own, added, strict=True)))
        ce, accuracy = _classify(head, vectors_by_role(roles, batch, embeddings), pairs)
        return Loss(ce.mean(), {"ce": ce.mean().detach(), "accuracy": accuracy[: len(own.labels)].mean()})

    def describe(batch: "NliBatch") -> list[str]:
        lines = describe_anchors(batch, max_positives=most_positives, max_negatives=most_negatives)
        return [*lines, "added pairs: other positives as entailment, hypotheses of other premises as contradiction"]

    return Method("augment", batches, partial(items_by_role, roles), embed, loss_fn, describe, head)


def augmented_pairs(pairs: Pairs, *, max_positives: int | None, max_negatives: int | None) -> Pairs:
    """Turn the positives and negatives of every anchor, capped as in SCL, into further labelled pairs.

    An anchor's positives but its own hypothesis become entailment pairs. They are rows of the batch already, as
    positives share the anchor's premise, and so count once more; that is all that more positives can do for CE.
    Negatives from other premises become contradiction pairs: the paper does not say what label they get, but SNLI's
    annotators were to take two captions as being of the same photo (Bowman et al. 2015, section 2.1), of which an
    unrelated one is false. The premise's own neutral and contradicted hypotheses, if drawn, are not added again.
    """
    import torch

    from nearfar.objectives import premise_sets

    sets = premise_sets(
        pairs.premises,
        pairs.labels,
        max_positives=max_positives,
        max_negatives=max_negatives,
        hypothesis_ids=pairs.hypotheses,
    )
    positives, negatives = sets.positives[:], sets.negatives[:]
    own = sets.anchors[:, None] == torch.arange(len(pairs.labels), device=sets.anchors.device)
    elsewhere = pairs.premises[sets.anchors, None] != pairs.premises
    anchors, added = ((positives & ~own) | (negatives & elsewhere)).nonzero(as_tuple=True)
    labels = torch.where(positives[anchors, added], ENTAILMENT, CONTRADICTION)
    return Pairs(pairs.premises[sets.anchors[anchors]], pairs.hypotheses[added], labels)


def _cap(cap: Cap) -> int | None:
    return None if cap == "all" else cap


def _classify(
    head: "nn.Module", embeddings: 'tuple[Float[Tensor, "batch dim"], Float[Tensor, "batch dim"]]', pairs: Pairs
) -> 'tuple[Float[Tensor, " pairs"], Float[Tensor, " pairs"]]':
    """Cross-entropy of each pair, and 1 or 0 for whether the head predicts its label.

    ``embeddings`` are those of the sentences as premises, and as hypotheses.
    """
    from nearfar.objectives import nli_softmax, nli_softmax_features

    premises, hypotheses = embeddings
    logits = head(nli_softmax_features(premises[pairs.premises], hypotheses[pairs.hypotheses]))
    return nli_softmax(logits, pairs.labels), (logits.argmax(dim=1) == pairs.labels).float()


def _require_two_labels(rows: Sequence[NliRow]) -> None:
    labels = {row.label for row in rows}
    if len(labels) == 1:
        raise NearfarError(
            f"all {len(rows)} rows are labelled {LABEL_NAMES[labels.pop()]}, so a classifier has nothing to tell "
            "apart; add rows of other labels, or, with entailments, use the method scl with --scl-weight 1"
        )


def describe_labels(batch: "NliBatch") -> list[str]:
    """Each premise, and below it its labelled hypotheses."""
    lines: list[str] = []
    for premise in dict.fromkeys(batch.premises):
        lines.append(f"{'premise':<15}  {batch.sentences[premise]}")
        for pair, hypothesis in enumerate(batch.hypotheses):
            if batch.premises[pair] == premise:
                lines.append(f"  {LABEL_NAMES[batch.labels[pair]]:<13}  {batch.sentences[hypothesis]}")
    return lines


def describe_anchors(
    batch: "NliBatch",
    *,
    hard_negatives: "HardNegatives" = "all",
    max_positives: int | None,
    max_negatives: int | None,
) -> list[str]:
    """Each anchor premise, and below it its positives, its own negatives, and the number of other negatives.

    All candidates are listed; a last line gives the maximum numbers that are drawn at each step.
    """
    import torch

    from nearfar.objectives import premise_sets

    sets = premise_sets(
        torch.tensor(batch.premises),
        torch.tensor(batch.labels),
        hard_negatives=hard_negatives,
        hypothesis_ids=torch.tensor(batch.hypotheses),
    )
    # Entailment pairs of one premise have the same sets, so each premise is shown once.
    anchors = {batch.premises[pair]: anchor for anchor, pair in enumerate(sets.anchors.tolist())}
    in_positives, in_negatives = sets.positives[:].tolist(), sets.negatives[:].tolist()
    lines: list[str] = []
    for premise, anchor in anchors.items():
        positives, negatives = ([*compress(batch.hypotheses, of[anchor])] for of in (in_positives, in_negatives))
        own = [
            f"{batch.sentences[hypothesis]} ({LABEL_NAMES[label]})"
            for hypothesis, label, other, kept in zip(
                batch.hypotheses, batch.labels, batch.premises, in_negatives[anchor], strict=True
            )
            if kept and other == premise
        ]
        near = {premise, *positives}
        equal = sum(hypothesis in near for hypothesis in batch.hypotheses) - len(positives)
        soft = len(batch.hypotheses) - len(positives) - len(negatives) - equal
        left_out = [
            f"{pluralize(count, 'hypothesis', 'hypotheses')} {which}"
            for count, which in ((equal, "equal to the anchor or a positive"), (soft, "of this premise"))
            if count
        ]
        elsewhere = pluralize(len(negatives) - len(own), "hypothesis", "hypotheses")
        lines += describe_anchor(
            batch.sentences[premise],
            positives=[batch.sentences[positive] for positive in positives],
            negatives=[*own, f"{elsewhere} of other premises"],
            left_out=" and ".join(left_out) or None,
        )
    lines += describe_silent(batch, len(anchors))
    caps = {"positive": max_positives, "negative": max_negatives}
    drawn = " and ".join(pluralize(cap, name, f"{name}s") for name, cap in caps.items() if cap is not None)
    if drawn:
        lines.append(f"at each step, {drawn} at most, drawn from these for each entailed pair")
    return lines


def build_sbert(config: SbertConfig, context: BuildContext, data: "NliData") -> BuiltMethod:
    """Build sbert."""
    return _build(sbert, config, context, data)


def build_scl(config: SclConfig, context: BuildContext, data: "NliData") -> BuiltMethod:
    """Build scl."""
    return _build(scl, config, context, data)


def build_augment(config: AugmentConfig, context: BuildContext, data: "NliData") -> BuiltMethod:
    """Build augment."""
    return _build(augment, config, context, data)


def _build(
    make: "Callable[[Any, EmbedFn, int, NliBatches, Roles], Method]",
    config: SbertConfig,
    context: BuildContext,
    data: "NliData",
) -> BuiltMethod:
    """The method that ``make`` makes, on batches in the order of the config."""
    encoder, roles = context.encoder, Roles.of(context.encoder)
    batches = batch_nli(config, context, data, roles, order=config.order)
    if len({row[:2] for row in batches.rows}) == 1:
        first = batches.rows[0]
        raise NearfarError(
            f"all {len(batches.rows)} rows have the same premise and hypothesis, {first.premise!r} and "
            f"{first.hypothesis!r}, so there is nothing to tell apart; add rows of other texts"
        )
    return BuiltMethod(make(config, encoder.embed, encoder.encoder.dim, batches, roles), nli_facts(data, batches))


METHODS = {
    "sbert": MethodEntry(
        config=SbertConfig, read_rows=read_nli, build=build_sbert, min_rows=1, papers=(SBERT_PAPER, PAPER)
    ),
    "scl": MethodEntry(config=SclConfig, read_rows=read_nli, build=build_scl, min_rows=1, papers=(PAPER,)),
    "augment": MethodEntry(config=AugmentConfig, read_rows=read_nli, build=build_augment, min_rows=1, papers=(PAPER,)),
}
