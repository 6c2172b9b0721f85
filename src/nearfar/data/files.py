"""Read one file: rows by column name from TSV, CSV, JSON lines (each also gzipped) or Parquet; lines of plain text.

TSV has *no quoting* (a ``"`` is an ordinary character, no field contains a tab or a line break). CSV has the standard
quoting, so that a record may span lines; errors name its first line. Blank lines are skipped.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nearfar.data.locations import MAX_LINE_BYTES, Location, MissingColumnError, Rows, column_indices, printable_name
from nearfar.data.parquet import read_parquet
from nearfar.data.paths import check_file
from nearfar.types import NearfarError

__all__ = [
    "EXTENSIONS",
    "MAX_LINE_BYTES",
    "PLAIN_TEXT",
    "Location",
    "MissingColumnError",
    "Rows",
    "column_indices",
    "csv_records",
    "extension",
    "is_known",
    "is_plain_text",
    "json_records",
    "printable_name",
    "read_file",
    "read_lines",
    "stem",
    "tsv_records",
]

_NOT_TEXT = (
    (b"\xff\xfe", "It is UTF-16. "),
    (b"\xfe\xff", "It is UTF-16. "),
    (b"\x1f\x8b", "It is gzipped: add .gz to its name, or unpack it. "),
    (b"PK\x03\x04", "It is a ZIP archive, as spreadsheets are. "),
)
"""First bytes of files that are often mistaken for text, and a hint."""


def read_file(path: Path, columns: Sequence[str]) -> Rows:
    """Yield the ``columns`` of each row of ``path``; the extension determines the format (see :data:`EXTENSIONS`).

    Text files yield strings (JSON lines: JSON values). Parquet yields Python values, and class names if ``datasets``
    wrote the file and its features declare them.

    Raises:
        NearfarError: a missing or not regular file, an unknown extension, an empty or damaged file, text that is not
            UTF-8, a line longer than :data:`MAX_LINE_BYTES`, a missing or duplicate column, a line with too many or too
            few fields, or one that is not a JSON object. The message names file and line.

    """
    check_file(path)
    reader = _READERS.get(extension(path))
    if reader is None:
        raise NearfarError(f"{path}: unknown extension. Files with columns end in {', '.join(EXTENSIONS)}.")
    return reader(path, columns)


def read_lines(path: Path, *, keep_blank: bool = False) -> Iterator[tuple[Location, str]]:
    """Yield the lines of a plain text file (:data:`PLAIN_TEXT`) without line ends; blank ones only if ``keep_blank``.

    Raises:
        NearfarError: a missing, not regular or damaged file, a line longer than :data:`MAX_LINE_BYTES`, or text that
            is not UTF-8. The message names file and line.

    """
    for number, line in _lines(path):
        if keep_blank or line.strip():
            yield Location(str(path), number), line.removesuffix("\n").removesuffix("\r")


def is_plain_text(path: Path) -> bool:
    """Whether ``path`` has an extension of plain text, for :func:`read_lines`."""
    return extension(path) in PLAIN_TEXT


def is_known(path: Path) -> bool:
    """Whether ``path`` has an extension that :func:`read_file` reads."""
    return extension(path) in _READERS


def stem(path: Path) -> str:
    """Return the file name without its format extension: ``dev`` for ``sets/dev.tsv.gz``."""
    return path.name[: -len(extension(path))] if is_known(path) else path.name


def extension(path: Path) -> str:
    """Return the extension of the format in lower case, with .gz: ``.tsv.gz``."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    return "".join(suffixes) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:])


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    check_file(path)  # opening a pipe would wait for its writer
    # Split only at \n and decode line by line, so that an error names the line, and a stray \r stays in its field.
    try:
        with gzip.open(path) if extension(path).endswith(".gz") else path.open("rb") as file:
            for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES + 1), b""), 1):
                if len(line) > MAX_LINE_BYTES:
                    raise NearfarError(
                        f"{Location(str(path), number)}: the line is longer than {MAX_LINE_BYTES / 2**20:g} MiB. "
                        "Write one row per line, and split long texts."
                    )
                try:
                    yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    hint = next((words for start, words in _NOT_TEXT if number == 1 and line.startswith(start)), "")
                    raise NearfarError(
                        f"{Location(str(path), number)}: not UTF-8 (byte {error.start + 1} of the line is "
                        f"0x{line[error.start]:02x}). {hint}Save the file as UTF-8."
                    ) from None
    except zlib.error:  # its text has the number of an error in a library
        raise NearfarError(f"{path} cannot be read: its compressed data is damaged. Copy or write it again.") from None
    except (OSError, EOFError) as error:
        raise NearfarError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None


