"""The hits of queries: the nearest texts of an index, with the rows that they come from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfar.neighbours.exact import DocumentNotFiniteError, nearest
from nearfar.neighbours.index import IndexReader
from nearfar.neighbours.manifest import damaged
from nearfar.neighbours.recall import RecallSearch


@dataclass(frozen=True)
class Hit:
    """One row that was found for a query."""

    rank: int
    """1 for the nearest."""
    score: float
    """Cosine similarity to the query, or inner product with ``normalize=False``."""
    row: int
    """Number of the row in the file, counted from 0 without header and blank lines."""
    text: str
    """The text, with normalised white space."""
    columns: dict[str, Any]
    """The other columns of the row."""
    count: int = 1
    """Number of rows with this text, of which ``row`` is the first; always 1 with ``keep_duplicates``."""


@dataclass(frozen=True)
class Searcher:
    """An open index and an encoder for queries."""

    reader: IndexReader
    encode_query: Callable[[Sequence[str]], np.ndarray]
    """Queries -> vectors [queries, dim]."""
    columns: tuple[str, ...]
    """Names of the other columns."""
    top: int
    """Number of hits for each query."""
    keep_duplicates: bool = False
    device: str = "cpu"
    inexact: RecallSearch | None = None
    """Approximate or quantized search; None for exact search."""

    def search(self, queries: Sequence[str]) -> list[list[Hit]]:
        """The hits of each query, best first; of texts with equal scores the one that occurs first.

        Raises:
            NearfarError: a vector is not finite, or the index is damaged.
        """
        if not queries:
            return []
        vectors = np.asarray(self.encode_query(queries), np.float32)
        if self.inexact is not None:
            found = self.inexact.search(vectors, self.top)
        else:
            try:
                found = nearest(vectors, self.reader.vectors, self.top, device=self.device)
            except DocumentNotFiniteError as error:
                raise damaged(self.reader.folder / "vectors.npy", "holds a vector that is not finite") from error
        rows = self.reader.rows_of(found.ids.reshape(-1))
        return [
            self._hits(texts.tolist(), scores.tolist(), rows)
            for texts, scores in zip(found.ids, found.scores, strict=True)
        ]

    def _hits(self, texts: list[int], scores: list[float], rows: dict[int, list[int]]) -> list[Hit]:
        hits: list[Hit] = []
        for text, score in zip(texts, scores, strict=True):
            own = rows[text]
            for row in own if self.keep_duplicates else own[:1]:
                if len(hits) == self.top:
                    return hits
                content, *values = self.reader.read_row(row)
                columns = dict(zip(self.columns, values, strict=True))
                count = 1 if self.keep_duplicates else len(own)
                hits.append(Hit(len(hits) + 1, score, row, content, columns, count))
        return hits
