"""Exact search in blocks of bounded memory: the most similar documents of each query, and all pairs of a set.

Similarities are inner products, which are cosines if the vectors have unit length, or minus a distance.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int64, Num
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from nearfar.neighbours import NORMS
from nearfar.types import NearfarError, VectorSimilarity

QUERY_BLOCK, DOCUMENT_BLOCK = 512, 16_384
"""Queries and documents whose inner products are in memory at once: 32 MiB in float32."""
MERGED = 2**20
"""Pairs that wait, at most, to be merged into groups; of more vectors, as many as these."""


class Neighbours(NamedTuple):
    """The nearest documents of each query, best first."""

    ids: Int64[np.ndarray, "queries k"]
    """Positions of the documents."""
    scores: Float32[np.ndarray, "queries k"]
    """Similarities."""


def nearest(
    queries: Float32[np.ndarray, "queries dim"],
    documents: Num[np.ndarray, "documents dim"],
    k: int,
    *,
    similarity: VectorSimilarity = "dot",
    device: str | torch.device = "cpu",
    on_block: Callable[[int], None] | None = None,
) -> Neighbours:
    """The ``min(k, documents)`` documents with the highest similarity to each query.

    Of documents with the same similarity the first in ``documents`` comes first, also at the end of the list, so
    the result does not depend on the block sizes. ``documents`` may be memory-mapped (``numpy.load(file,
    mmap_mode="r")``): one block of it is in memory at a time, beside the similarities of a block.

    Args:
        queries: vectors [queries, dim], float32.
        documents: vectors [documents, dim], float32, float16 or int8; compared in float32.
        k: number of documents for each query, at least 1.
        similarity: inner products, for which vectors of ``cosine`` must have unit length, or minus the euclidean or
            manhattan distance.
        device: where similarities are computed.
        on_block: called after each block with the number of similarities that were computed.

    Raises:
        NearfarError: the vectors have different widths; a vector is not finite.
    """
    if queries.ndim != 2 or documents.ndim != 2 or queries.shape[1] != documents.shape[1]:
        raise NearfarError(
            f"The queries have the shape {list(queries.shape)} and the documents {list(documents.shape)}; both must be "
            "matrices of the same width."
        )
    k = min(k, len(documents))
    ids, scores = np.zeros((len(queries), k), dtype=np.int64), np.empty((len(queries), k), dtype=np.float32)
    for start in range(0, len(queries) if k else 0, QUERY_BLOCK):
        block = slice(start, start + QUERY_BLOCK)
        own = finite_block(queries[block], "query", start, device)
        ids[block], scores[block] = _search(own, documents, k, on_block, similarity=similarity, check=start == 0)
    return Neighbours(ids, scores)


def nearest_owners(
    queries: Float32[np.ndarray, "queries dim"],
    vectors: Num[np.ndarray, "vectors dim"],
    owners: Int64[np.ndarray, " vectors"],
    k: int,
    **how: Any,
) -> Neighbours:
    """The ``min(k, owners)`` owners with the nearest vectors, each by its nearest one: ``ids`` are those of owners.

    ``owners`` says whose each vector is, in ascending order; ``how`` is as for :func:`nearest`.
    """
    most, count = int(np.bincount(owners).max()), min(k, len(np.unique(owners)))
    found = nearest(queries, vectors, k * most, **how)  # among them are k owners or all
    ids, scores = np.empty((len(queries), count), np.int64), np.empty((len(queries), count), np.float32)
    for row, near in enumerate(owners[found.ids]):
        first = np.sort(np.unique(near, return_index=True)[1])[:count]
        ids[row], scores[row] = near[first], found.scores[row, first]
    return Neighbours(ids, scores)


def _search(
    queries: Tensor,
    documents: np.ndarray,
    k: int,
    on_block: Callable[[int], None] | None,
    *,
    similarity: VectorSimilarity,
    check: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The nearest documents of a block of queries; ``check`` refuses documents that are not finite.

    The best of each block are merged with the best so far: documents are visited in order, so one with an equal score
    comes after those already found.
    """
    ids = torch.zeros((len(queries), 0), dtype=torch.int64, device=queries.device)
    best = torch.zeros((len(queries), 0), device=queries.device)
    for start in range(0, len(documents), DOCUMENT_BLOCK):
        part = slice(start, start + DOCUMENT_BLOCK)
        block = finite_block(documents[part], "document", start, queries.device, check=check)
        products = similarity not in NORMS
        scores = queries @ block.T if products else _minus_distances(queries, block, NORMS[similarity])
        own, positions = _first_top_k(scores, min(k, len(block)))
        merged, merged_ids = torch.cat([best, own], dim=1), torch.cat([ids, positions + start], dim=1)
        order = torch.argsort(merged, dim=1, descending=True, stable=True)[:, :k]  # stable: of equals the lower id
        best, ids = merged.gather(1, order), merged_ids.gather(1, order)
        if on_block:
            on_block(scores.numel())
    return ids.cpu().numpy(), best.cpu().numpy()


def _minus_distances(queries: Tensor, documents: Tensor, norm: float) -> Tensor:
    """Minus the distances [queries, documents]; each depends on its two vectors alone, not on the block."""
    return torch.cdist(queries, documents, p=norm, compute_mode="donot_use_mm_for_euclid_dist").neg_()


