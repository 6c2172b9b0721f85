"""Writes the embeddings of texts as a parquet file, block by block."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def write_parquet(
    target: Path, vectors: Iterator[NDArray[Any]], dim: int, dtype: np.dtype[Any], texts: Iterator[str] | None = None
) -> None:
    """Write the columns ``row``, ``text`` (if ``texts`` are given) and ``embedding``, a list of fixed size.

    Each block of ``vectors``, [rows, dim] of type ``dtype``, is a row group.
    """
    import pyarrow
    import pyarrow.parquet

    number = pyarrow.from_numpy_dtype(dtype)
    columns = [("row", pyarrow.int64()), ("text", pyarrow.string()), ("embedding", pyarrow.list_(number, dim))]

    def array(values: NDArray[Any], kind: Any) -> Any:  # pyarrow.array would import pandas
        return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(values)])

    schema = pyarrow.schema([column for column in columns if texts is not None or column[0] != "text"])
    with pyarrow.parquet.ParquetWriter(target, schema, use_dictionary=False, compression="zstd") as writer:
        start = 0
        for block in vectors:
            count = len(block)
            arrays = [
                array(np.arange(start, start + count, dtype=np.int64), pyarrow.int64()),
                pyarrow.FixedSizeListArray.from_arrays(array(block.reshape(-1), number), dim),
            ]
            if texts is not None:
                arrays.insert(1, pyarrow.array([next(texts) for _ in range(count)], pyarrow.string()))
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            start += count
        if texts is not None:
            next(texts, None)  # after the last text, raises if the texts changed since they were encoded
