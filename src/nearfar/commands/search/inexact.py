"""Search of an index that is not exact: by a graph (HNSW) of usearch, or over int8 or binary codes of the vectors.

Either finds candidates by files that are derived from the index and kept in its folder; the vectors score the
candidates. Recall against exact search, the share of the exact nearest documents that is found, is measured.

The codes take a quarter (int8) or a 32nd (binary) of the bytes of the vectors, so that those of a large index stay in
memory. Of the vectors, which stay on the disk, only those of the candidates are read.
"""

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float32, Int64, UInt8
from numpy.typing import NDArray

from nearfar.commands.search.index import IndexDamagedError, SearchIndex, map_array
from nearfar.disk import new_file, write_npy
from nearfar.neighbours.exact import Neighbours, nearest
from nearfar.quantization import int8_ranges, quantize
from nearfar.types import NearfarError
from nearfar.validation import InvalidValueError, convert

RECALL_AT, RECALL_SAMPLE, TOLERANCE = 10, 200, 1e-6
CodeKind: TypeAlias = Literal["int8", "binary"]
FACTORS: dict[str, int] = {"int8": 2, "binary": 10}
"""Default number of candidates for each requested document."""
ROWS = 2**14
"""Number of vectors that are added to a graph or quantized, or of documents that are compared, at a time."""
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


class InexactSearch(NamedTuple):
    """A search of the vectors of an index that is not exact."""

    search: Callable[[np.ndarray, int], Neighbours]
    """About the ``min(k, documents)`` nearest documents of each query, best first; of equal scores the first ones.

    The candidates are scored by the float32 vectors, so the scores equal those of exact search for the same documents
    (up to rounding in the last bits). Raises IndexDamagedError if a vector is not finite.
    """
    recall: Recall
    """Recall over a fixed random sample of the index's own texts; a text is not its own neighbour."""


Candidates: TypeAlias = Callable[[np.ndarray, int], NDArray[np.int64]]
"""Finds at least k documents for each query; k is at most their number."""


def _search_candidates(index: SearchIndex, candidates: Candidates, queries: np.ndarray, k: int) -> Neighbours:
    k = min(k, len(index.vectors))
    ids, scores = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
    found = np.sort(candidates(np.ascontiguousarray(queries), k), axis=1) if len(queries) else ids
    for row, own in enumerate(found):
        products = np.asarray(index.vectors[own]) @ queries[row]
        index.check_finite(products)
        best = np.argsort(-products, kind="stable")[:k]
        ids[row], scores[row] = own[best], products[best]
    return Neighbours(ids, scores)


def _with_recall(index: SearchIndex, candidates: Candidates, record: Mapping[str, Any], name: str) -> InexactSearch:
    """The search, with the recall of the index's record of the same content, which is made if there is none."""
    search, known = partial(_search_candidates, index, candidates), index.read_derived(name)
    with suppress(InvalidValueError):
        if {**known, **record} == known:
            return InexactSearch(search, convert(known.get("recall"), Recall))
    sample = sample_of(len(index.vectors))
    recall = measure_recall(search, index.vectors, np.array(index.vectors[sample]), own=True)
    index.write_derived(name, {**record, "recall": recall})
    return InexactSearch(search, recall)


def measure_recall(
    search: Callable[[np.ndarray, int], Neighbours],
    vectors: Float32[np.ndarray, "documents dim"],
    queries: Float32[np.ndarray, "queries dim"],
    *,
    own: bool = False,
) -> Recall:
    """Recall of ``search`` over ``queries``, against exact search among ``vectors``.

    A document counts as found if its score is at least that of the last exact one, so equal scores do not matter.
    ``own`` queries are documents, each of which finds itself, which does not count.
    """
    at = min(RECALL_AT, len(vectors) - own)
    if at < 1:
        return Recall(1.0, at, len(queries))
    limits = nearest(queries, vectors, at + own).scores[:, -1:] - TOLERANCE
    counts = (search(queries, at + own).scores >= limits).sum(axis=1) - own
    return Recall(float(np.clip(counts, 0, at).mean() / at), at, len(queries))


