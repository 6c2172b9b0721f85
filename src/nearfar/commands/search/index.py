"""A search index: a folder with the vectors of distinct texts, the rows that the texts come from, and a manifest.

==================  ==================================================================================================
``manifest.json``   format version, settings, source and generation
``vectors.npy``     float32 [texts, dim]: one vector for each distinct text, in the order of first occurrence
``rows.jsonl``      for each row of the source: a JSON list of the text and of the other columns
``rows.npy``        for each row: hashes of its line and its text, its text, and the end of its line in ``rows.jsonl``
``approximate.*``   the graph for approximate search, if it was asked for
``int8.*``          int8 codes of the vectors, if quantized search was asked for; ``binary.*`` likewise
==================  ==================================================================================================

The folder is replaced as a whole; only ``approximate.*``, ``int8.*`` and ``binary.*`` are added to it later. When the
file has changed, texts that are new are encoded, and the vectors of all others are kept.
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas
from jaxtyping import Float32
from numpy.typing import DTypeLike, NDArray

from nearfar.commands.encode.vectors import OpenEncoder, kept_vectors, vectors_folder
from nearfar.commands.search.corpus import Corpus
from nearfar.data.paths import file_version
from nearfar.disk import check_regular, read_json, write_npy, write_text
from nearfar.disk.checks import check_writable_folder
from nearfar.disk.folders import forget_folder, new_folder, restore_folder
from nearfar.disk.work import join_changes, list_changes
from nearfar.encoder.precision import is_native, resolve
from nearfar.neighbours.exact import Neighbours, nearest
from nearfar.runtime.progress import progress_bar
from nearfar.types import ARRAY_ERRORS, NearfarError, Precision, Resolved, VectorSimilarity
from nearfar.validation import InvalidValueError, convert

BLOCK = 2**14
"""Number of vectors that are copied at a time."""
MANIFEST = "manifest.json"
DERIVED = ("approximate.usearch", "approximate.json", "int8.npy", "int8.json", "binary.npy", "binary.json")
"""The graph and the codes of :mod:`nearfar.commands.search.inexact`, and their records."""
_REPLACED = (MANIFEST, *DERIVED)
FILES = ("vectors.npy", "rows.jsonl", "rows.npy", *_REPLACED, *(f"{name}.new" for name in _REPLACED))
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
    """Everything that determines the vectors and the columns; see :func:`nearfar.commands.search.open_search`."""
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
            raise damaged(self.folder / "vectors.npy", f"cannot be searched ({error})") from error

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
        values = np.lib.format.open_memmap(file, mode="r") if is_array else np.memmap(file, dtype, "r", shape=shape)
    except ARRAY_ERRORS as error:
        raise damaged(file, f"is missing, too short or damaged ({error})") from None
    fits = len(shape) == values.ndim and all(own in (None, size) for own, size in zip(shape, values.shape, strict=True))
    if values.dtype != np.dtype(dtype) or not fits or not values.flags.c_contiguous:
        raise damaged(file, "has other values than the index")
    return values


def hash_bytes(content: bytes) -> int:
    """BLAKE2b with a digest of 8 bytes, as an unsigned integer (little-endian)."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")


def update_index(
    folder: Path,
    corpus: Corpus,
    opened: OpenEncoder,
    settings: dict[str, Any],
    *,
    rebuild: bool = False,
    named: bool = False,
    progress: bool = False,
) -> tuple[SearchIndex, int | None]:
    """Make the index in ``folder`` that of ``corpus``; returns it, and how many texts were encoded, or None if it was.

    If the file has changed, a new index is written, with the vectors of all texts that the old one has, and takes its
    place. The other vectors are in ``folder.vectors`` until then, so that an interrupted call is continued by the next
    one. A file whose size, time and inode are those of the last call is not read.

    Args:
        folder: the index.
        corpus: the rows.
        opened: encodes the texts.
        settings: what determines the vectors and columns; an index with other settings is refused.
        rebuild: use nothing of an existing index.
        named: the folder was chosen, so that it may hold the index of another file, which is refused.
        progress: show a progress bar.

    Raises:
        NearfarError: the folder is no index, or is damaged, of other settings or rows, in use or not writable; a row
            of the corpus is malformed, or there is none.
    """
    _check_folder(folder)
    source: dict[str, Any] = {"path": str(corpus.path.resolve()), "version": list(file_version(corpus.path) or ())}
    before = None if rebuild else _open(folder, settings)
    if before is not None and before.manifest.source == source:
        forget_folder(folder)  # what a process left that was killed at its very end
        if kept_vectors(folder).exists():
            with suppress(NearfarError), vectors_folder(folder):
                pass
        return before, None
    with vectors_folder(folder, flag="--index") as kept:
        restore_folder(folder)
        before = None if rebuild else _open(folder, settings)
        with new_folder(folder, replace=True, flag="--index") as new:
            rows = np.fromiter(_write_rows(corpus, new / "rows.jsonl"), ROW)
            if not len(rows):
                raise NearfarError(f"{corpus.path}: holds no texts.")
            if before is not None and named and not np.isin(before.rows["text_hash"], rows["text_hash"]).any():
                raise NearfarError(
                    f"--index {folder}: is the index of {before.manifest.source['path']}, and {source['path']} has "
                    "none of its rows. Replace it with --rebuild, or name another folder."
                )
            rows["text"] = pandas.factorize(rows["text_hash"])[0]  # numbered in the order of their first rows
            np.save(new / "rows.npy", rows)
            if list(file_version(corpus.path) or ()) != source["version"]:
                source["version"] = None  # written while it was read: to be read again
            manifest = Manifest(settings=settings, source=source)
            manifest.write(new)
            dim = settings.get("dimensions") or opened.encoder.dim
            lines = np.memmap(new / "rows.jsonl", np.uint8, "r")
            index = SearchIndex(new, manifest, np.empty((0, dim), np.float32), rows, lines)
            encoded = _write_vectors(index, before, opened, kept, progress=progress)
    return SearchIndex.open(folder), encoded


