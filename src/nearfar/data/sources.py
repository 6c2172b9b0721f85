"""Read columns by name from a file, a saved ``datasets`` folder or a hub data set; check texts, labels and numbers."""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import repeat
from operator import ne
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from nearfar.data import cells, files
from nearfar.data.cells import Check, EmptyCellError, Location, Rows
from nearfar.data.paths import as_path, list_names
from nearfar.disk.checks import path_errors
from nearfar.types import NearfarError

if TYPE_CHECKING:
    import pyarrow
    from datasets import Dataset, DatasetDict


HUB_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?:/([\w.-]+))?")
"""The name of a hub data set: ``owner/name``, or ``owner/name/config`` if it has several configs."""
SAVED_DATASET = ("state.json", "dataset_dict.json")
"""Files of which a folder by ``save_to_disk`` has one."""


def load_hub(name: str, *, split: str | None = None) -> "Dataset | DatasetDict":
    """Return the hub data set ``owner/name[/config]``, from the local cache if the hub is unreachable.

    ``split`` is the name of a split or a slice expression of ``datasets`` (``train[:1000]``); None for all splits.

    Raises:
        NearfarError: the hub is unreachable and nothing is cached, or it has no such data set, config or split.

    """
    import datasets

    match = HUB_NAME.fullmatch(name)
    if match is None:
        raise NearfarError(f"hub:{name}: a hub data set is named owner/name, or owner/name/config.")
    repository, config = match.groups()
    if Path(repository).is_dir():  # load_dataset would read that folder instead
        raise NearfarError(f"hub:{name}: the folder {repository} in the working directory hides it.")
    with _one_line_errors(f"hub:{name}: "):
        return datasets.load_dataset(repository, config, split=split)


def load_folder(path: Path, *, split: str | None = None) -> "Dataset":
    """Return the data set, or one split of a data set dictionary, that ``save_to_disk`` wrote to ``path``."""
    import datasets

    if not any((path / marker).is_file() for marker in SAVED_DATASET):
        names = ", ".join(list_names(path)[:12]) or "it is empty"
        raise NearfarError(f"{path} is a folder that was not written by datasets' save_to_disk. Name a file: {names}.")
    with _one_line_errors(f"{path} cannot be read: "):
        data = datasets.load_from_disk(str(path))
    if split is not None and isinstance(data, datasets.Dataset):
        raise NearfarError(f"{path} is a single data set without splits; remove {split!r}.")
    return _choose_split(data, split, str(path))


def _choose_split(data: "Dataset | DatasetDict", split: str | None, title: str) -> "Dataset":
    import datasets

    if isinstance(data, datasets.Dataset):
        return data
    chosen = next(iter(data)) if split is None and len(data) == 1 else split
    if chosen not in data:
        problem = "has several splits" if split is None else f"has no split {split!r}"
        raise NearfarError(f"{title} {problem}. Name one: {', '.join(f'{title}:{name}' for name in data)}.")
    return data[chosen]


def read_dataset(dataset: "Dataset", columns: Sequence[str], *, title: str) -> Rows:
    """Yield the ``columns`` of each row; class indices are replaced by the class names that the data set declares."""
    names = [dataset.column_names[index] for index in cells.column_indices(dataset.column_names, columns, title)]
    return files.arrow_rows(title, _batches(dataset, names, title), names, files.class_names(dataset.features))


def _batches(dataset: "Dataset", columns: list[str], title: str) -> "Iterator[pyarrow.Table]":
    with _one_line_errors(f"{title}: cannot be read: "):
        yield from dataset.with_format("arrow").select_columns(columns).iter(batch_size=files.ROWS_AT_ONCE)


@contextmanager
def _one_line_errors(start: str) -> Iterator[None]:
    """Turn what datasets raises, which passes on the exceptions of all libraries below it, into a sentence."""
    try:
        yield
    except Exception as error:
        line = (str(error).splitlines() or [""])[0][:200].rstrip(". ")
        raise NearfarError(f"{start}{type(error).__name__}: {line}.") from error


_INDEX = re.compile(r"(Unnamed: \d+|__index_level_\d+__)?")
"""Names that pandas gives to the index of a table."""
_SHOWN_ROWS = 5
SKIPS_EMPTY: ContextVar[bool] = ContextVar("skips_empty", default=False)
"""Whether rows with an empty cell are left out (:func:`skipping_empty`)."""


