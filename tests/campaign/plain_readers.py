"""Plain readers of the documented file formats: whole files in memory, the standard library only, no shared code.

Each raises ``RefusedError`` for what docs/guides/data.md refuses, so that both what nearfar reads and what it refuses
can be compared.
"""

import csv
import gzip
import io
import json
import math
import re
import struct
import tomllib
import unicodedata
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


class RefusedError(Exception):
    """The documentation refuses this file, with the reason."""


class UnclearError(Exception):
    """The documentation leaves open whether this file is read; if it is, the rows are ``rows``."""

    def __init__(self, why: str, rows: Any = None) -> None:
        super().__init__(why)
        self.rows = rows


def content_of(path: Path) -> bytes:
    """The bytes of a regular file."""
    if not path.is_file():
        raise RefusedError("not a regular file")
    return path.read_bytes()


def text_of(path: Path) -> str:
    content = content_of(path)
    if path.name.endswith(".gz"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error, struct.error) as error:
            raise RefusedError(f"gzip: {error}") from None
    if any(len(line) > 2**26 for line in content.split(b"\n")):
        raise RefusedError("a line of over 64 MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefusedError(str(error)) from None


def lines(path: Path) -> list[str]:
    """The lines of a text file: they end with a line feed, before which a carriage return is dropped."""
    text = text_of(path)
    found = text.split("\n")
    if found[-1] == "":
        found.pop()
    return [line[:-1] if line.endswith("\r") else line for line in found]


def tsv(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Rows of a TSV file without quoting; lines with nothing but line ends are blank."""
    text = text_of(path)
    records = [
        (line[:-1] if line.endswith("\r") else line).split("\t") for line in text.split("\n") if line.strip("\r\n")
    ]
    return _chosen(records, columns)


def comma_separated(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Rows of a CSV file."""
    text = text_of(path)
    csv.field_size_limit(2**26)
    try:
        records = [record for record in csv.reader(io.StringIO(text, newline=""), strict=True) if record]
        if re.search(r"\r(?!\n)", text):
            raise UnclearError("a carriage return without a line feed")
    except csv.Error as error:
        raise RefusedError(str(error)) from None
    return _chosen(records, columns)


def _chosen(records: list[list[str]], columns: Sequence[str]) -> list[tuple[str, ...]]:
    if not records:
        raise RefusedError("empty")
    header, *rows = records
    if any("\0" in name for name in header):
        raise RefusedError("NUL in the header")
    if any(header.count(column) != 1 for column in columns):
        raise RefusedError("a column is missing or occurs twice")
    if any(len(row) != len(header) for row in rows):
        raise RefusedError("a row with another number of fields")
    return [tuple(row[header.index(column)] for column in columns) for row in rows]


def json_lines(path: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows of a file with one JSON object per line."""

    def no_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs) and any([name for name, _ in pairs].count(column) > 1 for column in columns):
            raise RefusedError("a key occurs twice")
        return found

    rows = []
    for line in text_of(path).split("\n"):
        if not line.strip():
            continue
        try:
            record = json.loads(line, object_pairs_hook=no_repeated)
        except (ValueError, RecursionError) as error:
            raise RefusedError(str(error)) from None
        if not isinstance(record, dict) or any(column not in record for column in columns):
            raise RefusedError("no object with these keys")
        rows.append(tuple(record[column] for column in columns))
    if not rows:
        raise RefusedError("empty")
    return rows


def parquet(path: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows of a Parquet file, by reading all of it without options."""
    import pyarrow.parquet

    content_of(path)
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            table = file.read()
    except Exception as error:
        raise RefusedError(str(error)) from None
    if any(table.column_names.count(column) != 1 for column in columns):
        raise RefusedError("a column is missing or occurs twice")
    try:
        values = [table.column(table.column_names.index(name)).to_pylist() for name in columns]
    except Exception as error:
        raise RefusedError(str(error)) from None
    metadata = (table.schema.metadata or {}).get(b"huggingface")
    return list(zip(*(_named(name, found, metadata) for name, found in zip(columns, values, strict=True)), strict=True))


def _named(column: str, values: list[Any], metadata: bytes | None) -> list[Any]:
    """Class numbers as the names that ``datasets`` declares for the column."""
    if metadata is None:
        return values
    try:
        names = json.loads(metadata)["info"]["features"][column].get("names")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UnclearError("metadata that datasets did not write") from None
    return [names[one] if names and isinstance(one, int) and 0 <= one < len(names) else one for one in values]


ROWS: dict[str, Callable[[Path, Sequence[str]], list[tuple[Any, ...]]]] = {
    "tsv": tsv,
    "csv": comma_separated,
    "jsonl": json_lines,
    "json": json_lines,
    "parquet": parquet,
}


def rows(path: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows of a file in the format of its name."""
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    return ROWS[kind](path, columns)


def normalized(text: str) -> str:
    """Each run of white space and control characters as one space, none at the ends."""
    spaced = "".join(" " if unicodedata.category(one) == "Cc" or one.isspace() else one for one in text)
    return " ".join(part for part in spaced.split(" ") if part)


def text(value: Any) -> str:
    """A field that must be a text."""
    if not isinstance(value, str) or not normalized(value):
        raise RefusedError("empty or not text")
    if any(unicodedata.category(one) == "Cs" for one in value):
        raise RefusedError("half a surrogate pair")
    return normalized(value)


_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def number(value: Any) -> float:
    """A finite number, or a text that contains one."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        if type(value).__name__ != "Decimal":
            raise RefusedError("not a number")
        value = str(value)
    if isinstance(value, str) and not _DECIMAL.fullmatch(value.strip()):
        raise RefusedError("not a number")
    try:
        found = float(value)
    except OverflowError:
        raise RefusedError("too large") from None
    if not math.isfinite(found):
        raise RefusedError("not finite")
    return found


MISSING = {"", "nan", "NaN", "-nan", "-NaN", "null", "NULL", "None", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "NaT"}


def label(value: Any) -> str:
    """The name of a label: a string or an integer; true and false in any case; not what marks a missing value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value) or value != int(value):
            raise RefusedError("a number with a fraction, or a missing value")
        return str(int(value))
    if not isinstance(value, str):
        raise UnclearError("a label of another type")
    name = normalized(value)
    if name in MISSING:
        raise RefusedError("a missing value")
    if any(unicodedata.category(one) == "Cs" for one in name):
        raise RefusedError("half a surrogate pair")
    if name.lower() in ("true", "false"):
        return name.lower()
    if re.fullmatch(r"-?[0-9]{1,300}(\.0*)?", name):
        return str(int(name.partition(".")[0]))
    if "." in name and _DECIMAL.fullmatch(name):
        raise RefusedError("a number with a fraction")
    return name


def nli(path: Path) -> list[tuple[str, str, int]]:
    """Rows with a premise, a hypothesis and a label; those without a label are dropped."""
    names = {"entailment": 0, "neutral": 1, "contradiction": 2, "0": 0, "1": 1, "2": 2}
    found = []
    for premise, hypothesis, value in rows(path, ("premise", "hypothesis", "label")):
        if value is not None and not isinstance(value, (str, int, float)):
            raise UnclearError("a label of another type")
        name = "" if value is None else normalized(str(value)).lower()
        if _DECIMAL.fullmatch(name) and math.isfinite(float(name)) and float(name) == int(float(name)):
            name = str(int(float(name)))
        if (
            isinstance(value, bool)
            or (isinstance(value, float) and math.isnan(value))
            or name in ("nan", "none", "null")
        ):
            raise UnclearError("a label that may mean a missing one")
        if name in ("", "-", "-1"):
            continue
        if name not in names:
            raise RefusedError(f"label {name}")
        found.append((text(premise), text(hypothesis), names[name]))
    if not found:
        raise RefusedError("no rows")
    return found


def scored(path: Path) -> list[tuple[str, str, float]]:
    """Pairs of sentences with a score."""
    found = [
        (text(first), text(second), number(score))
        for first, second, score in rows(path, ("sentence1", "sentence2", "score"))
    ]
    if not found:
        raise RefusedError("no rows")
    return found


def labelled(path: Path) -> list[tuple[str, str]]:
    """Texts with a label."""
    found = [(text(one), label(name)) for one, name in rows(path, ("text", "label"))]
    if not found:
        raise RefusedError("no rows")
    if len({name for _, name in found}) < 2 or len({one for one, _ in found}) < 2:
        raise UnclearError("one label, or one text", found)
    texts_of: dict[str, set[str]] = {}
    for one, name in found:
        texts_of.setdefault(name, set()).add(one)
    if any(len(texts) < 2 for texts in texts_of.values()):
        raise UnclearError("a label with one text", found)
    return found


def tuples(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Rows of related texts; repeated ones, and those with the same text twice, are dropped."""
    found = [tuple(map(text, row)) for row in rows(path, columns)]
    kept = [row for row in dict.fromkeys(found) if len(set(row)) == len(row)]
    if not kept or len({one for row in kept for one in row}) < 2 or len(kept) < 2:
        raise UnclearError("fewer than two rows", kept)
    return kept


def sentences(path: Path) -> list[str]:
    """Distinct sentences: the lines of a text file that are not blank, or the column text."""
    if path.name.removesuffix(".gz").endswith(".txt"):
        found = [text(line) for line in lines(path) if line.strip()]
    else:
        found = [text(one) for (one,) in rows(path, ("text",))]
    kept = list(dict.fromkeys(found))
    if len(kept) < 2:
        raise UnclearError("fewer than two sentences", kept)
    return kept


def translations(path: Path) -> dict[str, str]:
    """Sentence -> translation."""
    found: dict[str, str] = {}
    for one, other in rows(path, ("sentence", "translation")):
        if found.setdefault(text(one), text(other)) != text(other):
            raise RefusedError("two translations of one sentence")
    if not found:
        raise RefusedError("no rows")
    return found


def beir(folder: Path) -> dict[str, Any]:
    """Ids and texts of documents and judged queries, and the relevant documents of each."""

    def texts(name: str, *, titled: bool) -> dict[str, str]:
        found: dict[str, str] = {}
        if titled:
            _refuse_two_titles(folder / name)
        for row in json_lines(folder / name, ("_id", "text")):
            if isinstance(row[0], bool) or not isinstance(row[0], (str, int)) or row[0] == "":
                raise RefusedError("an id that is not text")
            if str(row[0]) in found:
                raise RefusedError("an id occurs twice")
            found[str(row[0])] = _may_be_empty(row[1])
        if titled:
            for line in text_of(folder / name).split("\n"):
                record = json.loads(line) if line.strip() else {}
                if record.get("title") is not None:
                    one = str(record["_id"])
                    found[one] = f"{_may_be_empty(record['title'])} {found[one]}".strip()
        return found

    documents, queries = texts("corpus.jsonl", titled=True), texts("queries.jsonl", titled=False)
    relevant: dict[str, dict[str, int]] = {}
    seen: dict[tuple[str, str], int] = {}
    for query, document, score in tsv(folder / "qrels/test.tsv", ("query-id", "corpus-id", "score")):
        grade = number(score)
        if grade != int(grade) or abs(grade) > 2**31 - 1 or not query or not document:
            raise RefusedError("a grade that is not a whole number, or an empty id")
        if seen.setdefault((query, document), int(grade)) != grade:
            raise RefusedError("two grades")
        if query in queries and document in documents and grade >= 1:
            relevant.setdefault(query, {})[document] = int(grade)
    if not relevant:
        raise RefusedError("no relevant documents")
    return {
        "documents": documents,
        "queries": {name: queries[name] for name in queries if name in relevant},
        "relevant": {name: relevant[name] for name in queries if name in relevant},
    }


def _refuse_two_titles(file: Path) -> None:
    def check(pairs: list[tuple[str, Any]]) -> bool:
        return [name for name, _ in pairs].count("title") > 1

    for line in text_of(file).split("\n"):
        try:  # the hook's last result is that of the outermost object
            if line.strip() and json.loads(line, object_pairs_hook=check) is True:
                raise RefusedError("a title occurs twice")
        except (ValueError, RecursionError):
            continue  # refused elsewhere


def _may_be_empty(value: Any) -> str:
    return "" if isinstance(value, str) and not normalized(value) else text(value)


def toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file."""
    try:
        return tomllib.loads(content_of(path).decode("utf-8-sig"))
    except (ValueError, RecursionError, OSError) as error:
        raise RefusedError(str(error)) from None


def json_document(path: Path) -> Any:
    """One JSON document."""
    try:
        return json.loads(content_of(path))
    except (ValueError, RecursionError, OSError) as error:
        raise RefusedError(str(error)) from None


_SAFETENSORS_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}


def safetensors(path: Path) -> dict[str, Any]:
    """The tensors of a safetensors file: name -> array."""
    import numpy as np

    content = content_of(path)
    try:
        (size,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + size])
        data = content[8 + size :]
        found = {}
        for name, entry in header.items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                kind = np.dtype(_SAFETENSORS_TYPES[entry["dtype"]])
                found[name] = np.frombuffer(data[start:end], kind).reshape(entry["shape"])
    except (ValueError, KeyError, TypeError, struct.error, AttributeError) as error:
        raise RefusedError(str(error)) from None
    return found
