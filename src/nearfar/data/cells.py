"""Texts, labels and numbers of the cells of a table, checked by one rule for all file formats."""

import math
import re
from collections.abc import Callable, Collection
from numbers import Number
from typing import TypeAlias

from nearfar.data.columns import Location
from nearfar.data.paths import shown
from nearfar.types import NearfarError

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # Unicode category Cc


_SURROGATE = re.compile(r"[\ud800-\udfff]")


_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


_INTEGER = re.compile(r"-?\d{1,300}\.0*", re.ASCII)


MISSING_VALUES = (
    *("", "nan", "NaN", "-nan", "-NaN", "null", "NULL", "None"),
    *("NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "NaT"),
)
"""Labels that pandas writes or reads as a missing value. ``none`` and ``NONE`` are not among them."""


class EmptyCellError(NearfarError):
    """A row has an empty cell."""


def is_blank(value: object) -> bool:
    """Whether a cell is empty: None, or text of white space and control characters."""
    return value is None or (isinstance(value, str) and not normalize_whitespace(value))


Check: TypeAlias = Callable[[object, str, Location], str | float | None]
"""Returns the label or score that a value means, None if the row has none; see :meth:`Table.entries`."""


def normalize_whitespace(text: str) -> str:
    """Replace each run of white space and control characters by one space, and strip the ends."""
    return " ".join(_CONTROL.sub(" ", text).split())


def text_field(value: object, column: str, where: Location) -> str:
    """Return ``value`` as text with normalised white space.

    Each run of white space and control characters becomes one space, and the ends are stripped; everything else,
    including emoji and their joiners, is kept. Callers that count changed fields compare the result with ``value``.

    Raises:
        EmptyCellError: ``value`` is None, or empty after normalisation.
        NearfarError: ``value`` is not a string, or is not valid Unicode.

    """
    if not isinstance(value, str | None):
        raise NearfarError(f"{where}: column {column!r} holds {shown(value)} ({type(value).__name__}), not text.")
    text = normalize_whitespace(value or "")
    if not text:
        raise EmptyCellError(f"{where}: column {column!r} is empty. Fill it in, or remove the row.")
    if _SURROGATE.search(text):
        raise NearfarError(
            f"{where}: column {column!r} holds half a surrogate pair, which is not a character: {shown(text)}."
        )
    return text


def parse_number(value: object) -> float:
    """Return ``value``, a number or a string, as a finite float, or NaN if it is not one; a boolean is not a number.

    >>> parse_number("3.0"), parse_number("\\u00a03 "), parse_number(True), parse_number("1_000"), parse_number("inf")
    (3.0, 3.0, nan, nan, nan)
    """
    if not isinstance(value, str | Number):
        return math.nan
    try:
        written = str(value).strip()  # of any white space, as float() does
    except ValueError:  # an integer with thousands of digits
        return math.nan
    number = float(written) if _NUMBER.fullmatch(written) else math.nan
    return number if math.isfinite(number) else math.nan


def score_check(scale: tuple[float, float] | None = None) -> Check:
    """Return the check of a column of scores: finite numbers, from the lowest to the highest of ``scale``."""

    def check(value: object, column: str, where: Location) -> float:
        score = parse_number(value)
        if is_blank(value):
            raise EmptyCellError(f"{where}: column {column!r} is empty.")
        if math.isnan(score):
            comma = isinstance(value, str) and not math.isnan(parse_number(value.replace(",", ".", 1)))
            advice = "Write a point in place of the comma" if comma else "Correct it, or remove the row"
            raise NearfarError(f"{where}: column {column!r} holds {shown(value)}, not a number. {advice}.")
        if scale is not None and not scale[0] <= score <= scale[1]:
            raise NearfarError(f"{where}: score {score:g} is outside {scale[0]:g} to {scale[1]:g}.")
        return score

    return check


def label_field(value: object, column: str, where: Location) -> str:
    """Return the name of a label, by the same rule for all file formats.

    White space in a string is normalised. An integer is its digits; ``1``, ``1.0``, ``"1"`` and ``"1.0"`` are the same
    label. A boolean is ``true`` or ``false``, and so are these words in upper or lower case.

    Raises:
        NearfarError: a missing value (:data:`MISSING_VALUES`), a number with a fraction, another type, or text that is
            not valid Unicode; the message names location and column.
    """
    if value is None or (isinstance(value, Number) and str(value).lower() == "nan"):
        value = ""
    if not isinstance(value, str | Number):
        raise NearfarError(f"{where}: column {column!r} holds {shown(value)}. A label is a string or an integer.")
    name = normalize_whitespace(value) if isinstance(value, str) else str(value)
    if not name:
        raise EmptyCellError(f"{where}: column {column!r} is empty. Fill in a label, or remove the row.")
    if name in MISSING_VALUES:
        raise NearfarError(
            f"{where}: column {column!r} holds {name!r}, which marks a missing value. Fill in a label, or remove the "
            "row; if it is the name of a class, rename the class, for example to 'none'."
        )
    if _SURROGATE.search(name):
        raise NearfarError(f"{where}: column {column!r} holds half a surrogate pair, which is not a character.")
    if name.lower() in ("true", "false"):
        return name.lower()
    if _INTEGER.fullmatch(name):
        return str(int(name.partition(".")[0]))
    number = parse_number(name)
    if isinstance(value, Number) and number.is_integer():
        return name if name.lstrip("-").isdigit() else str(int(number))
    if isinstance(value, Number) or ("." in name and not math.isnan(number)):
        raise NearfarError(
            f"{where}: column {column!r} holds {shown(value)}. A label is a string or an integer; numbers with "
            "fractions are scores."
        )
    return name


def sort_labels(names: Collection[str]) -> list[str]:
    """Sort labels in numeric order if all are integers, else in text order."""
    try:
        return sorted(names, key=lambda name: (int(name), name))
    except ValueError:
        return sorted(names)
