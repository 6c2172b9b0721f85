"""Approximate search by a graph (HNSW) of usearch, with its recall against exact search."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from nearfar.disk import new_file, read_json, write_text
from nearfar.neighbours.exact import Neighbours, nearest
from nearfar.neighbours.index import APPROXIMATE, IndexReader
from nearfar.neighbours.manifest import damaged
from nearfar.neighbours.recall import Recall, measure_recall, recall_on_texts
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


class ApproximateSearch:
    """A graph over the vectors of an index, kept in the index folder; it is made or extended by the constructor.

    The graph stores vectors in float16. Scores are computed again from the float32 vectors of the index, so they equal
    those of exact search for the same documents (up to rounding in the last bits). The graph depends on the order in
    which threads insert vectors.

    Args:
        index: an index with at least one text.
        on_added: called with the number of vectors that were added.

    Raises:
        NearfarError: usearch is not installed, a vector of the index is not finite, or the graph cannot be written.
    """

    def __init__(self, index: IndexReader, *, on_added: Callable[[int], None] | None = None) -> None:
        check_installed()
        self._index, self._vectors = index, index.vectors
        self._graph_file, self._record_file = (index.folder / name for name in APPROXIMATE)
        record = self._read_record()
        self._graph = self._load(record)
        before, texts = len(self._graph), len(self._vectors)
        try:
            for start in range(before, texts, ADDED_AT_ONCE):
                end = min(start + ADDED_AT_ONCE, texts)
                added = np.array(self._vectors[start:end])
                self._check_finite(added)
                self._graph.add(np.arange(start, end, dtype=np.uint64), added)
                if on_added:
                    on_added(end - start)
        except KeyboardInterrupt:
            self._save(None)
            raise
        self.recall: Recall
        """Recall over a fixed random sample of the index's own texts; a text is not its own neighbour."""
        recorded = record.get("recall") if before == texts else None
        if isinstance(recorded, list) and len(recorded) == 3:
            self.recall = Recall(*recorded)
        else:
            self.recall = recall_on_texts(self.search, self._vectors)
            self._save(self.recall)

    def search(self, queries: Float32[np.ndarray, "queries dim"], k: int) -> Neighbours:
        """About the ``min(k, documents)`` nearest documents of each query, best first; as :func:`nearest` otherwise."""
        k = min(k, len(self._vectors))
        if k == 0 or len(queries) == 0:
            return nearest(queries, self._vectors, max(k, 1))
        ids, short = self._candidates(np.ascontiguousarray(queries), k)
        scores = np.einsum("qd,qkd->qk", queries, self._vectors[ids]).astype(np.float32)
        self._check_finite(scores)
        order = np.lexsort((ids, -scores), axis=1)
        ids, scores = np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
        if short.any():
            ids[short], scores[short] = nearest(queries[short], self._vectors, k)
        return Neighbours(ids, scores)

    def _check_finite(self, values: np.ndarray) -> None:
        """Raise an error if vectors of the index, or scores of them, are not finite."""
        if not np.isfinite(values).all():
            raise damaged(self._index.folder / "vectors.npy", "holds a vector that is not finite")

    def _candidates(self, queries: np.ndarray, k: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The ``k`` documents that the graph finds for each query, and the queries for which it found fewer."""
        matches = self._graph.search(queries, k)
        counts = getattr(matches, "counts", None)  # for one query, usearch returns its matches alone
        counts = np.array([len(matches.keys)]) if counts is None else np.asarray(counts)
        short, ids = counts < k, np.zeros((len(queries), k), np.int64)
        if not short.all():
            ids[~short] = np.asarray(matches.keys).reshape(len(queries), k)[~short].astype(np.int64)
        return ids, short

    def measure(self, queries: Float32[np.ndarray, "queries dim"]) -> Recall:
        """Recall over ``queries``, against exact search (:func:`nearfar.neighbours.recall.measure_recall`)."""
        return measure_recall(self.search, self._vectors, queries)

    def _load(self, record: dict[str, Any]) -> Any:
        """The recorded graph, or an empty one if there is none, it is damaged, or it belongs to another index."""
        from usearch.index import Index

        index, graph = self._index.manifest, Index(ndim=self._index.manifest.dim, metric="ip", dtype="f16")
        recorded = (record.get("generation"), record.get("dim"), record.get("bytes"))
        if recorded != (index.generation, index.dim, _size(self._graph_file)):
            return graph
        try:
            graph.load(str(self._graph_file))
        except (RuntimeError, ValueError, OSError):
            return Index(ndim=index.dim, metric="ip", dtype="f16")
        valid = len(graph) == record.get("texts") and len(graph) <= index.texts and graph.ndim == index.dim
        return graph if valid else Index(ndim=index.dim, metric="ip", dtype="f16")

    def _read_record(self) -> dict[str, Any]:
        try:
            found = read_json(self._record_file)
        except NearfarError:
            return {}
        return found if isinstance(found, dict) else {}

    def _save(self, recall: Recall | None) -> None:
        """Write the graph and then its record; between the two, the old record does not fit the new graph."""
        with new_file(self._graph_file) as file:
            try:
                self._graph.save(str(file))
            except RuntimeError as error:  # usearch reports a full disk so
                raise OSError(str(error)) from error
        index = self._index.manifest
        record = {
            "generation": index.generation,
            "dim": index.dim,
            "texts": len(self._graph),
            "bytes": _size(self._graph_file),
            "recall": recall,
        }
        write_text(self._record_file, json.dumps(record, indent=2) + "\n")


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else -1
