"""Search over int8 or binary codes of the vectors of an index; the best candidates are scored by the vectors.

The codes take a quarter (int8) or a 32nd (binary) of the bytes of the vectors, so that those of a large index stay in
memory. Of the vectors, which stay on the disk, only those of the candidates are read.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Int64, UInt8
from numpy.typing import NDArray

from nearfar.disk import new_file, write_npy
from nearfar.neighbours.exact import nearest
from nearfar.neighbours.index import QUANTIZED, SearchIndex
from nearfar.neighbours.recall import RecallSearch, recall_on_texts, recorded_recall
from nearfar.quantization import int8_ranges, quantize
from nearfar.types import ARRAY_ERRORS

CodeKind: TypeAlias = Literal["int8", "binary"]
FACTORS: dict[str, int] = {"int8": 2, "binary": 10}
"""Default number of candidates for each requested document."""
ROWS = 2**14
"""Number of vectors that are quantized, or of documents that are compared, at a time."""
_NUMBERS = 2**40
"""More than the number of documents: distance * this + number orders documents by distance, then by number."""


class QuantizedSearch(RecallSearch):
    """Search over codes of the vectors of an index, kept in the index folder; the constructor makes missing ones.

    A query is compared with all codes. ``factor`` * k candidates are then scored by their float32 vectors.

    int8: the inner product of the query with the decoded vectors, whose ranges are those of all vectors. binary: the
    number of dimensions in which the signs of query and document agree.

    Args:
        index: an index with at least one text.
        kind: int8 or binary.
        factor: number of candidates for each requested document; by default :data:`FACTORS`.
        on_added: called with the number of vectors that were quantized.

    Raises:
        NearfarError: a vector of the index is not finite, or the codes cannot be written.
    """

    def __init__(
        self,
        index: SearchIndex,
        kind: CodeKind,
        *,
        factor: int | None = None,
        device: str = "cpu",
        on_added: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(index)
        self.kind, self.device = kind, device
        self.factor = factor or FACTORS[kind]
        self._file, record_file = index.folder / QUANTIZED[kind][0], QUANTIZED[kind][1]
        self._ranges: NDArray[np.float32] | None = None
        record = index.read_derived(record_file)
        codes = self._read_codes(record)
        if codes is None:
            record, codes = {}, self._make_codes(on_added)
        self.codes = codes
        recorded = recorded_recall(record) if record.get("factor") == self.factor else None
        if recorded is None:
            recorded = recall_on_texts(self.search, self.vectors)
            ranges = None if self._ranges is None else self._ranges.tolist()
            record = {"texts": len(codes), "ranges": ranges, "factor": self.factor, "recall": recorded}
            index.write_derived(record_file, record)
        self.recall = recorded

    def candidates(self, queries: np.ndarray, k: int) -> NDArray[np.int64]:
        """The documents with the nearest codes, ``factor`` times as many as are wanted."""
        count = min(k * self.factor, len(self.vectors))
        if self.kind == "binary":
            return nearest_codes(quantize(queries, "binary"), self.codes, count)
        assert self._ranges is not None
        # q . (l + (c + 128) s) = (q s) . c + a term that does not depend on the document.
        steps = (self._ranges[1] - self._ranges[0]) / np.float32(255)
        return nearest((queries * steps).astype(np.float32), self.codes, count, device=self.device).ids

    def _read_codes(self, record: Mapping[str, Any]) -> NDArray[Any] | None:
        """The codes of all texts, memory-mapped, with their ranges; None if they must be made."""
        with suppress(*ARRAY_ERRORS):
            if self.kind == "int8":
                self._ranges = np.array(record.get("ranges"), np.float32)
                if self._ranges.shape != (2, self.vectors.shape[1]):
                    return None
            codes: NDArray[Any] = np.load(self._file, mmap_mode="r", allow_pickle=False)
            if record.get("texts") == len(self.vectors) and (codes.dtype, codes.shape) == self._layout:
                return codes
        return None

    def _make_codes(self, on_added: Callable[[int], None] | None) -> NDArray[Any]:
        if self.kind == "int8":
            self._ranges = int8_ranges(self._blocks())
        dtype, shape = self._layout

        def codes() -> Iterator[NDArray[Any]]:
            for block in self._blocks():
                yield quantize(block, self.kind, self._ranges)
                if on_added:
                    on_added(len(block))

        with new_file(self._file) as file:
            write_npy(file, dtype, shape, codes())
        found: NDArray[Any] = np.load(self._file, mmap_mode="r", allow_pickle=False)
        return found

    @property
    def _layout(self) -> tuple[np.dtype[Any], tuple[int, int]]:
        """Type and shape of the array of codes."""
        texts, dim = self.vectors.shape
        return (np.dtype("u1"), (texts, -(-dim // 8))) if self.kind == "binary" else (np.dtype("i1"), (texts, dim))

    def _blocks(self) -> Iterator[NDArray[np.float32]]:
        for start in range(0, len(self.vectors), ROWS):
            block = np.array(self.vectors[start : start + ROWS])
            self.index.check_finite(block)
            yield block


def nearest_codes(
    queries: UInt8[np.ndarray, "queries bytes"], documents: UInt8[np.ndarray, "documents bytes"], k: int
) -> Int64[np.ndarray, "queries k"]:
    """The numbers of the ``min(k, documents)`` binary codes with the fewest bits that differ from each query's.

    Best first; of documents with the same number of bits the first ones. ``documents`` may be memory-mapped: 16,384
    codes of it are in memory at a time.

    >>> codes = np.array([[0b1100], [0b1111], [0b0011]], np.uint8)
    >>> nearest_codes(np.array([[0b0111]], np.uint8), codes, 2).tolist()  # 3, 1 and 1 bits differ
    [[1, 2]]
    """
    best = np.empty((len(queries), 0), np.int64)
    for start in range(0, len(documents), ROWS):
        block = _words(np.array(documents[start : start + ROWS]))
        numbers = np.arange(start, start + len(block), dtype=np.int64)
        keys = np.empty((len(queries), len(block)), np.int64)
        for row, query in enumerate(_words(queries)):
            keys[row] = np.bitwise_count(block ^ query).sum(axis=1, dtype=np.int64) * _NUMBERS + numbers
        best = np.concatenate([best, keys], axis=1)
        if best.shape[1] > k:
            best = np.partition(best, k - 1, axis=1)[:, :k]
    return np.sort(best, axis=1) % _NUMBERS


def _words(codes: NDArray[np.uint8]) -> NDArray[Any]:
    """The codes as numbers of 64 bits, which are compared faster, if their bytes allow it."""
    return np.ascontiguousarray(codes).view(np.uint64) if codes.shape[1] % 8 == 0 else codes
