"""All pairs of a set of vectors, in blocks of bounded memory: each vector's nearest other, and groups of similar ones.

The inner product is symmetric, so only the pairs (i, j) with i < j are computed.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int64
from numpy.typing import NDArray
from torch import Tensor

from nearfar.neighbours.exact import finite_block, nonzero

ROWS, COLUMNS = 512, 16_384
"""Vectors whose inner products are in memory at once: 32 MiB in float32."""
MERGED = 2**20
"""Pairs that are merged into groups at once."""


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

    Each block's pairs are merged into the groups before the next block is computed, so memory does not grow with the
    number of pairs.

    Args:
        vectors: [vectors, dim]; may be memory-mapped.
        threshold: lowest inner product of a pair in one group; None for no groups: each vector is its own.
        device: where inner products are computed.
        on_rows: called with numbers of rows whose pairs are all done.

    Raises:
        NearfarError: a vector is not finite.
    """
    count = len(vectors)
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
            places = nonzero(scores >= threshold).cpu().numpy()
            for start in range(0, len(places), MERGED):
                first, second = np.divmod(places[start : start + MERGED], scores.shape[1])
                unite(found.groups, first + row, second + column)
        on_rows(len(queries))
    roots(found.groups, np.arange(count))
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


def unite(parents: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
    """Merge the groups of ``first[i]`` and ``second[i]`` for each i.

    ``parents`` is a union-find structure: the root of a group is its lowest position, and its own parent.
    """
    while len(first):
        one, two = roots(parents, first), roots(parents, second)
        apart = one != two
        first, second = one[apart], two[apart]
        np.minimum.at(parents, np.maximum(first, second), np.minimum(first, second))


def roots(parents: NDArray[np.int64], of: NDArray[np.int64]) -> NDArray[np.int64]:
    """The lowest position in the group of each position in ``of``; shortens their paths for the next call."""
    found = parents[of]
    while not np.array_equal(above := parents[found], found):
        found = above
    parents[of] = found
    return found
