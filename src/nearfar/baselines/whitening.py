"""BERT-whitening: an affine map after which the embeddings of the fitted texts have mean 0 and covariance I.

Su et al. 2021, "Whitening Sentence Representations for Better Semantics and Faster Retrieval", section 3, Algorithm 1:
with mu and Sigma = U diag(lambda) U^T the mean and the covariance of the embeddings x of the fitted texts, lambda in
descending order,

    whitened(x) = (x - mu) U diag(1 / sqrt(lambda)), optionally only the first k dimensions (256 in the paper).

The covariance is divided by the number of texts minus one, as in the authors' code; cosines do not depend on this.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.types import Encode, NearfarError

NO_VARIANCE = 1e-12
"""Minimum variance of a direction, relative to the largest mean square of a dimension. Smaller variances, at a standard
deviation of 1e-6, are mostly rounding of float32 embeddings."""
ROWS_AT_ONCE = 4096  # converted to float64 at a time for the covariance


class Whitening:
    """Whitens the vectors of an encode function; called like one, returns float32 [texts, kept dimensions].

    The published rows are fitted either on the texts of the evaluated task ("target") or on NLI sentences. Fitting on
    the task's own texts is transductive: it uses no scores, but all texts of the test set.

    Args:
        encode: the encode function.
        mean: mu, float64 [dim].
        kernel: U diag(1 / sqrt(lambda)), float64 [dim, kept].
    """

    def __init__(self, encode: Encode, mean: NDArray[np.float64], kernel: NDArray[np.float64]) -> None:
        self.encode, self.mean, self.kernel = encode, mean, kernel

    @classmethod
    def fit(cls, encode: Encode, texts: Sequence[str], *, dimensions: int | None = None) -> "Whitening":
        """Fit the whitening of ``encode`` on its embeddings of ``texts``; repeated texts count repeatedly.

        A direction in which the embeddings do not vary has no finite scale and is dropped; ``kernel.shape[1]``
        directions remain. After a LayerNorm there is always one such direction, because its outputs satisfy a linear
        equation: BERT's last layer, pooled by ``cls`` or ``mean``, varies in 767 of 768 directions, and whitening the
        768th would scale rounding errors to variance 1. With no more texts than dimensions, more directions are
        dropped, with a warning: all whitened vectors of those texts then have the same cosine with each other, which
        is meaningless.

        Args:
            encode: texts -> [texts, dim].
            texts: two or more.
            dimensions: number of dimensions to keep, those with the largest variance; by default all.

        Raises:
            NearfarError: fewer than two texts, embeddings that are all equal, more dimensions than vary.
        """
        texts = list(texts)
        if len(texts) < 2:
            raise NearfarError(f"whitening: {len(texts)} texts to fit on; a covariance needs two or more.")
        vectors = np.asarray(encode(texts))
        mean = vectors.mean(axis=0, dtype=np.float64)
        parts = (vectors[start : start + ROWS_AT_ONCE] - mean for start in range(0, len(vectors), ROWS_AT_ONCE))
        covariance = np.sum([centred.T @ centred for centred in parts], axis=0) / (len(vectors) - 1)
        values, directions = np.linalg.eigh(covariance)
        values, directions = values[::-1], directions[:, ::-1]
        rank = int((values > NO_VARIANCE * (np.diag(covariance) + mean**2).max()).sum())
        if not rank:
            raise NearfarError(
                f"whitening: the embeddings of all {len(texts)} texts are equal; nothing can be whitened."
            )
        dim = len(mean)
        if dimensions is not None and not 1 <= dimensions <= rank:
            raise NearfarError(
                f"dimensions {dimensions}: the embeddings of {len(texts)} texts vary in {rank} of {dim} directions; "
                f"choose 1 to {rank}" + (", or fit on more texts." if rank < dim else ".")
            )
        if len(texts) <= dim and dimensions is None:
            warnings.warn(
                f"whitening: the embeddings of {len(texts)} texts vary in {rank} of {dim} directions; the others are "
                "dropped. Fit on many more texts than dimensions.",
                stacklevel=2,
            )
        kept = dimensions or rank
        return cls(encode, mean, directions[:, :kept] / np.sqrt(values[:kept]))

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the whitened vectors, in the order of ``texts``."""
        vectors = np.asarray(self.encode(texts), dtype=np.float64)
        return ((vectors - self.mean) @ self.kernel).astype(np.float32)


class CachedEncode:
    """Wraps an encode function and caches the vector of each text."""

    def __init__(self, encode: Encode) -> None:
        self.encode = encode
        self._vectors: dict[str, NDArray[Any]] = {}

    def __call__(self, texts: Sequence[str]) -> NDArray[Any]:
        """Return the vectors of ``texts``, in order."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if missing or not texts:
            vectors = np.asarray(self.encode(missing))
            if not texts or vectors.ndim != 2 or len(vectors) != len(missing):
                return vectors  # the caller checks the shape and reports it
            self._vectors.update(zip(missing, vectors, strict=True))
        return np.stack([self._vectors[text] for text in texts])
