"""Geometry of an embedding space: alignment, uniformity, mean cosine, effective rank, isotropy, singular values.

All measures depend on directions only: each embedding is divided by its length first. A zero vector has no direction
and stays zero, so that its cosine with every vector is 0, as in :mod:`nearfar.evaluation.sts`. For a collapsed space
:func:`collapse_warning` gives a warning.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.types import NearfarError

PAIRS = 20_000
"""Default number of pairs in the sample for uniformity."""
COLLAPSED_COSINE = 0.95
COLLAPSED_RANK = 5.0
FLOAT32_RESOLUTION = 1e-6
"""Relative singular values below this are rounding errors of float32 embeddings."""


def alignment(first: ArrayLike, second: ArrayLike) -> float:
    """Alignment: the mean of ``||x - y||^2`` over positive pairs of l2-normalised rows; 0 is the best.

    Wang & Isola 2020, section 4.1, with alpha = 2; Gao et al. 2021, section 7, where lower goes with better scores.

    Args:
        first: one text of each pair [pairs, dim].
        second: the other [pairs, dim].

    Raises:
        NearfarError: no pairs, or a NaN or infinity.

    Example:
        >>> alignment([[1.0, 0.0], [0.0, 2.0]], [[3.0, 0.0], [1.0, 0.0]])  # equal, and at a right angle: (0 + 2) / 2
        1.0
    """
    x, y = (_unit_rows(side, at_least=1, what="positive pairs") for side in (first, second))
    return float(np.square(x - y).sum(axis=1).mean())


def uniformity(embeddings: ArrayLike, *, seed: int = 0, pairs: int = PAIRS) -> float:
    """Uniformity: the log of the mean of ``exp(-2 ||x - y||^2)`` over pairs of rows.

    0 where all rows are equal, -4 where all are orthogonal; lower is more even (Wang & Isola 2020, section 4.1, with
    t = 2; Gao et al. 2021, section 7). A pair is two different rows; rows should be distinct texts, since a text that
    occurs twice counts as two texts that the encoder confuses.

    Args:
        embeddings: [texts, dim].
        seed: seed of the sample.
        pairs: number of pairs to draw, with replacement; if there are no more than this, all are used.

    Raises:
        NearfarError: fewer than two texts, or a NaN or infinity.

    Example:
        >>> round(uniformity([[1.0, 0.0], [0.0, 1.0]]), 6)  # one pair, ||x - y||^2 = 2: log(exp(-4))
        -4.0
    """
    x = _unit_rows(embeddings, at_least=2)
    if len(x) * (len(x) - 1) // 2 <= pairs:
        i, j = np.triu_indices(len(x), k=1)
    else:
        rng = np.random.default_rng(seed)
        i = rng.integers(len(x), size=pairs)
        j = (i + rng.integers(1, len(x), size=pairs)) % len(x)  # any row but i
    return float(np.log(np.mean(np.exp(-2 * np.square(x[i] - x[j]).sum(axis=1)))))


def mean_cosine(embeddings: ArrayLike) -> float:
    """The mean cosine of two different rows: 0 in an even space, 1 in a collapsed one (Ethayarajh 2019's anisotropy).

    It is exact, over all pairs: ``(||sum of x||^2 - sum of ||x||^2) / (texts (texts - 1))``.

    Raises:
        NearfarError: fewer than two texts, or a NaN or infinity.

    Example:
        >>> mean_cosine([[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0]])  # (1 - 1 - 1) / 3
        -0.333...
    """
    x = _unit_rows(embeddings, at_least=2)
    total = x.sum(axis=0)
    return float((total @ total - np.square(x).sum()) / (len(x) * (len(x) - 1)))


def effective_rank(embeddings: ArrayLike) -> float:
    """Effective rank: exp of the entropy of ``s / sum(s)``, s the singular values of [texts, dim].

    Roy & Vetterli 2007, definition 1; between 1 and the lesser of texts and dim. The rows are l2-normalised and *not*
    centred: a collapsed space is one direction that all texts share, which gives 1 here, while centring would take
    that direction away and measure the noise that is left, whose rank is high. If all rows are zero it is 0.

    Raises:
        NearfarError: no texts, or a NaN or infinity.

    Example:
        >>> round(effective_rank([[1.0, 0.0], [0.0, 1.0]]), 6), round(effective_rank([[1.0, 1.0], [2.0, 2.0]]), 6)
        (2.0, 1.0)
    """
    x = _unit_rows(embeddings, at_least=1)
    # Not from the eigenvalues of the Gram matrix: their square roots have errors of 1e-8 each.
    values = np.linalg.svd(x, compute_uv=False)
    if not values.any():
        return 0.0
    shares = values[values > 0] / values.sum()
    return float(np.exp(-np.sum(shares * np.log(shares))))


def isotropy(embeddings: ArrayLike) -> float:
    """Isotropy: the smallest partition function divided by the largest; 1 is perfectly isotropic.

    ``min Z(c) / max Z(c)`` over the eigenvectors c of ``W^T W``, with ``Z(c) = sum of exp(c . w)`` over the rows w of W
    [texts, dim] (Mu & Viswanath 2018; Z is that of Arora et al. 2016). They measure word vectors as they are; here rows
    are l2-normalised first, since the length of a sentence's vector says nothing to a cosine. The sign of an
    eigenvector is arbitrary, so both c and -c are taken; otherwise the result would depend on the linear algebra
    library. If all rows are equal it is exp(-2) = 0.135, the minimum; if all rows are zero it is 1.

    Raises:
        NearfarError: no texts, or a NaN or infinity.

    Example:
        >>> round(isotropy([[1.0, 0.0], [2.0, 0.0]]), 6)  # Z(c) = 2 exp(1), Z(-c) = 2 exp(-1): exp(-2)
        0.135335
    """
    x = _unit_rows(embeddings, at_least=1)
    projections = x @ np.linalg.eigh(x.T @ x).eigenvectors
    partitions = np.concatenate([np.exp(projections).sum(axis=0), np.exp(-projections).sum(axis=0)])
    return float(partitions.min() / partitions.max())


def spectrum(embeddings: ArrayLike) -> NDArray[np.float64]:
    """The singular values of [texts, dim] divided by the largest, descending: min(texts, dim) values.

    Contrastive learning flattens this spectrum (Gao et al. 2021, section 5). Rows are l2-normalised and, as there and
    in :func:`effective_rank`, not centred: the direction that all texts of a narrow cone share is the first value. If
    all rows are zero, all values are 0.

    Raises:
        NearfarError: no texts, or a NaN or infinity.

    Example:
        >>> spectrum([[1.0, 0.0], [0.0, 3.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]).round(6).tolist()  # 1 and 2
        [1.0, 0.5]
    """
    values = np.linalg.svd(_unit_rows(embeddings, at_least=1), compute_uv=False).astype(np.float64)
    return np.divide(values, values[0], out=np.zeros_like(values), where=values[0] > 0)


def geometry(
    embeddings: ArrayLike, positives: tuple[ArrayLike, ArrayLike] | None = None, *, seed: int = 0
) -> dict[str, float]:
    """The measures that a training run reports, by name.

    ``alignment`` only with ``positives``, the embeddings of the two sides [pairs, dim]. ``embeddings`` [texts, dim]
    are of distinct texts, a few hundred or more: the effective rank is at most their number. ``seed`` is the seed of
    the sample for uniformity.

    Raises:
        NearfarError: as the single measures.
    """
    measures = {} if positives is None else {"alignment": alignment(*positives)}
    return measures | {
        "uniformity": uniformity(embeddings, seed=seed),
        "mean_cosine": mean_cosine(embeddings),
        "effective_rank": effective_rank(embeddings),
    }


def collapse_warning(measures: Mapping[str, float]) -> str | None:
    """A warning if the space has collapsed (mean cosine above 0.95 or effective rank below 5), else None.

    ``measures`` are those of :func:`geometry`.
    """
    cosine, rank = measures["mean_cosine"], measures["effective_rank"]
    narrow = [f"two random texts have a mean cosine of {cosine:.2f}"] if cosine > COLLAPSED_COSINE else []
    found = narrow + ([f"the embeddings use only about {rank:.1f} directions"] if rank < COLLAPSED_RANK else [])
    if not found:
        return None
    return (
        f"The embeddings have collapsed: {' and '.join(found)}. What usually helps is a lower learning rate, a higher "
        "temperature, a larger batch, another pooling, or a projection head that is dropped after training. "
        "Look for duplicate texts in the data too: a duplicate among the negatives contradicts its own positive."
    )


def _unit_rows(embeddings: ArrayLike, *, at_least: int, what: str = "embeddings") -> NDArray[np.float64]:
    """The l2-normalised rows as float64; a zero row stays zero."""
    x = np.asarray(embeddings, dtype=np.float64)
    if len(x) < at_least:
        raise NearfarError(f"{what}: {len(x)} given, but this measure needs {at_least} or more.")
    broken = np.flatnonzero(~np.isfinite(x).all(axis=1))
    if broken.size:
        raise NearfarError(f"{what}: {broken.size} of {len(x)} hold NaN or infinity, the first is row {broken[0]}.")
    largest = np.abs(x).max(axis=1, keepdims=True)  # first, so that no square overflows or underflows
    x = np.divide(x, largest, out=np.zeros_like(x), where=largest > 0)
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return np.divide(x, lengths, out=x, where=lengths > 0)


def kept_neighbours(before: ArrayLike, after: ArrayLike, *, count: int = 10) -> float | None:
    """The share of the nearest neighbours of a text, by cosine among the others, that two encoders agree on.

    With N(i) the ``count`` nearest of text i by the one, and M(i) by the other: the mean of |N(i) & M(i)| / count.

    Args:
        before: embeddings of the texts by one encoder [texts, dim].
        after: those of the same texts by the other, which may be wider.
        count: the number of neighbours. For no more than ``count`` + 1 texts the result is None.

    Raises:
        NearfarError: no texts, or a NaN or infinity.

    >>> one = np.random.default_rng(0).normal(size=(20, 4))
    >>> kept_neighbours(one, 2 * one)
    1.0
    """
    nearest = []
    for vectors in (before, after):
        unit = _unit_rows(vectors, at_least=1, what="texts")
        if len(unit) <= count + 1:
            return None
        cosines = unit @ unit.T
        np.fill_diagonal(cosines, -np.inf)
        nearest.append(np.argpartition(-cosines, count, axis=1)[:, :count])
    return float(np.mean([len(np.intersect1d(*both)) for both in zip(*nearest, strict=True)])) / count
