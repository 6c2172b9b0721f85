"""Hard negatives: from the nearest documents of each query, those that are similar to it but not positives."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64

from nearfar.neighbours.exact import Neighbours

NO_DOCUMENT = -1
"""The id in place of a negative that was not found; its score is minus infinity."""


class NegativeLimits(NamedTuple):
    """Limits on the score s of a negative, given the lowest score p of the query's positives; None for no limit."""

    absolute_margin: float | None = None
    """s <= p - absolute_margin (TopK-MarginPos of Moreira et al. 2024, arXiv:2407.15831)."""
    relative_margin: float | None = None
    """s <= p - |p| * relative_margin (TopK-PercPos; the same as p * (1 - relative_margin) for a positive p)."""
    max_score: float | None = None
    """s <= max_score."""
    min_score: float | None = None
    """s >= min_score."""

    def violations(
        self, scores: Float32[np.ndarray, "queries documents"], positive: Float32[np.ndarray, " queries"]
    ) -> dict[str, Bool[np.ndarray, "queries documents"]]:
        """For each limit that is set, in the order of the fields: which scores violate it."""
        lowest = positive[:, None]
        found = {}
        if self.absolute_margin is not None:
            found["absolute_margin"] = scores + np.float32(self.absolute_margin) > lowest
        if self.relative_margin is not None:
            found["relative_margin"] = scores > lowest - np.abs(lowest) * np.float32(self.relative_margin)
        if self.max_score is not None:
            found["max_score"] = scores > self.max_score
        if self.min_score is not None:
            found["min_score"] = scores < self.min_score
        return found


class Negatives(NamedTuple):
    """The negatives of each query, nearest first."""

    ids: Int64[np.ndarray, "queries count"]
    """Positions of the documents; :data:`NO_DOCUMENT` where there are fewer."""
    scores: Float32[np.ndarray, "queries count"]
    """Their scores; minus infinity where there are fewer."""
    candidates: int
    """Number of documents that were considered: the nearest ones without the excluded ones."""
    dropped: dict[str, int]
    """For each limit, the number of candidates that it dropped and no limit before it."""


def select_negatives(
    found: Neighbours,
    excluded: Bool[np.ndarray, "queries k"],
    positive: Float32[np.ndarray, " queries"],
    limits: NegativeLimits,
    *,
    count: int,
    range_min: int = 0,
    range_max: int | None = None,
    random: Callable[[int, int], np.ndarray] | None = None,
) -> Negatives:
    """Choose up to ``count`` negatives of each query from its nearest documents.

    The nearest documents that are neither excluded nor outside the limits are ranked 0, 1, 2 ... by score; negatives
    have a rank in [range_min, range_max). With the same arguments on the same vectors, these are the candidates of
    ``mine_hard_negatives`` in sentence-transformers.

    Args:
        found: nearest documents of each query, best first.
        excluded: which of them are never negatives, such as the query's positives.
        positive: the lowest score of the query's positives.
        limits: limits on the score.
        count: number of negatives of a query.
        range_min: number of candidates to skip.
        range_max: number of candidates to choose from; None for all.
        random: None to take the nearest candidates; otherwise a function of (query, k) that returns ``k`` random
            numbers, by which the negatives are drawn.
    """
    kept = ~excluded
    candidates, dropped = int(kept.sum()), {}
    for name, violated in limits.violations(found.scores, positive).items():
        dropped[name] = int((kept & violated).sum())
        kept &= ~violated
    ranks = kept.cumsum(axis=1) - 1
    kept &= ranks >= range_min
    if range_max is not None:
        kept &= ranks < range_max
    if random is not None:
        kept = _draw(kept, count, random)
    chosen = kept & (kept.cumsum(axis=1) <= count)
    ids = np.full((len(chosen), count), NO_DOCUMENT, dtype=np.int64)
    scores = np.full((len(chosen), count), -np.inf, dtype=np.float32)
    rows, columns = chosen.nonzero()
    places = chosen.cumsum(axis=1)[rows, columns] - 1
    ids[rows, places], scores[rows, places] = found.ids[rows, columns], found.scores[rows, columns]
    return Negatives(ids, scores, candidates, dropped)


def _draw(
    options: Bool[np.ndarray, "queries k"], count: int, random: Callable[[int, int], np.ndarray]
) -> Bool[np.ndarray, "queries k"]:
    """A random subset of at most ``count`` options of each query."""
    drawn = np.zeros_like(options)
    for query, row in enumerate(options):
        numbers = np.where(row, random(query, len(row)), np.inf)
        order = np.argsort(numbers, kind="stable")[: min(count, int(row.sum()))]
        drawn[query, order] = True
    return drawn


def mask_of(
    ids: Int64[np.ndarray, "queries k"],
    documents: int,
    queries: Int64[np.ndarray, " entries"],
    entries: Int64[np.ndarray, " entries"],
) -> Bool[np.ndarray, "queries k"]:
    """Which of the ``ids`` of each query are listed for it as (``queries``, ``entries``); ids are below ``documents``.

    >>> mask_of(np.array([[5, 2], [2, 7]]), 10, np.array([0, 1]), np.array([2, 2]))
    array([[False,  True],
           [ True, False]])
    """
    keys = ids + np.arange(len(ids), dtype=np.int64)[:, None] * documents
    return np.isin(keys, queries * documents + entries)
