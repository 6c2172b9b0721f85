"""Bring the index of a file up to date: encode the texts that are new, keep the vectors of all others."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas
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
from nearfar.neighbours.index import FILES, MANIFEST, ROW, Manifest, SearchIndex, hash_bytes, read_manifest
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError, Precision, Resolved

BLOCK = 2**14
"""Number of vectors that are copied at a time."""


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
    """Make the index in ``folder`` that of ``corpus``; returns it, and how many texts were encoded.

    The number is None if the index was up to date.
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
    place = np.full(len(first), -1, np.int64)  # in the older index
    if before is not None:
        old = before.vectors
        hashes = pandas.Index(before.rows["text_hash"][before.first_rows])
        place = hashes.get_indexer(index.rows["text_hash"][first])
    is_new = place < 0
    missing, new = _Texts(index, first[is_new]), index.vectors
    if len(missing):
        with progress_bar("encoding", len(missing), shown=progress, stderr=True) as advance:
            how: dict[str, Any] = {name: settings.get(name) for name in ("normalize", "dimensions")}
            new = opened.encode_texts(kept, missing, role="document", **how, on_texts=advance)
    place[is_new] = np.arange(len(missing))

    def blocks() -> Iterator[Float32[np.ndarray, "block dim"]]:
        for start in range(0, len(first), BLOCK):
            own, own_new = place[start : start + BLOCK], is_new[start : start + BLOCK]
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
