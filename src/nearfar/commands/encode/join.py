"""One file of embeddings, .npy or .parquet: the join of their parts."""

from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.encode.parts import arrow_array, arrow_vectors, read_plan_ranges, stored_in_parts
from nearfar.commands.encode.plan import Plan, part_name
from nearfar.disk import new_file, write_bytes
from nearfar.disk.places import Place
from nearfar.quantization import int8_ranges, quantize


def read_vectors(place: Place, plan: Plan) -> Iterator[NDArray[Any]]:
    """The stored vectors [rows, width] of all parts in order, one block at a time."""
    import pyarrow.parquet

    assert place.shared is not None
    stored = stored_in_parts(plan, place)
    for part in range(plan.parts):
        with pyarrow.parquet.ParquetFile(place.shared / part_name(part)) as file:
            for group in range(file.metadata.num_row_groups):
                column = file.read_row_group(group, columns=["vector"])["vector"].combine_chunks()
                yield column.flatten().to_numpy().reshape(-1, stored.width)


def join_parts(place: Place, plan: Plan, output: Path, texts: Iterator[str] | None = None) -> None:
    """Write all parts as one file, which appears when it is complete.

    A .parquet file has the columns ``row``, ``text`` (if ``texts`` are given) and ``embedding``, and a row group for
    each block. The ranges of int8 codes are written first, to :func:`ranges_file`.

    Raises:
        NearfarError: the disk is full, a file cannot be written, or the texts have changed since they were encoded.
    """
    stored = stored_in_parts(plan, place)
    dtype = np.dtype(stored.dtype)
    convert: Callable[[NDArray[Any]], NDArray[Any]] = _unchanged
    if plan.settings["quantize"] == "int8":
        own = plan.settings["calibrate"] is None
        ranges = int8_ranges(read_vectors(place, plan)) if own else read_plan_ranges(place)
        stream = BytesIO()
        np.save(stream, ranges)
        write_bytes(ranges_file(output), stream.getvalue())
        if own:
            dtype, convert = np.dtype("int8"), lambda vectors: quantize(vectors, "int8", ranges)
    with new_file(output, refuse_busy=True) as file:
        vectors = map(convert, read_vectors(place, plan))
        if output.suffix == ".parquet":
            _write_parquet(file, vectors, stored.width, dtype, texts)
        else:
            with file.open("wb") as npy:
                npy.write(npy_header((plan.rows, stored.width), dtype))
                for block in vectors:
                    npy.write(np.ascontiguousarray(block, dtype.newbyteorder("<")).data)


def _unchanged(vectors: NDArray[Any]) -> NDArray[Any]:
    return vectors


def _write_parquet(
    file: Path, vectors: Iterator[NDArray[Any]], width: int, dtype: np.dtype[Any], texts: Iterator[str] | None
) -> None:
    import pyarrow
    import pyarrow.parquet

    list_type = pyarrow.list_(pyarrow.from_numpy_dtype(dtype), width)
    columns = [("row", pyarrow.int64()), ("text", pyarrow.string()), ("embedding", list_type)]
    schema = pyarrow.schema([column for column in columns if texts is not None or column[0] != "text"])
    with pyarrow.parquet.ParquetWriter(file, schema, use_dictionary=False, compression="zstd") as writer:
        start = 0
        for block in vectors:
            count = len(block)
            arrays = [arrow_array(np.arange(start, start + count, dtype=np.int64)), arrow_vectors(block, dtype)]
            if texts is not None:
                arrays.insert(1, pyarrow.array([next(texts) for _ in range(count)], pyarrow.string()))
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            start += count
        if texts is not None:
            next(texts, None)  # after the last text, raises if the texts changed since they were encoded


def ranges_file(output: Path) -> Path:
    """The file with the ranges of int8 embeddings, float32 [2, dim]: the least and the greatest value of each."""
    return output.with_suffix(".ranges.npy")


def npy_header(shape: tuple[int, int], dtype: np.dtype[Any]) -> bytes:
    """The header of a .npy file."""
    stream = BytesIO()
    layout = {"descr": np.lib.format.dtype_to_descr(dtype.newbyteorder("<")), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, layout)
    return stream.getvalue()
