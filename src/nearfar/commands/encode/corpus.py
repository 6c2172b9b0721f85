"""The rows of a corpus of Parquet files, numbered from 0 over all files in order; a range reads only its row groups."""

import glob
import hashlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

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


class Corpus(NamedTuple):
    """The files of ``--input``, and what was found in their footers."""

    files: tuple[InputFile, ...]
    kept: "pyarrow.Schema"
    """The columns of ``--keep``."""
    largest_group: int
    """Number of rows of the largest row group."""


class _Footer(NamedTuple):
    file: InputFile
    schema: "pyarrow.Schema"
    largest_group: int


def read_corpus(source: str, column: str, keep: Sequence[str]) -> Corpus:
    """Read the footers of all files that ``source`` names.

    Raises:
        NearfarError: there are no files, or no rows; a file is not Parquet or is damaged; a column is missing, the
            column of the texts is not text, or a kept column has other types in other files.
    """
    import pyarrow

    listed = list_files(source)
    with ThreadPoolExecutor(_FOOTER_THREADS) as threads:
        footers = list(threads.map(lambda one: _read_footer(one[0], one[1], column, keep), listed))
    first = footers[0]
    for footer in footers:
        for name in keep:
            if footer.schema.field(name).type != first.schema.field(name).type:
                raise NearfarError(
                    f"--keep {name}: is {first.schema.field(name).type} in {first.file.address}, but "
                    f"{footer.schema.field(name).type} in {footer.file.address}. Give the column one type."
                )
    kept = pyarrow.schema([first.schema.field(name).remove_metadata() for name in keep])
    if not any(footer.file.rows for footer in footers):
        raise NearfarError(f"--input {source}: holds no rows.")
    return Corpus(tuple(footer.file for footer in footers), kept, max(footer.largest_group for footer in footers))


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


def _read_footer(address: str, size: int, column: str, keep: Sequence[str]) -> _Footer:
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
    groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    return _Footer(InputFile(address, metadata.num_rows, size, digest), schema, max(groups, default=0))


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


class RowRange:
    """The texts of rows ``start`` to ``stop`` of a corpus, and their kept columns, which follow behind.

    Args:
        files: all files of the corpus.
        start: number of the first row.
        stop: number of the row after the last one.
        column: the column of the texts.
        kept: the columns to keep.
    """

    def __init__(self, files: Sequence[InputFile], start: int, stop: int, column: str, kept: "pyarrow.Schema") -> None:
        self._files, self._start, self._stop = files, start, stop
        self._column, self.kept = column, kept
        self._waiting: deque[pyarrow.RecordBatch] = deque()
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """Fingerprint of the texts that were read."""
        return self._digest.hexdigest()[:16]

    def texts(self) -> Iterator[str]:
        """The texts, with white space normalised as in :func:`nearfar.data.cells.text_field`.

        Raises:
            NearfarError: a file has changed or cannot be read; a text is empty, null or not valid. The message names
                the row of the file.
        """
        before = 0
        ends = accumulate(file.rows for file in self._files)
        for file, end in zip(self._files, ends, strict=True):
            if end > self._start and before < self._stop:
                first = max(self._start - before, 0)
                yield from self._texts_of(file, first, min(self._stop, end) - before)
            before = end

    def _texts_of(self, file: InputFile, first: int, last: int) -> Iterator[str]:
        import pyarrow

        for number, batch in _batches(file, first, last, [self._column, *self.kept.names]):
            if self.kept.names:
                columns = [batch.column(name) for name in self.kept.names]
                self._waiting.append(pyarrow.RecordBatch.from_arrays(columns, schema=self.kept))
            for row, value in enumerate(column_values(file.address, batch, self._column, number), number + 1):
                text = text_field(value, self._column, Location(file.address, row, "row"))
                self._digest.update(text.encode())
                self._digest.update(b"\n")
                yield text

    def take(self, count: int) -> "list[pyarrow.Array]":
        """The kept columns of the next ``count`` rows whose texts were read."""
        import pyarrow

        if not self.kept.names:
            return []
        pieces = []
        while count:
            batch = self._waiting.popleft()
            pieces.append(batch.slice(0, count))
            if batch.num_rows > count:
                self._waiting.appendleft(batch.slice(count))
            count -= pieces[-1].num_rows
        table = pyarrow.Table.from_batches(pieces, self.kept)
        return [column.combine_chunks() for column in table.columns]


def _batches(
    input_file: InputFile, first: int, last: int, columns: Sequence[str]
) -> "Iterator[tuple[int, pyarrow.RecordBatch]]":
    """Batches of rows ``first`` to ``last`` of a file, each with the number of its first row in the file."""
    import pyarrow
    import pyarrow.parquet

    address = input_file.address
    with opened(address) as file:
        try:
            size = file.seek(0, 2)
            if size != input_file.size or _footer_digest(file, address, size) != input_file.footer:
                raise NearfarError(
                    f"{address}: has changed since the run started. Restore it, or encode into another --output."
                )
            file.seek(0)
            with pyarrow.parquet.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False) as parquet:
                counts = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
                starts = list(accumulate(counts, initial=0))
                groups = [
                    group for group, start in enumerate(starts[:-1]) if start < last and starts[group + 1] > first
                ]
                number = starts[groups[0]]
                for batch in parquet.iter_batches(BATCH, row_groups=groups, columns=list(columns)):
                    begin, end = max(first, number), min(last, number + batch.num_rows)
                    if begin < end:
                        yield begin, batch.slice(begin - number, end - begin)
                    number += batch.num_rows
                    if number >= last:
                        return
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise parquet_error(address, error) from None


def same_files(files: Sequence[InputFile], listed: Sequence[tuple[str, int]]) -> str:
    """What differs between the files of a plan and those that are there now, by names and sizes; empty if nothing."""
    if len(files) != len(listed):
        return f"--input had {len(files):,} files, has {len(listed):,}"
    for file, (address, size) in zip(files, listed, strict=True):
        before, name = (as_path(place).name for place in (file.address, address))
        if before != name:
            return f"--input had the file {before}, has {name} in its place"
        if file.size != size:
            return f"{address} had {file.size:,} bytes, has {size:,}"
    return ""
