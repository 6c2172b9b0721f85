"""A search index: a folder with the vectors of distinct texts, the rows that the texts come from, and a manifest.

==================  ==================================================================================================
``manifest.json``   format version, settings, source and generation
``vectors.npy``     float32 [texts, dim]: one vector for each distinct text, in the order of first occurrence
``rows.jsonl``      for each row of the source: a JSON list of the text and of the other columns
``rows.npy``        for each row: hashes of its line and its text, its text, and the end of its line in ``rows.jsonl``
``approximate.*``   the graph for approximate search, if it was asked for
``int8.*``          int8 codes of the vectors, if quantized search was asked for; ``binary.*`` likewise
==================  ==================================================================================================

The folder is replaced as a whole; only ``approximate.*``, ``int8.*`` and ``binary.*`` are added to it later.
"""

import json
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32
from numpy.typing import DTypeLike, NDArray

from nearfar.disk import check_regular, read_json, write_text
from nearfar.neighbours.exact import Neighbours, nearest
from nearfar.types import ARRAY_ERRORS, NearfarError, VectorSimilarity
from nearfar.validation import InvalidValueError, convert

MANIFEST = "manifest.json"
DATA = ("vectors.npy", "rows.jsonl", "rows.npy")
DERIVED = ("approximate.usearch", "approximate.json", "int8.npy", "int8.json", "binary.npy", "binary.json")
"""The graph and the codes of :mod:`nearfar.neighbours.inexact`, and their records."""
FILES = (*DATA, *(f"{name}{end}" for name in (MANIFEST, *DERIVED) for end in ("", ".new")))
"""Every name that an index folder may hold."""
ROW = np.dtype([("line_hash", "<u8"), ("text_hash", "<u8"), ("text", "<i8"), ("end", "<i8")])


class IndexDamagedError(NearfarError):
    """A file of an index is missing, too short or not what nearfar wrote."""


