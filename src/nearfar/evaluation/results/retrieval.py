"""Scores on a retrieval task, with the values of each query that a paired test needs."""

from dataclasses import dataclass, field
from typing import Literal

from nearfar.evaluation.results.base import Estimate
from nearfar.evaluation.results.record import OMITTED, Number, Record
from nearfar.evaluation.results.seen import SeenShares
from nearfar.validation import InvalidValueError


@dataclass(frozen=True, kw_only=True)
class RetrievalScores(Record):
    """Scores on one retrieval task."""

    kind: Literal["retrieval"] = "retrieval"
    queries: int
    """Number of queries."""
    documents: int
    """Number of documents that were ranked for each query."""
    main: str
    """The measure that tables and comparisons show first."""
    measures: dict[str, Estimate]
    """Means over queries x 100: ``ndcg@10``, ``mrr@10``, ``map@100``, ``recall@1``, ``recall@10``, ``recall@100``."""
    counts: dict[str, int] = field(default_factory=dict)
    """What was left out or is worth knowing, in words, such as ``queries without relevant documents`` -> number."""
    per_query: dict[str, list[Number]]
    """Measure -> its value for each query in order, 0 to 1, rounded to six decimals."""
    digest: str
    """Fingerprint of queries, documents and relevance; equal digests make two files comparable query by query."""
    seen: SeenShares | None = field(default=None, metadata=OMITTED)
    """What of the queries and their relevant documents the model has seen in training, where that is known."""

    @property
    def compared(self) -> Estimate:
        """The estimate that comparisons test by default."""
        return self.measures[self.main]

    @property
    def size(self) -> int:
        """Number of queries."""
        return self.queries

    def metric(self, name: str) -> Estimate | None:
        """The estimate of a measure; None for other metrics."""
        return self.measures.get(name)

    def __post_init__(self) -> None:
        """No queries, a main measure without a score, or not one value for each query."""
        if self.queries < 1:
            raise InvalidValueError("is below 1", "queries")
        if self.main not in self.measures:
            raise InvalidValueError(f"has no {self.main!r}, the main measure", "measures")
        for measure in self.measures:
            values = self.per_query.get(measure)
            if values is None or len(values) != self.queries:
                found = 0 if values is None else len(values)
                raise InvalidValueError(f"has {found} numbers, and 'queries' is {self.queries}", "per_query", measure)