def sample_of(count: int) -> np.ndarray:
    """At most 200 numbers below ``count``, always the same."""
    return np.sort(np.random.default_rng(0).choice(count, min(count, RECALL_SAMPLE), replace=False))


def _blocks(index: SearchIndex, on_added: OnAdded = lambda _: None) -> Iterator[NDArray[np.float32]]:
    """The vectors of an index; ``on_added`` is called after the use of each block.

    Raises:
        IndexDamagedError: one is not finite.
    """
    for start in range(0, len(index.vectors), ROWS):
        block = np.array(index.vectors[start : start + ROWS])
        index.check_finite(block)
        yield block
        on_added(len(block))


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
    file, name, (texts, dim), times = index.folder / f"{kind}.npy", f"{kind}.json", index.vectors.shape, factor
    times = times or FACTORS[kind]
    dtype, width = np.dtype("i1" if kind == "int8" else "u1"), dim if kind == "int8" else -(-dim // 8)
    record = index.read_derived(name)
    ranges: NDArray[np.float32] | None = None
    try:
        if kind == "int8":
            ranges = np.array(convert(record.get("ranges"), list[list[float]]), np.float32).reshape(2, dim)
        codes = map_array(file, dtype, (texts if record else -1, width))
    except (IndexDamagedError, InvalidValueError, ValueError):
        ranges = int8_ranges(_blocks(index)) if kind == "int8" else None
        with new_file(file) as new:
            write_npy(new, dtype, (texts, width), (quantize(block, kind, ranges) for block in _blocks(index, on_added)))
        codes = map_array(file, dtype, (texts, width))

    def candidates(queries: np.ndarray, k: int) -> NDArray[np.int64]:
        count = min(k * times, texts)
        if ranges is None:
            return nearest_codes(quantize(queries, "binary"), codes, count)
        # q . (l + (c + 128) s) = (q s) . c + a term that does not depend on the document.
        steps = (ranges[1] - ranges[0]) / np.float32(255)
        return nearest((queries * steps).astype(np.float32), codes, count, device=device).ids

    content = {"ranges": None if ranges is None else ranges.tolist(), "factor": times}
    return _with_recall(index, candidates, content, name)


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
    """Search by a graph over the vectors of an index, kept in the index folder, which is made first.

    The graph stores vectors in float16, and depends on the order in which threads insert them. Where it finds too few
    documents, the candidates are those of exact search.

    Args:
        index: an index with at least one text.
        on_added: called with the number of vectors that were added.

    Raises:
        NearfarError: usearch is not installed, a vector of the index is not finite, or the graph cannot be written.
    """
    check_installed()
    from usearch.index import Index

    file, name, (texts, dim) = index.folder / "approximate.usearch", "approximate.json", index.vectors.shape
    graph = Index(ndim=dim, metric="ip", dtype="f16")
    with suppress(RuntimeError, ValueError, OSError):
        if index.read_derived(name).get("bytes") == file.stat().st_size:
            graph.load(str(file))
    if (len(graph), graph.ndim) != (texts, dim):
        graph = Index(ndim=dim, metric="ip", dtype="f16")
        for block in _blocks(index, on_added):
            graph.add(np.arange(len(graph), len(graph) + len(block), dtype=np.uint64), block)
        with new_file(file) as new:  # until the recall is measured, an old record does not fit the new graph
            try:
                graph.save(str(new))
            except RuntimeError as error:  # usearch reports a full disk so
                raise OSError(str(error)) from error

    def candidates(queries: np.ndarray, k: int) -> NDArray[np.int64]:
        matches: Any = graph.search(np.vstack([queries, queries[:1]]), k)  # one query alone has another result
        if np.min(matches.counts) < k:
            return nearest(queries, index.vectors, k).ids
        return np.asarray(matches.keys)[:-1].astype(np.int64)

    return _with_recall(index, candidates, {"bytes": file.stat().st_size}, name)
