"""Search of an index that is not exact: by a graph (HNSW) of usearch, or over int8 or binary codes of the vectors.

Either finds candidates by files that are derived from the index and kept in its folder; the vectors score the
candidates. Recall against exact search, the share of the exact nearest documents that is found, is measured.

The codes take a quarter (int8) or a 32nd (binary) of the bytes of the vectors, so that those of a large index stay in
memory. Of the vectors, which stay on the disk, only those of the candidates are read.
"""

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float32, Int64, UInt8
from numpy.typing import NDArray

from nearfar.disk import new_file, write_npy
from nearfar.neighbours.exact import Neighbours, nearest
from nearfar.neighbours.index import SearchIndex
from nearfar.quantization import int8_ranges, quantize
from nearfar.types import ARRAY_ERRORS, NearfarError

RECALL_AT, RECALL_SAMPLE, TOLERANCE = 10, 200, 1e-6
ADDED_AT_ONCE = 2**13
"""Number of vectors between two updates of a progress bar."""
CodeKind: TypeAlias = Literal["int8", "binary"]
FACTORS: dict[str, int] = {"int8": 2, "binary": 10}
"""Default number of candidates for each requested document."""
ROWS = 2**14
"""Number of vectors that are quantized, or of documents that are compared, at a time."""
_NUMBERS = 2**40
"""More than the number of documents: distance * this + number orders documents by distance, then by number."""
OnAdded: TypeAlias = Callable[[int], object]
"""Called with numbers of vectors that were added to a graph, or quantized."""


class Recall(NamedTuple):
    """Recall of a search: the share of the exact ``at`` nearest documents that it finds."""

    value: float
    at: int
    queries: int
    """Number of queries in the sample."""


class InexactSearch:
    """A search of the vectors of an index that is not exact.

    The candidates are scored by the float32 vectors, so the scores equal those of exact search for the same documents
    (up to rounding in the last bits).

    Args:
        index: an index with at least one text.
        candidates: finds at least k documents for each query; k is at most their number.
        record: what describes the derived file; the recall is measured if the index has no record of the same content.
        kept_in: the name of the record.
    """

    recall: Recall
    """Recall over a fixed random sample of the index's own texts; a text is not its own neighbour."""

    def __init__(
        self,
        index: SearchIndex,
        candidates: Callable[[np.ndarray, int], NDArray[np.int64]],
        record: Mapping[str, Any],
        kept_in: str,
    ) -> None:
        self._index, self._candidates = index, candidates
        known = index.read_derived(kept_in)
        recall = known.get("recall") if all(known.get(name) == value for name, value in record.items()) else None
        if isinstance(recall, list) and len(recall) == len(Recall._fields):
            self.recall = Recall(*recall)
            return
        sample = sample_of(len(index.vectors))
        self.recall = measure_recall(self.search, index.vectors, np.array(index.vectors[sample]), own=sample)
        index.write_derived(kept_in, {**record, "recall": self.recall})

    def search(self, queries: Float32[np.ndarray, "queries dim"], k: int) -> Neighbours:
        """About the ``min(k, documents)`` nearest documents of each query, best first; as :func:`nearest` otherwise.

        Of equal scores the document that comes first. Only the vectors of the candidates are read.

        Raises:
            IndexDamagedError: a vector is not finite.
        """
        vectors = self._index.vectors
        k = min(k, len(vectors))
        ids, scores = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
        if not len(queries):
            return Neighbours(ids, scores)
        candidates = np.sort(self._candidates(np.ascontiguousarray(queries), k), axis=1)
        for row, (query, own) in enumerate(zip(queries, candidates, strict=True)):
            products = np.asarray(vectors[own]) @ query
            self._index.check_finite(products)
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


def sample_of(count: int) -> np.ndarray:
    """At most 200 numbers below ``count``, always the same."""
    return np.sort(np.random.default_rng(0).choice(count, min(count, RECALL_SAMPLE), replace=False))


