"""What lets rows outgrow memory: texts and arrays in files that are memory-mapped, numbers of items by their hashes."""

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import Any, TypeAlias, overload
from weakref import finalize

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nearfar.disk import disk_errors
from nearfar.disk.checks import cache_folder

IN_MEMORY = 2**19
"""Number of rows that are kept in memory; if there are more, they are written to disk."""
BLOCK = 2**16
"""Rows of a block of the file."""
RECENT = 2**18
"""Number of items whose hashes wait, at most, to be sorted in among the others."""
ARRAY_IN_MEMORY = 2**24
"""Bytes of an array that is kept in memory; a larger one is in a file."""
Row: TypeAlias = tuple[str, ...]


def rows_folder() -> Path:
    """The folder of files with rows and arrays, ``nearfar/rows`` in the user's cache; it is made.

    Raises:
        OSError: it cannot be made.
    """
    folder = cache_folder() / "rows"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def distinct(*numbers: NDArray[Any]) -> NDArray[Any]:
    """The distinct numbers of all arrays, in ascending order.

    np.unique makes a hash table (NumPy 2.3 and later): of 20 million hashes 1 GiB more, and a hundred times as long.
    """
    ordered = np.concatenate(numbers)
    ordered.sort()
    kept = np.ones(len(ordered), dtype=np.bool_)
    kept[1:] = ordered[1:] != ordered[:-1]
    return ordered if kept.all() else ordered[kept]


class GrowingArray:
    """Numbers that are appended: in memory, or of more than :data:`ARRAY_IN_MEMORY` bytes in a file without a name."""

    def __init__(self, dtype: DTypeLike) -> None:
        self.numbers: NDArray[Any] = np.empty(0, dtype=dtype)
        """All of them, memory-mapped if they are in a file."""
        self._file: Any = None

    def append(self, *parts: NDArray[Any]) -> None:
        """Append numbers.

        Raises:
            NearfarError: the file cannot be written.
        """
        count, dtype = len(self.numbers) + sum(map(len, parts)), self.numbers.dtype
        if count * dtype.itemsize <= ARRAY_IN_MEMORY:
            self.numbers = np.concatenate([self.numbers, *parts]).astype(dtype, copy=False)
            return
        with disk_errors(cache_folder() / "rows"):
            if self._file is None:
                self._file = TemporaryFile(dir=rows_folder())  # noqa: SIM115
                finalize(self, self._file.close)  # what is mapped stays
                self.numbers.tofile(self._file)
            for part in parts:
                part.astype(dtype, copy=False).tofile(self._file)
            self._file.flush()
            self.numbers = np.memmap(self._file, dtype=dtype, mode="r", shape=(count,)).view(np.ndarray)


class NumberedItems:
    """Numbers distinct items in the order in which they are added, and keeps 16 bytes of each: its hash and number.

    Many are in files (:class:`GrowingArray`). Hashes have 64 bits: two of n different items are taken for one with a
    probability of about n^2 / 2^65.
    """

    def __init__(self) -> None:
        self._hashes, self._numbers = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self._recent: dict[int, int] = {}

    def __len__(self) -> int:
        """The number of distinct items."""
        return len(self._hashes) + len(self._recent)

    def add(self, item: Hashable) -> bool:
        """Give the item the next number, unless it has one; whether it is new."""
        value = hash(item)
        if value in self._recent:
            return False
        place = bisect_left(self._hashes, value)
        if place < len(self._hashes) and self._hashes[place] == value:
            return False
        self._recent[value] = len(self)
        if len(self._recent) >= RECENT:
            self._sort()
        return True

    def numbers(self, items: Sequence[Hashable]) -> NDArray[np.int64]:
        """The numbers of items, all of which must have been added.

        Raises:
            KeyError: one was not.
        """
        if self._recent:
            self._sort()
        values = np.fromiter(map(hash, items), dtype=np.int64, count=len(items))
        places = np.searchsorted(self._hashes, values).clip(max=len(self._hashes) - 1)
        if (missing := self._hashes[places] != values).any():
            raise KeyError(items[int(missing.argmax())])
        return self._numbers[places]

    def _sort(self) -> None:
        """Merge the recent items into the others, block by block."""
        recent = np.array([[*self._recent], [*self._recent.values()]], dtype=np.int64)
        recent = recent[:, np.argsort(recent[0])]
        places, merged = np.searchsorted(self._hashes, recent[0]), (GrowingArray(np.int64), GrowingArray(np.int64))
        for start in range(0, len(self._hashes) + 1, RECENT):
            end = start + RECENT
            own = slice(*np.searchsorted(places, [start, end]))
            for array, old, new in zip(merged, (self._hashes, self._numbers), recent, strict=True):
                array.append(np.insert(old[start:end], places[own] - start, new[own]))
        self._hashes, self._numbers, self._recent = merged[0].numbers, merged[1].numbers, {}


