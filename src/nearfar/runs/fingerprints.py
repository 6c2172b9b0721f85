"""Fingerprints of what a run reads, its rows and its model, and the hashes of texts that its model has seen."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path

from nearfar.disk import read_errors, read_json
from nearfar.disk.model_folder import SEEN_FILE, SeenHashes
from nearfar.disk.rows import BLOCK, GrowingArray, distinct


def fingerprint_rows(*parts: Iterable[Sequence[object] | object]) -> str:
    """SHA-256 over rows in order (16 hexadecimal digits). A row is a tuple of texts and numbers, or one value."""
    digest = hashlib.sha256()
    for part in parts:
        for row in part:
            fields = row if isinstance(row, tuple | list) else (row,)
            digest.update("\t".join(map(str, fields)).encode("utf-8", "surrogatepass") + b"\n")
        digest.update(b"\x00")
    return digest.hexdigest()[:16]


def fingerprint_model(model: str | Path) -> str:
    """SHA-256 over the names and contents of all files that define a model (16 hexadecimal digits).

    The hashes of its training texts (:data:`nearfar.disk.model_folder.SEEN_FILE`) are not among them: they change no
    vector.

    Raises:
        NearfarError: the model is not found, or one of its files cannot be read.
    """
    from nearfar.encoder.folder_checks import ADAPTER, ROUTER, has_roles, read_object
    from nearfar.encoder.weights import FILES, locate, sha256_of

    folder = locate(model)
    listed = read_json(folder / "modules.json") if (folder / "modules.json").exists() else []
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    parts = {folder, *(folder / str(entry.get("path")) for entry in entries)}  # not a run's output inside the folder
    if has_roles(folder):
        parts |= {folder / place for place in read_object(folder / ROUTER).get("types", {})}
    for adapter in [part / ADAPTER for part in parts if (part / ADAPTER).is_file()]:
        parts.add(locate(str(read_object(adapter).get("base_model_name_or_path"))))
    digest = hashlib.sha256()
    for file in sorted({file for kind in FILES for part in parts for file in part.glob(kind)}):
        if file.name == SEEN_FILE or not file.is_file():  # opening a pipe would wait for its writer
            continue
        with read_errors(file):
            content = bytes.fromhex(sha256_of(file))
        name = os.path.relpath(file, folder) if file.is_relative_to(folder) else f"base {file.name}"
        digest.update(f"{name} ".encode() + content)
    return digest.hexdigest()[:16]


def seen_hashes(
    trained: Iterable[Sequence[Sequence[object]]], chosen: Sequence[Sequence[object]], *, before: SeenHashes | None
) -> SeenHashes:
    """The hashes to save with the model of a run.

    Args:
        trained: the rows of each objective, as :func:`nearfar.data.fingerprints.row_hashes` takes them.
        chosen: the rows of the dev set, where they choose the step.
        before: the hashes of the initial model, which the new model inherits; None if they are not known.
    """
    import numpy as np

    from nearfar.data.fingerprints import row_hashes

    every, hashes = chain.from_iterable(trained), (GrowingArray(np.uint64), GrowingArray(np.uint64))
    while block := list(islice(every, BLOCK)):  # the texts of a block are in memory at once
        for known, own in zip(hashes, row_hashes(block), strict=True):
            known.append(distinct(own))
    seen = SeenHashes(*map(distinct, (*(known.numbers for known in hashes), *row_hashes(chosen))))
    return seen if before is None else seen.union(before)
