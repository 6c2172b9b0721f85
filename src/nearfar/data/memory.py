"""Rows in memory where a file is taken: a DataFrame, a data set of ``datasets``, or a list of dictionaries.

They become a JSON lines file in ``nearfar/rows`` in the user's cache, ``XDG_CACHE_HOME`` or ``~/.cache``, which is
named by its contents. So whatever reads files reads them, other processes too: equal rows are the same file, with which
a run can be resumed and an index found again, and changed rows are another one. The files may be deleted at any time.
"""

import hashlib
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from nearfar.data.files import class_names
from nearfar.disk import disk_errors, write_bytes
from nearfar.disk.checks import cache_folder
from nearfar.types import NearfarError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def takes_rows(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a command whose keywords name files, so that they take rows in memory too, or a list of such rows.

    Raises:
        NearfarError: from the decorated command, for rows without a name for each column, for no rows, or if the file
            cannot be written.
    """

    @wraps(command)
    def call(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        for name, value in keywords.items():
            if name == "sets" and isinstance(value, list | tuple):  # tables of settings, not of rows
                keywords[name] = [
                    {key: table_file(one, key) for key, one in table.items()} if isinstance(table, Mapping) else table
                    for table in value
                ]
            else:
                keywords[name] = table_file(value, name)
        return command(*arguments, **keywords)

    return call


def table_file(value: Any, name: str) -> Any:
    """The file of rows in memory, or any other value as it is."""
    listed = isinstance(value, list | tuple) and bool(value)
    if _library(value) or (listed and all(isinstance(row, Mapping) and not _library(row) for row in value)):
        return _write(value, name)
    return [table_file(one, name) for one in value] if listed and any(map(_library, value)) else value


def _library(value: Any) -> str:
    """The library of a table, whose class is called DataFrame or Dataset; empty for other values."""
    library, name = type(value).__module__.partition(".")[0], type(value).__name__
    known = library in ("pandas", "polars", "datasets") and name in ("DataFrame", "Dataset", "DatasetDict")
    return library if known else ""


def _write(value: Any, name: str) -> str:
    """Write a table or a list of dictionaries to the file of its contents."""
    import pandas as pd

    library = _library(value)
    if isinstance(value, Mapping):
        raise NearfarError(f"{name}: has the splits {', '.join(map(str, value))}; give one of them.")
    try:
        frame = value.to_pandas() if library in ("polars", "datasets") else pd.DataFrame(value)
        for column, names in class_names(value.features).items() if library == "datasets" else ():
            frame[column] = [names[one] if one >= 0 else None for one in frame[column]]
        if frame.empty:
            raise NearfarError(f"{name}: holds no rows.")
        content = frame.to_json(orient="records", lines=True, double_precision=15, date_format="iso").encode()
        folder = cache_folder() / "rows"
    except (ValueError, OverflowError, RuntimeError) as error:
        raise NearfarError(f"{name}: these rows cannot be kept as a file: {error}.") from None
    file = folder / f"{type(value).__name__}-{hashlib.sha256(content).hexdigest()[:16]}.jsonl"
    if not file.exists():
        with disk_errors(file):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_bytes(file, content)
    return str(file)
