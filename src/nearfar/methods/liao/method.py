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
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nearfar.config.bounds import Cap
from nearfar.data.batching import NliBatch, NliBatches
from nearfar.encoder.heads import SoftmaxHead
from nearfar.encoder.training_encoder import TrainingText
from nearfar.methods.base import EmbedFn, Loss, Method
from nearfar.methods.liao import AugmentConfig, SbertConfig, SclConfig
from nearfar.methods.liao.describe import describe_anchors, describe_labels
from nearfar.methods.roles import NO_PROMPTS, Roles
from nearfar.objectives import nli_softmax, nli_softmax_features, premise_scl, premise_sets
from nearfar.runtime.transfer import to_device
from nearfar.types import CONTRADICTION, ENTAILMENT, LABEL_NAMES, NearfarError, NliRow


class Pairs(NamedTuple):
    """Labelled pairs of a batch's sentences; equal indices are equal texts."""

    premises: Int[Tensor, " pairs"]
    hypotheses: Int[Tensor, " pairs"]
    labels: Int[Tensor, " pairs"]


def sbert(config: SbertConfig, embed: EmbedFn, dim: int, batches: NliBatches, roles: Roles = NO_PROMPTS) -> Method:
    """Train by classifying pairs: total = CE. ``dim`` is the width of the embeddings.

    Here and below, premises are encoded as queries, hypotheses as documents, with the prompts of ``roles``.

    Terms: ``ce`` and ``accuracy``, the share of pairs classified correctly, both over the batch.
    Raises NearfarError if all rows have the same label.
    """
    _require_two_labels(batches.rows)
    head = SoftmaxHead(dim, layers=config.head_layers)

    def loss_fn(batch: NliBatch, embeddings: Tensor) -> Loss:
        ce, accuracy = _classify(head, _by_role(roles, batch, embeddings), _pairs(batch, embeddings.device))
        return Loss(ce.mean(), {"ce": ce.mean().detach(), "accuracy": accuracy.mean()})

    return Method("sbert", batches, _items(roles), embed, loss_fn, describe_labels, head)


def scl(config: SclConfig, embed: EmbedFn, dim: int, batches: NliBatches, roles: Roles = NO_PROMPTS) -> Method:
    """Train by (1 - scl_weight) CE + scl_weight SCL. ``dim`` is the width of the embeddings.

    SCL of a batch without an entailment is 0. With ``scl_weight=1`` there is no CE and no head. Positives and negatives
    beyond their maximum number are left out at random, with torch's global generator.

    Terms: ``scl``, and ``ce`` and ``accuracy`` if there is a head.
    Raises NearfarError if no row is an entailment, if all rows have the same premise, and if all have the same label
    though CE has a weight.
    """
    scl_weight = config.scl_weight
    most_positives, most_negatives = _cap(config.max_positives), _cap(config.max_negatives)
    _require_anchors(batches)
    if scl_weight < 1:
        _require_two_labels(batches.rows)
    head = SoftmaxHead(dim, layers=config.head_layers) if scl_weight < 1 else None

    def loss_fn(batch: NliBatch, embeddings: Tensor) -> Loss:
        pairs, ids = _pairs(batch, embeddings.device), _pairs(batch)
        queries, documents = by_role = _by_role(roles, batch, embeddings)
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

    def describe(batch: NliBatch) -> list[str]:
        return describe_anchors(
            batch,
            hard_negatives=config.hard_negatives,
            max_positives=most_positives,
            max_negatives=most_negatives,
        )

    return Method("scl", batches, _items(roles), embed, loss_fn, describe, head)


def augment(config: AugmentConfig, embed: EmbedFn, dim: int, batches: NliBatches, roles: Roles = NO_PROMPTS) -> Method:
    """Train by CE over the batch's rows and the pairs that :func:`augmented_pairs` adds to them.

    Terms: ``ce`` over all of these pairs, ``accuracy`` over the batch's own rows, comparable with that of ``sbert``.
    Raises NearfarError if no row is an entailment, and if all rows have the same premise.
    """
    _require_anchors(batches)
    most_positives, most_negatives = _cap(config.max_positives), _cap(config.max_negatives)
    head = SoftmaxHead(dim, layers=config.head_layers)

    def loss_fn(batch: NliBatch, embeddings: Tensor) -> Loss:
        own = _pairs(batch)
        added = augmented_pairs(own, max_positives=most_positives, max_negatives=most_negatives)
        pairs = Pairs(*(to_device(torch.cat(both), embeddings.device) for both in zip(own, added, strict=True)))
        ce, accuracy = _classify(head, _by_role(roles, batch, embeddings), pairs)
        return Loss(ce.mean(), {"ce": ce.mean().detach(), "accuracy": accuracy[: len(own.labels)].mean()})

    def describe(batch: NliBatch) -> list[str]:
        lines = describe_anchors(batch, max_positives=most_positives, max_negatives=most_negatives)
        return [*lines, "added pairs: other positives as entailment, hypotheses of other premises as contradiction"]

    return Method("augment", batches, _items(roles), embed, loss_fn, describe, head)


def augmented_pairs(pairs: Pairs, *, max_positives: int | None, max_negatives: int | None) -> Pairs:
    """Turn the positives and negatives of every anchor, capped as in SCL, into further labelled pairs.

    An anchor's positives but its own hypothesis become entailment pairs. They are rows of the batch already, as
    positives share the anchor's premise, and so count once more; that is all that more positives can do for CE.
    Negatives from other premises become contradiction pairs: the paper does not say what label they get, but SNLI's
    annotators were to take two captions as being of the same photo (Bowman et al. 2015, section 2.1), of which an
    unrelated one is false. The premise's own neutral and contradicted hypotheses, if drawn, are not added again.
    """
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


def _items(roles: Roles) -> Callable[[NliBatch], Sequence[TrainingText]]:
    return lambda batch: roles.items(batch.sentences, batch.premises, batch.hypotheses)


def _by_role(roles: Roles, batch: NliBatch, embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """The embeddings of the batch's sentences as premises, and as hypotheses."""
    return roles.split(embeddings, batch.sentences, batch.premises, batch.hypotheses)


def _pairs(batch: NliBatch, device: torch.device | None = None) -> Pairs:
    fields = torch.tensor([batch.premises, batch.hypotheses, batch.labels])
    return Pairs(*(fields if device is None else to_device(fields, device)))


def _classify(
    head: nn.Module, embeddings: tuple[Float[Tensor, "batch dim"], Float[Tensor, "batch dim"]], pairs: Pairs
) -> tuple[Float[Tensor, " pairs"], Float[Tensor, " pairs"]]:
    """Cross-entropy of each pair, and 1 or 0 for whether the head predicts its label.

    ``embeddings`` are those of the sentences as premises, and as hypotheses.
    """
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


def _require_anchors(batches: NliBatches) -> None:
    if all(row.label != ENTAILMENT for row in batches.rows):
        raise NearfarError(
            f"none of the {len(batches.rows)} rows is an entailment, so there is nothing to pull a premise towards; "
            "add entailment rows (are the labels in the right order?), or use the method sbert"
        )
    if len(batches.premises) == 1:
        raise NearfarError(
            f"all {len(batches.rows)} rows have the same premise, {batches.rows[0].premise!r}, so there are no "
            "hypotheses of other premises to push it away from; add rows of other premises, or use the method sbert"
        )
