"""Columns of a table on the explorer page: categories and numbers, which give colours, and other values."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from nearfar.data.sources import parse_number, sort_labels
from nearfar.types import NearfarError

MAX_CATEGORIES = 30
"""Maximum number of different values that each get a colour."""
MAX_NUMERIC_CATEGORIES = 10
"""A column of numbers with more different values than this gets a colour scale."""


class Column(NamedTuple):
    """One column beside the texts."""

    name: str
    kind: Literal["categories", "numbers", "values"]
    """categories: a colour for each value; numbers: a colour scale; values: no colours."""
    values: list[str]
    """The value of each text; empty where it is missing."""
    categories: list[str]
    """The different values, in the order of their colours; empty for other kinds."""


def describe_column(name: str, values: Sequence[str]) -> Column:
    """Find the kind of a column from its values. Missing values are empty strings."""
    different = {value for value in values if value}
    numeric = bool(different) and not any(math.isnan(parse_number(value)) for value in different)
    if numeric and len(different) > MAX_NUMERIC_CATEGORIES:
        return Column(name, "numbers", list(values), [])
    if 0 < len(different) <= MAX_CATEGORIES:
        ordered = sorted(different, key=parse_number) if numeric else sort_labels(different)
        return Column(name, "categories", list(values), ordered)
    return Column(name, "values", list(values), [])


def check_color_column(columns: Sequence[Column], name: str, source: object) -> None:
    """Raise a NearfarError unless ``columns`` has a column ``name`` that gives colours. ``source`` names the file."""
    column = next((one for one in columns if one.name == name), None)
    if column is None:
        others = ", ".join(one.name for one in columns) or "there are none"
        raise NearfarError(
            f"--color-by {name}: {source} has no other column of this name. Its other columns: {others}."
        )
    if column.kind == "values":
        different = len({value for value in column.values if value})
        raise NearfarError(
            f"--color-by {name}: the column has {different:,} different values that are not all numbers. Colours need "
            f"at most {MAX_CATEGORIES} different values, or numbers."
        )
