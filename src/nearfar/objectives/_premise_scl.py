"""Premise-anchored supervised contrastive learning: each premise's positives and negatives, and the loss."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.objectives._candidate_masks import RowMask, not_known_positive_row_mask
from nearfar.objectives._contrast import contrast
from nearfar.objectives._contrast_targets import ContrastTargets, row_blocks
from nearfar.objectives._on_device import rows_on_device
from nearfar.objectives._similarity import Similarity, check_similarity, check_temperature, similarities
from nearfar.runtime.transfer import to_device
from nearfar.types import CONTRADICTION, ENTAILMENT, LABEL_NAMES, NearfarError

HardNegatives: TypeAlias = Literal["all", "contradiction", "none"]
"""Which hypotheses of the anchor's own premise are negatives: neutral and contradicted, only contradicted, or none."""


class PremiseSets(NamedTuple):
    """The positives P(i) and negatives N(i) of every anchor i of a batch (Liao 2021, section 3)."""

    anchors: Int[Tensor, " anchors"]
    """Indices of the entailment pairs among the batch's pairs, ascending."""
    positives: Bool[Tensor, "anchors pairs"]
    """P(i): the hypotheses that the anchor's premise entails, including the pair's own."""
    negatives: Bool[Tensor, "anchors pairs"]
    """N(i): the negatives of the anchor."""


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
    >>> sets.positives.int().tolist()
    [[1, 0, 1, 0], [1, 0, 1, 0]]
    >>> sets.negatives.int().tolist()
    [[0, 1, 0, 1], [0, 1, 0, 1]]
    """
    caps = (max_positives, max_negatives)
    sets = _PremiseSetSampler(
        premise_ids, labels, hypothesis_ids, hard_negatives=hard_negatives, caps=caps, generator=generator
    )
    return PremiseSets(sets.anchors, *sets.rows(torch.arange(len(sets.anchors), device=labels.device)))


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
    check_temperature(temperature)
    check_similarity(similarity)
    if false_negative_margin is not None and not math.isfinite(false_negative_margin):
        raise NearfarError(f"false_negative_margin must be a finite number or None, not {false_negative_margin}")
    if premises.shape != hypotheses.shape or premises.shape[:1] != labels.shape:
        raise NearfarError(
            f"premises {tuple(premises.shape)} and hypotheses {tuple(hypotheses.shape)} must have the same shape, "
            f"with one row for each of the labels {tuple(labels.shape)}"
        )
    caps = (max_positives, max_negatives)
    sets = _PremiseSetSampler(
        premise_ids, labels, hypothesis_ids, hard_negatives=hard_negatives, caps=caps, generator=generator
    )
    anchors = premises[to_device(sets.anchors, premises.device)]
    sets_of = sets.rows_on(premises.device)

    def targets_fn(rows: Int[Tensor, " anchors"]) -> ContrastTargets:
        positives, negatives = sets_of(rows)
        if false_negative_margin is not None:
            with torch.no_grad():
                similar = similarities(anchors[rows], hypotheses, similarity)
            negatives = negatives & ~_likely_false_negatives(similar, positives, false_negative_margin)
        return ContrastTargets(positives, candidate_mask=positives | negatives)

    return contrast(anchors, hypotheses, targets_fn, temperature=temperature, similarity=similarity)


class _PremiseSetSampler:
    """P and N of a batch's anchors, in row blocks: the full masks are as large as the matrix of similarities.

    With caps, all sets are sampled on construction and stored as column indices.
    """

    def __init__(
        self,
        premise_ids: Tensor,
        labels: Tensor,
        hypothesis_ids: Tensor | None,
        *,
        hard_negatives: str,
        caps: tuple[int | None, int | None],
        generator: torch.Generator | None,
    ) -> None:
        _check(premise_ids, labels, hypothesis_ids, hard_negatives, caps)
        self.premise_ids, self.entailed = premise_ids, labels == ENTAILMENT
        self.anchors = self.entailed.nonzero().squeeze(1)
        hard = {"all": None, "contradiction": labels == CONTRADICTION, "none": torch.zeros_like(self.entailed)}
        self._hard = hard[hard_negatives]
        self._not_known_positive: RowMask | None = None
        if hypothesis_ids is not None:
            _, numbers = torch.cat([premise_ids, hypothesis_ids]).unique(return_inverse=True)
            premises, hypotheses = numbers.chunk(2)
            self._not_known_positive = not_known_positive_row_mask(
                premises[self.entailed], hypotheses[self.entailed], hypotheses
            )
        self._drawn: list[Int[Tensor, "anchors places"] | None] = [None, None]
        if caps != (None, None):
            blocks = row_blocks(len(self.anchors), len(labels), device=labels.device)
            drawn = zip(*(self._draw(rows, caps, generator) for rows in blocks), strict=True)
            self._drawn = [None if cap is None else torch.cat(each) for cap, each in zip(caps, drawn, strict=True)]

    def rows(self, rows: Int[Tensor, " anchors"]) -> tuple[Tensor, Tensor]:
        """Return P and N of these anchors, each bool [anchors, pairs]."""
        sets = self._uncapped(rows)
        for number, drawn in enumerate(self._drawn):
            if drawn is not None:
                sets[number] = _mask(drawn[rows], len(self.entailed))
        return sets[0], sets[1]

    def rows_on(self, device: torch.device) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """:meth:`rows` for anchor indices on ``device``, which may be a GPU though the ids are on the CPU."""
        if self.entailed.device == device:
            return self.rows
        both = rows_on_device(
            lambda rows: torch.stack(self.rows(rows), dim=1), len(self.anchors), 2 * len(self.entailed), device
        )

        def rows(rows: Int[Tensor, " anchors"]) -> tuple[Tensor, Tensor]:
            positives, negatives = both(rows).unbind(1)
            return positives, negatives

        return rows

    def _uncapped(self, rows: Int[Tensor, " anchors"]) -> list[Tensor]:
        """Return P and N before the caps."""
        own = self.premise_ids[self.anchors[rows], None] == self.premise_ids
        positives = own & self.entailed
        negatives = ~positives if self._not_known_positive is None else self._not_known_positive(rows)
        return [positives, negatives if self._hard is None else negatives & (~own | self._hard)]

    def _draw(
        self, rows: Int[Tensor, " anchors"], caps: tuple[int | None, int | None], generator: torch.Generator | None
    ) -> list[Tensor]:
        """Sample the members of these anchors' sets, as column indices (``rows`` itself for a set without a cap)."""
        always = (self.anchors[rows], None)
        return [
            rows if cap is None else _draw(members, cap, generator, always=own)
            for members, cap, own in zip(self._uncapped(rows), caps, always, strict=True)
        ]


