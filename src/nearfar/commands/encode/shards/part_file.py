"""Writes one part: a Parquet file with the columns ``row``, ``vector`` and the kept ones, a row group per block."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearfar.disk import disk_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow

    Write: TypeAlias = Callable[[int, NDArray[Any], Sequence[pyarrow.Array]], None]


@contextmanager
def part_writer(target: Path, width: int, dtype: str, kept: "pyarrow.Schema") -> "Iterator[Write]":
    """Yield a function that writes a block: the number of its first row, vectors [rows, width], kept columns.

    Raises:
        NearfarError: the disk is full or cannot be written.
    """
    import pyarrow
    import pyarrow.parquet

    number = pyarrow.from_numpy_dtype(np.dtype(dtype))
    own = [pyarrow.field("row", pyarrow.int64()), pyarrow.field("vector", pyarrow.list_(number, width))]
    schema = pyarrow.schema([*own, *kept])

    def array(values: NDArray[Any], kind: Any) -> Any:  # pyarrow.array would import pandas
        return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(values)])

    with (
        disk_errors(target),
        pyarrow.parquet.ParquetWriter(target, schema, use_dictionary=list(kept.names), compression="zstd") as writer,
    ):

        def write(start: int, vectors: NDArray[Any], columns: "Sequence[pyarrow.Array]") -> None:
            flat = np.ascontiguousarray(vectors, dtype=np.dtype(dtype).newbyteorder("<")).reshape(-1)
            rows = np.arange(start, start + len(vectors), dtype=np.int64)
            arrays = [
                array(rows, pyarrow.int64()),
                pyarrow.FixedSizeListArray.from_arrays(array(flat, number), width),
                *columns,
            ]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))

        yield write
