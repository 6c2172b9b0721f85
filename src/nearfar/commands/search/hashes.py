"""The numbers of texts by their hashes, for any number of texts in 16 bytes each."""

import numpy as np
from jaxtyping import Int64, UInt64


class HashTable:
    """Hash -> number, for the hashes of distinct texts: two arrays, sorted by hash."""

    def __init__(self, hashes: UInt64[np.ndarray, " texts"]) -> None:
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._numbers = np.array(hashes, np.uint64)[order], order.astype(np.int64)

    def __len__(self) -> int:
        return len(self._hashes)

    def find(self, hashes: UInt64[np.ndarray, " wanted"]) -> Int64[np.ndarray, " wanted"]:
        """The number of each of ``hashes``; -1 for unknown ones."""
        if not len(self):
            return np.full(len(hashes), -1, np.int64)
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self) - 1)
        return np.where(self._hashes[places] == hashes, self._numbers[places], -1)

    def add(self, hashes: UInt64[np.ndarray, " added"]) -> None:
        """Add hashes that are not in the table; they get the next numbers, in order."""
        order = np.argsort(hashes, kind="stable")
        places = np.searchsorted(self._hashes, hashes[order])
        self._numbers = np.insert(self._numbers, places, order + len(self))
        self._hashes = np.insert(self._hashes, places, hashes[order])
