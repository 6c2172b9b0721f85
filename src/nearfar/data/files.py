"""Read one file: rows by column name from TSV, CSV, JSON lines (each also gzipped) or Parquet; lines of plain text.

CSV has the standard quoting, so that a record may span lines; errors name its first line. Its separator is a comma, or
what separates the fields of the first lines: semicolons, tabs or vertical bars (:func:`find_dialect`). TSV has no
quoting (a ``"`` is an ordinary character, no field contains a tab or a line break), unless the whole file is written
with it. Blank lines are skipped. Columns are found by their names, whatever their case and punctuation.
"""

import csv
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.data.cells import MAX_LINE_BYTES, Lines, Location, Records, Rows, column_indices
from nearfar.data.paths import check_file, file_version
from nearfar.disk import check_characters
from nearfar.types import NearfarError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

_DELIMITED = {".tsv": "\t", ".csv": ","}
"""Extension of a delimited format -> its usual separator."""
EXTENSIONS = (*(f"{kind}{end}" for kind in (*_DELIMITED, ".jsonl", ".json") for end in ("", ".gz")), ".parquet")
PLAIN_TEXT = (".txt", ".txt.gz")
"""Extensions of files with one text per line and no columns."""
_SAVE_AS_UTF8 = "Save it as text in UTF-8; the name of a gzipped file ends in .gz."


def read_file(path: Path, columns: Sequence[str], *, optional: Sequence[str] = (), plain: bool = False) -> Rows:
    """Yield the ``columns`` of each row of ``path``; the extension determines the format (see :data:`EXTENSIONS`).

    Text files yield strings (JSON lines: JSON values). Parquet yields Python values, and class names if ``datasets``
    wrote the file and its features declare them. ``optional`` columns follow; JSON objects may lack them (None).
    ``plain`` TSV has tabs and no quoting, whatever its fields look like.

    Raises:
        NearfarError: a missing or not regular file, an unknown extension, an empty or damaged file, text that is not
            UTF-8, a line longer than :data:`MAX_LINE_BYTES`, a missing or duplicate column, a line with too many or too
            few fields, or one that is not a JSON object. The message names file and line.

    """
    kind = _format(path)
    if kind == ".parquet":
        return _read_parquet(path, (*columns, *optional))
    if kind in _DELIMITED:
        return _read_delimited(path, (*columns, *optional), plain=plain)
    return _read_json_lines(path, columns, optional)


def file_columns(path: Path, *, plain: bool = False) -> list[str]:
    """The names of the columns of a file, of JSON lines the keys of all lines; for errors see :func:`read_file`."""
    kind = _format(path)
    if kind == ".parquet":
        with opened_parquet(path) as file:
            return list(file.schema_arrow.names)
    return open_delimited(path, plain=plain)[1] if kind in _DELIMITED else list(_json_keys(path, file_version(path)))


def read_lines(path: Path, *, keep_blank: bool = False) -> Iterator[tuple[Location, str]]:
    """Yield the lines of a plain text file (:data:`PLAIN_TEXT`) without line ends; blank ones only if ``keep_blank``.

    Raises:
        NearfarError: a missing, not regular or damaged file, a line longer than :data:`MAX_LINE_BYTES`, or text that
            is not UTF-8. The message names file and line.

    """
    for number, line in _lines(path):
        if keep_blank or line.strip():
            yield Location(str(path), number), line.removesuffix("\n").removesuffix("\r")


def is_plain_text(path: Path) -> bool:
    """Whether ``path`` has an extension of plain text, for :func:`read_lines`."""
    return extension(path) in PLAIN_TEXT


def is_known(path: Path) -> bool:
    """Whether ``path`` has an extension that :func:`read_file` reads."""
    return extension(path) in EXTENSIONS


def stem(path: Path) -> str:
    """Return the file name without its format extension: ``dev`` for ``sets/dev.tsv.gz``."""
    return path.name[: -len(extension(path))] if is_known(path) else path.name