def search_codes(
    index: SearchIndex,
    kind: CodeKind,
    *,
    factor: int | None = None,
    device: str = "cpu",
    on_added: OnAdded = lambda _: None,
) -> InexactSearch:
    """Search over codes of the vectors of an index, kept in the index folder; missing ones are made.

    A query is compared with all codes. ``factor`` * k candidates are then scored by their float32 vectors.

    int8: the inner product of the query with the decoded vectors, whose ranges are those of all vectors. binary: the
    number of dimensions in which the signs of query and document agree.

    Args:
        index: an index with at least one text.
        kind: int8 or binary.
        factor: number of candidates for each requested document; by default :data:`FACTORS`.
        device: where queries are compared with int8 codes.
        on_added: called with the number of vectors that were quantized.

    Raises:
        NearfarError: a vector of the index is not finite, or the codes cannot be written.
    """
    file, (texts, dim), times = index.folder / f"{kind}.npy", index.vectors.shape, factor or FACTORS[kind]
    dtype: np.dtype[Any] = np.dtype("i1" if kind == "int8" else "u1")
    width = dim if kind == "int8" else -(-dim // 8)
    record, codes = index.read_derived(f"{kind}.json"), np.empty((0, width), dtype)
    ranges: NDArray[np.float32] | None = None

    def blocks() -> Iterator[NDArray[np.float32]]:
        for start in range(0, texts, ROWS):
            block = np.array(index.vectors[start : start + ROWS])
            index.check_finite(block)
            yield block

    def quantized() -> Iterator[NDArray[Any]]:
        for block in blocks():
            yield quantize(block, kind, ranges)
            on_added(len(block))

    with suppress(*ARRAY_ERRORS):
        ranges = np.array(record.get("ranges"), np.float32) if kind == "int8" else None
        kept = np.load(file, mmap_mode="r", allow_pickle=False)
        is_whole = record.get("texts") == texts and (kept.dtype, kept.shape) == (dtype, (texts, width))
        codes = kept if is_whole and (ranges is None or ranges.shape == (2, dim)) else codes
    if not len(codes):
        ranges = int8_ranges(blocks()) if kind == "int8" else None
        with new_file(file) as new:
            write_npy(new, dtype, (texts, width), quantized())
        codes = np.load(file, mmap_mode="r", allow_pickle=False)

    def candidates(queries: np.ndarray, k: int) -> NDArray[np.int64]:
        count = min(k * times, texts)
        if ranges is None:
            return nearest_codes(quantize(queries, "binary"), codes, count)
        # q . (l + (c + 128) s) = (q s) . c + a term that does not depend on the document.
        steps = (ranges[1] - ranges[0]) / np.float32(255)
        return nearest((queries * steps).astype(np.float32), codes, count, device=device).ids

    content = {"texts": texts, "ranges": None if ranges is None else ranges.tolist(), "factor": times}
    return InexactSearch(index, candidates, content, f"{kind}.json")


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


def search_graph(index: SearchIndex, *, on_added: OnAdded = lambda _: None) -> InexactSearch:
    """Search by a graph over the vectors of an index, kept in the index folder, which is made or extended first.

    The graph stores vectors in float16, and depends on the order in which threads insert them. For a query for which it
    finds too few documents, the candidates are those of exact search.

    Args:
        index: an index with at least one text.
        on_added: called with the number of vectors that were added.

    Raises:
        NearfarError: usearch is not installed, a vector of the index is not finite, or the graph cannot be written.
    """
    check_installed()
    from usearch.index import Index

    file, record, (texts, dim) = (
        index.folder / "approximate.usearch",
        index.read_derived("approximate.json"),
        index.vectors.shape,
    )
    graph = Index(ndim=dim, metric="ip", dtype="f16")
    with suppress(RuntimeError, ValueError, OSError):
        if record and record.get("bytes") == file.stat().st_size:
            kept = Index(ndim=dim, metric="ip", dtype="f16")
            kept.load(str(file))
            graph = kept if len(kept) == record.get("texts") <= texts and kept.ndim == dim else graph
    before = len(graph)
    for start in range(before, texts, ADDED_AT_ONCE):
        end = min(start + ADDED_AT_ONCE, texts)
        added = np.array(index.vectors[start:end])
        index.check_finite(added)
        graph.add(np.arange(start, end, dtype=np.uint64), added)
        on_added(end - start)
    if before < texts:
        with new_file(file) as new:  # until the recall is measured, the old record does not fit the new graph
            try:
                graph.save(str(new))
            except RuntimeError as error:  # usearch reports a full disk so
                raise OSError(str(error)) from error

    def candidates(queries: np.ndarray, k: int) -> NDArray[np.int64]:
        matches = graph.search(queries, k)
        counts = getattr(matches, "counts", None)  # for one query, usearch returns its matches alone
        counts = np.array([len(matches.keys)]) if counts is None else np.asarray(counts)
        short, ids = counts < k, np.zeros((len(queries), k), np.int64)
        if not short.all():
            ids[~short] = np.asarray(matches.keys).reshape(len(queries), k)[~short].astype(np.int64)
        if short.any():
            ids[short] = nearest(queries[short], index.vectors, k).ids
        return ids

    return InexactSearch(index, candidates, {"texts": texts, "bytes": file.stat().st_size}, "approximate.json")
