"""The lines and records of a file in a download: encodings, tab-separated values, CSV, JSON lines."""

import csv
import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from nearfar.commands.get_data.tree import SourceFile
from nearfar.data.files import MAX_LINE_BYTES, Location
from nearfar.data.paths import shown
from nearfar.types import NearfarError


class Line(NamedTuple):
    """A line without its end, and where it is."""

    where: Location
    text: str


def read_lines(file: SourceFile, encoding: str = "utf-8") -> Iterator[Line]:
    r"""Yield the lines of a file, which end in ``\n`` or ``\r\n``; a byte order mark is dropped.

    Raises:
        NearfarError: a damaged file, a line that is too long, or one that is not in the encoding.
    """
    with file.open() as stream:
        for number, raw in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES + 1), b""), 1):
            where = Location(file.shown, number)
            if len(raw) > MAX_LINE_BYTES:
                raise NearfarError(f"{where}: the line is longer than {MAX_LINE_BYTES / 2**20:g} MiB.")
            try:
                text = raw.decode("utf-8-sig" if number == 1 and encoding == "utf-8" else encoding)
            except UnicodeDecodeError as error:
                raise NearfarError(
                    f"{where}: not {encoding.upper()} (byte {error.start + 1} of the line is "
                    f"0x{raw[error.start]:02x}). It is not the published file; download it again."
                ) from None
            yield Line(where, text.removesuffix("\n").removesuffix("\r"))


def read_fields(file: SourceFile, count: int) -> Iterator[tuple[Location, list[str]]]:
    """Yield the tab-separated fields of each line that is not blank, without quoting; a line may have more fields.

    Raises:
        NearfarError: as :func:`read_lines`, or a line with fewer than ``count`` fields.
    """
    for where, text in read_lines(file):
        if not text.strip():
            continue
        fields = text.split("\t")
        if len(fields) < count:
            raise NearfarError(f"{where}: {len(fields)} tab-separated fields, but at least {count} are expected.")
        yield where, fields


def read_columns(file: SourceFile, *columns: str) -> Iterator[tuple[Location, list[str]]]:
    """Yield the named columns of a tab-separated file with a header, without quoting.

    Raises:
        NearfarError: as :func:`read_lines`, an empty file, a missing column, or a line with too few fields.
    """
    indices: list[int] = []
    for where, fields in read_fields(file, 1):
        if not indices:
            indices = column_indices(where, fields, columns)
            continue
        if len(fields) <= max(indices):
            raise NearfarError(f"{where}: {len(fields)} tab-separated fields, too few for its header.")
        yield where, [fields[index] for index in indices]
    if not indices:
        raise NearfarError(f"{file.shown}: is empty; its first line should name the columns {', '.join(columns)}.")


def column_indices(where: Location, header: Sequence[str], columns: Sequence[str]) -> list[int]:
    """Return the index of each column in the header."""
    names = [name.strip() for name in header]
    for column in columns:
        if column not in names:
            raise NearfarError(f"{where}: no column {column!r}; its header is {shown(' | '.join(names), most=200)}.")
    return [names.index(column) for column in columns]


def read_csv(file: SourceFile, count: int) -> Iterator[tuple[Location, list[str]]]:
    """Yield the records of a quoted CSV file without a header, each of ``count`` fields.

    Raises:
        NearfarError: as :func:`read_lines`, or a record that is not well-formed or has another number of fields.
    """
    csv.field_size_limit(MAX_LINE_BYTES)
    reader = csv.reader((f"{line.text}\n" for line in read_lines(file)), strict=True)
    start = 1
    try:
        for fields in reader:
            where = Location(file.shown, start)
            if fields and len(fields) != count:
                raise NearfarError(f"{where}: {len(fields)} fields, but {count} are expected.")
            if fields:
                yield where, fields
            start = reader.line_num + 1
    except csv.Error as error:
        raise NearfarError(f"{Location(file.shown, start)}: not well-formed CSV: {error}.") from None


def read_json_lines(file: SourceFile, *keys: str) -> Iterator[tuple[Location, list[str]]]:
    """Yield the values of ``keys``, texts, in each JSON object of a file with one per line.

    Raises:
        NearfarError: as :func:`read_lines`, a line that is not a JSON object, or one without a text for each key.
    """
    for where, text in read_lines(file):
        if not text.strip():
            continue
        try:
            record: Any = json.loads(text)
        except (ValueError, RecursionError):
            raise NearfarError(f"{where}: not a JSON object.") from None
        values = [record.get(key) for key in keys] if isinstance(record, dict) else []
        texts = [value for value in values if isinstance(value, str)]
        if len(texts) < len(keys):
            raise NearfarError(f"{where}: not a JSON object with the texts {', '.join(keys)}.")
        yield where, texts
