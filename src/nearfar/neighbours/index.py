"""A search index: a folder with the vectors of distinct texts, the rows that the texts come from, and a manifest.

==================  ==================================================================================================
``manifest.json``   format version, settings, source, and how many rows, texts and bytes are valid
``vectors.npy``     float32 [texts, dim]: one vector for each distinct text, in the order of first occurrence
``texts.npy``       for each text: its hash, and its first row
``rows.jsonl``      for each row of the source: a JSON list of the text and of the other columns
``rows.npy``        for each row: its hash, its text, and the end of its line in ``rows.jsonl``
``approximate.*``   the graph for approximate search, if it was asked for
``int8.*``          int8 codes of the vectors, if quantized search was asked for; ``binary.*`` likewise
``rebuild/``        the same files, while an index with a changed source is made again
==================  ==================================================================================================

Data files only grow. A block of rows is appended to them first; then the manifest is replaced, which makes the rows
valid. So an index is consistent at every moment, however its writer ends.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int64, UInt64
from numpy.typing import NDArray

from nearfar.disk import disk_errors, flush_entries, publish, read_errors, write_text
from nearfar.neighbours.growing import GrowingArray
from nearfar.neighbours.manifest import FORMAT, KIND, MANIFEST, Manifest, damaged, read_manifest
from nearfar.types import NearfarError

REBUILD = "rebuild"
DATA = ("vectors.npy", "texts.npy", "rows.jsonl", "rows.npy")
APPROXIMATE = ("approximate.usearch", "approximate.json")
"""Files of :mod:`nearfar.neighbours.approximate`; those of another generation are made again."""
QUANTIZED = {"int8": ("int8.npy", "int8.json"), "binary": ("binary.npy", "binary.json")}
"""Files of :mod:`nearfar.neighbours.quantized`, likewise."""
_DERIVED = (*APPROXIMATE, *QUANTIZED["int8"], *QUANTIZED["binary"])
FILES = (MANIFEST, f"{MANIFEST}.new", REBUILD, *DATA, *(f"{name}{end}" for name in _DERIVED for end in ("", ".new")))
"""Every name that an index folder may hold."""
TEXT = np.dtype([("hash", "<u8"), ("row", "<i8")])
ROW = np.dtype([("hash", "<u8"), ("text", "<i8"), ("end", "<i8")])


class Block(NamedTuple):
    """Consecutive rows to append to an index."""

    lines: Sequence[bytes]
    """The JSON list of each row, without line ends."""
    row_hashes: UInt64[np.ndarray, " rows"]
    row_texts: Int64[np.ndarray, " rows"]
    """The number of each row's text, among all texts of the index."""
    text_hashes: UInt64[np.ndarray, " texts"]
    """The hashes of the texts that are new in this block."""
    vectors: Float32[np.ndarray, "texts dim"]
    """The vectors of the new texts."""
    truncated: int = 0
    """How many of the new texts are longer than the encoder reads."""


