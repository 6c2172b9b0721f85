"""The one door to rows: columns by name, from a file, a saved ``datasets`` folder or a hub data set."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.data.files import Location, Rows, read_file
from nearfar.data.hub import load_folder, load_hub, read_dataset
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from datasets import Dataset

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # Unicode category Cc
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True)
class Table:
    """Rows that can be read by column name, any number of times; ``title`` says where they are."""

    title: str
    data: "Path | Dataset"

    def rows(self, columns: Sequence[str]) -> Rows:
        """Yield where each row stands and its values of ``columns``; for errors see :func:`read_columns`."""
        if isinstance(self.data, Path):
            return read_file(self.data, columns)
        return read_dataset(self.data, columns, title=self.title)


def open_table(source: str | Path, *, split: str | None = None) -> Table:
    """Open ``source``: a path, or ``hub:owner/name[/config]``. ``split`` is for folders and hub data sets."""
    if isinstance(source, str) and source.startswith("hub:"):
        title = source if split is None else f"{source}:{split}"
        return Table(title, load_hub(source.removeprefix("hub:"), split=split))
    path = Path(source).expanduser()
    if path.is_dir():
        return Table(str(path) if split is None else f"{path}:{split}", load_folder(path, split=split))
    if split is not None:
        raise NearfarError(f"{path}: a file has no splits; leave out {split!r}.")
    return Table(str(path), path)


def read_columns(source: str | Path, columns: Sequence[str], *, split: str | None = None) -> Rows:
    """Yield ``(location, values)`` for each row of ``source``, values in the order of ``columns``; rows are streamed.

    ``source`` is a ``.tsv``, ``.csv``, ``.jsonl``, ``.json`` (one object per line) or ``.parquet`` file, the text ones
    also with ``.gz``; a folder written by ``datasets``' ``save_to_disk``; or ``hub:owner/name[/config]``. For data sets
    by name see :mod:`nearfar.data.catalog`.

    Raises:
        NearfarError: the source cannot be found or read, or a row is malformed; the message names file and line. What
            is wrong with a row is raised when the row is reached.

    """
    return open_table(source, split=split).rows(columns)


def tidied(text: str) -> str:
    """Each run of white space and control characters as one space, and none at the ends; all else as it is."""
    return " ".join(_CONTROL.sub(" ", text).split())


def text_field(value: object, column: str, where: Location) -> str:
    """Return ``value`` as the text that the library works on.

    Each run of white space and control characters becomes one space, and none stays at the ends; everything else,
    emoji and their joiners included, is kept. Callers that count repairs compare with ``value``.

    Raises:
        NearfarError: ``value`` is not a string, is empty (after the above), or is not valid Unicode.

    """
    if not isinstance(value, str):
        raise NearfarError(f"{where}: column {column!r} holds {value!r} ({type(value).__name__}), not text.")
    text = tidied(value)
    if not text:
        raise NearfarError(f"{where}: column {column!r} is empty. Fill it in, or remove the row.")
    if _SURROGATE.search(text):
        raise NearfarError(f"{where}: column {column!r} holds half a surrogate pair, which is no character: {text!r}.")
    return text


def label_field(value: object, column: str, where: Location) -> str:
    """Return a label's name: a string with single spaces, or an integer's digits.

    Raises NearfarError, naming place and column, for another type or an empty label.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # what a column of integers with gaps becomes in Parquet
    if value is not None and not isinstance(value, str | int):
        raise NearfarError(f"{where}: column {column!r} holds {value!r}. A label is a string or an integer.")
    name = "" if value is None else " ".join(str(value).split())
    if not name:
        raise NearfarError(f"{where}: column {column!r} is empty. Fill in a label, or remove the row.")
    return name


def in_label_order(names: Collection[str]) -> list[str]:
    """Integers by value, everything else as text."""
    try:
        return sorted(names, key=int)
    except ValueError:
        return sorted(names)
