"""A retrieval task: queries, documents, and which documents are relevant to which query."""

from collections.abc import Mapping
from dataclasses import dataclass, field


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
