"""The manifest of a search index: what the index was made from, and how much of its files is valid."""

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nearfar.disk import read_json
from nearfar.types import NearfarError

FORMAT = 1
"""Version of the layout of the folder."""
KIND, MANIFEST = "nearfar search index", "manifest.json"


class IndexDamagedError(NearfarError):
    """A file of an index is missing, too short or not what nearfar wrote."""


@dataclass(frozen=True)
class Manifest:
    """What ``manifest.json`` holds."""

    settings: dict[str, Any]
    """Everything that determines the vectors and the columns; see :mod:`nearfar.commands.search.build`."""
    dim: int
    """Width of a vector."""
    generation: str = field(default_factory=lambda: uuid.uuid4().hex)
    """A new name for each index that is made from scratch; files derived from an index name it."""
    rows: int = 0
    texts: int = 0
    bytes: int = 0
    """Length of the valid part of ``rows.jsonl``."""
    truncated: int = 0
    complete: bool = False
    """Whether all rows of the source were in the index when it was last written."""
    source: dict[str, Any] = field(default_factory=dict)
    """The file that was indexed: path, and status where the file can be recognised by it."""


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of an index.

    Raises:
        IndexDamagedError: it is missing or damaged.
        NearfarError: a newer version of nearfar wrote it.
    """
    file = folder / MANIFEST
    try:
        found = read_json(file)
    except NearfarError as error:
        raise IndexDamagedError(f"{error} Make the index again with --rebuild.") from None
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise damaged(file, "is not the manifest of a search index")
    version = found.get("format")
    if type(version) is int and version > FORMAT:
        raise NearfarError(
            f"{file}: has the format {version}, and this version of nearfar reads format {FORMAT}. Update nearfar, or "
            "make the index again with --rebuild."
        )
    kinds = {"settings": dict, "source": dict, "generation": str, "complete": bool}
    kinds |= dict.fromkeys(("dim", "rows", "texts", "bytes", "truncated"), int)
    wrong = [name for name, kind in kinds.items() if type(found.get(name)) is not kind]
    wrong += [name for name, kind in kinds.items() if kind is int and name not in wrong and found[name] < 0]
    if not wrong and (found["texts"] > found["rows"] or (found["rows"] and not found["texts"])):
        wrong = ["rows and texts"]
    if version != FORMAT or wrong or not found["dim"]:
        raise damaged(file, f"has a wrong value of {', '.join(wrong) or 'format or dim'}")
    return Manifest(**{name: found[name] for name in kinds})


def damaged(file: Path, why: str) -> IndexDamagedError:
    """The error for a file that is not what nearfar wrote."""
    return IndexDamagedError(f"{file}: {why}. The index is damaged; make it again with --rebuild.")
