"""Premise-anchored supervised contrastive learning: each premise's positives and negatives, and the loss."""

import math
from typing import Literal, NamedTuple, TypeAlias, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.objectives._contrast import RowMask, contrast
from nearfar.objectives._masks import capped, not_known_positive
from nearfar.objectives._similarity import Similarity, check_finite, check_shapes, similarities
from nearfar.runtime.gpu import to_device
from nearfar.types import CONTRADICTION, ENTAILMENT, LABEL_NAMES, NearfarError

HardNegatives: TypeAlias = Literal["all", "contradiction", "none"]
"""Which hypotheses of the anchor's own premise are negatives: neutral and contradicted, only contradicted, or none."""


class PremiseSets(NamedTuple):
    """The positives P(i) and negatives N(i) of every anchor i of a batch (Liao 2021, section 3)."""

    anchors: Int[Tensor, " anchors"]
    """Indices of the entailment pairs among the batch's pairs, ascending."""
    positives: RowMask
    """P(i) [anchors, pairs]: the hypotheses that the anchor's premise entails, including the pair's own."""
    negatives: RowMask
    """N(i) [anchors, pairs]: the negatives of the anchor."""


def premise_sets(
    premise_ids: Int[Tensor, " pairs"],
    labels: Int[Tensor, " pairs"],
    *,
    hard_negatives: HardNegatives = "all",
    max_positives: int | None = None,
    max_negatives: int | None = None,
    generator: torch.Generator | None = None,
    hypothesis_ids: Int[Tensor, " pairs"] | None = None,
) -> PremiseSets:
    """Find the anchors of a batch of NLI pairs, and the positives and negatives of each.

    Every entailment pair is an anchor. Its positives are all entailed hypotheses of the same premise, its negatives all
    other hypotheses of the batch: the neutral and contradicted hypotheses of its premise, and those of other premises.
    ``hard_negatives`` restricts the negatives of its own premise to the contradicted ones, or to none.

    ``hypothesis_ids`` are text ids that share their id space with ``premise_ids``. If given, a hypothesis with the same
    text as the anchor's premise or as one of its positives is excluded from the negatives.

    ``max_positives`` and ``max_negatives`` cap each anchor's sets by sampling without replacement with ``generator``
    (on the device of the ids; torch's global generator if None). The pair's own hypothesis is always kept, and counts
    towards ``max_positives``. A positive that is not sampled does not become a negative.

    Raises NearfarError for an unknown ``hard_negatives``, a cap below 1, a label outside 0..2, and lengths that do not
    match.

    >>> sets = premise_sets(torch.tensor([7, 7, 7, 9]), torch.tensor([0, 2, 0, 1]))
    >>> sets.anchors.tolist()
    [0, 2]
    >>> sets.positives[:].int().tolist()
    [[1, 0, 1, 0], [1, 0, 1, 0]]
    >>> sets.negatives[:].int().tolist()
    [[0, 1, 0, 1], [0, 1, 0, 1]]
    """
    if hard_negatives not in get_args(HardNegatives):
        raise NearfarError(
            f"hard_negatives must be one of {', '.join(get_args(HardNegatives))}, not {hard_negatives!r}"
        )
    for name, cap in (("max_positives", max_positives), ("max_negatives", max_negatives)):
        if cap is not None and cap < 1:
            raise NearfarError(f"{name} must be at least 1, or None for all, not {cap}")
    expected = "premise_ids [pairs], labels [pairs], hypothesis_ids [pairs]"
    check_shapes(expected, premise_ids, labels, hypothesis_ids)
    if ((labels < 0) | (labels >= len(LABEL_NAMES))).any():
        raise NearfarError(f"labels must be in 0..2 {LABEL_NAMES}, found {labels.min()}..{labels.max()}")
    entailed = labels == ENTAILMENT
    hard = {"all": ~entailed, "contradiction": labels == CONTRADICTION, "none": torch.zeros_like(entailed)}
    anchors = entailed.nonzero().squeeze(1)
    own = RowMask.equal(premise_ids[anchors], premise_ids)
    positives = own & RowMask.columns(entailed, len(anchors))
    negatives = ~own | RowMask.columns(hard[hard_negatives], len(anchors))
    if hypothesis_ids is not None:
        negatives &= not_known_positive(premise_ids[anchors], hypothesis_ids[anchors], hypothesis_ids)
    return PremiseSets(
        anchors,
        capped(positives, max_positives, generator, always=anchors),
        capped(negatives, max_negatives, generator),
    )