@contextmanager
def skipping_empty(skip: bool) -> Iterator[None]:
    """Within it, :meth:`Table.entries` leaves out rows with an empty cell if ``skip``, with a warning that counts them.

    It holds for all files of a command, whatever reads them.
    """
    token = SKIPS_EMPTY.set(skip)
    try:
        yield
    finally:
        SKIPS_EMPTY.reset(token)


class Part(NamedTuple):
    """A part of a table: which rows are in it hangs on some columns."""

    columns: tuple[str, ...]
    choose: "Callable[[Rows], Rows]"
    """Yields the rows of the part; their last values are those of the columns."""


class Entry(NamedTuple):
    """The checked values of a row."""

    texts: tuple[str, ...]
    target: Any = None
    """What the check made of its label or score; None in rows of texts alone."""
    repaired: int = 0
    """Number of its texts whose white space was normalised."""


Parse: TypeAlias = Callable[[Location, Sequence[object]], list[Entry]]
"""What makes the entries of a row, of its location and values."""


@dataclass(frozen=True)
class Table:
    """Rows that can be read by column name, repeatedly; ``title`` describes their location."""

    title: str
    data: "Path | Dataset"
    text_of: tuple[str, ...] = ()
    """Columns of a data set that are joined by a space to the column ``text``."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Label in a data set -> the label to yield instead."""
    part: Part | None = None
    """The rows that it has of its data; None for all."""
    plain: bool = False
    """Whether a TSV file has no quoting, whatever its fields look like: of named sets."""
    name: str = ""
    """Its split, its subset, or the stem of its file name, where it is one of a spec (:mod:`nearfar.data.catalog`)."""
    scale: tuple[float, float] | None = None
    """Lowest and highest score."""
    sentences: tuple[str, ...] | None = None
    """The columns that hold its sentences; None if it is not a named set."""

    def rows(self, columns: Sequence[str], *, optional: Sequence[str] = ()) -> Rows:
        """Yield the location of each row and its values of ``columns``; for errors see :func:`read_columns`.

        ``optional`` columns follow; JSON objects may lack them (None).
        """
        if self.part is None:
            return self._all_rows(columns, optional)
        read = self._all_rows((*columns, *self.part.columns), ())
        return ((where, values[: len(columns)]) for where, values in self.part.choose(read))

    @property
    def is_plain_text(self) -> bool:
        """Whether it is a file with one text per line and no columns."""
        return isinstance(self.data, Path) and files.is_plain_text(self.data)

    def text_rows(self, columns: Sequence[str]) -> Rows:
        """:meth:`rows`; the rows of plain text are its lines, without blank ones, whatever their column is called."""
        if len(columns) == 1 and isinstance(self.data, Path) and files.is_plain_text(self.data):
            return ((where, (line,)) for where, line in files.read_lines(self.data))
        return self.rows(columns)

    def _all_rows(self, columns: Sequence[str], optional: Sequence[str]) -> Rows:
        if isinstance(self.data, Path):
            yield from files.read_file(self.data, columns, optional=optional, plain=self.plain)
            return
        columns = (*columns, *optional)
        joined = self.text_of if "text" in columns else ()
        read = [*(column for column in columns if column != "text" or not joined), *joined]
        for where, values in read_dataset(self.data, read, title=self.title):
            row = dict(zip(read, values, strict=True))
            if joined:
                row["text"] = " ".join(str(row[column]) for column in joined)
            if self.labels and "label" in row:
                row["label"] = self.labels.get(str(row["label"]), row["label"])
            yield where, tuple(row[column] for column in columns)

    def entries(
        self,
        columns: Sequence[str],
        target: str | None = None,
        check: "Check | None" = None,
        *,
        optional: Sequence[str] = (),
        parse: "Parse | None" = None,
    ) -> "Iterator[Entry]":
        """Yield the texts in ``columns`` of each row (:func:`text_field`), and what ``check`` makes of its target.

        ``check`` gets the value in the column ``target``, the column's name and the location. It raises NearfarError
        for an invalid value, and returns None to leave out the row, whose entry has no texts. With ``parse``, a row
        yields the entries that it makes of the location and the values of ``columns`` and of ``optional`` ones.

        Raises:
            EmptyCellError: at the first row with an empty cell; the message counts and lists all of them. Within
                :func:`skipping_empty` they are left out instead.
        """

        def parse_texts(where: Location, values: Sequence[object]) -> list[Entry]:
            value = check(values[len(columns)], target, where) if check and target else None
            if target and value is None:
                return [Entry(())]
            raw = values[: len(columns)]
            texts = tuple(map(cells.text_field, raw, columns, repeat(where)))
            return [Entry(texts, value, sum(map(ne, texts, raw)))]

        read = (*columns, target) if target else columns
        empty: list[tuple[Location, EmptyCellError]] = []
        for where, values in self.rows(read, optional=optional) if parse else self.text_rows(read):
            try:
                entries = (parse or parse_texts)(where, values)
            except EmptyCellError as error:
                empty.append((where, error))
                continue
            if not empty or SKIPS_EMPTY.get():  # else the rows are refused, and the others are only looked at
                yield from entries
        if empty:
            _report_empty(self.title, empty)

    def note(self, columns: Sequence[str]) -> str:
        """What is worth knowing of a file of one's own, to end its description: its separator, and columns not read."""
        if self.is_plain_text or self.sentences is not None:
            return ""
        notes = []
        if isinstance(self.data, Path) and (separator := files.unusual_separator(self.data)):
            notes.append(f"columns separated by {separator}")
        read = set(map(cells.fold_name, columns))
        unread = [cells.printable_name(name) for name in column_names(self) if cells.fold_name(name) not in read]
        if unread:
            notes.append(f"columns that are not read: {', '.join(unread[:20])}{', ...' * (len(unread) > 20)}")
        return "".join(f"; {note}" for note in notes)


