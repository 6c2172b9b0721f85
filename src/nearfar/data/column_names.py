"""The names of the columns of a table, for commands that read all columns, or choose them by name."""

from pathlib import Path

from nearfar.data.files import EXTENSIONS, csv_records, extension, json_records, tsv_records
from nearfar.data.parquet import parquet_error
from nearfar.data.paths import check_file
from nearfar.data.sources import Table
from nearfar.types import NearfarError


def column_names(table: Table) -> list[str]:
    """Return the names of the columns of ``table``, in their order; those of JSON lines are the keys of the first line.

    A name that occurs twice is returned twice. Rows are not checked.

    Raises:
        NearfarError: the file is missing, empty or damaged, or its format has no columns (plain text).
    """
    if not isinstance(table.data, Path):
        return list(table.data.column_names)
    path = table.data
    check_file(path)
    kind = extension(path).removesuffix(".gz")
    if kind == ".parquet":
        return _parquet_names(path)
    if kind in (".jsonl", ".json"):
        return list(next(json_records(path))[1])
    if kind not in (".tsv", ".csv"):
        raise NearfarError(f"{path}: unknown extension. Files with columns end in {', '.join(EXTENSIONS)}.")
    _, header = next(tsv_records(path) if kind == ".tsv" else csv_records(path), (0, []))
    if not header:
        raise NearfarError(f"{path} is empty; its first line should name the columns.")
    return header


def _parquet_names(path: Path) -> list[str]:
    import pyarrow
    import pyarrow.parquet

    try:
        return list(pyarrow.parquet.read_schema(path).names)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise parquet_error(path, error) from None
