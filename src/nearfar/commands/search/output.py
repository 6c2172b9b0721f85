"""Hits as text: tab-separated lines, or JSON lines."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from nearfar.commands.search.hits import Hit
from nearfar.data.sources import normalize_whitespace

FIELDS = ("query", "rank", "score", "row", "text", "count")
"""The fields of every hit. A column of the input with one of these names gets the prefix ``input_``."""


def table_header(columns: Sequence[str]) -> str:
    """The first line of a .tsv file."""
    return "\t".join([*FIELDS, *(show_value(name) for name in output_names(columns))]) + "\n"


def format_hits(query: str, hits: Sequence[Hit], columns: Sequence[str], *, json_lines: bool) -> Iterator[str]:
    """The lines of one query: JSON objects, or fields separated by tabs, in which white space is normalised."""
    names = output_names(columns)
    for hit in hits:
        values = [query, hit.rank, round(hit.score, 6), hit.row, hit.text, hit.count]
        values += [hit.columns[column] for column in columns]
        if json_lines:
            yield json.dumps(dict(zip((*FIELDS, *names), values, strict=True)), ensure_ascii=False) + "\n"
        else:
            yield "\t".join(map(show_value, values)) + "\n"


def output_names(columns: Sequence[str]) -> list[str]:
    """The names of the other columns in an output."""
    names: list[str] = []
    for column in columns:
        name = column
        while name in FIELDS or name in names or (name != column and name in columns):
            name = f"input_{name}"
        names.append(name)
    return names


def show_value(value: Any) -> str:
    """A value of another column as one line of text; empty for a missing one."""
    if value is None:
        return ""
    return normalize_whitespace(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
