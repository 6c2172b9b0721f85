"""Bring the index of a file up to date: encode the texts that are new, keep the vectors of all others."""

from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from nearfar.commands.encode.vectors import OpenEncoder, kept_vectors, vectors_folder
from nearfar.commands.search.corpus import Corpus
from nearfar.data.paths import file_version
from nearfar.disk import write_npy
from nearfar.disk.checks import check_writable_folder
from nearfar.disk.folders import forget_folder, new_folder, restore_folder
from nearfar.disk.work import join_changes, list_changes
from nearfar.encoder.precision import is_native, resolve
from nearfar.neighbours.index import FILES, MANIFEST, ROW, TEXT, Manifest, SearchIndex, hash_bytes, read_manifest
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError, Precision, Resolved

BLOCK = 2**14
"""Number of vectors that are copied at a time."""


class IndexUpdate(NamedTuple):
    """What bringing an index up to date did."""

    state: Literal["unchanged", "new", "changed"]
    rows: int
    texts: int
    """Number of distinct texts."""
    encoded: int
    """Number of distinct texts that were encoded now."""


def update_index(
    folder: Path,
    corpus: Corpus,
    opened: OpenEncoder,
    settings: dict[str, Any],
    *,
    rebuild: bool = False,
    named: bool = False,
    progress: bool = False,
) -> tuple[SearchIndex, IndexUpdate]:
    """Make the index in ``folder`` that of ``corpus``, and open it.

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
    before, path, version = None if rebuild else _open(folder, settings), str(corpus.path.resolve()), _version(corpus)
    if before is not None and before.manifest.source == {"path": path, "version": version}:
        forget_folder(folder)  # what a process left that was killed at its very end
        if kept_vectors(folder).exists():
            with suppress(NearfarError), vectors_folder(folder):
                pass
        return before, IndexUpdate("unchanged", len(before.rows), len(before.texts), 0)
    with vectors_folder(folder, flag="--index") as kept:
        restore_folder(folder)
        before = None if rebuild else _open(folder, settings)
        with new_folder(folder, replace=True, flag="--index") as new:
            rows, texts = _read_rows(corpus, new / "rows.jsonl")
            if before is not None and named and not np.isin(before.rows["hash"], rows["hash"]).any():
                raise NearfarError(
                    f"--index {folder}: is the index of {before.manifest.source['path']}, and {path} has none of its "
                    "rows. Replace it with --rebuild, or name another folder."
                )
            manifest = Manifest(
                settings=settings,
                source={"path": path, "version": version if _version(corpus) == version else None},
                dim=settings.get("dimensions") or opened.encoder.dim,
                rows=len(rows),
                texts=len(texts),
                bytes=int(rows["end"][-1]),
            )
            np.save(new / "rows.npy", rows)
            np.save(new / "texts.npy", texts)
            manifest.write(new)
            lines, nothing = np.memmap(new / "rows.jsonl", np.uint8, "r"), np.empty((0, manifest.dim), np.float32)
            index = SearchIndex(new, manifest, nothing, texts, rows, lines)
            encoded = _write_vectors(index, before, opened, kept, progress=progress)
    state: Literal["new", "changed"] = "new" if before is None else "changed"
    return SearchIndex.open(folder), IndexUpdate(state, manifest.rows, manifest.texts, encoded)


def _version(corpus: Corpus) -> list[int]:
    """What differs after the file was written or replaced."""
    return list(file_version(corpus.path) or ())


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


def _read_rows(corpus: Corpus, file: Path) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """The tables of rows and texts of an index (:data:`ROW`, :data:`TEXT`); writes the lines of the rows to a file.

    Raises:
        NearfarError: there are no rows, or one is malformed.
        OSError: the file cannot be written.
    """
    hashes, text_hashes, ends, end = array("Q"), array("Q"), array("q"), 0
    with file.open("wb") as stream:
        for text, line in corpus.rows():
            end += stream.write(line + b"\n")
            hashes.append(hash_bytes(line))
            text_hashes.append(hash_bytes(text.encode()))
            ends.append(end)
    if not ends:
        raise NearfarError(f"{corpus.path}: holds no texts.")
    distinct, first, text_of = np.unique(np.array(text_hashes, "u8"), return_index=True, return_inverse=True)
    order = np.argsort(first)  # of the first occurrence
    texts, rows = np.empty(len(order), TEXT), np.empty(len(ends), ROW)
    texts["hash"], texts["row"] = distinct[order], first[order]
    rows["hash"], rows["text"], rows["end"] = hashes, np.argsort(order)[text_of], ends
    return rows, texts


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
    texts, settings, dim = index.texts, index.manifest.settings, index.manifest.dim
    place = np.full(len(texts), -1, np.int64)  # in the older index
    if before is not None:
        _, own, old = np.intersect1d(texts["hash"], before.texts["hash"], assume_unique=True, return_indices=True)
        place[own] = old
    is_new = place < 0
    missing, new = _Texts(index, texts["row"][is_new]), np.empty((0, dim), np.float32)
    if len(missing):
        with progress_bar("encoding", len(missing), shown=progress, stderr=True) as advance:
            how: dict[str, Any] = {name: settings.get(name) for name in ("normalize", "dimensions")}
            new = opened.encode_texts(kept, missing, role="document", **how, on_texts=advance)
    place[is_new] = np.arange(len(missing))

    def blocks() -> Iterator[Float32[np.ndarray, "block dim"]]:
        for start in range(0, len(texts), BLOCK):
            part = slice(start, start + BLOCK)
            block = np.empty((len(texts[part]), dim), np.float32)
            block[is_new[part]] = new[place[part][is_new[part]]]
            if before is not None:
                block[~is_new[part]] = before.vectors[place[part][~is_new[part]]]
            yield block

    write_npy(index.folder / "vectors.npy", np.dtype("f4"), (len(texts), dim), blocks())
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
