"""Read columns by name from a file, a saved ``datasets`` folder or a hub data set; check texts, labels and numbers."""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import islice, repeat
from operator import ne
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nearfar.data.cells import Check, EmptyCellError, is_blank, text_field
from nearfar.data.columns import Location, Rows, fold_name, printable_name
from nearfar.data.files import (
    EXTENSIONS,
    extension,
    is_plain_text,
    json_records,
    open_delimited,
    read_file,
    read_lines,
    unusual_separator,
)
from nearfar.data.hub import load_folder, load_hub, read_dataset
from nearfar.data.parquet import parquet_error
from nearfar.data.paths import as_path, check_file, is_folder
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from datasets import Dataset

    from nearfar.data.fingerprints import Hashes


LAST_GROUPS = 1000
"""The largest number of groups in the last part of a table."""


_INDEX = re.compile(r"(Unnamed: \d+|__index_level_\d+__)?")
"""Names that pandas gives to the index of a table."""
_KEYS_FROM = 1000
"""Number of JSON lines whose keys are the columns of a file."""
_SHOWN_ROWS = 5
_SKIPS_EMPTY: ContextVar[bool] = ContextVar("skips_empty", default=False)


@contextmanager
def skipping_empty(skip: bool) -> Iterator[None]:
    """Within it, :meth:`Table.entries` leaves out rows with an empty cell if ``skip``, with a warning that counts them.

    It holds for all files of a command, whatever reads them.
    """
    token = _SKIPS_EMPTY.set(skip)
    try:
        yield
    finally:
        _SKIPS_EMPTY.reset(token)


def skips_empty() -> bool:
    """Whether rows with an empty cell are left out (:func:`skipping_empty`)."""
    return _SKIPS_EMPTY.get()


@dataclass(frozen=True)
class ExcludedPairs:
    """Pairs of sentences to leave out of a table, in either order and apart from case, spaces and punctuation."""

    columns: tuple[str, str]
    """The columns with the two sentences."""
    hashes: "Callable[[], Hashes]"
    """Returns the hashes of the pairs, as :func:`nearfar.data.fingerprints.pair_hashes` computes them."""

    def filter(self, rows: Rows) -> Rows:
        """Yield the rows whose last two values are not an excluded pair."""
        from nearfar.data.fingerprints import pair_hashes  # loads numpy

        excluded = set(self.hashes().tolist())
        for where, values in rows:
            first, second = map(str, values[-2:])
            if int(pair_hashes([(first, second)])[0]) not in excluded:
                yield where, values