def _first_top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` highest scores of each row, of equal ones the first, and their positions, in the order of these.

    :func:`torch.topk` takes any of equal scores, so rows in which the lowest taken score also occurs outside, as the
    next one shows, are sorted as a whole.
    """
    values, positions = torch.topk(scores, min(k + 1, scores.shape[1]), dim=1)
    tied = (values[:, k - 1 : k] == values[:, k:]).any(dim=1)
    values, positions = values[:, :k], positions[:, :k]
    if tied.any():
        positions[tied] = torch.argsort(scores[tied], dim=1, descending=True, stable=True)[:, :k]
        values[tied] = scores[tied].gather(1, positions[tied])
    positions, order = positions.sort(dim=1)
    return values.gather(1, order), positions


def finite_block(
    vectors: np.ndarray, what: str, start: int, device: str | torch.device, *, check: bool = True
) -> Tensor:
    """A copy of consecutive vectors in float32 on ``device``; ``start`` is the position of the first.

    Without ``check``, vectors that are not finite are accepted.

    Raises:
        NearfarError: a vector is not finite; the message calls it ``what`` and gives its position.
    """
    block = torch.from_numpy(np.array(vectors, dtype=np.float32)).to(device)
    if check and not block.sum().isfinite():  # fast; it may also overflow
        finite = block.isfinite().all(dim=1)
        if not finite.all():
            number = start + int((~finite).nonzero()[0])
            raise NearfarError(f"The vector of {what} {number} (counted from 0) is not finite.")
    return block


class Compared(NamedTuple):
    """What the inner products of all pairs of vectors say of each vector."""

    scores: Float32[np.ndarray, " vectors"]
    """Inner products with the nearest other vector; minus infinity for a single vector."""
    ids: Int64[np.ndarray, " vectors"]
    """Positions of the nearest other vectors, -1 for a single vector. Of equal ones, the lowest position."""
    groups: Int64[np.ndarray, " vectors"]
    """The lowest position in each vector's group: the connected component of the pairs that reach the threshold."""


def compare_all(
    vectors: Float32[np.ndarray, "vectors dim"],
    threshold: float | None = None,
    *,
    device: str | torch.device = "cpu",
    on_rows: Callable[[int], None] = lambda _: None,
) -> Compared:
    """Compare each vector with all others. The inner product is symmetric: only pairs (i, j) with i < j are computed.

    Similar pairs are merged into the groups before there are many, so memory does not grow with their number.

    Args:
        vectors: [vectors, dim]; may be memory-mapped.
        threshold: lowest inner product of a pair in one group; None for no groups: each vector is its own.
        device: where inner products are computed.
        on_rows: called with numbers of rows whose pairs are all done.

    Raises:
        NearfarError: a vector is not finite.
    """
    count = len(vectors)
    waiting: list[NDArray[np.int64]] = []
    found = Compared(np.full(count, -np.inf, np.float32), np.full(count, -1, np.int64), np.arange(count))
    for row in range(0, count, QUERY_BLOCK):
        queries = finite_block(vectors[row : row + QUERY_BLOCK], "text", row, device)
        rows = torch.arange(row, row + len(queries), device=queries.device)
        for column in range(row, count, DOCUMENT_BLOCK):
            scores = queries @ finite_block(vectors[column : column + DOCUMENT_BLOCK], "text", column, device).T
            columns = torch.arange(column, column + scores.shape[1], device=queries.device)
            if column < row + len(queries):  # the blocks on the diagonal
                scores.masked_fill_(columns <= rows[:, None], -torch.inf)
            # Columns first: their neighbours are at lower positions than those of the rows, and the first of equals
            # stays.
            _update(found, scores, column, row, axis=1)
            _update(found, scores, row, column, axis=0)
            if threshold is None:
                continue
            first, second = np.divmod(np.flatnonzero((scores >= threshold).cpu().numpy()), scores.shape[1])
            waiting.append(np.stack([first + row, second + column]))
            if sum(pairs.shape[1] for pairs in waiting) > max(MERGED, count):
                _merge_groups(found.groups, waiting)
        on_rows(len(queries))
    _merge_groups(found.groups, waiting)
    return found


def _update(found: Compared, scores: Tensor, start: int, others: int, *, axis: int) -> None:
    """Take over the highest scores along ``axis``, whose positions begin at ``start``, where they are above the old."""
    highest = scores.amax(dim=1 - axis).cpu().numpy()
    better = np.flatnonzero(highest > found.scores[start : start + len(highest)])
    if len(better):
        chosen = torch.from_numpy(better).to(scores.device)
        best = scores.index_select(axis, chosen).argmax(dim=1 - axis).cpu().numpy()
        found.scores[start + better] = highest[better]
        found.ids[start + better] = best + others


def _merge_groups(groups: NDArray[np.int64], waiting: list[NDArray[np.int64]]) -> None:
    """Merge the groups of both vectors of each of the ``waiting`` pairs, in place; none are waiting then."""
    edges = np.concatenate([np.stack([np.arange(len(groups)), groups]), *waiting], axis=1)
    waiting.clear()
    graph = coo_array((np.ones(edges.shape[1], bool), edges), shape=(len(groups), len(groups)))
    _, first, component = np.unique(connected_components(graph)[1], return_index=True, return_inverse=True)
    groups[:] = first[component]
