"""The rows of a corpus of Parquet files, numbered from 0 over all files in order; a range reads only its row groups."""

import glob
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from nearfar.data.cells import Location, column_indices, text_field
from nearfar.data.files import column_values, parquet_error
from nearfar.data.paths import as_path
from nearfar.disk.places import file_system, is_remote, local_path, opened, protocol, remote_errors
from nearfar.types import NearfarError

if TYPE_CHECKING:
    import pyarrow
    from fsspec import AbstractFileSystem

BATCH = 1024
"""Number of rows that are decoded at a time."""
_BUFFER_BYTES = 2**20
_FOOTER_THREADS = 16
"""Number of footers that are read at the same time."""
_MAGIC = b"PAR1"


@dataclass(frozen=True)
class InputFile:
    """One file of the corpus."""

    address: str
    rows: Annotated[int, Meta(ge=0)]
    size: Annotated[int, Meta(ge=0)]
    """Number of bytes."""
    footer: str
    """Fingerprint of the footer, which has the place, size and statistics of every column of every row group."""


def read_footers(source: str, column: str, keep: Sequence[str]) -> tuple[list[InputFile], int]:
    """The files that ``source`` names, by their footers, and the number of rows of their largest row group.

    Raises:
        NearfarError: there are no files, or no rows; a file is not Parquet or is damaged; a column is missing, the
            column of the texts is not text, or a kept column has other types in other files.
    """
    listed = list_files(source)
    with ThreadPoolExecutor(_FOOTER_THREADS) as threads:
        footers = list(threads.map(lambda file: _read_footer(file[0], file[1], column, keep), listed))
    first, types, _ = footers[0]
    for file, own, _ in footers:
        for name in keep:
            if own[name] != types[name]:
                raise NearfarError(
                    f"--keep {name}: is {types[name]} in {first.address}, but {own[name]} in {file.address}. Give the "
                    "column one type."
                )
    if not any(file.rows for file, _, _ in footers):
        raise NearfarError(f"--input {source}: holds no rows.")
    return [file for file, _, _ in footers], max(largest for _, _, largest in footers)


def list_files(source: str) -> list[tuple[str, int]]:
    """The addresses of the files that ``--input`` names, sorted, and their sizes in bytes.

    Raises:
        NearfarError: there are none, one is not named as Parquet, or the file system cannot be reached.
    """
    if is_remote(source):
        system, path = file_system(source, flag="--input")
        with remote_errors(source, what="cannot be listed"):
            if glob.has_magic(path):
                listed = system.glob(path, detail=True)
                found = [(name, info) for name, info in listed.items() if info.get("type") != "directory"]
            else:
                found = [(path, system.info(path))]
            kind = protocol(source)
            files = sorted((_address(system, kind, name), int(info["size"] or 0)) for name, info in found)
    else:
        pattern = str(local_path(source))
        names = [pattern] if os.path.exists(pattern) else glob.glob(pattern, recursive=True)
        files = sorted((name, os.stat(name).st_size) for name in names if os.path.isfile(name))
        if not files and os.path.isdir(pattern):
            raise NearfarError(f"--input {source}: is a folder; name its files, as in --input '{source}/*.parquet'.")
    if not files:
        raise NearfarError(f"--input {source}: no file matches.")
    if others := [address for address, _ in files if not address.lower().endswith(".parquet")]:
        raise NearfarError(
            f"{others[0]}: shards are read from .parquet files. Convert it, or encode it into one file: leave out "
            "--shard-rows, and name a single file."
        )
    return files


def _address(system: "AbstractFileSystem", kind: str, path: str) -> str:
    found = str(system.unstrip_protocol(path))
    return found if found.startswith(f"{kind}:") else f"{kind}://{path.lstrip('/')}"


