"""Premise-anchored supervised contrastive learning: which hypotheses are near a premise, which far, and the loss."""

import math
from typing import Literal, NamedTuple, TypeAlias, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.objectives._contrast import contrast
from nearfar.objectives._contrast_targets import ContrastTargets, row_blocks
from nearfar.objectives._row_masks import RowMask, not_known_positive_row_mask
from nearfar.objectives._similarity import Similarity, check_similarity, check_temperature, similarities
from nearfar.types import CONTRADICTION, ENTAILMENT, LABEL_NAMES, NearfarError

HardNegatives: TypeAlias = Literal["all", "contradiction", "none"]
"""Which of its own premise's hypotheses an anchor is pushed away from: neutral and contradicted ones, or fewer."""


class PremiseSets(NamedTuple):
    """Who is compared with whom: P(i) and N(i) of Liao 2021, section 3, for every anchor i of a batch."""

    anchors: Int[Tensor, " anchors"]
    """The entailment pairs, as indices into the batch's pairs, in their order."""
    positives: Bool[Tensor, "anchors pairs"]
    """P(i): the hypotheses that the anchor's premise entails, its own among them."""
    negatives: Bool[Tensor, "anchors pairs"]
    """N(i): the hypotheses that the anchor is pushed away from."""


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
    other hypotheses of the batch: the neutral and contradicted ones of its premise, and those of other premises. Of
    the first, ``hard_negatives`` may leave only the contradicted ones, or none.

    ``hypothesis_ids`` number the texts in the id space of ``premise_ids``. Where given, a hypothesis whose text is that
    of the anchor's premise or of one of its positives is known not to be a negative, and is left out.

    ``max_positives`` and ``max_negatives`` cap each anchor's sets by drawing without replacement from ``generator``
    (on the device of the ids; torch's global one if None). The pair's own hypothesis is always kept, and counts
    towards ``max_positives``. A positive that was not drawn does not become a negative.

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

    with s_ij the similarity of premise i and hypothesis j, t the temperature, and P and N as :func:`premise_sets`
    finds them; the arguments that the two share are explained there. One value for each entailment pair, in the pairs'
    order; none, though still attached to the graph, if there is no such pair.

    ``similarity`` is the raw dot product, as in the paper, or the cosine, which is 0 to a zero vector. float16 and
    bfloat16 vectors are compared in float32, under autocast too, and give float32 values; others give their own dtype.

    With ``false_negative_margin``, a hypothesis that is nearer to the premise than the most similar of its positives
    by more than the margin, s_ik > max_{j in P(i)} s_ij + margin, is taken for an entailment that nobody marked, and
    is left out of N(i), after the caps. The margin is in units of the similarity, before the temperature; which
    hypotheses are left out has no gradient.

    Raises NearfarError for a temperature that is not positive, an unknown similarity, a margin that is not finite,
    shapes that do not match, and whatever :func:`premise_sets` refuses.

    Source: Liao 2021, eq. 2. The positives cap counts the pair's own hypothesis, as the authors' code does. Leaving
    out negatives is ours; without ``hypothesis_ids``, ``hard_negatives`` and ``false_negative_margin`` the sets are the
    paper's.

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
    anchors = premises[sets.anchors]

    def targets_fn(rows: Int[Tensor, " anchors"]) -> ContrastTargets:
        positives, negatives = sets.rows(rows)
        if false_negative_margin is not None:
            with torch.no_grad():
                similar = similarities(anchors[rows], hypotheses, similarity)
            negatives = negatives & ~_likely_false_negatives(similar, positives, false_negative_margin)
        return ContrastTargets(positives, candidate_mask=positives | negatives)

    return contrast(anchors, hypotheses, targets_fn, temperature=temperature, similarity=similarity)


class _PremiseSetSampler:
    """P and N of a batch's anchors, for some at a time: those of all are a matrix as large as their similarities.

    What the caps leave is drawn at once, and kept as the places of those drawn.
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
        """P and N of these anchors, each bool [anchors, pairs]."""
        sets = self._all(rows)
        for number, drawn in enumerate(self._drawn):
            if drawn is not None:
                sets[number] = _mask(drawn[rows], len(self.entailed))
        return sets[0], sets[1]

    def _all(self, rows: Int[Tensor, " anchors"]) -> list[Tensor]:
        """Without caps."""
        own = self.premise_ids[self.anchors[rows], None] == self.premise_ids
        positives = own & self.entailed
        negatives = ~positives if self._not_known_positive is None else self._not_known_positive(rows)
        return [positives, negatives if self._hard is None else negatives & (~own | self._hard)]

    def _draw(
        self, rows: Int[Tensor, " anchors"], caps: tuple[int | None, int | None], generator: torch.Generator | None
    ) -> list[Tensor]:
        """The places of these anchors' members, at most as many as the caps; of none where there is no cap."""
        always = (self.anchors[rows], None)
        return [
            rows if cap is None else _draw(members, cap, generator, always=own)
            for members, cap, own in zip(self._all(rows), caps, always, strict=True)
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
        raise NearfarError("premise_ids {}, labels {} and hypothesis_ids {} must have as many pairs".format(*shapes))
    if ((labels < 0) | (labels >= len(LABEL_NAMES))).any():
        raise NearfarError(f"labels must lie in 0..2 {LABEL_NAMES}, found {labels.min()}..{labels.max()}")


def _likely_false_negatives(
    similar: Float[Tensor, "anchors pairs"], positives: Bool[Tensor, "anchors pairs"], margin: float
) -> Bool[Tensor, "anchors pairs"]:
    """Whether a hypothesis is nearer to the anchor than the nearest of its positives, by more than the margin."""
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
    """Places of at most ``count`` members of each row, drawn without replacement after the one in ``always``.

    Where a row has fewer, the number of columns stands for the rest.
    """
    keys = torch.rand(members.shape, generator=generator, device=members.device)
    if always is not None:
        keys.scatter_(1, always[:, None], 1.0)  # above every key drawn
    keys.masked_fill_(~members, -1.0)
    drawn = keys.topk(min(count, keys.shape[1]), dim=1).indices
    return drawn.masked_fill_(~members.gather(1, drawn), members.shape[1])


def _mask(places: Int[Tensor, "anchors places"], pairs: int) -> Bool[Tensor, "anchors pairs"]:
    """True at these places, of which ``pairs`` is none."""
    mask = torch.zeros(len(places), pairs + 1, dtype=torch.bool, device=places.device)
    return mask.scatter_(1, places, value=True)[:, :pairs]
