"""The location of a row, and the columns of a table: shared by the readers of all formats."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from nearfar.data.paths import nearest
from nearfar.types import NearfarError

MAX_LINE_BYTES = 2**26
"""Maximum bytes per line, against files without line ends and decompression bombs."""


class MissingColumnError(NearfarError):
    """A table does not have the requested column."""


class Location(NamedTuple):
    """The position of a row, counted from 1: a line of a text file, or a row of a Parquet file or data set."""

    source: str
    number: int
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.source}, {self.unit} {self.number}"


Rows: TypeAlias = Iterator[tuple[Location, tuple[object, ...]]]
"""The location of each row, and its values in the order of the requested columns."""


def column_indices(names: Sequence[str], columns: Sequence[str], where: object) -> list[int]:
    """Return the index of each of ``columns`` in ``names``.

    Raises MissingColumnError for a missing column, NearfarError for a duplicate one; ``where`` begins the message.
    """
    for column in columns:
        if (count := names.count(column)) != 1:
            existing = ", ".join(printable_name(name) for name in names[:20]) + (", ..." if len(names) > 20 else "")
            problem = f"{count} columns named" if count else "no column"
            kind = NearfarError if count else MissingColumnError
            raise kind(
                f"{where}: {problem} {column!r}. Its columns: {existing}.{nearest(column, names)} "
                "Rename the column, or name another one to read."
            )
    return [names.index(column) for column in columns]


def printable_name(name: str) -> str:
    """The name of a column for a message: at most 40 characters, quoted if some cannot be printed."""
    return name[:40] if name[:40].isprintable() else repr(name[:40])