def _read_footer(address: str, size: int, column: str, keep: Sequence[str]) -> tuple[InputFile, dict[str, Any], int]:
    """A file, the types of its kept columns, and the number of rows of its largest row group."""
    import pyarrow
    import pyarrow.parquet

    with opened(address) as file:
        digest = _footer_digest(file, address, size)
        try:
            metadata = pyarrow.parquet.read_metadata(file)
            schema = metadata.schema.to_arrow_schema()
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise parquet_error(address, error) from None
    for name, index in zip([column, *keep], column_indices(schema.names, [column, *keep], address), strict=True):
        if schema.names[index] != name:
            raise NearfarError(f"{address}: no column {name!r}. Did you mean {schema.names[index]!r}?")
    kind = held = schema.field(column).type
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    if str(kind) not in ("string", "large_string", "string_view"):
        raise NearfarError(f"{address}: column {column!r} holds {held}, not text.")
    largest = max((metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)), default=0)
    types = {name: schema.field(name).type for name in keep}
    return InputFile(address, metadata.num_rows, size, digest), types, largest


def _footer_digest(file: Any, address: str, size: int) -> str:
    """SHA-256 of the footer of a Parquet file (16 hexadecimal digits).

    Raises:
        NearfarError: the file has no footer.
    """
    tail = b""
    if size >= 12:
        file.seek(size - 8)
        tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > size - 12:
        raise NearfarError(f"{address} cannot be read as Parquet: it is cut off, or is another format.")
    file.seek(size - 8 - length)
    return hashlib.sha256(file.read(length)).hexdigest()[:16]


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
        taken = table.slice(0, count)
        return {name: taken[name].combine_chunks() for name in columns}

    return take if columns else lambda _: {}


def _rows(
    files: Sequence[InputFile], start: int, stop: int, columns: Sequence[str]
) -> "Iterator[tuple[str, int, pyarrow.RecordBatch]]":
    """Batches of the rows, each with the address of its file and the number of its first row there."""
    import pyarrow

    before = 0
    for file in files:
        first, last = max(start - before, 0), min(stop - before, file.rows)
        before += file.rows
        if first >= last:
            continue
        with opened(file.address) as stream:
            try:
                size = stream.seek(0, 2)
                if size != file.size or _footer_digest(stream, file.address, size) != file.footer:
                    raise NearfarError(
                        f"{file.address}: has changed since the run started. Restore it, or encode into another "
                        "--output."
                    )
                for number, batch in _batches(stream, first, last, columns):
                    yield file.address, number, batch
            except (pyarrow.ArrowException, OSError, ValueError) as error:
                raise parquet_error(file.address, error) from None


def _batches(stream: Any, first: int, last: int, columns: Sequence[str]) -> "Iterator[tuple[int, pyarrow.RecordBatch]]":
    """Batches of rows ``first`` to ``last`` of a Parquet file, each with its first row; reads only their row groups."""
    import pyarrow.parquet

    stream.seek(0)
    with pyarrow.parquet.ParquetFile(stream, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
        counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        starts = list(accumulate(counts, initial=0))
        groups = [group for group, (start, end) in enumerate(pairwise(starts)) if start < last and end > first]
        number = starts[groups[0]]
        for batch in file.iter_batches(BATCH, row_groups=groups, columns=list(columns)):
            begin, end = max(first, number), min(last, number + batch.num_rows)
            if begin < end:
                yield begin, batch.slice(begin - number, end - begin)
            number += batch.num_rows
            if number >= last:
                return


def same_files(files: Sequence[InputFile], listed: Sequence[tuple[str, int]]) -> str:
    """What differs between the files of a plan and those that are there now, by names and sizes; empty if nothing."""
    if len(files) != len(listed):
        return f"--input had {len(files):,} files, has {len(listed):,}"
    for file, (address, size) in zip(files, listed, strict=True):
        before, name = (as_path(path).name for path in (file.address, address))
        if before != name:
            return f"--input had the file {before}, has {name} in its place"
        if file.size != size:
            return f"{address} had {file.size:,} bytes, has {size:,}"
    return ""
