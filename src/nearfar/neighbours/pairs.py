"""All pairs of a set of vectors, in blocks of bounded memory: each vector's nearest other, and groups of similar ones.

The inner product is symmetric, so only the pairs (i, j) with i < j are computed.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int64
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from nearfar.neighbours.exact import finite_block, nonzero

ROWS, COLUMNS = 512, 16_384
"""Vectors whose inner products are in memory at once: 32 MiB in float32."""
MERGED = 2**20
"""Pairs that wait, at most, to be merged into groups; of more vectors, as many as these."""


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
    """Compare each vector with all others.

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
    for row in range(0, count, ROWS):
        queries = finite_block(vectors[row : row + ROWS], "text", row, device)
        rows = torch.arange(row, row + len(queries), device=queries.device)
        for column in range(row, count, COLUMNS):
            scores = queries @ finite_block(vectors[column : column + COLUMNS], "text", column, device).T
            columns = torch.arange(column, column + scores.shape[1], device=queries.device)
            if column < row + len(queries):  # the blocks on the diagonal
                scores.masked_fill_(columns <= rows[:, None], -torch.inf)
            # Columns first: their neighbours are at lower positions than those of the rows, and the first of equals
            # stays.
            _update(found, scores, column, row, axis=1)
            _update(found, scores, row, column, axis=0)
            if threshold is None:
                continue
            first, second = np.divmod(nonzero(scores >= threshold).cpu().numpy(), scores.shape[1])
            waiting.append(np.stack([first + row, second + column]))
            if sum(pairs.shape[1] for pairs in waiting) > max(MERGED, count):
                _merge(found.groups, waiting)
        on_rows(len(queries))
    _merge(found.groups, waiting)
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


def _merge(groups: NDArray[np.int64], waiting: list[NDArray[np.int64]]) -> None:
    """Merge the groups of both vectors of each of the ``waiting`` pairs, in place; none are waiting then."""
    edges = np.concatenate([np.stack([np.arange(len(groups)), groups]), *waiting], axis=1)
    waiting.clear()
    graph = coo_array((np.ones(edges.shape[1], bool), edges), shape=(len(groups), len(groups)))
    _, first, component = np.unique(connected_components(graph)[1], return_index=True, return_inverse=True)
    groups[:] = first[component]
