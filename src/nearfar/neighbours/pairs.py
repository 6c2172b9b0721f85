"""All pairs of a set of vectors, in blocks of bounded memory: each vector's nearest other, and groups of similar ones.

The inner product is symmetric, so only the pairs (i, j) with i < j are computed.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from nearfar.neighbours.exact import finite_block, nonzero

ROWS, COLUMNS = 512, 16_384
"""Vectors whose inner products are in memory at once: 32 MiB in float32."""
MERGED = 2**20
"""Pairs that are merged into groups at once."""
OnRows = Callable[[int], None]
"""Called with numbers of rows whose pairs are all done."""


class NearestOthers(NamedTuple):
    """The nearest other vector of each vector, among the pairs computed so far."""

    scores: Float32[np.ndarray, " vectors"]
    """Inner products with the nearest other vector; minus infinity before the first pair."""
    ids: Int64[np.ndarray, " vectors"]
    """Positions of the nearest other vectors; -1 before the first pair. Of equal ones, the lowest position."""

    def update(self, scores: Tensor, positions: Int64[np.ndarray, " some"], others: int, axis: int) -> None:
        """Take over the highest scores along ``axis`` where they are above the present ones."""
        highest = scores.amax(dim=1 - axis).cpu().numpy()
        better = np.flatnonzero(highest > self.scores[positions])
        if not len(better):
            return
        chosen = torch.from_numpy(better).to(scores.device)
        best = scores.index_select(axis, chosen).argmax(dim=1 - axis).cpu().numpy()
        self.scores[positions[better]] = highest[better]
        self.ids[positions[better]] = best + others


def find_nearest_others(
    vectors: Float32[np.ndarray, "vectors dim"], *, device: str | torch.device = "cpu", on_rows: OnRows | None = None
) -> NearestOthers:
    """For each vector the other vector with the highest inner product.

    Args:
        vectors: [vectors, dim]; may be memory-mapped.
        device: where inner products are computed.
        on_rows: called after each block of rows.

    Raises:
        NearfarError: a vector is not finite.
    """
    found = NearestOthers(np.full(len(vectors), -np.inf, np.float32), np.full(len(vectors), -1, np.int64))
    for block in _upper_blocks(vectors, device):
        last_row, last_column = block.row + block.scores.shape[0], block.column + block.scores.shape[1]
        # Columns first: their neighbours are at lower positions than those of the rows, and the first of equals stays.
        found.update(block.scores, np.arange(block.column, last_column), block.row, axis=1)
        found.update(block.scores, np.arange(block.row, last_row), block.column, axis=0)
        if last_column == len(vectors) and on_rows:
            on_rows(len(block.scores))
    return found


class Groups:
    """Groups of vectors: the connected components of the pairs that were united. At first, each vector is one.

    A union-find structure: the root of a group is its lowest position, and its own parent.
    """

    def __init__(self, vectors: int) -> None:
        self.parents = np.arange(vectors, dtype=np.int64)

    def unite(self, first: Int64[np.ndarray, " pairs"], second: Int64[np.ndarray, " pairs"]) -> None:
        """Merge the groups of ``first[i]`` and ``second[i]`` for each i."""
        while len(first):
            one, two = self.roots(first), self.roots(second)
            apart = one != two
            first, second = one[apart], two[apart]
            np.minimum.at(self.parents, np.maximum(first, second), np.minimum(first, second))

    def roots(self, of: Int64[np.ndarray, " some"] | None = None) -> Int64[np.ndarray, " some"]:
        """The lowest position in the group of each position in ``of``, by default of all positions."""
        of = np.arange(len(self.parents)) if of is None else of
        found = self.parents[of]
        while not np.array_equal(above := self.parents[found], found):
            found = above
        self.parents[of] = found  # shorter paths for the next call
        return found


def connect(
    vectors: Float32[np.ndarray, "vectors dim"],
    threshold: float,
    groups: Groups,
    *,
    among: Int64[np.ndarray, " some"] | None = None,
    device: str | torch.device = "cpu",
    on_rows: OnRows | None = None,
) -> None:
    """Merge the groups of all pairs whose inner product is at least ``threshold``.

    Each block's pairs are merged before the next block is computed, so memory does not grow with their number.

    Args:
        vectors: [vectors, dim]; may be memory-mapped.
        threshold: lowest inner product of a pair.
        groups: the groups, which are changed in place.
        among: compare only the vectors at these positions, in ascending order.
        device: where inner products are computed.
        on_rows: called after each block of rows.

    Raises:
        NearfarError: a vector is not finite.
    """
    positions = np.arange(len(vectors)) if among is None else among
    for block in _upper_blocks(vectors, device, among):
        height, width = block.scores.shape
        places = nonzero(block.scores >= threshold).cpu().numpy()
        for start in range(0, len(places), MERGED):
            part = places[start : start + MERGED]
            groups.unite(positions[part // width + block.row], positions[part % width + block.column])
        if block.column + width == len(positions) and on_rows:
            on_rows(height)


class _Block(NamedTuple):
    """Inner products of rows from ``row`` with columns from ``column``; minus infinity where column <= row."""

    row: int
    column: int
    scores: Tensor


def _upper_blocks(
    vectors: np.ndarray, device: str | torch.device, among: Int64[np.ndarray, " some"] | None = None
) -> Iterator[_Block]:
    """The blocks of the upper triangle, row by row, of all vectors or of those at some positions."""

    def read(start: int, count: int) -> Tensor:
        part = slice(start, start + count)
        return finite_block(vectors[part if among is None else among[part]], "text", start, device)

    count = len(vectors) if among is None else len(among)
    for row in range(0, count, ROWS):
        queries = read(row, ROWS)
        for column in range(row, count, COLUMNS):
            scores = queries @ read(column, COLUMNS).T
            if column < row + len(queries):  # the blocks on the diagonal
                columns = torch.arange(column, column + scores.shape[1], device=scores.device)
                rows = torch.arange(row, row + len(queries), device=scores.device)
                scores.masked_fill_(columns <= rows[:, None], -torch.inf)
            yield _Block(row, column, scores)
