"""Columns found by their names, and texts, labels and numbers of their cells, by one rule for all file formats."""

import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from numbers import Number
from typing import NamedTuple, TypeAlias

from nearfar.types import NearfarError
from nearfar.validation import format_value, nearest

MAX_LINE_BYTES = 2**26
"""Maximum bytes per line, against files without line ends and decompression bombs."""
MISSING_VALUES = (
    "",
    *["nan", "NaN", "-nan", "-NaN", "null", "NULL", "None", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "NaT"],
)
"""Labels that pandas writes or reads as a missing value. ``none`` and ``NONE`` are not among them."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # Unicode category Cc
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


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
Check: TypeAlias = Callable[[object, str, Location], str | float | None]
"""Returns the label or score that a value means, None if the row has none; see :meth:`Table.entries`."""


def fold_name(name: str) -> str:
    """A column's name without case and punctuation: ``Customer question`` and ``customer_question`` are equal."""
    return "".join(filter(str.isalnum, name.casefold()))


def _positions(names: Sequence[str], column: str) -> list[int]:
    """The indices of the name, else of those that differ in case and punctuation only (:func:`fold_name`)."""
    same = [index for index, name in enumerate(names) if name == column]
    return same or [index for index, name in enumerate(names) if fold_name(name) == fold_name(column) != ""]


def column_indices(names: Sequence[str], columns: Sequence[str], where: object) -> list[int]:
    """Return the index of each of ``columns`` in ``names``: of the same name, else of one that differs in case only.

    Punctuation counts as little as case (:func:`fold_name`).
    Raises MissingColumnError for a missing column, NearfarError for a duplicate one; ``where`` begins the message.
    """
    indices = []
    for column in columns:
        found = _positions(names, column)
        if len(found) != 1:
            existing = ", ".join(map(printable_name, names[:20])) + ", ..." * (len(names) > 20)
            message = (
                f"{where}: {f'{len(found)} columns named' if found else 'no column'} {column!r}. Its columns: "
                f"{existing}.{nearest(column, names)} Rename the column, or name another one to read."
            )
            raise NearfarError(message) if found else MissingColumnError(message, names)
        indices += found
    return indices


def find_columns(names: Sequence[str], columns: Sequence[str]) -> tuple[str, ...] | None:
    """Return the names that ``columns`` have in ``names`` (:func:`column_indices`); None if one is missing."""
    found = [_positions(names, column) for column in columns]
    return tuple(names[indices[0]] for indices in found) if all(found) else None


def printable_name(name: str) -> str:
    """The name of a column for a message: at most 40 characters, quoted if some cannot be printed."""
    return name[:40] if name[:40].isprintable() else repr(name[:40])


class EmptyCellError(NearfarError):
    """A row has an empty cell."""


def bad_cell(value: object, column: str, where: Location, problem: str) -> NearfarError:
    """The error of a cell, which says where it is and what it holds."""
    return NearfarError(f"{where}: column {column!r} holds {format_value(value)}{problem}")


def is_blank(value: object) -> bool:
    """Whether a cell is empty: None, or text of white space and control characters."""
    return value is None or (isinstance(value, str) and not normalize_whitespace(value))


def normalize_whitespace(text: str) -> str:
    """Replace each run of white space and control characters by one space, and strip the ends."""
    return " ".join(_CONTROL.sub(" ", text).split())


def text_field(value: object, column: str, where: Location) -> str:
    """Return ``value`` as text with normalised white space.

    Each run of white space and control characters becomes one space, and the ends are stripped; everything else,
    including emoji and their joiners, is kept. Callers that count changed fields compare the result with ``value``.

    Raises:
        EmptyCellError: ``value`` is None, or empty after normalisation.
        NearfarError: ``value`` is not a string.

    """
    if not isinstance(value, str | None):
        raise bad_cell(value, column, where, f" ({type(value).__name__}), not text.")
    text = normalize_whitespace(value or "")
    if not text:
        raise EmptyCellError(f"{where}: column {column!r} is empty. Fill it in, or remove the row.")
    return text


def parse_number(value: object) -> float:
    """Return ``value``, a number or a string, as a finite float, or NaN if it is not one; a boolean is not a number.

    >>> parse_number("3.0"), parse_number("\\u00a03 "), parse_number(True), parse_number("1_000"), parse_number("inf")
    (3.0, 3.0, nan, nan, nan)
    """
    if isinstance(value, str | Number):
        with suppress(ValueError):  # of an integer with thousands of digits
            written = str(value).strip()  # of any white space, as float() does
            if _NUMBER.fullmatch(written) and math.isfinite(number := float(written)):
                return number
    return math.nan


def score_check(scale: tuple[float, float] | None = None) -> Callable[[object, str, Location], float]:
    """Return the check of a column of scores: finite numbers, from the lowest to the highest of ``scale``."""

    def check(value: object, column: str, where: Location) -> float:
        score = parse_number(value)
        if is_blank(value):
            raise EmptyCellError(f"{where}: column {column!r} is empty.")
        if math.isnan(score):
            raise bad_cell(value, column, where, ", not a number. Correct it, or remove the row.")
        if scale is not None and not scale[0] <= score <= scale[1]:
            raise NearfarError(f"{where}: score {score:g} is outside {scale[0]:g} to {scale[1]:g}.")
        return score

    return check


def label_field(value: object, column: str, where: Location) -> str:
    """Return the name of a label, by the same rule for all file formats.

    White space in a string is normalised. An integer is its digits; ``1``, ``1.0``, ``"1"`` and ``"1.0"`` are the same
    label. A boolean is ``true`` or ``false``, and so are these words in upper or lower case.

    Raises:
        NearfarError: a missing value (:data:`MISSING_VALUES`), a number with a fraction, or another type; the message
            names location and column.
    """
    if value is None or (isinstance(value, Number) and str(value).lower() == "nan"):
        value = ""
    if not isinstance(value, str | Number):
        raise bad_cell(value, column, where, ". A label is a string or an integer.")
    name = normalize_whitespace(value) if isinstance(value, str) else str(value)
    if not name:
        raise EmptyCellError(f"{where}: column {column!r} is empty. Fill in a label, or remove the row.")
    if name in MISSING_VALUES:
        raise bad_cell(value, column, where, ", which marks a missing value. Write another word, or remove the row.")
    if name.lower() in ("true", "false"):
        return name.lower()
    number = parse_number(name)
    if number.is_integer() and ("." in name or isinstance(value, float)):
        return str(int(number))
    if not (math.isnan(number) or number.is_integer()) or (isinstance(value, Number) and math.isnan(number)):
        raise bad_cell(value, column, where, ". A label is a string or an integer; numbers with fractions are scores.")
    return name


def sort_labels(names: Collection[str]) -> list[str]:
    """Sort labels in numeric order if all are integers, else in text order."""
    integers = all(name.lstrip("+-").isdecimal() for name in names)
    return sorted(names, key=lambda name: (int(name) if integers else 0, name))