@dataclass(frozen=True)
class GroupPart:
    """A part of a table by its groups. A group is the rows with the same value in a column."""

    columns: tuple[str]
    """That column."""
    place: int
    """0: all groups but the last ones, which are a fifth of all, at most 1,000; 1: the last ones; 2: as many before
    these, which are also in part 0."""

    def filter(self, rows: Rows) -> Rows:
        """Yield the rows of the part; their last value is the group's."""
        read = list(rows)
        groups = list(dict.fromkeys(str(values[-1]) for _, values in read))
        count, size = len(groups), min(LAST_GROUPS, len(groups) // 5)
        start, stop = (count - self.place * size, count - (self.place - 1) * size) if self.place else (0, count - size)
        part = set(groups[start:stop])
        yield from ((where, values) for where, values in read if str(values[-1]) in part)


class Entry(NamedTuple):
    """The checked values of a row."""

    texts: tuple[str, ...]
    target: Any = None
    """What the check made of its label or score; None in rows of texts alone."""
    repaired: int = 0
    """Number of its texts whose white space was normalised."""


@dataclass(frozen=True)
class Table:
    """Rows that can be read by column name, repeatedly; ``title`` describes their location."""

    title: str
    data: "Path | Dataset"
    text_of: tuple[str, ...] = ()
    """Columns of a data set that are joined by a space to the column ``text``."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Label in a data set -> the label to yield instead."""
    excluded: "ExcludedPairs | GroupPart | None" = None
    """Rows to leave out."""
    plain: bool = False
    """Whether a TSV file has no quoting, whatever its fields look like: of named sets."""

    def rows(self, columns: Sequence[str], *, optional: Sequence[str] = ()) -> Rows:
        """Yield the location of each row and its values of ``columns``; for errors see :func:`read_columns`.

        ``optional`` columns follow; JSON objects may lack them (None).
        """
        if self.excluded is None:
            return self._all_rows(columns, optional)
        read = self._all_rows((*columns, *self.excluded.columns))
        return ((where, values[: len(columns)]) for where, values in self.excluded.filter(read))

    @property
    def is_plain_text(self) -> bool:
        """Whether it is a file with one text per line and no columns."""
        return isinstance(self.data, Path) and is_plain_text(self.data)

    def text_rows(self, columns: Sequence[str]) -> Rows:
        """:meth:`rows`; the rows of plain text are its lines, without blank ones, whatever their column is called."""
        if isinstance(self.data, Path) and is_plain_text(self.data):
            return ((where, (line,)) for where, line in read_lines(self.data))
        return self.rows(columns)

    def _all_rows(self, columns: Sequence[str], optional: Sequence[str] = ()) -> Rows:
        if isinstance(self.data, Path):
            return read_file(self.data, columns, optional=optional, plain=self.plain)
        if not (self.text_of or self.labels):
            return read_dataset(self.data, (*columns, *optional), title=self.title)
        return self._adapted_rows(self.data, columns)

    def _adapted_rows(self, data: "Dataset", columns: Sequence[str]) -> Rows:
        parts = {column: self.text_of if self.text_of and column == "text" else (column,) for column in columns}
        read = [part for column in columns for part in parts[column]]
        for where, values in read_dataset(data, read, title=self.title):
            rest = iter(values)
            row: list[object] = []
            for column in columns:
                found = [next(rest) for _ in parts[column]]
                value = found[0] if len(found) == 1 else " ".join(map(str, found))
                row.append(self.labels.get(str(value), value) if column == "label" else value)
            yield where, tuple(row)

    def entries(
        self,
        columns: Sequence[str],
        target: str | None = None,
        check: "Check | None" = None,
        *,
        negatives: Sequence[str] = (),
    ) -> "Iterator[Entry]":
        """Yield the texts in ``columns`` of each row (:func:`text_field`), and what ``check`` makes of its target.

        ``check`` gets the value in the column ``target``, the column's name and the location. It raises NearfarError
        for an invalid value, and returns None to leave out the row. With columns of ``negatives``, whose cells hold a
        text or a list of texts, or nothing, a row yields one entry for each negative, which is its last text.

        Raises:
            EmptyCellError: at the first row with an empty cell; the message counts and lists all of them. Within
                :func:`skipping_empty` they are left out instead.
        """
        read = (*columns, target) if target else columns
        rows = self.text_rows(read) if len(read) == 1 and self.is_plain_text else self.rows(read, optional=negatives)
        empty: list[tuple[Location, EmptyCellError]] = []

        def checked(where: Location, values: tuple[object, ...]) -> list[Entry]:
            value = check(values[len(columns)], target, where) if check and target else None
            if target and value is None:
                return []
            raw = values[: len(columns)]
            texts = tuple(map(text_field, raw, columns, repeat(where)))
            entry = Entry(texts, value, 0 if texts == raw else sum(map(ne, texts, raw)))
            return _with_negatives(entry, negatives, values[len(read) :], where) if negatives else [entry]

        for where, values in rows:
            try:
                entries = checked(where, values)
            except EmptyCellError as error:
                empty.append((where, error))
            else:
                if not empty or skips_empty():  # else the rows are refused, and the others are only looked at
                    yield from entries
        if empty:
            _report_empty(self.title, empty)

    def note(self, columns: Sequence[str]) -> str:
        """What is worth knowing of a file of one's own, to end its description: its separator, and columns not read."""
        if self.is_plain_text:
            return ""
        read = set(map(fold_name, columns))
        unread = [printable_name(name) for name in column_names(self) if fold_name(name) not in read]
        more = ", ..." if len(unread) > 20 else ""
        notes = [f"columns that are not read: {', '.join(unread[:20])}{more}"] if unread else []
        if isinstance(self.data, Path) and (separator := unusual_separator(self.data)):
            notes.insert(0, f"columns separated by {separator}")
        return "".join(f"; {note}" for note in notes)


def _with_negatives(entry: Entry, names: Sequence[str], cells: Sequence[object], where: Location) -> list[Entry]:
    """A copy of ``entry`` for each text in ``cells``, which hold a text, a list of texts or nothing."""
    listed = [(name, cell if isinstance(cell, list) else [cell]) for name, cell in zip(names, cells, strict=True)]
    texts = [(text_field(one, name, where), one) for name, cell in listed for one in cell if not is_blank(one)]
    if not texts:
        raise EmptyCellError(f"{where}: column {names[0]!r} is empty.")
    return [Entry((*entry.texts, text), entry.target, entry.repaired + (text != raw)) for text, raw in texts]


def _report_empty(title: str, empty: "Sequence[tuple[Location, EmptyCellError]]") -> None:
    """Warn of the rows with an empty cell if they are left out, else raise the error of all of them."""
    (first, error), more = empty[0], ", ..." * (len(empty) > _SHOWN_ROWS)
    counted = f"{len(empty):,} ({first.unit} {', '.join(str(where.number) for where, _ in empty[:_SHOWN_ROWS])}{more})"
    if skips_empty():
        warnings.warn(f"{title}: rows with empty cells that are left out: {counted}.", stacklevel=3)
    else:
        raise EmptyCellError(
            f"{str(error).partition(' is empty')[0]} is empty. Rows with empty cells: {counted}. Fill them in, remove "
            "the rows, or leave them out by --skip-empty."
        )


def open_table(source: str | Path, *, split: str | None = None) -> Table:
    """Open ``source``: a path, or ``hub:owner/name[/config]``. ``split`` is for folders and hub data sets."""
    if isinstance(source, str) and source.startswith("hub:"):
        title = source if split is None else f"{source}:{split}"
        return Table(title, load_hub(source.removeprefix("hub:"), split=split))
    path = as_path(source)
    if is_folder(path):
        return Table(str(path) if split is None else f"{path}:{split}", load_folder(path, split=split))
    if split is not None:
        raise NearfarError(f"{path}: a file has no splits; remove {split!r}.")
    return Table(str(path), path)


def read_columns(source: str | Path, columns: Sequence[str], *, split: str | None = None) -> Rows:
    """Yield ``(location, values)`` for each row of ``source``, values in the order of ``columns``; rows are streamed.

    ``source`` is a ``.tsv``, ``.csv``, ``.jsonl``, ``.json`` (one object per line) or ``.parquet`` file, text formats
    also with ``.gz``; a folder written by ``datasets``' ``save_to_disk``; or ``hub:owner/name[/config]``. For data sets
    by name see :mod:`nearfar.data.catalog`.

    Raises:
        NearfarError: the source cannot be found or read, or a row is malformed; the message names file and line. The
            error of a row is raised when the row is reached.

    """
    return open_table(source, split=split).rows(columns)


def column_names(table: Table) -> list[str]:
    """Return the names of the columns of ``table``, in their order, without those of an index that pandas wrote.

    Those of JSON lines are the keys of the first 1,000 lines. A name that occurs twice is returned twice.

    Raises:
        NearfarError: the file is missing, empty or damaged, or its format has no columns (plain text).
    """
    names = _all_names(table)
    return [name for name in names if not _INDEX.fullmatch(name)] or names


def _all_names(table: Table) -> list[str]:
    if not isinstance(table.data, Path):
        return list(table.data.column_names)
    path = table.data
    check_file(path)
    kind = extension(path).removesuffix(".gz")
    if kind == ".parquet":
        return _parquet_names(path)
    if kind in (".jsonl", ".json"):
        return list(dict.fromkeys(name for _, record in islice(json_records(path), _KEYS_FROM) for name in record))
    if kind not in (".tsv", ".csv"):
        raise NearfarError(f"{path}: unknown extension. Files with columns end in {', '.join(EXTENSIONS)}.")
    return open_delimited(path, plain=table.plain)[1]


def _parquet_names(path: Path) -> list[str]:
    import pyarrow
    import pyarrow.parquet

    try:
        return list(pyarrow.parquet.read_schema(path).names)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise parquet_error(path, error) from None
