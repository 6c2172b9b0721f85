"""A retrieval task: queries, documents, and which documents are relevant to which query."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from nearfar.types import RetrievalMeasure

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
