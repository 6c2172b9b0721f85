"""The vectors of recent calls, for evaluations of one model that differ only in what is computed from them."""

from collections.abc import Hashable, Sequence
from functools import wraps
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.types import Encode

MAX_BYTES = 256 << 20
"""Maximum size of all vectors that are kept."""


class RecentVectors:
    """Keeps what encode functions returned, by model and texts, up to :data:`MAX_BYTES`; the oldest calls go first.

    Only a call with the same texts in the same order is answered from memory, so its vectors are the same bits as those
    of another computation. Callers must not change what they get.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: dict[tuple[Hashable, bytes], NDArray[Any]] = {}

    def wrap(self, encode: Encode, key: Hashable) -> Encode:
        """The function ``encode`` with memory; ``key`` identifies the model and its settings."""

        @wraps(encode)
        def remembered(texts: Sequence[str]) -> NDArray[Any]:
            call = key, _digest(texts)
            vectors = self._kept.pop(call, None)
            if vectors is None:
                vectors = np.asarray(encode(texts))
            if vectors.nbytes <= self._max_bytes:
                self._kept[call] = vectors
            while sum(one.nbytes for one in self._kept.values()) > self._max_bytes:
                del self._kept[next(iter(self._kept))]
            return vectors

        return remembered


def _digest(texts: Sequence[str]) -> bytes:
    """Identifies a list of texts."""
    found = blake2b(digest_size=16)
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        found.update(len(content).to_bytes(8, "little") + content)
    return found.digest()
