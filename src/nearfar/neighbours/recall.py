"""Recall of a search that is not exact: the share of the exact nearest documents that it finds."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from nearfar.neighbours.exact import Neighbours, nearest
from nearfar.neighbours.index import SearchIndex

RECALL_AT, RECALL_SAMPLE, TOLERANCE = 10, 200, 1e-6


class Recall(NamedTuple):
    """Recall of a search: the share of the exact ``at`` nearest documents that it finds."""

    value: float
    at: int
    queries: int
    """Number of queries in the sample."""


def recorded_recall(record: Mapping[str, Any]) -> Recall | None:
    """The recall in the record of a graph or of codes; None if it was not measured."""
    found = record.get("recall")
    return Recall(*found) if isinstance(found, list) and len(found) == len(Recall._fields) else None


class RecallSearch(ABC):
    """A search of the vectors of an index that is not exact: it finds candidates by files derived from the index.

    The candidates are scored by the float32 vectors, so the scores equal those of exact search for the same documents
    (up to rounding in the last bits).

    Args:
        index: an index with at least one text.
    """

    recall: Recall
    """Recall over a fixed random sample of the index's own texts; a text is not its own neighbour."""

    def __init__(self, index: SearchIndex) -> None:
        self.index, self.vectors = index, index.vectors

    @abstractmethod
    def candidates(self, queries: np.ndarray, k: int) -> NDArray[np.int64]:
        """At least ``k`` documents for each query; ``k`` is at most their number."""

    def search(self, queries: Float32[np.ndarray, "queries dim"], k: int) -> Neighbours:
        """About the ``min(k, documents)`` nearest documents of each query, best first; as :func:`nearest` otherwise.

        Of equal scores the document that comes first. Only the vectors of the candidates are read.

        Raises:
            IndexDamagedError: a vector is not finite.
        """
        k = min(k, len(self.vectors))
        if k == 0 or len(queries) == 0:
            return nearest(queries, self.vectors, max(k, 1))
        ids, scores = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
        candidates = np.sort(self.candidates(np.ascontiguousarray(queries), k), axis=1)
        for row, (query, own) in enumerate(zip(queries, candidates, strict=True)):
            products = np.asarray(self.vectors[own]) @ query
            self.index.check_finite(products)
            best = np.argsort(-products, kind="stable")[:k]
            ids[row], scores[row] = own[best], products[best]
        return Neighbours(ids, scores)


def measure_recall(
    search: Callable[[np.ndarray, int], Neighbours],
    vectors: Float32[np.ndarray, "documents dim"],
    queries: Float32[np.ndarray, "queries dim"],
    *,
    own: np.ndarray | None = None,
) -> Recall:
    """Recall of ``search`` over ``queries``, against exact search among ``vectors``.

    A document counts as found if its score is at least that of the last exact one, so equal scores do not matter.
    ``own`` are the documents that the queries are, which are left out of both lists.
    """
    at = min(RECALL_AT, len(vectors) - (own is not None))
    if at < 1:
        return Recall(1.0, at, len(queries))
    wanted = at + (own is not None)
    exact, found = nearest(queries, vectors, wanted), search(queries, wanted)
    shares = []
    for row in range(len(queries)):
        keep_exact, keep_found = np.ones(wanted, bool), np.ones(wanted, bool)
        if own is not None:
            keep_exact, keep_found = exact.ids[row] != own[row], found.ids[row] != own[row]
        limit = exact.scores[row][keep_exact][:at].min() - TOLERANCE
        shares.append(min(int((found.scores[row][keep_found] >= limit).sum()), at) / at)
    return Recall(float(np.mean(shares)), at, len(queries))


def recall_on_texts(
    search: Callable[[np.ndarray, int], Neighbours], vectors: Float32[np.ndarray, "documents dim"]
) -> Recall:
    """Recall over a fixed random sample of the documents; a document is not its own neighbour."""
    sample = sample_of(len(vectors))
    return measure_recall(search, vectors, np.array(vectors[sample]), own=sample)


def sample_of(count: int) -> np.ndarray:
    """At most 200 numbers below ``count``, always the same."""
    return np.sort(np.random.default_rng(0).choice(count, min(count, RECALL_SAMPLE), replace=False))
