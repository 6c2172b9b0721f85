"""The rows of a file: their texts, and a copy of the file with only some rows."""

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np
from jaxtyping import Int64

from nearfar.data.files import EXTENSIONS, PLAIN_TEXT, is_plain_text, read_file, read_lines
from nearfar.data.sources import normalize_whitespace, text_field
from nearfar.disk import disk_errors
from nearfar.types import NearfarError


class InputRows(NamedTuple):
    """The rows of a file, without blank lines."""

    texts: list[str]
    """The distinct texts, with normalised white space."""
    text_of: Int64[np.ndarray, " rows"]
    """Position of each row's text."""
    lines: Int64[np.ndarray, " rows"]
    """Number of the line where each row starts, or of the row of a Parquet file, counted from 1."""


def read_rows(source: Path, column: str | None) -> InputRows:
    """Read the texts of a plain text file (without ``column``) or of a column of a table.

    Raises:
        NearfarError: the file or the column is missing, malformed or empty, or a table is given without ``column``.
    """
    numbers: dict[str, int] = {}
    text_of, lines = [], []
    for line, text in _texts(source, column):
        text_of.append(numbers.setdefault(text, len(numbers)))
        lines.append(line)
    if not lines:
        raise NearfarError(f"{source}: holds no texts.")
    return InputRows(list(numbers), np.array(text_of, dtype=np.int64), np.array(lines, dtype=np.int64))


def _texts(source: Path, column: str | None) -> Iterator[tuple[int, str]]:
    if column is None:
        if extension(source) in EXTENSIONS:
            raise NearfarError(f"{source}: is a table; name the column of the texts with --column.")
        for where, line in read_lines(source):
            if text := normalize_whitespace(line):
                yield where.number, text
        return
    if is_plain_text(source):
        raise NearfarError(f"--column {column}: {source} has one text per line, and no columns.")
    for where, (value,) in read_file(source, (column,)):
        yield where.number, text_field(value, column, where)


def extension(file: Path) -> str:
    """The extension that determines the format, with .gz: ``.tsv.gz``; an unknown one counts as ``.txt``."""
    known = [one for one in (*EXTENSIONS, *PLAIN_TEXT) if file.name.lower().endswith(one)]
    return max(known, key=len) if known else ".txt"


def copy_rows(source: Path, target: Path, lines: Sequence[int] | np.ndarray, starts: np.ndarray) -> None:
    """Write the rows of ``source`` that start at ``lines``, unchanged, with the header of a table.

    Args:
        source: the file.
        target: file to write; gzipped if the source is.
        lines: numbers of the lines, or of the rows of a Parquet file, to keep.
        starts: the numbers of all rows; a CSV row may span lines.

    Raises:
        NearfarError: a file cannot be read or written.
    """
    kind = extension(source)
    with disk_errors(target):
        if kind == ".parquet":
            _copy_parquet(source, target, lines)
            return
        wanted, rows = set(map(int, lines)), set(map(int, starts))
        with _open(source, kind, "rb") as reader, _open(target, kind, "wb") as writer:
            writer.writelines(_kept(reader, wanted, rows, kind.removesuffix(".gz")))


def _open(file: Path, kind: str, mode: str) -> BinaryIO:
    if not kind.endswith(".gz"):
        return cast(BinaryIO, file.open(mode))
    return cast(BinaryIO, gzip.open(file, mode))


def _kept(reader: BinaryIO, lines: set[int], starts: set[int], kind: str) -> Iterator[bytes]:
    """The lines before the first row of a TSV or CSV file, its header, and the lines of the rows to keep."""
    first = min(starts)
    keep = False
    for number, line in enumerate(reader, 1):
        if number in starts or kind != ".csv":  # a CSV row may continue on the next line
            keep = number in lines
        if keep or (number < first and kind in (".tsv", ".csv")):
            yield line if line.endswith(b"\n") else line + b"\n"


def _copy_parquet(source: Path, target: Path, rows: Sequence[int] | np.ndarray) -> None:
    import pyarrow
    import pyarrow.parquet

    wanted, start = np.sort(np.asarray(rows)) - 1, 0
    with (
        pyarrow.parquet.ParquetFile(source) as file,
        pyarrow.parquet.ParquetWriter(target, file.schema_arrow) as writer,
    ):
        for batch in file.iter_batches():
            inside = wanted[(wanted >= start) & (wanted < start + batch.num_rows)] - start
            writer.write_batch(batch.take(pyarrow.array(inside)))
            start += batch.num_rows
