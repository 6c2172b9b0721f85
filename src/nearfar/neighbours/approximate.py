"""Approximate search by a graph (HNSW) of usearch, with its recall against exact search."""

import importlib.util
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.disk import new_file
from nearfar.neighbours.exact import nearest
from nearfar.neighbours.index import APPROXIMATE, SearchIndex
from nearfar.neighbours.recall import Recall, RecallSearch, recall_on_texts, recorded_recall
from nearfar.types import NearfarError

ADDED_AT_ONCE = 2**13
"""Number of vectors between two updates of a progress bar, and two chances to stop."""


def check_installed() -> None:
    """Check that usearch is installed, without importing it.

    Raises:
        NearfarError: it is not; the message has the command that installs it.
    """
    if importlib.util.find_spec("usearch") is None:
        raise NearfarError("--approximate: needs the package usearch; install it with: pip install 'nearfar[search]'")


class ApproximateSearch(RecallSearch):
    """A graph over the vectors of an index, kept in the index folder; it is made or extended by the constructor.

    The graph stores vectors in float16, and depends on the order in which threads insert them. For a query for which it
    finds too few documents, the candidates are those of exact search.

    Args:
        index: an index with at least one text.
        on_added: called with the number of vectors that were added.

    Raises:
        NearfarError: usearch is not installed, a vector of the index is not finite, or the graph cannot be written.
    """

    def __init__(self, index: SearchIndex, *, on_added: Callable[[int], None] | None = None) -> None:
        check_installed()
        super().__init__(index)
        self._file, self._record = index.folder / APPROXIMATE[0], APPROXIMATE[1]
        record = index.read_derived(self._record)
        self._graph = self._load(record)
        before, texts = len(self._graph), len(self.vectors)
        try:
            for start in range(before, texts, ADDED_AT_ONCE):
                end = min(start + ADDED_AT_ONCE, texts)
                added = np.array(self.vectors[start:end])
                index.check_finite(added)
                self._graph.add(np.arange(start, end, dtype=np.uint64), added)
                if on_added:
                    on_added(end - start)
        except KeyboardInterrupt:
            self._save(None)
            raise
        recorded = recorded_recall(record) if before == texts else None
        if recorded is None:
            recorded = recall_on_texts(self.search, self.vectors)
            self._save(recorded)
        self.recall = recorded

    def candidates(self, queries: np.ndarray, k: int) -> NDArray[np.int64]:
        """The ``k`` documents that the graph finds for each query, or exact search if it finds fewer."""
        matches = self._graph.search(queries, k)
        counts = getattr(matches, "counts", None)  # for one query, usearch returns its matches alone
        counts = np.array([len(matches.keys)]) if counts is None else np.asarray(counts)
        short, ids = counts < k, np.zeros((len(queries), k), np.int64)
        if not short.all():
            ids[~short] = np.asarray(matches.keys).reshape(len(queries), k)[~short].astype(np.int64)
        if short.any():
            ids[short] = nearest(queries[short], self.vectors, k).ids
        return ids

    def _load(self, record: Mapping[str, Any]) -> Any:
        """The recorded graph, or an empty one if there is none, it is damaged, or it belongs to another index."""
        from usearch.index import Index

        dim = self.index.manifest.dim
        if "bytes" in record and record["bytes"] == _size(self._file):
            graph = Index(ndim=dim, metric="ip", dtype="f16")
            with suppress(RuntimeError, ValueError, OSError):
                graph.load(str(self._file))
                if len(graph) == record.get("texts") and len(graph) <= len(self.vectors) and graph.ndim == dim:
                    return graph
        return Index(ndim=dim, metric="ip", dtype="f16")

    def _save(self, recall: Recall | None) -> None:
        """Write the graph and then its record; between the two, the old record does not fit the new graph."""
        with new_file(self._file) as file:
            try:
                self._graph.save(str(file))
            except RuntimeError as error:  # usearch reports a full disk so
                raise OSError(str(error)) from error
        record = {"texts": len(self._graph), "bytes": _size(self._file), "recall": recall}
        self.index.write_derived(self._record, record)


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else -1
