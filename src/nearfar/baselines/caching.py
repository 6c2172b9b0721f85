"""An encode function with a cache, so that a text that occurs in several tasks or fits is encoded once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.types import Encode


class CachedEncode:
    """Wraps an encode function and caches the vector of each text."""

    def __init__(self, encode: Encode) -> None:
        self.encode = encode
        self.cache: dict[str, NDArray[Any]] = {}

    def __call__(self, texts: Sequence[str]) -> NDArray[Any]:
        """Return the vectors of ``texts``, in order."""
        missing = [text for text in dict.fromkeys(texts) if text not in self.cache]
        if missing or not texts:
            vectors = np.asarray(self.encode(missing))
            if not texts or vectors.ndim != 2 or len(vectors) != len(missing):
                return vectors  # the caller checks the shape and reports it
            self.cache.update(zip(missing, vectors, strict=True))
        return np.stack([self.cache[text] for text in texts])
