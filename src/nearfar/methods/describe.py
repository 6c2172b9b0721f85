"""A batch in words, line by line, for a look at what a method would do with it. Encodes nothing."""

from collections.abc import Sequence

import torch

from nearfar.data.batching import NliBatch
from nearfar.objectives import HardNegatives, premise_sets
from nearfar.types import LABEL_NAMES

MAX_LINES = 9
"""Of an anchor in a shortened description, itself included."""


def describe_anchor(
    anchor: str, *, positives: Sequence[str], negatives: Sequence[str] = (), left_out: str | None = None
) -> list[str]:
    """Name one anchor, and below it its positives, its negatives, and which candidates are neither.

    A candidate is a text, or the number of several.
    """
    lines = [f"{'anchor':<10}  {anchor}"]
    lines += [f"  positive  {positive}" for positive in positives]
    lines += [f"  negative  {negative}" for negative in negatives]
    return lines if left_out is None else [*lines, f"  left out  {left_out}"]


def describe_labels(batch: NliBatch) -> list[str]:
    """Name each premise, and below it its labelled hypotheses."""
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
    """Name each anchor premise, and below it its positives, its own negatives, and the number of the others.

    All candidates are shown; a last line says how many of them the caps let through at each step.
    """
    sets = premise_sets(
        torch.tensor(batch.premises),
        torch.tensor(batch.labels),
        hard_negatives=hard_negatives,
        hypothesis_ids=torch.tensor(batch.hypotheses),
    )
    # Entailment pairs of one premise have the same sets, so each premise is shown once.
    anchors = {batch.premises[pair]: anchor for anchor, pair in enumerate(sets.anchors.tolist())}
    lines: list[str] = []
    for premise, anchor in anchors.items():
        positives: list[str] = []
        negatives: list[str] = []
        elsewhere = equal = soft = 0
        for pair, hypothesis in enumerate(batch.hypotheses):
            if sets.positives[anchor, pair]:
                positives.append(batch.sentences[hypothesis])
            elif not sets.negatives[anchor, pair]:
                near = {premise, *(batch.hypotheses[k] for k in sets.positives[anchor].nonzero().flatten().tolist())}
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


def truncate_description(lines: Sequence[str], anchors: int | None) -> list[str]:
    """The lines of the first ``anchors`` (or pairs, labels, sentences), cut after :data:`MAX_LINES`, and of all notes.

    >>> truncate_description(["text  a", "  near b", "text  c", "text  d", "each is an anchor too"], 1)
    ['text  a', '  near b', '... and 2 more', 'each is an anchor too']
    """
    if anchors is None or not lines:
        return list(lines)
    starts = [place for place, line in enumerate(lines) if not line.startswith(" ")]
    groups = [list(lines[start:end]) for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)]
    first = lines[0].split()[0]
    shown = [group for group in groups if group[0].split()[0] == first]
    notes = [line for group in groups if group[0].split()[0] != first for line in group]
    kept: list[str] = []
    for group in shown[:anchors]:
        more = len(group) - MAX_LINES
        kept += [*group[:MAX_LINES], f"  ... and {more} more"] if more > 1 else group
    return [*kept, *([f"... and {len(shown) - anchors} more"] if len(shown) > anchors else []), *notes]


def pluralize(number: int, one: str, many: str) -> str:
    """A number and its noun.

    >>> pluralize(1, "text", "texts"), pluralize(0, "text", "texts")
    ('1 text', '0 texts')
    """
    return f"{number} {one if number == 1 else many}"
