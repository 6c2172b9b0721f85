"""The hits of queries: the nearest texts of an index, with the rows that they come from; and hits as text."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfar.data.cells import normalize_whitespace
from nearfar.neighbours.exact import DocumentNotFiniteError, nearest
from nearfar.neighbours.index import SearchIndex, damaged
from nearfar.neighbours.inexact import RecallSearch
from nearfar.types import VectorSimilarity

FIELDS = ("query", "rank", "score", "row", "text", "count")
"""The fields of every hit. A column of the input with one of these names gets the prefix ``input_``."""


@dataclass(frozen=True)
class Hit:
    """One row that was found for a query."""

    rank: int
    """1 for the nearest."""
    score: float
    """Similarity to the query, as the model compares: the cosine, inner product, or minus a distance."""
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

    index: SearchIndex
    encode_query: Callable[[Sequence[str]], np.ndarray]
    """Queries -> vectors [queries, dim]."""
    columns: tuple[str, ...]
    """Names of the other columns."""
    top: int
    """Number of hits for each query."""
    keep_duplicates: bool = False
    similarity: VectorSimilarity = "cosine"
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
                found = nearest(vectors, self.index.vectors, self.top, similarity=self.similarity, device=self.device)
            except DocumentNotFiniteError as error:
                raise damaged(self.index.folder / "vectors.npy", "holds a vector that is not finite") from error
        rows = self.index.rows_of(found.ids.reshape(-1))
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
                content, *values = self.index.read_row(row)
                columns = dict(zip(self.columns, values, strict=True))
                count = 1 if self.keep_duplicates else len(own)
                hits.append(Hit(len(hits) + 1, score, row, content, columns, count))
        return hits


def table_header(columns: Sequence[str]) -> str:
    """The first line of a .tsv file."""
    return "\t".join([*FIELDS, *(show_value(name) for name in output_names(columns))]) + "\n"


def format_hits(query: str, hits: Sequence[Hit], columns: Sequence[str], *, json_lines: bool) -> Iterator[str]:
    """The lines of one query: JSON objects, or fields separated by tabs, in which white space is normalised."""
    names = output_names(columns)
    for hit in hits:
        values = [query, hit.rank, round(hit.score, 6), hit.row, hit.text, hit.count]
        values += [hit.columns[column] for column in columns]
        if json_lines:
            yield json.dumps(dict(zip((*FIELDS, *names), values, strict=True)), ensure_ascii=False) + "\n"
        else:
            yield "\t".join(map(show_value, values)) + "\n"


def output_names(columns: Sequence[str]) -> list[str]:
    """The names of the other columns in an output."""
    names: list[str] = []
    for column in columns:
        name = column
        while name in FIELDS or name in names or (name != column and name in columns):
            name = f"input_{name}"
        names.append(name)
    return names


def show_value(value: Any) -> str:
    """A value of another column as one line of text; empty for a missing one."""
    if value is None:
        return ""
    return normalize_whitespace(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
