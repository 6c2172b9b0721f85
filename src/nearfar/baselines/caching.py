"""An encode function that remembers, so that a text which several tasks or fits have is encoded once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.types import Encode


class CachedEncode:
    """An encode function that asks another one for each text once."""

    def __init__(self, encode: Encode) -> None:
        self.encode = encode
        self.cache: dict[str, NDArray[Any]] = {}

    def __call__(self, texts: Sequence[str]) -> NDArray[Any]:
        """The vectors of ``texts``, in their order."""
        fresh = [text for text in dict.fromkeys(texts) if text not in self.cache]
        if fresh or not texts:
            found = np.asarray(self.encode(fresh))
            if not texts or found.ndim != 2 or len(found) != len(fresh):
                return found  # who asked says what is wrong with it
            self.cache.update(zip(fresh, found, strict=True))
        return np.stack([self.cache[text] for text in texts])
