"""The rows of a corpus of Parquet files, numbered from 0 over all files in order; a range reads only its row groups."""

import glob
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from nearfar.data.cells import Location, text_field
from nearfar.data.files import column_values, parquet_error
from nearfar.disk.places import file_system, is_remote, local_path, opened, remote_errors
from nearfar.types import NearfarError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

BATCH = 1024
"""Number of rows that are decoded at a time."""
_BUFFER_BYTES = 2**20
_FOOTER_THREADS = 16
"""Number of footers that are read at the same time."""


@dataclass(frozen=True)
class InputFile:
    """One file of the corpus."""

    address: str
    rows: Annotated[int, Meta(ge=0)]
    size: Annotated[int, Meta(ge=0)]
    """Number of bytes."""
    footer: str
    """Fingerprint of the footer, which has the place, size and statistics of every column of every row group."""


@contextmanager
def _opened_parquet(address: str) -> "Iterator[tuple[pyarrow.parquet.ParquetFile, InputFile]]":
    """A Parquet file, to read and as a plan names it."""
    import pyarrow.parquet

    with opened(address) as stream:
        try:
            size = stream.seek(0, 2)
            with pyarrow.parquet.ParquetFile(stream, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
                footer = file.metadata.serialized_size
                stream.seek(size - 8 - footer)  # before its length and four letters
                digest = hashlib.sha256(stream.read(footer)).hexdigest()[:16]
                yield file, InputFile(address, file.metadata.num_rows, size, digest)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise parquet_error(address, error) from None


def read_footers(source: str, column: str, keep: Sequence[str]) -> list[InputFile]:
    """The files that ``source`` names, by their footers.

    Raises:
        NearfarError: there are no files, or no rows; a file is not Parquet or is damaged; a column is missing, the
            column of the texts is not text, or a kept column has other types in other files.
    """

    def read(address: str) -> tuple[InputFile, list[Any]]:
        with _opened_parquet(address) as (file, described):
            schema = file.schema_arrow
            if missing := [name for name in (column, *keep) if schema.names.count(name) != 1]:
                raise NearfarError(
                    f"{address}: no column {missing[0]!r}, or several. Its columns: {', '.join(schema.names[:20])}."
                )
            held = str(schema.field(column).type)
            if not held.removeprefix("dictionary<values=").startswith(("string", "large_string")):
                raise NearfarError(f"{address}: column {column!r} holds {held}, not text.")
            return described, [schema.field(name).type for name in keep]

    with ThreadPoolExecutor(_FOOTER_THREADS) as threads:
        footers = list(threads.map(read, (address for address, _ in list_files(source))))
    for place, name in enumerate(keep):
        kinds = {str(types[place]): file.address for file, types in footers}
        if len(kinds) > 1:
            where = ", ".join(f"{kind} in {address}" for kind, address in kinds.items())
            raise NearfarError(f"--keep {name}: is {where}. Give the column one type.")
    if not any(file.rows for file, _ in footers):
        raise NearfarError(f"--input {source}: holds no rows.")
    return [file for file, _ in footers]


def list_files(source: str) -> list[tuple[str, int]]:
    """The addresses of the files that ``--input`` names, sorted, and their sizes in bytes.

    Raises:
        NearfarError: there are none, or the file system cannot be reached.
    """
    if is_remote(source):
        system, path = file_system(source, flag="--input")
        with remote_errors(source, what="cannot be listed"):
            listed = system.glob(path, detail=True) if glob.has_magic(path) else {path: system.info(path)}
        found = {name: int(info["size"] or 0) for name, info in listed.items() if info["type"] != "directory"}
        files = sorted((system.unstrip_protocol(name), size) for name, size in found.items())
    else:  # fsspec does not follow links
        pattern = str(local_path(source))
        names = [pattern] if os.path.exists(pattern) else glob.glob(pattern, recursive=True)
        files = sorted((name, os.stat(name).st_size) for name in names if os.path.isfile(name))
    if not files:
        raise NearfarError(f"--input {source}: no file matches; name the files of a folder as in 'FOLDER/*.parquet'.")
    return files


def read_texts(files: Sequence[InputFile], start: int, stop: int, column: str) -> Iterator[str]:
    """The texts of rows ``start`` to ``stop`` of a corpus, with white space normalised as by :func:`text_field`.

    Raises:
        NearfarError: a file has changed or cannot be read; a text is empty, null or not valid. The message names the
            row of the file.
    """
    for address, number, batch in _rows(files, start, stop, [column]):
        for row, value in enumerate(column_values(address, batch, column, number), number + 1):
            yield text_field(value, column, Location(address, row, "row"))


def column_reader(
    files: Sequence[InputFile], start: int, stop: int, columns: Sequence[str]
) -> "Callable[[int], dict[str, pyarrow.Array]]":
    """A function that returns other columns of the next rows, by their number, from row ``start`` on."""
    import pyarrow

    batches, waiting = _rows(files, start, stop, columns), list[pyarrow.Table]()

    def take(count: int) -> "dict[str, pyarrow.Array]":
        while sum(map(len, waiting)) < count:
            batch = next(batches)[2]
            waiting.append(pyarrow.Table.from_arrays([batch.column(name) for name in columns], names=list(columns)))
        table = pyarrow.concat_tables(waiting)
        waiting[:] = [table.slice(count)]
        return {name: table[name].slice(0, count).combine_chunks() for name in columns}

    return take if columns else lambda _: {}


def _rows(
    files: Sequence[InputFile], start: int, stop: int, columns: Sequence[str]
) -> "Iterator[tuple[str, int, pyarrow.RecordBatch]]":
    """Batches of the rows, each with the address of its file and the number of its first row there."""
    before = 0
    for planned in files:
        first, last = max(start - before, 0), min(stop - before, planned.rows)
        before += planned.rows
        if first >= last:
            continue
        with _opened_parquet(planned.address) as (file, there):
            if there != planned:
                raise NearfarError(
                    f"{planned.address}: has changed since the run started. Restore it, or encode into another "
                    "--output."
                )
            counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            ends = list(accumulate(counts))
            groups = [group for group, end in enumerate(ends) if end > first and end - counts[group] < last]
            number = ends[groups[0]] - counts[groups[0]]
            for batch in file.iter_batches(BATCH, row_groups=groups, columns=list(columns)):
                begin, end = max(first, number), min(last, number + batch.num_rows)
                if begin < end:
                    yield planned.address, begin, batch.slice(begin - number, end - begin)
                number += batch.num_rows
