"""The cache of an encode function returns the vectors that the function gives, and calls it once for each text."""

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nearfar.baselines.named import CachedEncode


def vector(text: str) -> NDArray[np.float32]:
    return np.random.default_rng(list(text.encode())).normal(size=3).astype(np.float32)


def test_vectors_of_any_calls() -> None:
    encoded: list[str] = []

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        encoded.extend(texts)
        return np.stack([vector(text) for text in texts]) if texts else np.zeros((0, 3), dtype=np.float32)

    draw, cached = random.Random(0), CachedEncode(encode)
    assert cached([]).shape == (0, 3)
    for _ in range(60):
        texts = [f"text {draw.randrange(30)}" for _ in range(draw.randint(1, 8))]
        assert np.array_equal(cached(texts), [vector(text) for text in texts])
    assert len(encoded) == len(set(encoded)) == 30
    assert cached([]).shape == (0, 3)
