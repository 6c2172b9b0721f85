"""Whitening: identity covariance, invariances, the first dimensions, and embeddings that do not vary."""

import numpy as np
import pytest

from nearfar.baselines.whitening import Whitening
from nearfar.types import NearfarError

TEXTS = [str(number) for number in range(60)]


def embeddings(texts=60, dim=6, *, rank=None, seed=0):
    """Return correlated vectors with non-zero mean and very different scales."""
    draw = np.random.default_rng(seed)
    inner = draw.normal(size=(texts, rank or dim)) * np.logspace(0, -3, rank or dim)
    return inner @ draw.normal(size=(rank or dim, dim)) + draw.normal(size=dim)


def encoder(rows):
    """Return an encode function: text "n" -> row n."""
    return lambda texts: rows[[int(text) for text in texts]].astype(np.float32)


def cosines(x):
    x = x.astype(np.float64) / np.linalg.norm(x, axis=1, keepdims=True)
    return x @ x.T


def test_matches_the_algorithm_of_the_paper():
    rows = embeddings().astype(np.float32)
    u, variances, _ = np.linalg.svd(np.cov(rows.T.astype(np.float64)))
    expected = (rows - rows.mean(axis=0, dtype=np.float64)) @ u @ np.diag(1 / np.sqrt(variances))
    found = Whitening.fit(encoder(rows), TEXTS)(TEXTS)
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found, expected * signs, atol=1e-4)


def test_directions_that_do_not_vary_are_dropped():
    flat = embeddings(rank=3, seed=2)
    found = Whitening.fit(encoder(flat), TEXTS)(TEXTS)
    np.testing.assert_allclose(np.cov(found.T), np.eye(3), atol=1e-4)
    with pytest.warns(UserWarning, match="5 texts vary in 4 of 6 .* Fit on many more texts"):
        few = Whitening.fit(encoder(embeddings()), TEXTS[:5])(TEXTS[:5])
    np.testing.assert_allclose(cosines(few), np.where(np.eye(5) == 1, 1, -1 / 4), atol=1e-4)
    assert Whitening.fit(encoder(embeddings()), TEXTS[:5], dimensions=2)(TEXTS).shape == (60, 2)  # without a warning


@pytest.mark.parametrize(
    ("rows", "count", "dimensions", "message"),
    [
        (embeddings(), 1, None, "1 texts to fit on"),
        (np.ones((60, 6)), 60, None, "embeddings of all 60 texts are equal"),
        (embeddings(), 60, 7, r"dimensions 7: .* vary in 6 of 6 directions; choose 1 to 6\."),
        (embeddings(rank=3), 60, 4, "dimensions 4: .* choose 1 to 3, or fit on more texts"),
    ],
)
def test_data_that_cannot_be_whitened_raises(rows, count, dimensions, message):
    with pytest.raises(NearfarError, match=message):
        Whitening.fit(encoder(rows), TEXTS[:count], dimensions=dimensions)
