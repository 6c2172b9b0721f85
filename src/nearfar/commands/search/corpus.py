"""The rows of a file to search in, and the queries of a file: texts and other columns by name."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from nearfar.data.cells import Location, MissingColumnError, column_indices, fold_name, is_blank, text_field
from nearfar.data.files import extension, is_plain_text, json_records
from nearfar.data.paths import as_path, check_file
from nearfar.data.sources import column_names, open_table
from nearfar.data.triplets import PAIR_NAMES
from nearfar.types import NearfarError

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
        self.column, names = choose_column(source, column, DOCUMENT_NAMES, flag="--column")
        if show and names is None:
            raise NearfarError(f"--show {' '.join(show)}: {source} has one text per line, and no columns.")
        if names is not None and show is not None:
            if self.column in show:
                raise NearfarError(f"--show {self.column}: is the column of the texts, which is always shown.")
            known = list(names)
            if _is_json_lines(self.path):  # later lines may have further keys
                new = (name for name in show if name not in names)
                known += [name for name in new if any(name in record for _, record in json_records(self.path))]
            column_indices(known, show, self.path)
        self.shown = tuple(name for name in names or () if name != self.column) if show is None else tuple(show)
        if len(set(self.shown)) < len(self.shown):
            twice = next(name for name in self.shown if self.shown.count(name) > 1)
            raise NearfarError(f"{source}: several columns are named {twice!r}; choose columns with --show.")

    def rows(self) -> Iterator[tuple[str, bytes]]:
        """Yield the rows in order: the text, and the JSON list of the text and the shown columns.

        Raises:
            NearfarError: a row is malformed, or its text is empty or not text; the message names file and line.
        """
        for where, values in self._values():
            if not (self._skip_empty and is_blank(values[0])):
                text = text_field(values[0], self.column, where)
                line = json.dumps([text, *values[1:]], ensure_ascii=False, default=str)
                yield text, line.encode("utf-8", "replace")  # half a surrogate pair has no code

    def _values(self) -> Iterator[tuple[Location, Sequence[object]]]:
        if _is_json_lines(self.path):
            # Keys other than that of the text may be missing.
            yield from open_table(self.path).rows((self.column,), optional=self.shown)
        else:
            yield from open_table(self.path).text_rows((self.column, *self.shown))


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


def _is_json_lines(path: Path) -> bool:
    return extension(path).removesuffix(".gz") in (".jsonl", ".json")
