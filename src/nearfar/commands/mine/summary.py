"""What was mined: counts, the share of candidates that each limit dropped, and examples; the result of ``mine``."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Examples are the triplets at these quantiles of the negative's score."""


class Triplet(NamedTuple):
    """A mined row with its scores."""

    anchor: str
    positive: str
    negative: str
    positive_score: float
    negative_score: float


@dataclass(frozen=True)
class MiningResult:
    """What ``nearfar mine`` found; ``OUTPUT.summary.json`` holds the same fields."""

    pairs: int
    """Number of pairs in the data."""
    anchors: int
    """Number of distinct anchors."""
    documents: int
    """Number of distinct documents: the positives and the corpus."""
    triplets: int
    """Number of rows written."""
    without_negative: int
    """Number of pairs without a row."""
    filled: int
    """Number of rows whose negative is a random document (``fill_random``)."""
    searched: int
    """Number of nearest documents that were searched for each anchor."""
    candidates: int
    """Number of candidates of all anchors: the nearest documents that are neither positives nor equal texts."""
    dropped: dict[str, int]
    """Limit -> number of candidates that it dropped. Limits apply in this order, and each candidate counts once."""
    positive_score: float
    """Mean score of the rows' positives."""
    negative_score: float
    """Mean score of the rows' negatives."""
    examples: tuple[Triplet, ...]
    """The triplets at the quantiles 0, 0.25, 0.5, 0.75 and 1 of the negative's score."""

    @property
    def dropped_shares(self) -> dict[str, float]:
        """Limit -> the share of all candidates that it dropped."""
        return {name: count / max(1, self.candidates) for name, count in self.dropped.items()}

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {
            **asdict(self),
            "dropped_shares": self.dropped_shares,
            "examples": [
                {"quantile": quantile, **example._asdict()}
                for quantile, example in zip(QUANTILES, self.examples, strict=False)
            ],
        }


def quantile_rows(scores: Sequence[float] | np.ndarray) -> list[int]:
    """The position of the score at each of :data:`QUANTILES`, by rank; of equal scores the first ones come first.

    >>> quantile_rows([0.5, 0.1, 0.3])
    [1, 1, 2, 2, 0]
    """
    order = np.argsort(scores, kind="stable")
    return [int(order[int(quantile * (len(order) - 1))]) for quantile in QUANTILES]
