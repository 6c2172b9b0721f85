"""An encode function with a cache, so that a text that occurs in several tasks or fits is encoded once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.types import Encode


class CachedEncode:
    """Wraps an encode function and caches the vector of each text.

    The vectors of a call are kept as one array. A call with the same texts gets this array without a copy, so callers
    must not change what they get.
    """

    def __init__(self, encode: Encode) -> None:
        self.encode = encode
        self._rows: dict[str, int] = {}
        """Text -> its row, counted over all arrays."""
        self._arrays: list[NDArray[Any]] = []

    def __call__(self, texts: Sequence[str]) -> NDArray[Any]:
        """Return the vectors of ``texts``, in order."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._rows]
        if missing or not texts:
            vectors = np.asarray(self.encode(missing))
            if not texts or vectors.ndim != 2 or len(vectors) != len(missing):
                return vectors  # the caller checks the shape and reports it
            self._rows.update(zip(missing, range(len(self._rows), len(self._rows) + len(missing)), strict=True))
            self._arrays.append(vectors)
        rows = np.fromiter((self._rows[text] for text in texts), dtype=np.int64, count=len(texts))
        return self._gather(rows)

    def _gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The vectors with these numbers."""
        start = 0
        for array in self._arrays:
            if len(rows) == len(array) and np.array_equal(rows, np.arange(start, start + len(array))):
                return array
            start += len(array)
        if len(self._arrays) == 1:
            return self._arrays[0][rows]
        found = np.empty((len(rows), self._arrays[0].shape[1]), dtype=np.result_type(*self._arrays))
        start = 0
        for array in self._arrays:
            here = (rows >= start) & (rows < start + len(array))
            found[here] = array[rows[here] - start]
            start += len(array)
        return found
