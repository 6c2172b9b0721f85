"""Write rows to a .tsv, .csv or .jsonl file, one at a time."""

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from nearfar.disk import disk_errors
from nearfar.types import NearfarError

SUFFIXES = (".tsv", ".csv", ".jsonl")


def check_table_suffix(file: Path, flag: str) -> None:
    """Raise a NearfarError unless the file has one of :data:`SUFFIXES`."""
    if file.suffix not in SUFFIXES:
        raise NearfarError(f"{flag} {file}: must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}.")


def write_table(
    file: Path, suffix: str, columns: Sequence[str], rows: Iterable[Sequence[str | float | int | bool]]
) -> None:
    """Write rows in the format of ``suffix``. TSV has no quoting, so texts must contain no tabs or line breaks.

    Raises:
        NearfarError: the file cannot be written.
    """
    with disk_errors(file), file.open("w", encoding="utf-8", newline="") as stream:
        if suffix == ".jsonl":
            stream.writelines(
                json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n" for row in rows
            )
        elif suffix == ".tsv":
            stream.write("\t".join(columns) + "\n")
            stream.writelines("\t".join(map(str, row)) + "\n" for row in rows)
        else:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)