def _check(
    premise_ids: Tensor,
    labels: Tensor,
    hypothesis_ids: Tensor | None,
    hard_negatives: str,
    caps: tuple[int | None, int | None],
) -> None:
    if hard_negatives not in get_args(HardNegatives):
        raise NearfarError(
            f"hard_negatives must be one of {', '.join(get_args(HardNegatives))}, not {hard_negatives!r}"
        )
    for name, cap in zip(("max_positives", "max_negatives"), caps, strict=True):
        if cap is not None and cap < 1:
            raise NearfarError(f"{name} must be at least 1, or None for all, not {cap}")
    if premise_ids.shape != labels.shape or (hypothesis_ids is not None and hypothesis_ids.shape != labels.shape):
        shapes = [None if ids is None else tuple(ids.shape) for ids in (premise_ids, labels, hypothesis_ids)]
        raise NearfarError("premise_ids {}, labels {} and hypothesis_ids {} must have the same length".format(*shapes))
    if ((labels < 0) | (labels >= len(LABEL_NAMES))).any():
        raise NearfarError(f"labels must be in 0..2 {LABEL_NAMES}, found {labels.min()}..{labels.max()}")


def _likely_false_negatives(
    similar: Float[Tensor, "anchors pairs"], positives: Bool[Tensor, "anchors pairs"], margin: float
) -> Bool[Tensor, "anchors pairs"]:
    """Return where a hypothesis is more similar to the anchor than its most similar positive, by over the margin."""
    if not len(similar):
        return torch.zeros_like(positives)
    nearest = similar.masked_fill(~positives, -math.inf).amax(dim=1, keepdim=True)
    return similar > nearest + margin


def _draw(
    members: Bool[Tensor, "anchors pairs"],
    count: int,
    generator: torch.Generator | None,
    *,
    always: Int[Tensor, " anchors"] | None = None,
) -> Int[Tensor, "anchors places"]:
    """Sample at most ``count`` members of each row without replacement, the one in ``always`` first.

    Returns column indices; a row with fewer members is padded with the number of columns.
    """
    keys = torch.rand(members.shape, generator=generator, device=members.device)
    if always is not None:
        keys.scatter_(1, always[:, None], 1.0)  # above every key drawn
    keys.masked_fill_(~members, -1.0)
    drawn = keys.topk(min(count, keys.shape[1]), dim=1).indices
    return drawn.masked_fill_(~members.gather(1, drawn), members.shape[1])


def _mask(places: Int[Tensor, "anchors places"], pairs: int) -> Bool[Tensor, "anchors pairs"]:
    """Return a mask that is True at these column indices; the index ``pairs`` is padding."""
    mask = torch.zeros(len(places), pairs + 1, dtype=torch.bool, device=places.device)
    return mask.scatter_(1, places, value=True)[:, :pairs]
