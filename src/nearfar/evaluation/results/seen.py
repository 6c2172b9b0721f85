"""What of a task a model has seen in training, and its scores on the rest."""

from dataclasses import dataclass, field
from itertools import pairwise

from nearfar.evaluation.results.base import Estimate
from nearfar.evaluation.results.record import OMITTED, Record
from nearfar.validation import InvalidValueError


@dataclass(frozen=True, kw_only=True)
class SeenShares(Record):
    """Shares, in [0, 1], of a task's pairs and texts that the model was trained on, or that chose its training step.

    Pairs and texts are compared by hashes of their letters and digits (:mod:`nearfar.data.fingerprints`). Only
    training with nearfar is known: the model that training started from may have seen more.
    """

    pairs: float | None = field(default=None, metadata=OMITTED)
    """Share of the pairs; null where rows have one text."""
    texts: float
    """Share of the distinct texts."""
    chosen_pairs: float | None = field(default=None, metadata=OMITTED)
    """Share of the pairs that were not trained on, but chose the step; part of ``pairs``."""
    chosen_texts: float
    """The same of the texts; part of ``texts``."""
    dev: bool | None = field(default=None, metadata=OMITTED)
    """True if the whole task is in the dev set that chose the step."""

    @property
    def main(self) -> float:
        """The share of the pairs, or of the texts where rows have one text."""
        return self.texts if self.pairs is None else self.pairs

    def __post_init__(self) -> None:
        """Numbers that are no shares."""
        for key in ("pairs", "texts", "chosen_pairs", "chosen_texts"):
            value = getattr(self, key)
            if value is not None and not 0 <= value <= 1:
                raise InvalidValueError(f"is {value}, not from 0 to 1", key)


@dataclass(frozen=True, kw_only=True)
class UnseenScores(Record):
    """Scores on the pairs of a similarity task that the model was neither trained on nor chosen by."""

    pairs: int
    """Number of unseen pairs."""
    spearman: Estimate
    """Over the unseen pairs of all subsets together, x 100."""
    seen_pairs: list[int]
    """Positions, from 0, of the pairs that the model has seen, counted over all subsets in order."""

    def __post_init__(self) -> None:
        """Positions that are not in ascending order."""
        positions = self.seen_pairs
        if positions and (positions[0] < 0 or any(one >= other for one, other in pairwise(positions))):
            raise InvalidValueError("are not ascending positions", "seen_pairs")