def premise_scl(
    premises: Float[Tensor, "pairs dim"],
    hypotheses: Float[Tensor, "pairs dim"],
    premise_ids: Int[Tensor, " pairs"],
    labels: Int[Tensor, " pairs"],
    *,
    temperature: float = 1.0,
    similarity: Similarity = "dot",
    hard_negatives: HardNegatives = "all",
    max_positives: int | None = None,
    max_negatives: int | None = None,
    generator: torch.Generator | None = None,
    hypothesis_ids: Int[Tensor, " pairs"] | None = None,
    false_negative_margin: float | None = None,
) -> Float[Tensor, " anchors"]:
    """Pull each premise towards what it entails and away from the other hypotheses of the batch.

    l_i = -1/|P(i)| sum_{j in P(i)} log[ exp(s_ij / t) / sum_{k in P(i) u N(i)} exp(s_ik / t) ]

    with s_ij the similarity of premise i and hypothesis j, t the temperature, and P and N as in :func:`premise_sets`,
    which documents the arguments that both functions share. Returns one loss per entailment pair, in the order of the
    pairs. Without such a pair the result is empty but still attached to the graph.

    ``similarity`` is the raw dot product, as in the paper, or the cosine (0 for a zero vector). float16 and bfloat16
    vectors are compared in float32, also under autocast, and give float32 losses; other dtypes are kept. Ids and labels
    may be on the CPU for vectors on a GPU, which then does not wait for the sets.

    With ``false_negative_margin``, a hypothesis whose similarity to the premise exceeds that of the most similar
    positive by more than the margin, s_ik > max_{j in P(i)} s_ij + margin, is treated as an unlabelled entailment and
    excluded from N(i), after the caps. The margin is in units of the similarity, before the temperature; the selection
    has no gradient.

    Raises NearfarError for a temperature that is not positive, an unknown similarity, a margin that is not finite,
    shapes that do not match, and as :func:`premise_sets` does.

    Source: Liao 2021, eq. 2. The positives cap counts the pair's own hypothesis, as the authors' code does. Excluding
    negatives is nearfar's addition; with the defaults of ``hypothesis_ids``, ``hard_negatives`` and
    ``false_negative_margin`` the sets are the paper's.

    >>> same = torch.ones(4, 2)
    >>> premise_scl(same, same, torch.tensor([7, 7, 7, 9]), torch.tensor([0, 2, 0, 1]))  # log 4, the candidates
    tensor([1.3863, 1.3863])
    """
    if false_negative_margin is not None:
        check_finite("false_negative_margin", false_negative_margin)
    check_shapes("premises [pairs dim], hypotheses [pairs dim], labels [pairs]", premises, hypotheses, labels)
    sets = premise_sets(
        premise_ids,
        labels,
        hard_negatives=hard_negatives,
        max_positives=max_positives,
        max_negatives=max_negatives,
        generator=generator,
        hypothesis_ids=hypothesis_ids,
    )
    anchors = premises[to_device(sets.anchors, premises.device)]
    positives, negatives = (mask.to(premises.device) for mask in (sets.positives, sets.negatives))
    if false_negative_margin is not None and len(anchors):
        margin = float(false_negative_margin)

        def near(rows: slice) -> Bool[Tensor, "rows pairs"]:
            with torch.no_grad():
                similar = similarities(anchors[rows], hypotheses, similarity)
            nearest = similar.masked_fill(~positives[rows], -math.inf).amax(dim=1, keepdim=True)
            return similar <= nearest + margin

        negatives &= RowMask(near, negatives.shape)
    kept = positives | negatives
    return contrast(anchors, hypotheses, positives, kept, temperature=temperature, similarity=similarity)
