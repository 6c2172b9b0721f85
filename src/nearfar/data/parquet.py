"""Columns of Parquet files, in batches, with the row of each value in errors."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from nearfar.data.cells import MAX_LINE_BYTES, Location, Rows, column_indices
from nearfar.types import NearfarError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet


MAX_RATIO, RATIO_FROM = 200, 2**28
"""A column in a row group of a Parquet file that unpacks to over RATIO_FROM bytes may unpack to MAX_RATIO times its
size. Text is compressed to between a half and a tenth."""


_CLASS_NAME = re.compile(r"\b\w+(?:Error|Exception)\b:?\s*")


def parquet_error(path: Path | str, error: Exception) -> NearfarError:
    """The error for a Parquet file: what pyarrow says, without names of classes and raw bytes."""
    why = "".join(one for one in _CLASS_NAME.sub("", str(error)) if one.isprintable()).strip(" .:")
    return NearfarError(f"{path} cannot be read as Parquet: {why or 'it is damaged'}.")


@contextmanager
def opened_parquet(source: "Path | str | BinaryIO", **options: Any) -> Iterator["pyarrow.parquet.ParquetFile"]:
    """A Parquet file to read. What was read is right if closing the file fails, so that this is no error."""
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(source, **options)
    try:
        yield file
    finally:
        with suppress(OSError):
            file.close()


def read_parquet(path: Path, columns: Sequence[str]) -> Rows:
    """Yield the columns of each row; for errors see :func:`nearfar.data.files.read_file`."""
    import pyarrow

    number = 0
    try:
        with opened_parquet(path) as file:
            names = file.schema_arrow.names
            columns = [names[index] for index in column_indices(names, columns, path)]
            _check_unpacked_size(path, file.metadata, columns)
            class_names = _class_names(path, file.schema_arrow, columns)
            for batch in file.iter_batches(columns=list(columns), batch_size=1024):
                for values in zip(*(column_values(path, batch, column, number) for column in columns), strict=True):
                    number += 1
                    yield Location(str(path), number, "row"), name_classes(values, class_names)
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, LookupError, OverflowError) as error:
        raise parquet_error(path, error) from None  # pyarrow raises all of these


def _check_unpacked_size(path: Path, metadata: Any, columns: Sequence[str]) -> None:
    """Refuse a column that unpacks to far more than its size, before it is unpacked."""
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(number)
            packed, unpacked = chunk.total_compressed_size, chunk.total_uncompressed_size
            if (
                chunk.path_in_schema.partition(".")[0] in columns
                and unpacked > RATIO_FROM
                and unpacked > MAX_RATIO * packed
            ):
                raise NearfarError(
                    f"{path}: column {chunk.path_in_schema!r} unpacks to {unpacked:,} bytes, from {packed:,}; it is "
                    "refused, because no text does. Write the file again with smaller row groups."
                )


def column_values(path: Path | str, batch: "pyarrow.RecordBatch", column: str, before: int) -> list[Any]:
    """Return a batch's values of a column; an error names the row. ``before`` is the number of rows already read."""
    try:
        values = list(batch.column(column).to_pylist())
        for number, value in enumerate(values, before + 1):
            if isinstance(value, str | bytes) and len(value) > MAX_LINE_BYTES:
                raise NearfarError(
                    f"{Location(str(path), number, 'row')}: column {column!r} is longer than "
                    f"{MAX_LINE_BYTES / 2**20:g} MiB. Split long texts."
                )
        return values
    except UnicodeDecodeError:
        for number, value in enumerate(batch.column(column), before + 1):
            try:
                value.as_py()
            except UnicodeDecodeError as error:
                raise NearfarError(
                    f"{Location(str(path), number, 'row')}: column {column!r} is not UTF-8 (byte {error.start + 1} is "
                    f"0x{error.object[error.start]:02x}). Write the text as UTF-8."
                ) from None
        raise


def _class_names(path: Path, schema: "pyarrow.Schema", columns: Sequence[str]) -> list[list[str] | None]:
    if b"huggingface" not in (schema.metadata or {}):
        return [None for _ in columns]
    import datasets

    try:
        features = datasets.Features.from_arrow_schema(schema)
        return [getattr(features[column], "names", None) for column in columns]
    except Exception as error:  # datasets passes on the exceptions of all libraries below it
        raise NearfarError(
            f"{path}: the class names that datasets wrote cannot be read. Write the file again."
        ) from error


def name_classes(values: tuple[object, ...], class_names: Sequence[Sequence[str] | None]) -> tuple[object, ...]:
    """Replace class indices by the class names that a data set declares; -1, a missing class, is kept."""
    return tuple(
        names[value] if names and isinstance(value, int) and 0 <= value < len(names) else value
        for value, names in zip(values, class_names, strict=True)
    )