class SearchIndex:
    """An index that exists on disk. Get one by :meth:`create` or :meth:`open`."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._vectors = GrowingArray(folder / "vectors.npy", "<f4", manifest.dim)
        self._texts = GrowingArray(folder / "texts.npy", TEXT)
        self._rows = GrowingArray(folder / "rows.npy", ROW)
        self._lines = folder / "rows.jsonl"

    @classmethod
    def create(cls, folder: Path, settings: dict[str, Any], dim: int) -> "SearchIndex":
        """Write the manifest of an empty index. The folder must exist.

        Raises:
            NearfarError: the folder cannot be written.
        """
        index = cls(folder, Manifest(settings, dim))
        index._commit(index.manifest)
        return index

    @classmethod
    def open(cls, folder: Path) -> "SearchIndex":
        """Open an index; an incomplete one too.

        Raises:
            IndexDamagedError: a file is missing, too short or unreadable.
            NearfarError: a newer version of nearfar wrote the index.
        """
        index = cls(folder, read_manifest(folder))
        found, lines = index.manifest, index._lines
        arrays = ((index._vectors, found.texts), (index._texts, found.texts), (index._rows, found.rows))
        for array, count in arrays:
            if array.is_damaged(count):
                raise damaged(array.path, f"is missing or too short for {count:,} entries, or has others")
        if found.bytes and not (lines.is_file() and lines.stat().st_size >= found.bytes):
            raise damaged(lines, f"is missing or shorter than {found.bytes:,} bytes")
        return index

    @property
    def row_hashes(self) -> UInt64[np.ndarray, " rows"]:
        """The hash of each row."""
        return self._rows.read(self.manifest.rows)["hash"]

    def reader(self) -> "IndexReader":
        """Open the valid rows for reading. A reader is not affected by later changes of the index.

        Raises:
            NearfarError: another process has just replaced the index.
        """
        found, rows = self.manifest, self._rows.read(self.manifest.rows)
        texts, vectors = self._texts.read(found.texts), self._vectors.read(found.texts)
        lines = np.empty(0, np.uint8)
        if found.bytes:
            with read_errors(self._lines):
                lines = np.memmap(self._lines, np.uint8, "r", shape=(found.bytes,))
        reader = IndexReader(self.folder, found, vectors, texts, rows, lines)
        if read_manifest(self.folder).generation != found.generation:
            raise NearfarError(f"{self.folder}: another process has just replaced the index; search again.")
        return reader

    def append(self, block: Block) -> None:
        """Append a block of rows and flush it to the disk.

        Raises:
            NearfarError: the disk is full or cannot be written; the rows before the block stay valid.
        """
        found = self.manifest
        ends = found.bytes + np.cumsum([len(line) + 1 for line in block.lines], dtype=np.int64)
        rows = np.empty(len(block.lines), ROW)
        rows["hash"], rows["text"], rows["end"] = block.row_hashes, block.row_texts, ends
        texts = np.empty(len(block.text_hashes), TEXT)
        # The first row of each new text: the position of its first occurrence among the rows of the block.
        numbers, first = np.unique(block.row_texts, return_index=True)
        texts["hash"], texts["row"] = block.text_hashes, found.rows + first[numbers >= found.texts]
        with disk_errors(self.folder):
            self._vectors.append(found.texts, block.vectors)
            self._texts.append(found.texts, texts)
            self._append_lines(block.lines)
            self._rows.append(found.rows, rows)
        self._commit(
            replace(
                found,
                rows=found.rows + len(rows),
                texts=found.texts + len(texts),
                bytes=int(ends[-1]) if len(ends) else found.bytes,
                truncated=found.truncated + block.truncated,
                complete=False,
            )
        )

    def truncate(self, rows: int) -> None:
        """Keep only the first ``rows`` rows and their texts.

        Raises:
            NearfarError: the manifest cannot be written.
        """
        if rows < self.manifest.rows:
            end = int(self._rows.read(self.manifest.rows)["end"][rows - 1]) if rows else 0
            texts = int((self._texts.read(self.manifest.texts)["row"] < rows).sum())
            self._commit(replace(self.manifest, rows=rows, texts=texts, bytes=end, complete=False))

    def finish(self, source: dict[str, Any]) -> None:
        """Record that the index has all rows of ``source``.

        Raises:
            NearfarError: the manifest cannot be written.
        """
        if not self.manifest.complete or self.manifest.source != source:
            self._commit(replace(self.manifest, complete=True, source=source))

    def _append_lines(self, lines: Sequence[bytes]) -> None:
        with self._lines.open("r+b" if self._lines.exists() else "x+b") as stream:
            stream.truncate(self.manifest.bytes)
            stream.seek(self.manifest.bytes)
            stream.write(b"".join(line + b"\n" for line in lines))
            stream.flush()
            os.fsync(stream.fileno())

    def _commit(self, manifest: Manifest) -> None:
        written = {"kind": KIND, "format": FORMAT, **asdict(manifest)}
        write_text(self.folder / MANIFEST, json.dumps(written, indent=2, ensure_ascii=False) + "\n")
        self.manifest = manifest


@dataclass(frozen=True)
class IndexReader:
    """The texts and rows of an index, as memory maps; see :meth:`SearchIndex.reader`."""

    folder: Path
    manifest: Manifest
    vectors: Float32[np.ndarray, "texts dim"]
    texts: NDArray[np.void]
    """Hash and first row of each text (:data:`TEXT`)."""
    rows: NDArray[np.void]
    """Hash, text and end of each row (:data:`ROW`)."""
    lines: NDArray[np.uint8]
    """The bytes of ``rows.jsonl``."""

    def rows_of(self, texts: NDArray[np.int64]) -> dict[int, list[int]]:
        """All rows of each of ``texts``, in order."""
        row_texts = self.rows["text"]
        found: dict[int, list[int]] = {int(text): [] for text in texts}
        for row in np.flatnonzero(np.isin(row_texts, np.unique(texts))).tolist():
            found[int(row_texts[row])].append(row)
        return found

    def read_row(self, row: int) -> list[Any]:
        """The text of a row and its other columns.

        Raises:
            IndexDamagedError: the row is not what was written.
        """
        start, end = int(self.rows["end"][row - 1]) if row else 0, int(self.rows["end"][row])
        if not 0 <= start < end <= self.manifest.bytes:
            raise damaged(self.folder / "rows.npy", f"has a wrong entry for row {row:,}")
        line = self.lines[start:end].tobytes().removesuffix(b"\n")
        if hash_bytes(line) != int(self.rows["hash"][row]):
            raise damaged(self.folder / "rows.jsonl", f"row {row:,} is not what was written")
        found: list[Any] = json.loads(line)
        return found


def hash_bytes(content: bytes) -> int:
    """BLAKE2b with a digest of 8 bytes, as an unsigned integer (little-endian)."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")


def remove_index(folder: Path) -> None:
    """Remove the files of an index in ``folder``, the manifest first.

    Raises:
        NearfarError: a file cannot be removed.
    """
    with disk_errors(folder):
        for part in (folder, folder / REBUILD):
            for name in FILES:
                if name != REBUILD:
                    (part / name).unlink(missing_ok=True)
        if (folder / REBUILD).exists():
            (folder / REBUILD).rmdir()


def promote_rebuild(folder: Path) -> None:
    """Move a complete ``rebuild/`` in the place of the index. An interrupted move is continued by the next call.

    Raises:
        NearfarError: a file cannot be moved.
    """
    part = folder / REBUILD
    with disk_errors(folder):
        (folder / MANIFEST).unlink(missing_ok=True)  # from here to the end, only rebuild/ says what the files are
        for name in DATA:
            if (part / name).exists():
                publish(part / name, folder / name)
        publish(part / MANIFEST, folder / MANIFEST)
        (part / f"{MANIFEST}.new").unlink(missing_ok=True)
        part.rmdir()
        flush_entries(folder)


def is_promotable(folder: Path) -> bool:
    """Whether ``rebuild/`` is complete and has to be moved."""
    try:
        return read_manifest(folder / REBUILD).complete
    except NearfarError:
        return False
