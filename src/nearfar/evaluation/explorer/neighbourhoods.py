"""The nearest and the farthest texts of every text, and how much its neighbourhood changes between two encoders."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64
from numpy.typing import NDArray

from nearfar.neighbours.exact import nearest
from nearfar.types import NearfarError

NEAREST, FARTHEST = 10, 5
"""Number of nearest, and of farthest, texts of each text."""
_BLOCK = 4096


class Neighbourhoods(NamedTuple):
    """The nearest and the farthest other texts of each text, by one encoder, in order."""

    nearest: Int64[np.ndarray, "texts nearest"]
    """Positions, highest cosine first."""
    farthest: Int64[np.ndarray, "texts farthest"]
    """Positions, lowest cosine first."""


def unit_vectors(vectors: NDArray[np.floating], name: str) -> Float32[np.ndarray, "texts dim"]:
    """The vectors divided by their lengths; zero vectors stay zero.

    Raises:
        NearfarError: a vector is not finite. ``name`` is the encoder's.
    """
    x = np.asarray(vectors, dtype=np.float64)
    finite = np.isfinite(x).all(axis=1)
    if not finite.all():
        raise NearfarError(f"{name}: the vector of text {int((~finite).argmax()) + 1} is not finite.")
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return np.divide(x, lengths, out=np.zeros_like(x), where=lengths > 0).astype(np.float32)


def neighbourhoods(
    vectors: Float32[np.ndarray, "texts dim"],
    *,
    device: str = "cpu",
    on_block: Callable[[int], None] | None = None,
) -> Neighbourhoods:
    """The :data:`NEAREST` nearest and :data:`FARTHEST` farthest other texts of each text, by exact search.

    Of texts with equal cosines the first comes first.

    Args:
        vectors: unit vectors of at least two texts.
        device: where cosines are computed.
        on_block: called after each block with the number of cosines that were computed, ``2 texts^2`` in all.
    """
    near = nearest(vectors, vectors, min(NEAREST + 1, len(vectors)), device=device, on_block=on_block).ids
    far = nearest(-vectors, vectors, min(FARTHEST + 1, len(vectors)), device=device, on_block=on_block).ids
    return Neighbourhoods(_without_self(near), _without_self(far))


def _without_self(ids: Int64[np.ndarray, "texts k"]) -> Int64[np.ndarray, "texts others"]:
    """The lists without the text itself, or without their last entry where the text is not in its list."""
    others = ids != np.arange(len(ids))[:, None]
    others[others.all(axis=1), -1] = False
    return ids[others].reshape(len(ids), -1)


def cosines(
    vectors: Float32[np.ndarray, "texts dim"], ids: Int64[np.ndarray, "texts k"]
) -> Float32[np.ndarray, "texts k"]:
    """The cosine of each text with the texts in its list; ``vectors`` have unit length."""
    found = np.empty(ids.shape, dtype=np.float32)
    for start in range(0, len(ids), _BLOCK):
        block = slice(start, start + _BLOCK)
        found[block] = np.einsum("td,tkd->tk", vectors[block], vectors[ids[block]])
    return found


def compared_neighbours(texts: int) -> int:
    """The number k of nearest texts that :func:`change` compares: 10, or half of the other texts if that is less."""
    return max(1, min(NEAREST, (texts - 1) // 2))


def change(before: Neighbourhoods, after: Neighbourhoods) -> Float32[np.ndarray, " texts"]:
    """How much each neighbourhood changes: 1 - |A & B| / |A | B|, with A and B its k nearest texts (Jaccard distance).

    k is :func:`compared_neighbours`. 0 means the same texts, 1 means no text in common.
    """
    k = compared_neighbours(len(before.nearest))
    first, second = before.nearest[:, :k], after.nearest[:, :k]
    common = sum((first == second[:, [column]]).sum(axis=1) for column in range(k))
    return (1 - common / (2 * k - common)).astype(np.float32)


def order_by_change(
    changes: Float32[np.ndarray, " texts"],
    before: Float32[np.ndarray, "texts k"],
    after: Float32[np.ndarray, "texts k"],
) -> Int64[np.ndarray, " texts"]:
    """The positions of the texts, the largest change first.

    Among equal changes, the largest drop of the mean cosine with the nearest texts of the first encoder comes first.

    Args:
        changes: from :func:`change`.
        before: cosines with the nearest texts of the first encoder, by the first encoder.
        after: cosines with the same texts, by the second encoder.
    """
    drop = before.mean(axis=1) - after.mean(axis=1)
    return np.lexsort((-drop, -changes)).astype(np.int64)
