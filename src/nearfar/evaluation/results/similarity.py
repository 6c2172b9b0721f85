"""Scores on similarity tasks, with the cosines that a paired test needs."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from nearfar.evaluation.results.base import Estimate
from nearfar.evaluation.results.record import OMITTED, Number, Record
from nearfar.evaluation.results.seen import SeenShares, UnseenScores
from nearfar.validation import InvalidValueError


@dataclass(frozen=True, kw_only=True)
class AggregateEstimates(Record):
    """A correlation x 100 of a task with subsets, aggregated in three ways."""

    all: Estimate
    """Over the pairs of all subsets together."""
    mean: Estimate
    """The mean of the subsets' correlations."""
    wmean: Estimate
    """Their mean weighted by number of pairs."""

    def of(self, aggregate: str) -> Estimate:
        """The estimate of an aggregate: ``all``, ``mean`` or ``wmean``."""
        return {"all": self.all, "mean": self.mean, "wmean": self.wmean}[aggregate]

    def items(self) -> list[tuple[str, Estimate]]:
        """The three aggregates by name."""
        return [("all", self.all), ("mean", self.mean), ("wmean", self.wmean)]


@dataclass(frozen=True, kw_only=True)
class SubsetScores(Record):
    """One subset of a similarity task."""

    pairs: int
    digest: str
    """Fingerprint of texts and gold scores in order; equal digests make two files comparable pair by pair."""
    spearman: Estimate
    pearson: Estimate
    gold: list[Number]
    cosines_e6: list[Number]
    """Cosines in millionths, whole numbers."""

    def metric(self, name: str) -> Estimate:
        """``spearman`` or ``pearson``."""
        return self.pearson if name == "pearson" else self.spearman

    def __post_init__(self) -> None:
        """Arrays whose length is not the number of pairs."""
        for key, numbers in (("gold", self.gold), ("cosines_e6", self.cosines_e6)):
            if len(numbers) != self.pairs:
                raise InvalidValueError(f"has {len(numbers)} numbers, and 'pairs' is {self.pairs}", key)


@dataclass(frozen=True, kw_only=True)
class SimilarityScores(Record):
    """Scores on one similarity task."""

    kind: ClassVar[Literal["similarity"]] = "similarity"

    pairs: int
    zero_vectors: int = 0
    """Pairs with a zero vector, whose cosine is set to 0."""
    spearman: AggregateEstimates
    pearson: AggregateEstimates
    subsets: dict[str, SubsetScores]
    seen: SeenShares | None = field(default=None, metadata=OMITTED)
    """What of the task the model has seen in training, where that is known."""
    unseen: UnseenScores | None = field(default=None, metadata=OMITTED)
    """Scores without the pairs that the model has seen, where it has seen some."""

    @property
    def size(self) -> int:
        """Number of pairs."""
        return self.pairs

    def metric(self, name: str) -> AggregateEstimates:
        """``spearman`` or ``pearson``."""
        return self.pearson if name == "pearson" else self.spearman

    def __post_init__(self) -> None:
        """A task without subsets, or a seen pair that it does not have."""
        seen = self.unseen.seen_pairs if self.unseen else []
        if seen and seen[-1] >= self.pairs:
            raise InvalidValueError(f"names pair {seen[-1]}, and 'pairs' is {self.pairs}", "unseen", "seen_pairs")
        if not self.subsets:
            raise InvalidValueError("is empty", "subsets")


@dataclass(frozen=True, kw_only=True)
class SimilarityAverage(Record):
    """The mean over several similarity tasks."""

    tasks: list[str]
    spearman: AggregateEstimates
    pearson: AggregateEstimates

    def metric(self, name: str) -> AggregateEstimates:
        """``spearman`` or ``pearson``."""
        return self.pearson if name == "pearson" else self.spearman