@dataclass(frozen=True)
class DiskRows(Sequence[Row]):
    """Some rows of a file: those at ``places``, in this order, with the first ``width`` texts of each."""

    blocks: Sequence[Any]
    """The record batches of the file, all but the last with :data:`BLOCK` rows."""
    places: NDArray[np.int32]
    width: int

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.places)

    @overload
    def __getitem__(self, row: int) -> Row: ...
    @overload
    def __getitem__(self, row: slice) -> "DiskRows": ...
    def __getitem__(self, row: int | slice) -> "Row | DiskRows":
        """A row; or some, which stay on disk."""
        if isinstance(row, slice):
            return replace(self, places=self.places[row])
        block, place = divmod(int(self.places[row]), BLOCK)
        columns = self.blocks[block].columns[: self.width]
        return tuple(_text(column[place].as_py()) for column in columns)

    def __iter__(self) -> Iterator[Row]:
        """All rows, read block by block."""
        numbers = self.places // BLOCK
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for start, end in pairwise(cuts):
            for part in range(start, end, BLOCK):
                places = self.places[part : min(part + BLOCK, end)] % BLOCK
                columns = self.blocks[int(numbers[start])].columns[: self.width]
                yield from zip(*(map(_text, column.take(places).to_pylist()) for column in columns), strict=True)

    def take(self, rows: NDArray[np.int64]) -> "DiskRows":
        """The rows at some places among these."""
        return replace(self, places=self.places[rows])

    def first_texts(self, width: int) -> "DiskRows":
        """The first ``width`` texts of each row."""
        return replace(self, width=min(width, self.width))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")


class RowWriter:
    """Collects rows of equally many texts: in a list, or of more than :data:`IN_MEMORY` rows in a file.

    The file is in ``nearfar/rows`` in the user's cache, and removed when it is mapped.
    """

    def __init__(self) -> None:
        self._waiting: list[Row] = []
        self._written = 0
        self._path = cache_folder() / "rows"  # then the file
        self._file: Any = None
        self._writer: Any = None

    def __len__(self) -> int:
        """The number of rows."""
        return self._written + len(self._waiting)

    def add(self, row: Row) -> None:
        """Add a row.

        Raises:
            NearfarError: the file cannot be written.
        """
        self._waiting.append(row)
        if len(self._waiting) >= (IN_MEMORY if self._writer is None else BLOCK):
            self._write(len(self._waiting) // BLOCK * BLOCK)

    def finish(self) -> Sequence[Row]:
        """The rows; none may be added afterwards.

        Raises:
            NearfarError: the file cannot be written.
        """
        if self._writer is None:
            return self._waiting
        import pyarrow as pa

        if self._waiting:
            self._write(len(self._waiting))
        with disk_errors(self._path):
            self._writer.close()
            self._file.close()
            reader = pa.ipc.open_file(pa.memory_map(str(self._path)))
            blocks = [reader.get_batch(number) for number in range(reader.num_record_batches)]
            with suppress(PermissionError):  # Windows keeps files that are mapped
                self._path.unlink()
        return DiskRows(blocks, np.arange(self._written, dtype=np.int32), blocks[0].num_columns)

    def _write(self, count: int) -> None:
        """Write the first ``count`` rows that wait, in blocks."""
        import pyarrow as pa

        schema = pa.schema([(str(column), pa.large_binary()) for column in range(len(self._waiting[0]))])
        with disk_errors(self._path):
            if self._writer is None:
                self._file = NamedTemporaryFile(dir=rows_folder(), suffix=".arrow", delete=False)  # noqa: SIM115
                self._path = Path(self._file.name)
                self._writer = pa.ipc.new_file(self._file, schema)
            for start in range(0, count, BLOCK):
                columns = zip(*self._waiting[start : min(start + BLOCK, count)], strict=True)
                encoded = ([text.encode("utf-8", "surrogatepass") for text in column] for column in columns)
                self._writer.write(pa.record_batch([pa.array(one, pa.large_binary()) for one in encoded], schema))
        del self._waiting[:count]
        self._written += count