def tsv_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the fields of each line of a TSV file, its header first."""
    for number, line in _lines(path):
        if line.strip("\r\n"):
            yield number, line.removesuffix("\n").removesuffix("\r").split("\t")


def csv_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line number and the fields of each record of a CSV file, its header first."""
    # Applies to the whole process. Python's default, 131,072 characters, is too low for long documents.
    csv.field_size_limit(MAX_LINE_BYTES)
    # strict: an unclosed quote would otherwise silently swallow the rest of the file.
    reader = csv.reader((line for _, line in _lines(path)), strict=True)
    start = 1
    try:
        for fields in reader:
            if fields:
                yield start, fields
            start = reader.line_num + 1
    except csv.Error as error:
        why = "it has a carriage return without a line feed" if "new-line character" in str(error) else str(error)
        raise NearfarError(f"{Location(str(path), start)}: not well-formed CSV: {why}.") from None


def _read_delimited(
    path: Path, columns: Sequence[str], records_of: Callable[[Path], Iterator[tuple[int, list[str]]]]
) -> Rows:
    records = records_of(path)
    number, header = next(records, (0, []))
    if not header:
        raise NearfarError(f"{path} is empty; its first line should name the columns.")
    if any("\0" in name for name in header):
        raise NearfarError(f"{path} contains NUL bytes, as UTF-16 does. Save the file as UTF-8.")
    indices = column_indices(header, columns, Location(str(path), number))
    for number, fields in records:
        where = Location(str(path), number)
        if len(fields) != len(header):
            raise NearfarError(f"{where}: {len(fields)} fields, but the header has {len(header)} columns.")
        yield where, tuple(fields[index] for index in indices)


def _read_tsv(path: Path, columns: Sequence[str]) -> Rows:
    return _read_delimited(path, columns, tsv_records)


def _read_csv(path: Path, columns: Sequence[str]) -> Rows:
    return _read_delimited(path, columns, csv_records)


def json_records(path: Path, columns: Collection[str] = ()) -> Iterator[tuple[Location, dict[str, Any]]]:
    """Yield the location and the object of each line of a JSON lines file.

    Raises NearfarError, apart from damaged files, for an object that has a key of ``columns`` twice.
    """
    empty = True
    repeated: list[str] = []

    def unite(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated  # the outermost object comes last
        found = dict(pairs)
        repeated = [] if len(found) == len(pairs) else _repeated([name for name, _ in pairs], columns)
        return found

    for number, line in _lines(path):
        if not line.strip():
            continue
        empty, where = False, Location(str(path), number)
        try:
            record = json.loads(line, object_pairs_hook=unite)
        except (ValueError, RecursionError) as error:
            why = "it is nested too deeply" if isinstance(error, RecursionError) else error
            raise NearfarError(f"{where}: not a JSON object: {why}. Write one object per line.") from None
        if not isinstance(record, dict):
            raise NearfarError(f"{where}: a JSON {type(record).__name__}, not an object. Write one object per line.")
        if repeated:
            raise NearfarError(f"{where}: the key {repeated[0]!r} occurs twice. Remove one of them.")
        yield where, record
    if empty:
        raise NearfarError(f"{path} is empty; each line should be a JSON object.")


def _repeated(names: Sequence[str], columns: Collection[str]) -> list[str]:
    return [column for column in columns if names.count(column) > 1]


def _read_json_lines(path: Path, columns: Sequence[str]) -> Rows:
    for where, record in json_records(path, columns):
        column_indices(list(record), columns, where)
        yield where, tuple(record[column] for column in columns)


_READERS: dict[str, Callable[[Path, Sequence[str]], Rows]] = {
    ".tsv": _read_tsv,
    ".tsv.gz": _read_tsv,
    ".csv": _read_csv,
    ".csv.gz": _read_csv,
    ".jsonl": _read_json_lines,
    ".jsonl.gz": _read_json_lines,
    ".json": _read_json_lines,
    ".json.gz": _read_json_lines,
    ".parquet": read_parquet,
}
EXTENSIONS = tuple(_READERS)
PLAIN_TEXT = (".txt", ".txt.gz")
"""Extensions of files with one text per line and no columns."""
