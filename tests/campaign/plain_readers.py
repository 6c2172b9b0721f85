"""Plain readers of the documented file formats: whole files in memory, the standard library only, no shared code.

Each raises ``RefusedError`` for what docs/guides/data.md refuses, so that both what nearfar reads and what it refuses
can be compared.
"""

import csv
import gzip
import io
import json
import re
import struct
import tomllib
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


class RefusedError(Exception):
    """The documentation refuses this file, with the reason."""


class UnclearError(Exception):
    """The documentation leaves open whether this file is read; if it is, the rows are ``rows``."""

    def __init__(self, why: str, rows: Any = None) -> None:
        super().__init__(why)
        self.rows = rows


def content_of(path: Path) -> bytes:
    """The bytes of a regular file."""
    if not path.is_file():
        raise RefusedError("not a regular file")
    return path.read_bytes()


def text_of(path: Path) -> str:
    content = content_of(path)
    if path.name.endswith(".gz"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error, struct.error) as error:
            raise RefusedError(f"gzip: {error}") from None
    if any(len(line) > 2**26 for line in content.split(b"\n")):
        raise RefusedError("a line of over 64 MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefusedError(str(error)) from None


def lines(path: Path) -> list[str]:
    """The lines of a text file: they end with a line feed, before which a carriage return is dropped."""
    text = text_of(path)
    found = text.split("\n")
    if found[-1] == "":
        found.pop()
    return [line[:-1] if line.endswith("\r") else line for line in found]


def tsv(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Rows of a TSV file without quoting; lines with nothing but line ends are blank."""
    text = text_of(path)
    records = [
        (line[:-1] if line.endswith("\r") else line).split("\t") for line in text.split("\n") if line.strip("\r\n")
    ]
    return _chosen(records, columns)


def comma_separated(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Rows of a CSV file."""
    text = text_of(path)
    csv.field_size_limit(2**26)
    try:
        records = [record for record in csv.reader(io.StringIO(text, newline=""), strict=True) if record]
        if re.search(r"\r(?!\n)", text):
            raise UnclearError("a carriage return without a line feed")
    except csv.Error as error:
        raise RefusedError(str(error)) from None
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
        found = dict(pairs)
        if len(found) < len(pairs) and any([name for name, _ in pairs].count(column) > 1 for column in columns):
            raise RefusedError("a key occurs twice")
        return found

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

    content_of(path)
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            table = file.read()
    except Exception as error:
        raise RefusedError(str(error)) from None
    if any(table.column_names.count(column) != 1 for column in columns):
        raise RefusedError("a column is missing or occurs twice")
    try:
        values = [table.column(table.column_names.index(name)).to_pylist() for name in columns]
    except Exception as error:
        raise RefusedError(str(error)) from None
    metadata = (table.schema.metadata or {}).get(b"huggingface")
    return list(zip(*(_named(name, found, metadata) for name, found in zip(columns, values, strict=True)), strict=True))


def _named(column: str, values: list[Any], metadata: bytes | None) -> list[Any]:
    """Class numbers as the names that ``datasets`` declares for the column."""
    if metadata is None:
        return values
    try:
        names = json.loads(metadata)["info"]["features"][column].get("names")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UnclearError("metadata that datasets did not write") from None
    return [names[one] if names and isinstance(one, int) and 0 <= one < len(names) else one for one in values]


ROWS: dict[str, Callable[[Path, Sequence[str]], list[tuple[Any, ...]]]] = {
    "tsv": tsv,
    "csv": comma_separated,
    "jsonl": json_lines,
    "json": json_lines,
    "parquet": parquet,
}


def rows(path: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows of a file in the format of its name."""
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    return ROWS[kind](path, columns)


def toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file."""
    try:
        return tomllib.loads(content_of(path).decode("utf-8-sig"))
    except (ValueError, RecursionError, OSError) as error:
        raise RefusedError(str(error)) from None


def json_document(path: Path) -> Any:
    """One JSON document."""
    try:
        return json.loads(content_of(path))
    except (ValueError, RecursionError, OSError) as error:
        raise RefusedError(str(error)) from None


_SAFETENSORS_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}


def safetensors(path: Path) -> dict[str, Any]:
    """The tensors of a safetensors file: name -> array."""
    import numpy as np

    content = content_of(path)
    try:
        (size,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + size])
        data = content[8 + size :]
        found = {}
        for name, entry in header.items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                kind = np.dtype(_SAFETENSORS_TYPES[entry["dtype"]])
                found[name] = np.frombuffer(data[start:end], kind).reshape(entry["shape"])
    except (ValueError, KeyError, TypeError, struct.error, AttributeError) as error:
        raise RefusedError(str(error)) from None
    return found
