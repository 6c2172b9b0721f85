"""The rows of a file to search in, and the queries of a file: texts and other columns by name."""

import json
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from nearfar.data.cells import MissingColumnError, column_indices, fold_name, is_blank, text_field
from nearfar.data.files import is_plain_text
from nearfar.data.paths import as_path, check_file
from nearfar.data.sources import column_names, open_table
from nearfar.data.triplets import PAIR_NAMES
from nearfar.types import Cut, NearfarError

DOCUMENT_NAMES = ("text", *dict.fromkeys(positive for _, positive in PAIR_NAMES))
"""Columns of texts to search in, by default the first that is there: of pairs, the second texts."""
QUERY_NAMES = ("query", "text", *dict.fromkeys(anchor for anchor, _ in PAIR_NAMES))
"""Columns of queries, likewise."""


class Corpus:
    """A file whose texts are searched. Rows are streamed, and can be read repeatedly.

    White space in texts is normalised (:func:`nearfar.data.cells.text_field`); blank lines are skipped.

    Args:
        source: a table, or a text file with one text per line.
        column: the column of the texts; by default the first of :data:`DOCUMENT_NAMES`, or the only column.
        show: further columns; by default all others.
        skip_empty: leave out rows without a text.

    Raises:
        NearfarError: the file is missing or unreadable, or a column does not exist.
    """

    def __init__(
        self,
        source: str | Path,
        column: str | None = None,
        show: Sequence[str] | None = None,
        *,
        skip_empty: bool = False,
    ) -> None:
        self.path, self._skip_empty = as_path(source), skip_empty
        self.cut: Cut | None = None
        """Cuts texts into passages, each of which is then a row, with the number of the row that it is from last."""
        self.column, names = choose_column(source, column, DOCUMENT_NAMES, flag="--column")
        others = [name for name in names or () if name != self.column]
        column_indices(others, show or (), f"{self.path}: --show")
        self.shown = tuple(others if show is None else show)
        if twice := [name for name in self.shown if self.shown.count(name) > 1]:
            raise NearfarError(f"{source}: several columns are named {twice[0]!r}; choose columns with --show.")

    def rows(self) -> Iterator[tuple[str, bytes]]:
        """Yield the rows in order: the text, and the JSON list of the text and the shown columns.

        Raises:
            NearfarError: a row is malformed, or its text is empty or not text; the message names file and line.
        """
        table = open_table(self.path)
        # Keys of JSON lines other than that of the text may be missing.
        rows = table.rows((self.column,), optional=self.shown) if self.shown else table.text_rows((self.column,))
        number = count()
        for where, values in rows:
            if not (self._skip_empty and is_blank(values[0])):
                text = text_field(values[0], self.column, where)
                passages, more = (
                    ([text], values[1:]) if self.cut is None else (self.cut([text])[0], [*values[1:], next(number)])
                )
                for passage in passages:
                    line = json.dumps([passage, *more], ensure_ascii=False, default=str)
                    yield passage, line.encode("utf-8", "replace")  # half a surrogate pair has no code


def read_queries(source: str | Path, column: str | None) -> list[str]:
    """The queries of a file, in order, with normalised white space; blank lines of a text file are skipped.

    Raises:
        NearfarError: the file is missing, unreadable or has no queries; the column does not exist; a query is empty.
    """
    name, _ = choose_column(source, column, QUERY_NAMES, flag="--query-column")
    queries = [text_field(value, name, where) for where, (value,) in open_table(source).text_rows((name,))]
    if not queries:
        raise NearfarError(f"--queries {source}: holds no queries.")
    return queries


def choose_column(
    source: str | Path, column: str | None, usual: Sequence[str], *, flag: str
) -> tuple[str, list[str] | None]:
    """The column of the texts (the given one, the first of ``usual``, or the only one), and all columns of the file.

    A text file has one column, ``text``, and None for all columns.

    Raises:
        NearfarError: the file is missing or unreadable, or it is unclear which column is meant.
    """
    path = as_path(source)
    check_file(path)
    if is_plain_text(path):
        if column is not None:
            raise NearfarError(f"{flag} {column}: {source} has one text per line, and no columns.")
        return "text", None
    names = column_names(open_table(path))
    choices = usual if column is None else (column,)
    known = set(map(fold_name, names))
    only = names[0] if len(names) == 1 else None
    wanted = next((name for name in choices if fold_name(name) in known), column or only)
    if wanted is None:
        raise MissingColumnError(
            f"{source}: it is unclear which column holds the texts; name one with {flag}. Its columns: "
            f"{', '.join(names[:20])}{', ...' if len(names) > 20 else ''}."
        )
    (index,) = column_indices(names, (wanted,), source)
    return names[index], names