def damaged(file: Path, why: str) -> IndexDamagedError:
    """The error for a file that is not what nearfar wrote."""
    return IndexDamagedError(f"{file}: {why}. The index is damaged; make it again with --rebuild.")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What ``manifest.json`` holds."""

    kind: Literal["nearfar search index"] = "nearfar search index"
    format: Literal[1] = 1
    """Version of the layout of the folder."""
    settings: dict[str, Any]
    """Everything that determines the vectors and the columns; see :mod:`nearfar.commands.search.update`."""
    source: dict[str, Any]
    """The file that was indexed: path, and status where the file can be recognised by it."""
    generation: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The name of this index, which the files derived from it have too."""

    def write(self, folder: Path) -> None:
        """Write it into a folder, atomically.

        Raises:
            NearfarError: it cannot be written.
        """
        write_text(folder / MANIFEST, json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of an index.

    Raises:
        NearfarError: it is missing or damaged, or another version of nearfar wrote it.
    """
    file = folder / MANIFEST
    try:
        return convert(read_json(file, otherwise="Make the index again with --rebuild."), Manifest)
    except InvalidValueError as error:
        raise damaged(file, f"has a wrong value ({error})") from None


@dataclass(frozen=True)
class SearchIndex:
    """The texts and rows of an index, as memory maps, which a later version of the folder does not affect."""

    folder: Path
    manifest: Manifest
    vectors: Float32[np.ndarray, "texts dim"]
    rows: NDArray[np.void]
    """The hashes, text and end of each row (:data:`ROW`)."""
    lines: NDArray[np.uint8]
    """The bytes of ``rows.jsonl``."""

    @staticmethod
    def open(folder: Path) -> "SearchIndex":
        """Open an index.

        Raises:
            IndexDamagedError: a file is missing, too short or unreadable.
            NearfarError: another version of nearfar wrote it.
        """
        manifest = read_manifest(folder)
        try:
            rows, file = map_array(folder / "rows.npy", ROW, (None,)), folder / "rows.jsonl"
            vectors = map_array(folder / "vectors.npy", "<f4", (int(rows["text"].max(initial=-1)) + 1, None))
            lines = map_array(file, np.uint8, (int(rows["end"][-1]),))
        except IndexDamagedError:
            if read_manifest(folder) == manifest:
                raise
        else:
            if read_manifest(folder) == manifest:
                return SearchIndex(folder, manifest, vectors, rows, lines)
        return SearchIndex.open(folder)  # another process has replaced the index meanwhile

    @cached_property
    def first_rows(self) -> NDArray[np.int64]:
        """The first row of each text."""
        return np.unique(self.rows["text"], return_index=True)[1]

    def nearest(
        self, queries: Float32[np.ndarray, "queries dim"], k: int, *, similarity: VectorSimilarity, device: str
    ) -> Neighbours:
        """The nearest texts of each query by exact search (:func:`nearfar.neighbours.exact.nearest`).

        Raises:
            IndexDamagedError: a vector is not finite.
        """
        try:
            return nearest(queries, self.vectors, k, similarity=similarity, device=device)
        except NearfarError as error:
            raise damaged(self.folder / "vectors.npy", f"cannot be searched: {error}") from error

    def rows_of(self, texts: NDArray[np.int64]) -> dict[int, list[int]]:
        """All rows of each of ``texts``, in order."""
        rows = np.flatnonzero(np.isin(self.rows["text"], texts))
        found: dict[int, list[int]] = {}
        for row, text in zip(rows.tolist(), self.rows["text"][rows].tolist(), strict=True):
            found.setdefault(text, []).append(row)
        return found

    def read_row(self, row: int) -> list[Any]:
        """The text of a row and its other columns.

        Raises:
            IndexDamagedError: the row is not what was written.
        """
        start, end = int(self.rows["end"][row - 1]) if row else 0, int(self.rows["end"][row])
        line = self.lines[start:end].tobytes().removesuffix(b"\n")
        if hash_bytes(line) != int(self.rows["line_hash"][row]):
            raise damaged(self.folder / "rows.jsonl", f"row {row:,} is not what was written")
        found: list[Any] = json.loads(line, parse_constant=lambda _: None)  # NaN and infinity
        return found

    def check_finite(self, values: np.ndarray) -> None:
        """Check vectors of the index, or scores of them.

        Raises:
            IndexDamagedError: one is not finite.
        """
        if not np.isfinite(values).all():
            raise damaged(self.folder / "vectors.npy", "holds a vector that is not finite")

    def read_derived(self, file: str) -> dict[str, Any]:
        """The record of a file that was derived from this index; empty if it is missing, damaged or of another one."""
        with suppress(NearfarError, InvalidValueError):
            found = convert(read_json(self.folder / file), dict[str, Any])
            return found if found.get("generation") == self.manifest.generation else {}
        return {}

    def write_derived(self, file: str, record: Mapping[str, Any]) -> None:
        """Write the record of a file that was derived from this index.

        Raises:
            NearfarError: it cannot be written.
        """
        write_text(self.folder / file, json.dumps({"generation": self.manifest.generation, **record}, indent=2) + "\n")


def map_array(file: Path, dtype: DTypeLike, shape: tuple[Any, ...]) -> NDArray[Any]:
    """A .npy file of an index, or the first bytes of another one, memory-mapped; None in ``shape`` is any number.

    Raises:
        IndexDamagedError: it is missing, or has another type or shape.
    """
    try:
        check_regular(file)
        is_array = file.suffix == ".npy"
        found = np.lib.format.open_memmap(file, mode="r") if is_array else np.memmap(file, dtype, "r", shape=shape)
    except ARRAY_ERRORS as error:
        raise damaged(file, f"is missing, too short or damaged ({error})") from None
    fits = len(shape) == found.ndim and all(own in (None, size) for own, size in zip(shape, found.shape, strict=True))
    if found.dtype != np.dtype(dtype) or not fits or not found.flags.c_contiguous:
        raise damaged(file, "has other values than the index")
    return found


def hash_bytes(content: bytes) -> int:
    """BLAKE2b with a digest of 8 bytes, as an unsigned integer (little-endian)."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")
