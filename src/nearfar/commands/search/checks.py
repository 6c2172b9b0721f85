"""Whether an index belongs to a file, a model and its settings."""

import os
import time
from pathlib import Path
from typing import Any

from nearfar.commands.search.corpus import Corpus
from nearfar.disk import LOCK
from nearfar.disk.work import join_changes
from nearfar.encoder.precision import is_native, resolve
from nearfar.neighbours.index import FILES, REBUILD, SearchIndex, remove_index
from nearfar.neighbours.manifest import IndexDamagedError, read_manifest
from nearfar.types import NearfarError, Precision, Resolved

RECENT = 2 * 10**9
"""A file that was written less than this many nanoseconds ago can change again within the resolution of its time."""
NOT_COMPARED = ("model_name",)
"""Settings in the manifest that may differ."""


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot become an index, before anything is read."""
    if folder.is_dir():
        others = sorted({path.name for path in folder.iterdir()} - {*FILES, LOCK})
        if others:
            raise NearfarError(
                f"--index {folder}: is a folder with other files ({', '.join(others[:3])}); name another folder."
            )
        if wrong := [name for name in FILES if name != REBUILD and (folder / name).is_dir()]:
            raise NearfarError(f"--index {folder}: {wrong[0]} is a folder, where an index has a file; remove it.")
        return
    if os.path.lexists(folder):
        raise NearfarError(f"--index {folder}: is a file, but an index is a folder; name another --index.")
    if not folder.parent.is_dir():
        raise NearfarError(f"--index {folder}: the folder {folder.parent} does not exist.")
    if not os.access(folder.parent, os.W_OK):
        raise NearfarError(
            f"--index {folder}: the folder {folder.parent} is not writable; name another folder for the index with "
            "--index."
        )


def open_unchanged(folder: Path, corpus: Corpus, settings: dict[str, Any]) -> SearchIndex | None:
    """The index, if it is complete and the file's status says that the file has not changed."""
    try:
        index = SearchIndex.open(folder)
    except NearfarError:
        return None  # reported once the folder is locked
    found, source = index.manifest, describe_source(corpus.path)
    same = found.complete and _changed(index, settings) == [] and "size" in source and found.source == source
    return index if same else None


def open_partial(folder: Path, settings: dict[str, Any]) -> SearchIndex | None:
    """The unfinished new version of an index, if it has the same settings."""
    if not (folder / REBUILD).is_dir():
        return None
    try:
        partial = SearchIndex.open(folder / REBUILD)
    except IndexDamagedError:
        partial = None
    if partial is not None and _changed(partial, settings) == []:
        return partial
    remove_index(folder / REBUILD)
    return None


def _changed(index: SearchIndex, settings: dict[str, Any]) -> list[str]:
    """The names of the settings that differ from those of the index."""
    before = index.manifest.settings
    return [key for key in {**before, **settings} if key not in NOT_COMPARED and before.get(key) != settings.get(key)]


def check_settings(index: SearchIndex, settings: dict[str, Any]) -> None:
    """Refuse an index of another model or other settings.

    Raises:
        NearfarError: a setting differs; the message names each, and the ways out.
    """
    before, changed = index.manifest.settings, _changed(index, settings)
    if not changed:
        return
    words = []
    for key in changed:
        if key == "model":
            names = before.get("model_name"), settings.get("model_name")
            words.append(
                f"it was made with the model {names[0]}, not with {names[1]}"
                if names[0] != names[1]
                else f"the model {names[0]} has other weights or settings now"
            )
        else:
            name = {"columns": "the shown columns", "column": "the column of the texts"}.get(key, key.replace("_", " "))
            words.append(f"{name}: was {_words(key, before.get(key))}, is {_words(key, settings.get(key))}")
    raise NearfarError(
        f"{index.folder}: is the index of another model or other settings: {join_changes(words)}. Replace it with "
        "--rebuild, or keep both: name another folder with --index."
    )


def _words(key: str, value: Any) -> str:
    if key == "document_prompt":
        return repr(value or "")
    if key == "dimensions":
        return str(value or "all")
    return (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)


def check_source(index: SearchIndex, corpus: Corpus) -> None:
    """Refuse to replace the index of another file."""
    before, now = index.manifest.source.get("path"), describe_source(corpus.path)["path"]
    if before is not None and before != now:
        raise NearfarError(
            f"--index {index.folder}: is the index of {before}, and {corpus.path} has other rows. Replace it with "
            "--rebuild, or name another folder."
        )


def describe_source(path: Path) -> dict[str, Any]:
    """The path of a file, and its status if that will show the next change."""
    found = path.stat()
    source: dict[str, Any] = {"path": str(path.resolve())}
    if time.time_ns() - found.st_mtime_ns > RECENT:
        source |= {"size": found.st_size, "mtime_ns": found.st_mtime_ns, "inode": found.st_ino}
    return source


def recorded_precision(folder: Path) -> str | None:
    """The precision of the embeddings of an index; None if there is no readable index."""
    try:
        found = read_manifest(folder).settings.get("precision")
    except NearfarError:
        return None  # reported when the index is opened
    return found if found in ("fp32", "bf16") else None


def choose_precision(requested: Precision, recorded: str | None, device: str | None) -> tuple[str, Resolved]:
    """The precision that the index records, and the one to compute in now.

    ``auto`` keeps that of an existing index. If it is bf16 and the device does not have native bfloat16, fp32 is used:
    it is more exact, and the embeddings remain comparable.
    """
    if requested == "auto" and recorded is not None:
        return recorded, "bf16" if recorded == "bf16" and is_native(device) else "fp32"
    resolved = resolve(requested, device)
    return resolved, resolved
