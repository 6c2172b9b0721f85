"""Search of an index that is not exact: by a graph (HNSW) of usearch, or over int8 or binary codes of the vectors.

Either finds candidates by files that are derived from the index and kept in its folder; the vectors score the
candidates. Recall against exact search, the share of the exact nearest documents that is found, is measured.

The codes take a quarter (int8) or a 32nd (binary) of the bytes of the vectors, so that those of a large index stay in
memory. Of the vectors, which stay on the disk, only those of the candidates are read.
"""

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float32, Int64, UInt8
from numpy.typing import NDArray

from nearfar.disk import new_file, write_npy
from nearfar.neighbours.exact import Neighbours, nearest
from nearfar.neighbours.index import APPROXIMATE, QUANTIZED, SearchIndex
from nearfar.quantization import int8_ranges, quantize
from nearfar.types import ARRAY_ERRORS, NearfarError

RECALL_AT, RECALL_SAMPLE, TOLERANCE = 10, 200, 1e-6
ADDED_AT_ONCE = 2**13
"""Number of vectors between two updates of a progress bar, and two chances to stop."""
CodeKind: TypeAlias = Literal["int8", "binary"]
FACTORS: dict[str, int] = {"int8": 2, "binary": 10}
"""Default number of candidates for each requested document."""
ROWS = 2**14
"""Number of vectors that are quantized, or of documents that are compared, at a time."""
_NUMBERS = 2**40
"""More than the number of documents: distance * this + number orders documents by distance, then by number."""


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
        itself = -1 if own is None else own[row]
        limit = exact.scores[row][exact.ids[row] != itself][:at].min() - TOLERANCE
        shares.append(min(int((found.scores[row][found.ids[row] != itself] >= limit).sum()), at) / at)
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


class QuantizedSearch(RecallSearch):
    """Search over codes of the vectors of an index, kept in the index folder; the constructor makes missing ones.

    A query is compared with all codes. ``factor`` * k candidates are then scored by their float32 vectors.

    int8: the inner product of the query with the decoded vectors, whose ranges are those of all vectors. binary: the
    number of dimensions in which the signs of query and document agree.

    Args:
        index: an index with at least one text.
        kind: int8 or binary.
        factor: number of candidates for each requested document; by default :data:`FACTORS`.
        on_added: called with the number of vectors that were quantized.

    Raises:
        NearfarError: a vector of the index is not finite, or the codes cannot be written.
    """

    def __init__(
        self,
        index: SearchIndex,
        kind: CodeKind,
        *,
        factor: int | None = None,
        device: str = "cpu",
        on_added: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(index)
        self.kind, self.device = kind, device
        self.factor = factor or FACTORS[kind]
        self._file, record_file = index.folder / QUANTIZED[kind][0], QUANTIZED[kind][1]
        self._ranges: NDArray[np.float32] | None = None
        record = index.read_derived(record_file)
        codes = self._read_codes(record)
        if codes is None:
            record, codes = {}, self._make_codes(on_added)
        self.codes = codes
        recorded = recorded_recall(record) if record.get("factor") == self.factor else None
        if recorded is None:
            recorded = recall_on_texts(self.search, self.vectors)
            ranges = None if self._ranges is None else self._ranges.tolist()
            record = {"texts": len(codes), "ranges": ranges, "factor": self.factor, "recall": recorded}
            index.write_derived(record_file, record)
        self.recall = recorded

    def candidates(self, queries: np.ndarray, k: int) -> NDArray[np.int64]:
        """The documents with the nearest codes, ``factor`` times as many as are wanted."""
        count = min(k * self.factor, len(self.vectors))
        if self.kind == "binary":
            return nearest_codes(quantize(queries, "binary"), self.codes, count)
        assert self._ranges is not None
        # q . (l + (c + 128) s) = (q s) . c + a term that does not depend on the document.
        steps = (self._ranges[1] - self._ranges[0]) / np.float32(255)
        return nearest((queries * steps).astype(np.float32), self.codes, count, device=self.device).ids

    def _read_codes(self, record: Mapping[str, Any]) -> NDArray[Any] | None:
        """The codes of all texts, memory-mapped, with their ranges; None if they must be made."""
        with suppress(*ARRAY_ERRORS):
            if self.kind == "int8":
                self._ranges = np.array(record.get("ranges"), np.float32)
                if self._ranges.shape != (2, self.vectors.shape[1]):
                    return None
            codes: NDArray[Any] = np.load(self._file, mmap_mode="r", allow_pickle=False)
            if record.get("texts") == len(self.vectors) and (codes.dtype, codes.shape) == self._layout:
                return codes
        return None

    def _make_codes(self, on_added: Callable[[int], None] | None) -> NDArray[Any]:
        if self.kind == "int8":
            self._ranges = int8_ranges(self._blocks())
        dtype, shape = self._layout

        def codes() -> Iterator[NDArray[Any]]:
            for block in self._blocks():
                yield quantize(block, self.kind, self._ranges)
                if on_added:
                    on_added(len(block))

        with new_file(self._file) as file:
            write_npy(file, dtype, shape, codes())
        found: NDArray[Any] = np.load(self._file, mmap_mode="r", allow_pickle=False)
        return found

    @property
    def _layout(self) -> tuple[np.dtype[Any], tuple[int, int]]:
        """Type and shape of the array of codes."""
        texts, dim = self.vectors.shape
        return (np.dtype("u1"), (texts, -(-dim // 8))) if self.kind == "binary" else (np.dtype("i1"), (texts, dim))

    def _blocks(self) -> Iterator[NDArray[np.float32]]:
        for start in range(0, len(self.vectors), ROWS):
            block = np.array(self.vectors[start : start + ROWS])
            self.index.check_finite(block)
            yield block


def nearest_codes(
    queries: UInt8[np.ndarray, "queries bytes"], documents: UInt8[np.ndarray, "documents bytes"], k: int
) -> Int64[np.ndarray, "queries k"]:
    """The numbers of the ``min(k, documents)`` binary codes with the fewest bits that differ from each query's.

    Best first; of documents with the same number of bits the first ones. ``documents`` may be memory-mapped: 16,384
    codes of it are in memory at a time.

    >>> codes = np.array([[0b1100], [0b1111], [0b0011]], np.uint8)
    >>> nearest_codes(np.array([[0b0111]], np.uint8), codes, 2).tolist()  # 3, 1 and 1 bits differ
    [[1, 2]]
    """
    best = np.empty((len(queries), 0), np.int64)
    for start in range(0, len(documents), ROWS):
        block = _words(np.array(documents[start : start + ROWS]))
        numbers = np.arange(start, start + len(block), dtype=np.int64)
        keys = np.empty((len(queries), len(block)), np.int64)
        for row, query in enumerate(_words(queries)):
            keys[row] = np.bitwise_count(block ^ query).sum(axis=1, dtype=np.int64) * _NUMBERS + numbers
        best = np.concatenate([best, keys], axis=1)
        if best.shape[1] > k:
            best = np.partition(best, k - 1, axis=1)[:, :k]
    return np.sort(best, axis=1) % _NUMBERS


def _words(codes: NDArray[np.uint8]) -> NDArray[Any]:
    """The codes as numbers of 64 bits, which are compared faster, if their bytes allow it."""
    return np.ascontiguousarray(codes).view(np.uint64) if codes.shape[1] % 8 == 0 else codes


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