def _report_empty(title: str, empty: "Sequence[tuple[Location, EmptyCellError]]") -> None:
    """Warn of the rows with an empty cell if they are left out, else raise the error of all of them."""
    (first, error), more = empty[0], ", ..." * (len(empty) > _SHOWN_ROWS)
    counted = f"{len(empty):,} ({first.unit} {', '.join(str(where.number) for where, _ in empty[:_SHOWN_ROWS])}{more})"
    if not SKIPS_EMPTY.get():
        cell = str(error).partition(" is empty")[0]
        way = "Fill them in, or leave them out by --skip-empty."
        raise EmptyCellError(f"{cell} is empty. Rows with empty cells: {counted}. {way}")
    warnings.warn(f"{title}: rows with empty cells that are left out: {counted}.", stacklevel=3)


@path_errors()
def open_table(source: str | Path, *, split: str | None = None) -> Table:
    """Open ``source``: a path, or ``hub:owner/name[/config]``. ``split`` is for folders and hub data sets."""
    title = f"{source}" if split is None else f"{source}:{split}"
    if title.startswith("hub:"):
        data = load_hub(str(source).removeprefix("hub:"), split=split)
        return Table(title, _choose_split(data, split, str(source)))
    path = as_path(source)
    title = f"{path}" if split is None else f"{path}:{split}"
    if path.is_dir():
        return Table(title, load_folder(path, split=split))
    if split is not None:
        raise NearfarError(f"{path}: a file has no splits; remove {split!r}.")
    return Table(title, path)


def read_columns(source: str | Path, columns: Sequence[str]) -> Rows:
    """Yield ``(location, values)`` for each row of ``source``, values in the order of ``columns``; rows are streamed.

    ``source`` is a ``.tsv``, ``.csv``, ``.jsonl``, ``.json`` (one object per line) or ``.parquet`` file, text formats
    also with ``.gz``; a folder written by ``datasets``' ``save_to_disk``; or ``hub:owner/name[/config]``. For data sets
    by name see :mod:`nearfar.data.catalog`.

    Raises:
        NearfarError: the source cannot be found or read, or a row is malformed; the message names file and line. The
            error of a row is raised when the row is reached.

    """
    return open_table(source).rows(columns)


def column_names(table: Table) -> list[str]:
    """Return the names of the columns of ``table``, in their order, without those of an index that pandas wrote.

    Those of JSON lines are the keys of all lines. A name that occurs twice is returned twice.

    Raises:
        NearfarError: the file is missing, empty or damaged, or its format has no columns (plain text).
    """
    data = table.data
    names = files.file_columns(data, plain=table.plain) if isinstance(data, Path) else list(data.column_names)
    return [name for name in names if not _INDEX.fullmatch(name)] or names
