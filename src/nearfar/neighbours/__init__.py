"""Nearest neighbours of vectors: exact search in blocks, on CPU or GPU. Here is what needs no torch."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Float32, Num

from nearfar.types import VectorSimilarity

NORMS: Mapping[str, float] = {"euclidean": 2.0, "manhattan": 1.0}
"""The norm of the difference of two vectors that is their distance, by the similarity that is minus it."""
ROWS = 16_384
"""Number of vectors that are scaled at once."""


def pair_similarities(
    first: Num[np.ndarray, "pairs dim"], second: Num[np.ndarray, "pairs dim"], similarity: VectorSimilarity
) -> Float[np.ndarray, " pairs"]:
    """The similarity of each row of ``first`` with the same row of ``second``.

    It is defined as for :func:`nearfar.neighbours.exact.nearest`: vectors of ``cosine`` must have unit length.

    >>> pair_similarities(np.array([[3.0, 4.0]]), np.array([[0.0, 0.0]]), "euclidean").tolist()
    [-5.0]
    """
    if similarity not in NORMS:
        products: Float[np.ndarray, " pairs"] = np.einsum("pd,pd->p", first, second)
        return products
    return -np.linalg.norm(first - second, ord=NORMS[similarity], axis=1)


def unit_rows(vectors: Float32[np.ndarray, "rows dim"]) -> Float32[np.ndarray, "rows dim"]:
    """Scale float32 vectors to length 1, in place and in blocks; a zero vector stays zero."""
    for start in range(0, len(vectors), ROWS):
        block = vectors[start : start + ROWS]
        with np.errstate(invalid="ignore"):  # of vectors that are not finite
            lengths = np.sqrt(np.einsum("td,td->t", block, block, dtype=np.float64))
            block /= np.where(lengths > 0, lengths, 1)[:, None]
    return vectors
