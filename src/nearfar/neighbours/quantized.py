"""Search over int8 or binary codes of the vectors of an index; the best candidates are scored by the vectors.

The codes take a quarter (int8) or a 32nd (binary) of the bytes of the vectors, so that those of a large index stay in
memory. Of the vectors, which stay on the disk, only those of the candidates are read.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Float32, Int64, UInt8
from numpy.typing import NDArray

from nearfar.disk import disk_errors, read_json, write_text
from nearfar.neighbours.exact import Neighbours, nearest
from nearfar.neighbours.growing import GrowingArray
from nearfar.neighbours.index import QUANTIZED, IndexReader
from nearfar.neighbours.manifest import damaged
from nearfar.neighbours.recall import Recall, measure_recall, recall_on_texts
from nearfar.quantization import int8_ranges, quantize
from nearfar.types import NearfarError

CodeKind: TypeAlias = Literal["int8", "binary"]
FACTORS: dict[str, int] = {"int8": 2, "binary": 10}
"""Default number of candidates for each requested document."""
ROWS = 2**14
"""Number of vectors that are quantized, or of documents that are compared, at a time."""
_NUMBERS = 2**40
"""More than the number of documents: distance * this + number orders documents by distance, then by number."""


class QuantizedSearch:
    """Search over codes of the vectors of an index, kept in the index folder; the constructor makes or extends them.

    A query is compared with all codes. ``factor`` * k candidates are then scored by their float32 vectors, so the
    scores equal those of exact search for the same documents (up to rounding in the last bits).

    int8: the inner product of the query with the decoded vectors, whose ranges are those of the vectors at the time
    when the codes were made; they are made again when the index has more than twice as many. binary: the number of
    dimensions in which the signs of query and document agree.

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
        index: IndexReader,
        kind: CodeKind,
        *,
        factor: int | None = None,
        device: str = "cpu",
        on_added: Callable[[int], None] | None = None,
    ) -> None:
        self._index, self._vectors, self.kind, self.device = index, index.vectors, kind, device
        self.factor = factor or FACTORS[kind]
        file, self._record_file = (index.folder / name for name in QUANTIZED[kind])
        dim = index.manifest.dim
        self._array = GrowingArray(file, "u1" if kind == "binary" else "i1", -(-dim // 8) if kind == "binary" else dim)
        texts, record = len(self._vectors), self._read_record()
        before, calibrated = record.get("texts", 0), record.get("calibrated", 0)
        if before > texts or self._array.is_damaged(before) or texts > 2 * calibrated:
            record, before, calibrated = {}, 0, texts
        if not before:
            with disk_errors(file):
                file.unlink(missing_ok=True)  # other processes keep what they have mapped
        self._ranges = np.array(record["ranges"], np.float32) if before and kind == "int8" else None
        if kind == "int8" and self._ranges is None:
            self._ranges = self._find_ranges()
        for start in range(before, texts, ROWS):
            block = np.array(self._vectors[start : start + ROWS])
            self._check_finite(block)
            with disk_errors(file):
                self._array.append(start, quantize(block, kind, self._ranges))
            self._save(start + len(block), calibrated, None)
            if on_added:
                on_added(len(block))
        self.codes = self._array.read(texts)
        recorded = record.get("recall") if before == texts and record.get("factor") == self.factor else None
        self.recall: Recall
        """Recall over a fixed random sample of the index's own texts; a text is not its own neighbour."""
        if isinstance(recorded, list) and len(recorded) == 3:
            self.recall = Recall(*recorded)
        else:
            self.recall = recall_on_texts(self.search, self._vectors)
            self._save(texts, calibrated, self.recall)

    def search(self, queries: Float32[np.ndarray, "queries dim"], k: int) -> Neighbours:
        """About the ``min(k, documents)`` nearest documents of each query, best first; as :func:`nearest` otherwise."""
        k = min(k, len(self._vectors))
        if k == 0 or len(queries) == 0:
            return nearest(queries, self._vectors, max(k, 1))
        candidates = self._candidates(queries, min(k * self.factor, len(self._vectors)))
        ids, scores = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
        for row, (query, own) in enumerate(zip(queries, np.sort(candidates, axis=1), strict=True)):
            found = np.asarray(self._vectors[own]) @ query
            self._check_finite(found)
            best = np.argsort(-found, kind="stable")[:k]  # of equal scores the document that comes first
            ids[row], scores[row] = own[best], found[best]
        return Neighbours(ids, scores)

    def measure(self, queries: Float32[np.ndarray, "queries dim"]) -> Recall:
        """Recall over ``queries``, against exact search (:func:`nearfar.neighbours.recall.measure_recall`)."""
        return measure_recall(self.search, self._vectors, queries)

    def _candidates(self, queries: np.ndarray, count: int) -> NDArray[np.int64]:
        if self.kind == "binary":
            return nearest_codes(quantize(queries, "binary"), self.codes, count)
        assert self._ranges is not None
        # q . (l + (c + 128) s) = (q s) . c + a term that does not depend on the document.
        steps = (self._ranges[1] - self._ranges[0]) / np.float32(255)
        return nearest((queries * steps).astype(np.float32), self.codes, count, device=self.device).ids

    def _find_ranges(self) -> NDArray[np.float32]:
        try:
            return int8_ranges(self._vectors[start : start + ROWS] for start in range(0, len(self._vectors), ROWS))
        except NearfarError:
            raise self._not_finite() from None

    def _check_finite(self, values: np.ndarray) -> None:
        if not np.isfinite(values).all():
            raise self._not_finite()

    def _not_finite(self) -> NearfarError:
        return damaged(self._index.folder / "vectors.npy", "holds a vector that is not finite")

    def _read_record(self) -> dict[str, Any]:
        """The record of codes of this index; empty if there is none, it is damaged, or it is of another index."""
        try:
            found = read_json(self._record_file)
        except NearfarError:
            return {}
        index = self._index.manifest
        if not isinstance(found, dict) or (found.get("generation"), found.get("dim")) != (index.generation, index.dim):
            return {}
        if any(type(found.get(name)) is not int or found[name] < 0 for name in ("texts", "calibrated")):
            return {}
        with suppress(ValueError, TypeError):
            if self.kind == "binary" or np.array(found["ranges"], np.float32).shape == (2, index.dim):
                return found
        return {}

    def _save(self, texts: int, calibrated: int, recall: Recall | None) -> None:
        """Record how many codes are valid; the file of the codes only grows."""
        index = self._index.manifest
        record = {
            "generation": index.generation,
            "dim": index.dim,
            "texts": texts,
            "calibrated": calibrated,
            "ranges": None if self._ranges is None else self._ranges.tolist(),
            "factor": self.factor,
            "recall": recall,
        }
        write_text(self._record_file, json.dumps(record, indent=2) + "\n")


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
