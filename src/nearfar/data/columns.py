"""Rows and where they stand, and columns found by their names, whatever the format of the file."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from nearfar.data.paths import nearest
from nearfar.types import NearfarError

MAX_LINE_BYTES = 2**26
"""Maximum bytes per line, against files without line ends and decompression bombs."""


class MissingColumnError(NearfarError):
    """A table does not have the requested column; ``names`` are those that it has."""

    def __init__(self, message: str, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.names = names


class Location(NamedTuple):
    """The position of a row, counted from 1: a line of a text file, or a row of a Parquet file or data set."""

    source: str
    number: int
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.source}, {self.unit} {self.number}"


Rows: TypeAlias = Iterator[tuple[Location, tuple[object, ...]]]
"""The location of each row, and its values in the order of the requested columns."""


Lines: TypeAlias = Iterator[tuple[int, str]]


Records: TypeAlias = Iterator[tuple[int, list[str]]]
"""The number of each line, and its text; the number of the first line of each record, and its fields."""


def fold_name(name: str) -> str:
    """A column's name without case and punctuation: ``Customer question`` and ``customer_question`` are equal."""
    return "".join(filter(str.isalnum, name.casefold()))


def column_indices(names: Sequence[str], columns: Sequence[str], where: object) -> list[int]:
    """Return the index of each of ``columns`` in ``names``: of the same name, else of one that differs in case only.

    Punctuation counts as little as case (:func:`fold_name`).
    Raises MissingColumnError for a missing column, NearfarError for a duplicate one; ``where`` begins the message.
    """
    indices = []
    for column in columns:
        places = [place for place, name in enumerate(names) if name == column]
        places = places or [place for place, name in enumerate(names) if fold_name(name) == fold_name(column) != ""]
        if len(places) != 1:
            existing = ", ".join(printable_name(name) for name in names[:20]) + (", ..." if len(names) > 20 else "")
            message = (
                f"{where}: {f'{len(places)} columns named' if places else 'no column'} {column!r}. Its columns: "
                f"{existing}.{nearest(column, names)} Rename the column, or name another one to read."
            )
            raise NearfarError(message) if places else MissingColumnError(message, names)
        indices += places
    return indices


def find_columns(names: Sequence[str], columns: Sequence[str]) -> tuple[str, ...] | None:
    """Return the names that ``columns`` have in ``names`` (:func:`column_indices`); None if one is missing."""
    try:
        return tuple(names[index] for index in column_indices(names, columns, "names"))
    except MissingColumnError:
        return None
    except NearfarError:
        return tuple(columns)  # one is there twice, which is refused where it is read


def printable_name(name: str) -> str:
    """The name of a column for a message: at most 40 characters, quoted if some cannot be printed."""
    return name[:40] if name[:40].isprintable() else repr(name[:40])