def _check_folder(folder: Path) -> None:
    """Refuse a folder that cannot become an index, before anything is read."""
    if not folder.is_dir():
        check_writable_folder(folder, folder, flag="--index")
    elif others := sorted({path.name for path in folder.iterdir()} - {*FILES}):
        raise NearfarError(
            f"--index {folder}: is a folder with other files ({', '.join(others[:3])}); name another folder."
        )


def _open(folder: Path, settings: dict[str, Any]) -> SearchIndex | None:
    """The index in a folder; None if there is none.

    Raises:
        NearfarError: it is damaged, or of another model or other settings; the message names each, and the ways out.
    """
    if not (folder / MANIFEST).exists():
        return None
    index = SearchIndex.open(folder)
    before, now = index.manifest.settings, dict(settings)
    if before.get("weights") == now["weights"]:
        now["model"] = before.get("model")  # the same model, perhaps in another folder
    if changes := list_changes(before, now, {"weights": "the model's weights or settings"}):
        raise NearfarError(
            f"{folder}: is the index of another model or other settings: {join_changes(changes)}. Replace it with "
            "--rebuild, or keep both: name another folder with --index."
        )
    return index


def _write_rows(corpus: Corpus, file: Path) -> Iterator[tuple[int, int, int, int]]:
    """Write the lines of the rows of an index to a file; yields each row's entry (:data:`ROW`), with 0 for its text.

    Raises:
        NearfarError: a row is malformed.
        OSError: the file cannot be written.
    """
    end = 0
    with file.open("wb") as stream:
        for text, line in corpus.rows():
            end += stream.write(line + b"\n")
            yield hash_bytes(line), hash_bytes(text.encode()), 0, end


class _Texts(Sequence[str]):
    """The texts of some rows of an index, read from the disk one by one."""

    def __init__(self, index: SearchIndex, rows: NDArray[np.int64]) -> None:
        self._index, self._rows = index, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: Any) -> Any:
        return self._index.read_row(int(self._rows[number]))[0]


def _write_vectors(
    index: SearchIndex, before: SearchIndex | None, opened: OpenEncoder, kept: Path, *, progress: bool
) -> int:
    """Write the vectors of all texts, those of an older index as they are; returns how many were encoded."""
    first, settings, old = index.first_rows, index.manifest.settings, index.vectors
    position = np.full(len(first), -1, np.int64)  # in the older index
    if before is not None:
        old = before.vectors
        hashes = pandas.Index(before.rows["text_hash"][before.first_rows])
        position = hashes.get_indexer(index.rows["text_hash"][first])
    is_new = position < 0
    missing, new = _Texts(index, first[is_new]), index.vectors
    if len(missing):
        with progress_bar("encoding", len(missing), shown=progress, stderr=True) as advance:
            how: dict[str, Any] = {name: settings.get(name) for name in ("normalize", "dimensions")}
            new = opened.encode_texts(kept, missing, role="document", **how, on_texts=advance)
    position[is_new] = np.arange(len(missing))

    def blocks() -> Iterator[Float32[np.ndarray, "block dim"]]:
        for start in range(0, len(first), BLOCK):
            own, own_new = position[start : start + BLOCK], is_new[start : start + BLOCK]
            block = np.empty((len(own), new.shape[1]), np.float32)
            block[own_new], block[~own_new] = new[own[own_new]], old[own[~own_new]]
            yield block

    write_npy(index.folder / "vectors.npy", np.dtype("f4"), (len(first), new.shape[1]), blocks())
    return len(missing)


def choose_precision(requested: Precision, folder: Path | None, device: str | None) -> tuple[str, Resolved]:
    """The precision that the index in ``folder`` records, and the one to compute in now.

    ``auto`` keeps that of an existing index. If it is bf16 and the device does not have native bfloat16, fp32 is used:
    it is more exact, and the embeddings remain comparable.
    """
    recorded = None
    if requested == "auto" and folder is not None:
        with suppress(NearfarError):  # reported when the index is opened
            recorded = read_manifest(folder).settings.get("precision")
    if recorded in ("fp32", "bf16"):
        return recorded, "bf16" if recorded == "bf16" and is_native(device) else "fp32"
    resolved = resolve(requested, device)
    return resolved, resolved