def extension(path: Path) -> str:
    """Return the extension of the format in lower case, with .gz: ``.tsv.gz``."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    return "".join(suffixes if suffixes[-1:] == [".gz"] else suffixes[-1:])


def _format(path: Path) -> str:
    """The extension of a file with columns, without .gz."""
    check_file(path)
    if not is_known(path):
        raise NearfarError(f"{path}: unknown extension. Files with columns end in {', '.join(EXTENSIONS)}.")
    return extension(path).removesuffix(".gz")


def _lines(path: Path) -> Lines:
    check_file(path)  # opening a pipe would wait for its writer
    try:
        with gzip.open(path) if extension(path).endswith(".gz") else path.open("rb") as file:
            yield from decode_lines(file.readline, path)
    except (OSError, EOFError, zlib.error) as error:
        why = "its compressed data is damaged" if isinstance(error, zlib.error) else getattr(error, "strerror", None)
        raise NearfarError(f"{path} cannot be read: {why or error}.") from None


def decode_lines(
    readline: Callable[[int], bytes], shown: object, *, encoding: str = "utf-8", advice: str = _SAVE_AS_UTF8
) -> Lines:
    """Yield the number and the text of each line of a stream, with its end; a byte order mark is dropped.

    Raises:
        NearfarError: a line longer than :data:`MAX_LINE_BYTES`, or one that is not in the encoding. ``shown`` is the
            location of the stream, ``advice`` ends the sentence.
    """
    # Split only at \n and decode line by line, so that an error names the line, and a stray \r stays in its field.
    for number, line in enumerate(iter(partial(readline, MAX_LINE_BYTES + 1), b""), 1):
        where = Location(str(shown), number)
        if len(line) > MAX_LINE_BYTES:
            raise NearfarError(f"{where}: the line is longer than {MAX_LINE_BYTES / 2**20:g} MiB. Split long texts.")
        try:
            yield number, line.decode("utf-8-sig" if number == 1 and encoding == "utf-8" else encoding)
        except UnicodeDecodeError as error:
            byte = f"byte {error.start + 1} of the line is 0x{line[error.start]:02x}"
            raise NearfarError(f"{where}: not {encoding.upper()} ({byte}). {advice}") from None


# --- TSV and CSV ---

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_SAMPLE = 100
"""Number of lines by which the separator is found."""
_FIELD = r'(?:"(?:[^"]|"")*+"|[^"\t\r\n]*+)'
_RECORD = re.compile(rf"{_FIELD}(?:\t{_FIELD})*+\r?\n?")
_OPEN_RECORD = re.compile(rf'(?:{_FIELD}\t)*+"(?:[^"]|"")*+')
"""A record whose last field is enclosed and goes on in the next line."""
_LONGEST_RECORD = 2**17
"""Number of characters after which a field that goes on in the next line is taken for one with a stray mark."""


def _read_delimited(path: Path, columns: Sequence[str], *, plain: bool) -> Rows:
    number, names, records = open_delimited(path, plain=plain)
    indices = column_indices(names, columns, Location(str(path), number))
    for number, fields in records:
        where = Location(str(path), number)
        if len(fields) != len(names):
            separator = unusual_separator(path)
            other = f", separated by {separator}: {', '.join(names)}" if separator else ""
            raise NearfarError(f"{where}: {len(fields)} fields, but the header has {len(names)} columns{other}.")
        yield where, tuple(fields[index] for index in indices)


def open_delimited(path: Path, *, plain: bool = False) -> tuple[int, list[str], Records]:
    """The line of the header of a TSV or CSV file, the names of its columns, and its records.

    Raises:
        NearfarError: the file is empty or not text, or its first line is blank.
    """
    separator, quoted = ("\t", False) if plain else find_dialect(path, file_version(path))
    records = csv_records(path, _lines(path), separator) if quoted else _plain_records(path)
    number, header = next(records, (1, []))
    names = [name.strip() for name in header]
    if not any(names):
        raise NearfarError(f"{Location(str(path), number)}: is empty or blank, and should name the columns.")
    if "\0" in "".join(names):
        raise NearfarError(f"{path} contains NUL bytes, as UTF-16 does. {_SAVE_AS_UTF8}")
    return number, names, records


def csv_records(path: Path | str, lines: Lines, separator: str = ",") -> Records:
    """Yield the first line number and the fields of each record of the ``lines`` of a CSV file, its header first."""
    # Applies to the whole process. Python's default, 131,072 characters, is too low for long documents.
    csv.field_size_limit(MAX_LINE_BYTES)
    # strict: an unclosed quote would otherwise silently swallow the rest of the file.
    reader = csv.reader((line for _, line in lines), delimiter=separator, strict=True)
    start = 1
    try:
        for fields in reader:
            if fields:
                yield start, fields
            start = reader.line_num + 1
    except csv.Error as error:
        raise NearfarError(f"{Location(str(path), start)}: not well-formed CSV: {error}.") from None


def _plain_records(path: Path) -> Records:
    for number, line in _lines(path):
        if line.strip("\r\n"):
            yield number, line.removesuffix("\n").removesuffix("\r").split("\t")


@lru_cache(maxsize=64)
def find_dialect(path: Path, _version: object) -> tuple[str, bool]:
    """What separates the fields of a file, and whether they may be enclosed in quotation marks.

    The separator splits the first lines, or at least the header, into several fields; the one that the extension means
    comes first. Tab-separated fields are quoted if :func:`_encloses_fields`.
    """
    usual = _DELIMITED[extension(path).removesuffix(".gz")]
    sample = [line for _, line in islice(_lines(path), _SAMPLE)]
    separator = max((usual, *SEPARATORS), key=partial(_fit, sample))
    return separator, separator != "\t" or _encloses_fields(path)


def unusual_separator(path: Path) -> str | None:
    """What separates the columns of a file in words, if its extension means another format or separator."""
    usual = _DELIMITED.get(extension(path).removesuffix(".gz"))
    separator = find_dialect(path, file_version(path))[0] if usual else None
    return None if separator in (usual, None) else SEPARATORS[separator]


def _fit(sample: Sequence[str], separator: str) -> int:
    """0 if a separator does not split the header, 2 if it splits all records into as many fields, else 1."""
    csv.field_size_limit(MAX_LINE_BYTES)
    best = 0
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE) if separator == "\t" else (csv.QUOTE_MINIMAL,):
        with suppress(csv.Error):
            widths = [len(fields) for fields in csv.reader(sample, delimiter=separator, quoting=quoting) if fields]
            same = len(set(widths[:-1] if len(sample) == _SAMPLE else widths)) == 1  # the last record may go on
            best = max(best, 1 + same if widths[:1] > [1] else 0)
    return best


def _encloses_fields(path: Path) -> bool:
    """Whether a tab-separated file is written with quoting, as by pandas and Excel, and not with bare quotation marks.

    It is if every field with a quotation mark is enclosed, and those inside are doubled.

    Raises:
        NearfarError: rows above the first with a bare mark are surely written with quoting.
    """
    enclosed = quoting = False
    start, record = 0, ""
    for number, line in _lines(path):
        if not record and '"' not in line:
            continue
        start, record = start if record else number, record + line
        if '"' in line and _RECORD.fullmatch(record):
            enclosed, quoting = True, quoting or '""' in record or record.count("\n") > 1
            record = ""
        elif len(record) > _LONGEST_RECORD or ('"' in line and not _OPEN_RECORD.fullmatch(record)):
            break
    if record and quoting:
        raise NearfarError(
            f"{Location(str(path), start)}: a quotation mark that does not enclose a field, as others do in this "
            "file. Enclose the field and double the marks inside, or write all fields without enclosing marks."
        )
    return enclosed and not record


# --- JSON lines ---


def json_records(path: Path | str, *, lines: Lines | None = None) -> Iterator[tuple[Location, dict[str, Any]]]:
    """Yield the location and the object of each line of a JSON lines file, or of ``lines``.

    Raises:
        NearfarError: a damaged or empty file, or a line that is no object, has a key twice, or half a surrogate pair.
    """
    where = None
    for number, line in _lines(Path(path)) if lines is None else lines:
        if not line.strip():
            continue
        where = Location(str(path), number)
        try:
            record = json.loads(line, object_pairs_hook=_distinct_keys)
            check_characters(record, line)
        except (ValueError, RecursionError) as error:
            raise NearfarError(f"{where}: not a JSON object: {error}. Write one object per line.") from None
        if not isinstance(record, dict):
            raise NearfarError(f"{where}: a JSON {type(record).__name__}, not an object. Write one object per line.")
        yield where, record
    if where is None:
        raise NearfarError(f"{path} is empty; each line should be a JSON object.")


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError(f"a key occurs twice, of {', '.join(record)[:80]}")
    return record


def _read_json_lines(path: Path, columns: Sequence[str], optional: Sequence[str]) -> Rows:
    for where, record in json_records(path):
        names = list(record)
        values = (record[names[index]] for index in column_indices(names, columns, where))
        yield where, (*values, *map(record.get, optional))


@lru_cache(maxsize=64)
def _json_keys(path: Path, _version: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for _, record in json_records(path) for key in record))


# --- Parquet, and the data sets of datasets, which are Arrow tables too ---

MAX_RATIO, RATIO_FROM = 200, 2**28
"""A column in a row group of a Parquet file that unpacks to over RATIO_FROM bytes may unpack to MAX_RATIO times its
size. Text is compressed to between a half and a tenth."""
ROWS_AT_ONCE = 1024
_CLASS_NAME = re.compile(r"\b\w+(?:Error|Exception)\b:?\s*")


def parquet_error(path: Path | str, error: Exception) -> NearfarError:
    """The error for a Parquet file: what pyarrow says, without names of classes and raw bytes."""
    why = "".join(filter(str.isprintable, _CLASS_NAME.sub("", str(error)))).strip(" .:")
    return NearfarError(f"{path} cannot be read as Parquet: {why or 'it is damaged'}.")


@contextmanager
def opened_parquet(path: Path) -> Iterator["pyarrow.parquet.ParquetFile"]:
    """A Parquet file to read; raises NearfarError with what pyarrow says if it is damaged."""
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except NearfarError:
        raise
    except Exception as error:  # pyarrow and datasets raise many kinds
        raise parquet_error(path, error) from error


def _read_parquet(path: Path, columns: Sequence[str]) -> Rows:
    with opened_parquet(path) as file:
        schema = file.schema_arrow
        columns = [schema.names[index] for index in column_indices(schema.names, columns, path)]
        _check_unpacked_size(path, file.metadata, columns)
        classes = {}
        if b"huggingface" in (schema.metadata or {}):
            import datasets

            classes = class_names(datasets.Features.from_arrow_schema(schema))
        yield from arrow_rows(path, file.iter_batches(columns=columns, batch_size=ROWS_AT_ONCE), columns, classes)


def _check_unpacked_size(path: Path, metadata: Any, columns: Sequence[str]) -> None:
    """Refuse a column that unpacks to far more than its size, before it is unpacked."""
    for group, number in product(range(metadata.num_row_groups), range(metadata.num_columns)):
        chunk = metadata.row_group(group).column(number)
        packed, unpacked = chunk.total_compressed_size, chunk.total_uncompressed_size
        is_read = chunk.path_in_schema.partition(".")[0] in columns
        if is_read and unpacked > max(RATIO_FROM, MAX_RATIO * packed):
            raise NearfarError(
                f"{path}: column {chunk.path_in_schema!r} unpacks to {unpacked:,} bytes, from {packed:,}; it is "
                "refused, because no text does. Write the file again with smaller row groups."
            )


def class_names(features: Mapping[str, Any]) -> dict[str, list[str]]:
    """Column -> the class names that a data set declares for it."""
    return {column: kind.names for column, kind in features.items() if hasattr(kind, "names")}


def arrow_rows(
    title: Path | str,
    batches: "Iterable[pyarrow.RecordBatch | pyarrow.Table]",
    columns: Sequence[str],
    classes: Mapping[str, Sequence[str]],
) -> Rows:
    """Yield the columns of each row; class indices become the names of ``classes``, and -1, a missing class, is kept.

    Raises:
        NearfarError: a text is longer than :data:`MAX_LINE_BYTES`, or not UTF-8; the message names the row.
    """
    number, names = 0, [classes.get(column) for column in columns]
    for batch in batches:
        for values in zip(*(column_values(title, batch, column, number) for column in columns), strict=True):
            number += 1
            row = (
                known[value] if known and isinstance(value, int) and 0 <= value < len(known) else value
                for value, known in zip(values, names, strict=True)
            )
            yield Location(str(title), number, "row"), tuple(row)


def column_values(
    title: Path | str, batch: "pyarrow.RecordBatch | pyarrow.Table", column: str, before: int
) -> Iterator[Any]:
    """Yield a batch's values of a column; an error names the row. ``before`` is the number of rows already read."""
    for number, value in enumerate(batch.column(column), before + 1):
        where = Location(str(title), number, "row")
        try:
            text = value.as_py()
        except UnicodeDecodeError as error:
            byte = f"byte {error.start + 1} is 0x{error.object[error.start]:02x}"
            raise NearfarError(f"{where}: column {column!r} is not UTF-8 ({byte}). Write the text as UTF-8.") from None
        if isinstance(text, str | bytes) and len(text) > MAX_LINE_BYTES:
            limit = f"{MAX_LINE_BYTES / 2**20:g} MiB"
            raise NearfarError(f"{where}: column {column!r} is longer than {limit}. Split long texts.")
        yield text
