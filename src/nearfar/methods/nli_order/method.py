"""nli-order: contrast of premises with all entailed hypotheses, and the order of the labels of NLI rows.

A batch is premises with all their rows. Two losses are added:

- InfoNCE. An anchor is a premise with an entailed hypothesis. Each of its entailed hypotheses is a positive, and the
  loss of the anchor is the mean over them (as L_out of Khosla et al. 2020, eq. 2, but without the anchor's other
  positives in the denominator). Candidates are the entailed and the contradicted hypotheses of the whole batch.
  Neutral hypotheses are no candidates.
- Order, with weight ``order_weight``: of two hypotheses with different labels, the one with the higher label
  (entailment above neutral above contradiction) shall be more similar to its premise. ``within-premise`` is the mean of
  :func:`nearfar.objectives.ranknet` over the comparisons of hypotheses of the same premise, ``batch`` is
  :func:`nearfar.objectives.cosent` over all pairs of the batch. With ``order_unrelated`` these are also the pairs of a
  premise with a hypothesis of another premise, which rank below contradiction.

Both use the same vectors: each distinct text is encoded once. Hypotheses that neither loss uses are not encoded.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.data.batching import NliBatch, NliBatches
from nearfar.encoder.training_encoder import TrainingText
from nearfar.methods.base import EmbedFn, Loss, Method
from nearfar.methods.contrastive import contrastive_loss
from nearfar.methods.describe import describe_anchor, describe_directions, describe_margin, pluralize
from nearfar.methods.nli_order import NliOrderConfig
from nearfar.methods.roles import NO_PROMPTS, Roles
from nearfar.objectives import (
    DirectionMasks,
    Directions,
    RowMask,
    cosent,
    direction_masks,
    not_known_positive,
    ranknet,
    row_similarities,
    similarities,
)
from nearfar.runtime.transfer import to_device
from nearfar.types import CONTRADICTION, ENTAILMENT, LABEL_NAMES, NEUTRAL, NearfarError


class Pairs(NamedTuple):
    """The pairs of a batch on the CPU, as indices of sentences; equal indices are equal texts."""

    premises: Int[Tensor, " pairs"]
    hypotheses: Int[Tensor, " pairs"]
    labels: Int[Tensor, " pairs"]

    @classmethod
    def of(cls, batch: NliBatch) -> "Pairs":
        """The pairs of a batch as tensors."""
        return cls(*(torch.tensor(ids) for ids in (batch.premises, batch.hypotheses, batch.labels)))

    def labelled(self, label: int) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
        """Premises and hypotheses of the pairs with this label."""
        chosen = self.labels == label
        return self.premises[chosen], self.hypotheses[chosen]


def nli_order(config: NliOrderConfig, embed: EmbedFn, batches: NliBatches, roles: Roles = NO_PROMPTS) -> Method:
    """Train by InfoNCE + order_weight * order. Both losses are 0 in a batch without an anchor or a comparison.

    Premises are encoded as queries, hypotheses as documents, with the prompts of ``roles``.

    A candidate is left out for an anchor if its text is that of the premise, or a hypothesis that the premise entails
    or is neutral to. A text that occurs several times in the batch is one candidate. ``false_negative_margin`` also
    leaves out candidates of other premises that are more similar to the premise than the positive by more than the
    margin. ``directions`` are those of :func:`nearfar.objectives.info_nce_directions`.

    Terms: ``info_nce``; ``order`` if it has a weight; ``accuracy``, the share of positives without a more similar
    negative; with a margin ``left_out``, the share of negatives that it leaves out.
    Raises NearfarError if no row is an entailment, if all rows have the same premise, and if the order loss has a
    weight but nothing to compare.
    """
    ranks_neutral = config.neutral and config.order_weight > 0
    _require_anchors(batches)
    if config.order_weight > 0:
        _require_comparisons(config, batches)

    def used(batch: NliBatch) -> NliBatch:
        return batch if ranks_neutral else _without_neutral(batch)

    def extract_items(batch: NliBatch) -> Sequence[TrainingText]:
        batch = used(batch)
        return roles.items(batch.sentences, batch.premises, batch.hypotheses)

    def loss_fn(batch: NliBatch, embeddings: Tensor) -> Loss:
        batch, neutral = used(batch), _neutral_pairs(batch, used(batch))
        pairs = Pairs.of(batch)
        queries, documents = roles.split(embeddings, batch.sentences, batch.premises, batch.hypotheses)
        contrast, terms = _contrast(config, queries, documents, pairs, neutral)
        terms = {"info_nce": contrast.detach(), **terms}
        if not config.order_weight:
            return Loss(contrast, terms)
        order = _order(config, queries, documents, pairs)
        return Loss(contrast + config.order_weight * order, {**terms, "order": order.detach()})

    def describe(batch: NliBatch) -> list[str]:
        return _describe(config, batch, ranks_neutral=ranks_neutral)

    return Method("nli-order", batches, extract_items, embed, loss_fn, describe)


def _without_neutral(batch: NliBatch) -> NliBatch:
    """The batch without neutral pairs and texts that only they have; unchanged if nothing would be left."""
    kept = [pair for pair, label in enumerate(batch.labels) if label != NEUTRAL]
    if not kept:
        return batch
    numbers: dict[int, int] = {}
    texts = [(batch.premises[pair], batch.hypotheses[pair]) for pair in kept]
    pairs = [tuple(numbers.setdefault(text, len(numbers)) for text in both) for both in texts]
    return NliBatch(
        [batch.sentences[text] for text in numbers],
        [premise for premise, _ in pairs],
        [hypothesis for _, hypothesis in pairs],
        [batch.labels[pair] for pair in kept],
        [batch.rows[pair] for pair in kept],
    )


def _neutral_pairs(batch: NliBatch, used: NliBatch) -> Int[Tensor, "2 pairs"]:
    """Premises and hypotheses of the neutral pairs whose texts are both used, as indices of the used sentences."""
    places = {text: place for place, text in enumerate(used.sentences)}
    texts = [
        (batch.sentences[premise], batch.sentences[hypothesis])
        for premise, hypothesis, label in zip(batch.premises, batch.hypotheses, batch.labels, strict=True)
        if label == NEUTRAL
    ]
    found = [(places[one], places[other]) for one, other in texts if one in places and other in places]
    return torch.tensor(found, dtype=torch.long).reshape(-1, 2).T


def _masks(directions: Directions, pairs: Pairs, neutral: Int[Tensor, "2 pairs"]) -> DirectionMasks:
    """Where a candidate is a negative; rows are the entailed pairs, documents their hypotheses and the contradicted."""
    owners, negatives = pairs.labelled(CONTRADICTION)
    return direction_masks(
        directions,
        *pairs.labelled(ENTAILMENT),
        negatives,
        owners=owners,
        near=(neutral[0], neutral[1]),
        distinct=True,
    )


def _contradicted(pairs: Pairs) -> RowMask:
    """Where the text of a document is a contradicted hypothesis of the row's premise, or the premise itself."""
    (anchors, positives), (owners, negatives) = (pairs.labelled(label) for label in (ENTAILMENT, CONTRADICTION))
    documents = torch.cat([positives, negatives])
    others = not_known_positive(torch.cat([anchors, owners]), torch.cat([anchors, negatives]), documents)
    return RowMask(lambda rows: ~others[rows], (len(anchors), len(documents)))


