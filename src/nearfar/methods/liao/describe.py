"""Batches of NLI rows in words: premises with their labels, and anchors with their positives and negatives."""

import torch

from nearfar.data.batching import NliBatch
from nearfar.methods.describe import describe_anchor, pluralize
from nearfar.objectives import HardNegatives, premise_sets
from nearfar.types import LABEL_NAMES


def describe_labels(batch: NliBatch) -> list[str]:
    """Each premise, and below it its labelled hypotheses."""
    lines: list[str] = []
    for premise in dict.fromkeys(batch.premises):
        lines.append(f"{'premise':<15}  {batch.sentences[premise]}")
        for pair, hypothesis in enumerate(batch.hypotheses):
            if batch.premises[pair] == premise:
                lines.append(f"  {LABEL_NAMES[batch.labels[pair]]:<13}  {batch.sentences[hypothesis]}")
    return lines


def describe_anchors(
    batch: NliBatch,
    *,
    hard_negatives: HardNegatives = "all",
    max_positives: int | None,
    max_negatives: int | None,
) -> list[str]:
    """Each anchor premise, and below it its positives, its own negatives, and the number of other negatives.

    All candidates are listed; a last line gives the maximum numbers that are drawn at each step.
    """
    sets = premise_sets(
        torch.tensor(batch.premises),
        torch.tensor(batch.labels),
        hard_negatives=hard_negatives,
        hypothesis_ids=torch.tensor(batch.hypotheses),
    )
    # Entailment pairs of one premise have the same sets, so each premise is shown once.
    anchors = {batch.premises[pair]: anchor for anchor, pair in enumerate(sets.anchors.tolist())}
    in_positives, in_negatives = sets.positives[:], sets.negatives[:]
    lines: list[str] = []
    for premise, anchor in anchors.items():
        positives: list[str] = []
        negatives: list[str] = []
        elsewhere = equal = soft = 0
        for pair, hypothesis in enumerate(batch.hypotheses):
            if in_positives[anchor, pair]:
                positives.append(batch.sentences[hypothesis])
            elif not in_negatives[anchor, pair]:
                near = {premise, *(batch.hypotheses[k] for k in in_positives[anchor].nonzero().flatten().tolist())}
                equal += hypothesis in near
                soft += hypothesis not in near
            elif batch.premises[pair] == premise:
                negatives.append(f"{batch.sentences[hypothesis]} ({LABEL_NAMES[batch.labels[pair]]})")
            else:
                elsewhere += 1
        left_out = [
            f"{pluralize(count, 'hypothesis', 'hypotheses')} {which}"
            for count, which in ((equal, "equal to the anchor or a positive"), (soft, "of this premise"))
            if count
        ]
        lines += describe_anchor(
            batch.sentences[premise],
            positives=positives,
            negatives=[*negatives, f"{pluralize(elsewhere, 'hypothesis', 'hypotheses')} of other premises"],
            left_out=" and ".join(left_out) or None,
        )
    silent = len(set(batch.premises)) - len(anchors)
    if silent:
        lines.append(
            f"no anchor   {pluralize(silent, 'premise', 'premises')} without an entailed hypothesis in this batch"
        )
    caps = {"positive": max_positives, "negative": max_negatives}
    drawn = " and ".join(pluralize(cap, name, f"{name}s") for name, cap in caps.items() if cap is not None)
    if drawn:
        lines.append(f"at each step, {drawn} at most, drawn from these for each entailed pair")
    return lines
