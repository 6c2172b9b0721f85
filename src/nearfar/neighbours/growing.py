"""A .npy file that grows: rows are appended in place, and the number of valid rows is kept elsewhere."""

import os
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nearfar.disk import read_errors
from nearfar.types import ARRAY_HEADER_ERRORS


class GrowingArray:
    """An array [rows] or [rows, width] on disk, which is appended to and read through memory maps.

    The caller knows how many rows are valid and passes that number. Bytes after the last valid row, which an
    interrupted :meth:`append` leaves, are ignored and overwritten. The header has a fixed size (NumPy reserves space
    for the growth of the first axis), so ``numpy.load`` opens the file too.

    Args:
        path: the file, created by the first :meth:`append`.
        dtype: type of the values.
        width: size of the second axis; None for an array with one axis.
    """

    def __init__(self, path: Path, dtype: DTypeLike, width: int | None = None) -> None:
        self.path, self.dtype, self.width = path, np.dtype(dtype), width
        self._row_bytes = self.dtype.itemsize * (1 if width is None else width)
        self._header_bytes = len(self._header(0))

    def size(self, rows: int) -> int:
        """Number of bytes of a file with ``rows`` rows."""
        return self._header_bytes + rows * self._row_bytes

    def is_damaged(self, rows: int) -> bool:
        """Whether the file is missing, too short for ``rows`` rows, or an array of another type or width.

        Raises:
            NearfarError: it cannot be read.
        """
        if rows == 0:
            return False
        if not (self.path.is_file() and self.path.stat().st_size >= self.size(rows)):
            return True
        with read_errors(self.path), self.path.open("rb") as stream, suppress(*ARRAY_HEADER_ERRORS):
            version = np.lib.format.read_magic(stream)
            shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
            width = () if self.width is None else (self.width,)
            found = (version, stream.tell(), fortran_order, dtype, shape[1:])
            return found != ((1, 0), self._header_bytes, False, self.dtype, width) or shape[0] < rows
        return True

    def append(self, rows: int, values: NDArray[Any]) -> None:
        """Write ``values`` after the first ``rows`` rows, and flush them to the disk.

        Raises:
            OSError: the disk is full or the file cannot be written; the first ``rows`` rows are unchanged.
        """
        with self.path.open("r+b" if self.path.exists() else "x+b") as stream:
            stream.truncate(self.size(rows))
            stream.seek(self.size(rows))
            stream.write(np.ascontiguousarray(values, dtype=self.dtype).data.cast("B") if len(values) else b"")
            stream.seek(0)
            stream.write(self._header(rows + len(values)))
            stream.flush()
            os.fsync(stream.fileno())

    def read(self, rows: int) -> NDArray[Any]:
        """The first ``rows`` rows, as a read-only memory map.

        Raises:
            NearfarError: the file cannot be read.
        """
        shape = (rows,) if self.width is None else (rows, self.width)
        if rows == 0:
            return np.empty(shape, self.dtype)
        with read_errors(self.path):
            return np.memmap(self.path, dtype=self.dtype, mode="r", offset=self._header_bytes, shape=shape)

    def _header(self, rows: int) -> bytes:
        stream = BytesIO()
        shape = (rows,) if self.width is None else (rows, self.width)
        layout = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, layout)
        return stream.getvalue()