def _contrast(
    config: NliOrderConfig,
    queries: Float[Tensor, "texts dim"],
    documents: Float[Tensor, "texts dim"],
    pairs: Pairs,
    neutral: Int[Tensor, "2 pairs"],
) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
    """The mean over anchors of the mean over their positives, and the terms to log."""
    anchors, positives = pairs.labelled(ENTAILMENT)
    negatives, device = pairs.labelled(CONTRADICTION)[1], queries.device
    margin = config.false_negative_margin is not None
    losses, terms = contrastive_loss(
        config,
        queries[to_device(anchors, device)],
        documents[to_device(positives, device)],
        documents[to_device(negatives, device)],
        masks=_masks(config.directions, pairs, neutral).to(device),
        own_negatives=_contradicted(pairs).to(device) if margin else None,
        directions=config.directions,
        similarity=config.similarity,
    )
    _, anchor, counts = anchors.unique(return_inverse=True, return_counts=True)
    return (losses / to_device(counts[anchor], device)).sum() / max(len(counts), 1), terms


def _order(
    config: NliOrderConfig,
    queries: Float[Tensor, "texts dim"],
    documents: Float[Tensor, "texts dim"],
    pairs: Pairs,
) -> Float[Tensor, ""]:
    """How far the similarities of the pairs are from the order of their labels; 0 if there is nothing to compare."""
    premise, hypothesis = to_device(torch.stack([pairs.premises, pairs.hypotheses]), queries.device)
    scores = row_similarities(queries[premise], documents[hypothesis], config.similarity)
    ranks, settings = -pairs.labels, {"temperature": config.order_temperature, "margin": config.order_margin}
    if config.order_pairs == "within-premise":
        losses = ranknet(scores, ranks, pairs.premises, **settings)
        return losses.sum() / max(len(losses), 1)
    if config.order_unrelated:
        premises, hypotheses = pairs.premises.unique(), pairs.hypotheses.unique()
        one, other = to_device(_unrelated(premises, hypotheses, pairs).nonzero().T.contiguous(), queries.device)
        others = similarities(
            queries[to_device(premises, queries.device)],
            documents[to_device(hypotheses, queries.device)],
            config.similarity,
        )[one, other]
        scores = torch.cat([scores, others])
        ranks = torch.cat([ranks, ranks.new_full(others.shape, -CONTRADICTION - 1)])
    return cosent(scores, to_device(ranks, scores.device), **settings)


