"""Plain readers of the documented file formats, and what nearfar reads compared with them.

They hold whole files in memory, need the standard library and pyarrow only, and share no code with nearfar. Each raises
``RefusedError`` for what docs/guides/data.md refuses, so that what nearfar refuses is compared too.
"""

import csv
import gzip
import io
import json
import math
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nearfar.data.lines import read_texts
from nearfar.data.sources import read_columns
from nearfar.types import NearfarError


class RefusedError(Exception):
    """The documentation refuses this file, with the reason."""


class UnclearError(Exception):
    """The documentation leaves open whether this file is read."""


def text_of(path: Path) -> str:
    """The text of a regular file."""
    if not path.is_file():
        raise RefusedError("not a regular file")
    content = path.read_bytes()
    if path.name.endswith(".gz"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error, struct.error) as error:
            raise RefusedError(f"gzip: {error}") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefusedError(str(error)) from None


def lines(path: Path) -> list[str]:
    """The lines of a text file: they end with a line feed, before which a carriage return is dropped."""
    found = text_of(path).split("\n")
    if found[-1] == "":
        found.pop()
    return [line.removesuffix("\r") for line in found]


def tsv(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Rows of a TSV file without quoting; lines with nothing but line ends are blank."""
    records = [line.removesuffix("\r").split("\t") for line in text_of(path).split("\n") if line.strip("\r\n")]
    return _chosen(records, columns)


def comma_separated(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Rows of a CSV file."""
    text = text_of(path)
    csv.field_size_limit(2**26)
    try:
        records = [record for record in csv.reader(io.StringIO(text, newline=""), strict=True) if record]
    except csv.Error as error:
        raise RefusedError(str(error)) from None
    if re.search(r"\r(?!\n)", text):
        raise UnclearError("a carriage return without a line feed")
    return _chosen(records, columns)


def _chosen(records: list[list[str]], columns: Sequence[str]) -> list[tuple[str, ...]]:
    if not records:
        raise RefusedError("empty")
    header, *rows = records
    if any("\0" in name for name in header):
        raise RefusedError("NUL in the header")
    if any(header.count(column) != 1 for column in columns):
        raise RefusedError("a column is missing or occurs twice")
    if any(len(row) != len(header) for row in rows):
        raise RefusedError("a row with another number of fields")
    return [tuple(row[header.index(column)] for column in columns) for row in rows]


def json_lines(path: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows of a file with one JSON object per line."""

    def no_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if any([name for name, _ in pairs].count(column) > 1 for column in columns):
            raise RefusedError("a key occurs twice")
        return dict(pairs)

    rows = []
    for line in text_of(path).split("\n"):
        if not line.strip():
            continue
        try:
            record = json.loads(line, object_pairs_hook=no_repeated)
        except (ValueError, RecursionError) as error:
            raise RefusedError(str(error)) from None
        if not isinstance(record, dict) or any(column not in record for column in columns):
            raise RefusedError("no object with these keys")
        rows.append(tuple(record[column] for column in columns))
    if not rows:
        raise RefusedError("empty")
    return rows


def parquet(path: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows of a Parquet file, by reading all of it without options."""
    import pyarrow.parquet

    if not path.is_file():
        raise RefusedError("not a regular file")
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            table = file.read()
        values = [table.column(table.column_names.index(name)).to_pylist() for name in columns]
    except Exception as error:
        raise RefusedError(str(error)) from None
    return list(zip(*values, strict=True))


FORMATS: dict[str, Callable[[Path, Sequence[str]], list[tuple[Any, ...]]]] = {
    "tsv": tsv,
    "csv": comma_separated,
    "jsonl": json_lines,
    "parquet": parquet,
}


def read(file: str, columns: Sequence[str]) -> dict[str, Any]:
    """nearfar reads a file, and a plain reader too: ``{"error": message or None, "difference": sentence or ""}``.

    Without columns it is a file of lines. Runs in a fork of the server.
    """
    path, kind = Path(file), file.removesuffix(".gz").rpartition(".")[2]
    if not columns:
        return compare(lambda: list(read_texts(path)), lambda: lines(path))
    return compare(lambda: [values for _, values in read_columns(file, columns)], lambda: FORMATS[kind](path, columns))


def compare(reader: Callable[[], list[Any]], plain: Callable[[], list[Any]]) -> dict[str, Any]:
    """Call both; what nearfar accepts must be what the plain reader finds, and what the latter accepts is accepted."""
    error, found = None, None
    try:
        found = reader()
    except NearfarError as raised:
        error = str(raised)
    try:
        expected = plain()
    except RefusedError as refused:
        difference = "" if error is not None else f"accepted, but the plain reader refuses it: {refused}"
        return {"error": error, "difference": difference}
    except UnclearError:
        return {"error": error, "difference": ""}
    if found is None:
        return {"error": error, "difference": f"refused, but the plain reader accepts it: {error}"}
    return {"error": None, "difference": _first_difference(found, expected)}


def _first_difference(found: Sequence[Any], expected: Sequence[Any]) -> str:
    """Where two lists of rows differ, in a sentence, or ""."""
    if len(found) != len(expected):
        return f"{len(found)} rows, but the plain reader finds {len(expected)}"
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        if not _same(one, other):
            return f"row {number} is {one!r:.120}, but the plain reader finds {other!r:.120}"
    return ""


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of the same type; NaN equals itself."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and bool(one == other)
