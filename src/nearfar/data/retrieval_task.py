"""What a retrieval task is: queries, documents, and which documents are relevant to which query."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from nearfar.types import RetrievalMeasure

if TYPE_CHECKING:
    pass

MEASURES: tuple[RetrievalMeasure, ...] = get_args(RetrievalMeasure)
"""The measures, in the order of tables and result files."""


@dataclass(frozen=True)
class RetrievalTask:
    """Queries and documents as texts; relevance by their positions."""

    queries: list[str]
    documents: list[str]
    relevant: list[dict[int, int]]
    """For each query: position of a relevant document -> its grade, at least 1. No query is without one."""
    query_ids: list[str]
    """Identifiers in the source; the positions as text where the source has none."""
    document_ids: list[str]
    counts: Mapping[str, int] = field(default_factory=dict)
    """What was left out or is worth knowing: in words, such as "queries without relevant documents" -> number."""
    main: RetrievalMeasure = "ndcg@10"
    """The measure that tables and comparisons show first."""
    excluded: Mapping[int, int] = field(default_factory=dict)
    """Position of a query -> position of the document that is the query itself and is not ranked for it."""


def task_of_pairs(
    pairs: Iterable[tuple[str, str]], positions: Mapping[str, int], counts: Mapping[str, int]
) -> RetrievalTask:
    """A task of pairs of a query and a relevant document, given the positions of all documents.

    A query that is a document too is not ranked for itself.
    """
    relevant: dict[str, dict[int, int]] = {}
    for query, document in pairs:
        relevant.setdefault(query, {})[positions[document]] = 1
    return RetrievalTask(
        queries=list(relevant),
        documents=list(positions),
        relevant=list(relevant.values()),
        query_ids=list(map(str, range(len(relevant)))),
        document_ids=list(map(str, range(len(positions)))),
        counts=counts,
        main="mrr@10",
        excluded={number: positions[query] for number, query in enumerate(relevant) if query in positions},
    )