def _unrelated(
    premises: Int[Tensor, " anchors"], hypotheses: Int[Tensor, " candidates"], pairs: Pairs
) -> Bool[Tensor, "anchors candidates"]:
    """Where a premise and a hypothesis are different texts and no pair of the batch, whatever its label."""
    unrelated = premises[:, None] != hypotheses
    unrelated[torch.searchsorted(premises, pairs.premises), torch.searchsorted(hypotheses, pairs.hypotheses)] = False
    return unrelated


def _describe(config: NliOrderConfig, batch: NliBatch, *, ranks_neutral: bool) -> list[str]:
    """Each anchor with its positives and negatives, and notes on what else the losses compare."""
    pairs = Pairs.of(batch)
    mask = _masks("query_to_doc", pairs, torch.stack(pairs.labelled(NEUTRAL))).query_to_doc
    assert mask is not None
    (anchors, positives), (owners, negatives) = (pairs.labelled(label) for label in (ENTAILMENT, CONTRADICTION))
    documents = torch.cat([positives, negatives])
    lines: list[str] = []
    for premise in dict.fromkeys(anchors.tolist()):
        row = int((anchors == premise).nonzero()[0])
        far = documents[mask[:][row]].tolist()
        own = set(negatives[owners == premise].tolist())
        neutral = pairs.hypotheses[(pairs.premises == premise) & (pairs.labels == NEUTRAL)].tolist()
        lines += describe_anchor(
            batch.sentences[premise],
            positives=[batch.sentences[text] for text in dict.fromkeys(positives[anchors == premise].tolist())],
            negatives=[
                *(f"{batch.sentences[text]} (contradiction)" for text in far if text in own),
                f"{pluralize(sum(text not in own for text in far), 'hypothesis', 'hypotheses')} of other premises",
            ],
        )
        lines += [f"  neutral   {batch.sentences[text]}" for text in neutral]
    silent = len(set(batch.premises)) - len(set(anchors.tolist()))
    if silent:
        lines.append(
            f"no anchor   {pluralize(silent, 'premise', 'premises')} without an entailed hypothesis in this batch"
        )
    if config.order_weight:
        which = "of the same premise" if config.order_pairs == "within-premise" else "of all premises"
        names = LABEL_NAMES if ranks_neutral else (LABEL_NAMES[ENTAILMENT], LABEL_NAMES[CONTRADICTION])
        labels = " above ".join((*names, "unrelated") if config.order_unrelated else names)
        lines.append(f"and {config.order_weight:g} times the order {labels}, compared among hypotheses {which}")
    if not ranks_neutral:
        lines.append("neutral hypotheses are not used")
    return [*lines, *describe_directions(config.directions), *describe_margin(config.false_negative_margin)]


def _require_anchors(batches: NliBatches) -> None:
    if all(row.label != ENTAILMENT for row in batches.rows):
        raise NearfarError(
            f"none of the {len(batches.rows)} rows is an entailment, so there is nothing to pull a premise towards; "
            "add entailment rows (are the labels in the right order?)"
        )
    if len(batches.premises) == 1:
        raise NearfarError(
            f"all {len(batches.rows)} rows have the same premise, {batches.rows[0].premise!r}, so there are no "
            "hypotheses of other premises to push it away from; add rows of other premises"
        )


def _require_comparisons(config: NliOrderConfig, batches: NliBatches) -> None:
    """Refuse rows in which the order loss compares nothing."""
    if config.order_unrelated:
        return  # there are several premises, so every row is above the pairs of different premises
    everything = range(len(batches.rows))
    groups = [everything] if config.order_pairs == "batch" else batches.premises
    for group in groups:
        labels = {batches.rows[row].label for row in group} - (set() if config.neutral else {NEUTRAL})
        if len(labels) > 1:
            return
    what = "the rows have" if config.order_pairs == "batch" else "no premise has"
    several = "hypotheses of a single label" if config.order_pairs == "batch" else "hypotheses of two labels"
    without = "" if config.neutral else " (--no-neutral leaves out the neutral ones)"
    raise NearfarError(
        f"{what} {several}{without}, so --order-weight {config.order_weight:g} has nothing to rank; add rows of other "
        "labels, or set --order-weight 0"
    )
