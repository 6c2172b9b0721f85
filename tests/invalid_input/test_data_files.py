"""Invalid input files: not regular files, damaged or wrong content, and invalid file names."""

import gzip
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearfar import NearfarError
from nearfar.data import files
from nearfar.data.sources import read_columns
from tests.invalid_input.cli_runner import assert_refused
from tests.invalid_input.tables import (
    COMMANDS,
    FORMATS,
    argv_of,
    link_workspace,
    paired,
    row_location,
    rows_of,
    write_rows,
)

READERS = tuple(COMMANDS)


@pytest.fixture
def workspace(valid_workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return link_workspace(valid_workspace, tmp_path, monkeypatch)


COLUMN = {kind: next(iter(rows_of(kind)[0])) for kind in {kind for kind, _ in COMMANDS.values()}}
"""Kind of rows -> its first text column."""


@pytest.mark.parametrize(("reader", "extension"), paired(READERS, FORMATS))
def test_a_missing_column_is_named(reader: str, extension: str, workspace: Path) -> None:
    kind, _ = COMMANDS[reader]
    column = "translation" if reader == "noise" else COLUMN[kind]
    rows = [{"x" + name if name == column else name: value for name, value in row.items()} for row in rows_of(kind)]
    write_rows(Path(f"bad.{extension}"), rows)
    expected = ["triplets need the columns anchor, positive, negative"] if kind == "triplets" else [repr(column)]
    if "no method" in reader:  # then the columns do not say what the rows are
        expected = [f"--{column}-column"]
    assert_refused(argv_of(reader, f"bad.{extension}"), f"bad.{extension}", *expected, f"x{column}")


@pytest.mark.parametrize(("reader", "extension"), paired(READERS, FORMATS[::-1]))
def test_an_empty_text_is_named_by_its_row(reader: str, extension: str, workspace: Path) -> None:
    kind, _ = COMMANDS[reader]
    rows = rows_of(kind)
    rows[4][COLUMN[kind]] = " \u00a0"
    write_rows(Path(f"bad.{extension}"), rows)
    location = f"bad.{extension}, {row_location(4, extension)}"
    assert_refused(argv_of(reader, f"bad.{extension}"), location, f"column {COLUMN[kind]!r} is empty")


def _pipe(file: Path) -> None:
    os.mkfifo(file)


def _socket(file: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(file))


NON_REGULAR_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (_pipe, "is a pipe, not a regular file"),
    "socket": (_socket, "is a socket, not a regular file"),
    "device": (lambda file: file.symlink_to("/dev/zero"), "is a device, not a regular file"),
    "folder": (lambda file: file.mkdir(), "is a folder"),
    "loop": (lambda file: file.symlink_to(file), "Too many levels of symbolic links"),
    "dangling": (lambda file: file.symlink_to("nowhere"), "is a link to a file that does not exist"),
    "nothing": (lambda _: None, "no such file"),
}
PLACES = {reader: (argv, ".tsv") for reader, (_, argv) in COMMANDS.items()} | {
    "encode lines": ("encode tiny --output v.npy --input FILE", ".txt"),
    "translate": ("back-translate --output t.tsv --input FILE", ".txt"),
    "compare": ("compare result.json FILE", ".json"),
    "report": ("report FILE --output page.html", ".json"),
}
"""Reader -> a command that reads FILE, and the file's extension."""
OTHER_MESSAGES = {
    ("encode lines", "folder"): "is a table",
    ("compare", "folder"): "neither a model",
    ("compare", "nothing"): "No such file",
    ("report", "folder"): "holds no run and no result files",
    ("report", "nothing"): "No such file",
    ("report", "dangling"): "No such file",
    ("noise", "nothing"): "there is no such file",
    ("noise", "dangling"): "there is no such file",
}


@pytest.mark.parametrize(("reader", "entry"), dict.fromkeys([*paired(PLACES, NON_REGULAR_FILES), *OTHER_MESSAGES]))
def test_a_path_that_is_not_a_file_raises_before_reading(reader: str, entry: str, workspace: Path) -> None:
    argv, extension = PLACES[reader]
    make, words = NON_REGULAR_FILES[entry]
    make(workspace / f"bad{extension}")
    message = OTHER_MESSAGES.get((reader, entry), words)
    assert_refused([f"bad{extension}" if word == "FILE" else word for word in argv.split()], f"bad{extension}", message)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x" * 300, "are too long for a file name"),
        ("x\0y", "cannot contain a NUL character"),
        (os.fsdecode(b"\xff\xfe"), "the name is not UTF-8"),
    ],
    ids=["long", "nul", "not UTF-8"],
)
def test_invalid_file_names_raise(name: str, words: str) -> None:
    with pytest.raises(NearfarError, match=words):
        list(read_columns(f"{name}.tsv", ("text",)))


def test_standard_input_is_a_pipe(workspace: Path) -> None:
    read, write = os.pipe()
    try:
        assert_refused(argv_of("scl", f"/dev/fd/{read}"), f"/dev/fd/{read}: is a pipe", "write the content to a file")
    finally:
        os.close(read)
        os.close(write)


HEADER = b"premise\thypothesis\tlabel\n"
ROW = b"a dog\ta cat\tneutral\n"
JSON = b'{"premise": "a dog", "hypothesis": "a cat", "label": 1}\n'
CONTENTS: dict[str, tuple[str, bytes, tuple[str, ...]]] = {
    "empty tsv": ("tsv", b"", ("bad.tsv is empty", "name the columns")),
    "empty jsonl": ("jsonl", b"", ("bad.jsonl is empty",)),
    "empty parquet": ("parquet", b"", ("bad.parquet cannot be read as Parquet",)),
    "empty gz": ("tsv.gz", b"", ("bad.tsv.gz is empty",)),
    "gzipped empty file": ("tsv.gz", gzip.compress(b""), ("bad.tsv.gz is empty",)),
    "only a header": ("tsv", HEADER, ("bad.tsv: no labelled rows",)),
    "no header": ("tsv", ROW, ("no column 'premise'", "a dog, a cat, neutral")),
    "comma for tab": ("tsv", (HEADER + ROW).replace(b"\t", b","), ("no column 'premise'",)),
    "duplicate column": ("tsv", b"premise\tpremise\thypothesis\tlabel\n", ("2 columns named 'premise'",)),
    "not parquet": ("parquet", b"PAR1" * 40, ("cannot be read as Parquet",)),
    "too few fields": ("tsv", HEADER + ROW + b"a dog\n", ("bad.tsv, line 3: 1 fields",)),
    "too many fields": ("tsv", HEADER + ROW + b"a\tb\tc\td\n", ("bad.tsv, line 3: 4 fields",)),
    "latin-1": ("tsv", HEADER + "a d\xf6g\ta cat\tneutral\n".encode("latin-1"), ("line 2: not UTF-8", "0xf6")),
    "utf-16": ("tsv", HEADER.decode().encode("utf-16"), ("line 1: not UTF-8", "It is UTF-16. Save the file as UTF-8")),
    "utf-16 without mark": ("tsv", HEADER.decode().encode("utf-16-le"), ("contains NUL bytes, as UTF-16 does",)),
    "gzipped without .gz": ("tsv", gzip.compress(HEADER), ("line 1: not UTF-8", "It is gzipped: add .gz to its name")),
    ".gz but not gzipped": ("tsv.gz", HEADER, ("bad.tsv.gz cannot be read: Not a gzipped file",)),
    "gzipped, truncated": (
        "tsv.gz",
        gzip.compress(HEADER + ROW)[:-6],
        ("bad.tsv.gz cannot be read: Compressed file ended",),
    ),
    "gzipped, corrupted": (
        "tsv.gz",
        gzip.compress(HEADER * 9)[:20] + b"\xff" * 9,
        ("bad.tsv.gz",),
    ),
    "a spreadsheet": ("csv", b"PK\x03\x04\x14\x00\xff\xfe\n", ("It is a ZIP archive, as spreadsheets are",)),
    "old Mac line ends": (
        "csv",
        b"premise,hypothesis,label\ra,b,neutral\r",
        ("a carriage return without a line feed",),
    ),
    "open quote": ("csv", b'premise,hypothesis,label\na,b,"neutral\n', ("bad.csv, line 2: not well-formed CSV",)),
    "a truncated object": ("jsonl", JSON + JSON[:20], ("bad.jsonl, line 2: not a JSON object",)),
    "a list": ("jsonl", b"[" + JSON.strip() + b"]\n", ("line 1: a JSON list, not an object",)),
    "a pretty-printed list": ("json", b"[\n" + JSON + b"]\n", ("line 1: not a JSON object", "one object per line")),
    "deep nesting": ("jsonl", b'{"premise": ' + b"[" * 10**5 + b"\n", ("line 1: not a JSON object: it is nested",)),
    "deep text": ("jsonl", b'{"premise": ' + b"[" * 400 + b"]" * 400 + JSON[19:], ("line 1: column 'premise' holds",)),
    "400 digits": ("jsonl", JSON.replace(b"1", b"1" * 400), ("line 1: unknown label 1111",)),
    "half a surrogate pair": (
        "jsonl",
        JSON.replace(b"a dog", b"\\ud800"),
        ("line 1: column 'premise' holds half a surrogate",),
    ),
    "a number for text": ("jsonl", JSON.replace(b'"a dog"', b"3"), ("line 1: column 'premise' holds 3 (int)",)),
    "a list for text": ("jsonl", JSON.replace(b'"a dog"', b'["a"]'), ("holds ['a'] (list), not text",)),
    "null for text": ("jsonl", JSON.replace(b'"a dog"', b"null"), ("holds None (NoneType), not text",)),
    "a huge value": ("jsonl", JSON.replace(b'"a dog"', b"[" + b"1," * 10**5 + b"1]"), ("1, 1... (list), not text",)),
    "control characters": ("tsv", HEADER + b"\x01\x02\ta cat\tneutral\n", ("line 2: column 'premise' is empty",)),
    "unknown extension": ("xlsx", b"PK", ("bad.xlsx: unknown extension", ".tsv")),
    "an unknown label": ("tsv", HEADER + b"a\tb\tmaybe\n", ("line 2: unknown label 'maybe'", "entailment")),
    "not-a-number as a label": ("jsonl", JSON.replace(b"1", b"NaN"), ("line 1: unknown label nan",)),
    "a fraction as a label": ("tsv", HEADER + b"a\tb\t0.5\n", ("line 2: unknown label '0.5'",)),
    "no row with a label": ("tsv", HEADER + b"a\tb\t-\n" * 3, ("no labelled rows (3 without a label",)),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CONTENTS)
def test_invalid_content_raises(case: str, workspace: Path) -> None:
    extension, content, mentions = CONTENTS[case]
    name = f"bad.{extension}" if extension else "bad"
    Path(name).write_bytes(content)
    output = assert_refused(argv_of("scl", name), name, *mentions)
    assert len(output) < 2000


@pytest.mark.long
def test_the_list_of_columns_is_limited(workspace: Path) -> None:
    Path("bad.tsv").write_text("\t".join(f"c{n}" for n in range(10**6)) + "\n")
    assert len(assert_refused(argv_of("scl", "bad.tsv"), "no column 'premise'", "c0, c1", "...")) < 1000


@pytest.mark.long
def test_a_line_without_line_end_raises(workspace: Path) -> None:
    with open("bad.tsv", "wb") as file:
        file.truncate(files.MAX_LINE_BYTES + 100)  # a sparse file of NUL bytes
    assert_refused(argv_of("scl", "bad.tsv"), "bad.tsv, line 1: the line is longer than 64 MiB")


@pytest.mark.parametrize("extension", ["tsv", "csv", "jsonl", "json.gz", "tsv.gz", "csv.gz", "txt", "txt.gz"])
def test_a_line_at_the_limit_is_read(extension: str, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1000)
    content = b"text,text,text\n" + b"x" * 2000 + b"\n"
    Path(f"bad.{extension}").write_bytes(gzip.compress(content) if extension.endswith("gz") else content)
    with pytest.raises(files.NearfarError, match=r"bad.*, line \d: (the line is longer|not a JSON|not well-formed)"):
        for _ in files.read_lines(Path(f"bad.{extension}")):
            pass


def test_a_long_text_in_csv_is_read(workspace: Path) -> None:
    """Python's default limit is 131,072 characters."""
    Path("long.csv").write_text("text\n" + "x" * 200_000 + "\n")
    ((_, (text,)),) = files.read_file(Path("long.csv"), ["text"])
    assert text == "x" * 200_000


def _parquet(name: str, column: pa.Array) -> None:
    rows = rows_of("nli")[: len(column)]
    table = {key: pa.array([row[key] for row in rows]) for key in ("premise", "hypothesis", "label")} | {name: column}
    pq.write_table(pa.table(table), "bad.parquet")


PARQUET: dict[str, tuple[str, Callable[[], pa.Array], tuple[str, ...]]] = {
    "not UTF-8": (
        "premise",
        lambda: pa.Array.from_buffers(
            pa.string(),
            2,
            [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")],
        ),
        ("bad.parquet, row 2: column 'premise' is not UTF-8", "0xff"),
    ),
    "bytes": ("premise", lambda: pa.array([b"a", b"b"]), ("row 1: column 'premise' holds b'a' (bytes), not text",)),
    "lists": ("premise", lambda: pa.array([["a"], ["b"]]), ("row 1: column 'premise' holds ['a'] (list)",)),
    "structs": ("premise", lambda: pa.array([{"a": 1}, {"a": 2}]), ("row 1: column 'premise' holds {'a': 1} (dict)",)),
    "numbers": ("premise", lambda: pa.array([1.5, 2.5]), ("row 1: column 'premise' holds 1.5 (float)",)),
    "null": ("premise", lambda: pa.array(["a", None]), ("row 2: column 'premise' holds None",)),
    "only null": ("premise", lambda: pa.nulls(2), ("row 1: column 'premise' holds None",)),
    "a dictionary": (
        "label",
        lambda: pa.array(["neutral", "maybe"]).dictionary_encode(),
        ("row 2: unknown label 'maybe'",),
    ),
    "booleans": ("label", lambda: pa.array([True, False]), ("row 1: unknown label True",)),
    "dates": (
        "premise",
        lambda: pa.array([2**62, 2**62], pa.timestamp("us")),
        ("bad.parquet cannot be read as Parquet",),
    ),
}


@pytest.mark.parametrize("case", PARQUET)
def test_parquet_columns_of_other_types_raise(case: str, workspace: Path) -> None:
    name, column, mentions = PARQUET[case]
    _parquet(name, column())
    assert_refused(argv_of("scl", "bad.parquet"), *mentions)


def test_parquet_without_rows(workspace: Path) -> None:
    columns = ("premise", "hypothesis", "label")
    pq.write_table(pa.table({name: pa.array([], pa.string()) for name in columns}), "a.parquet")
    assert_refused(argv_of("scl", "a.parquet"), "a.parquet: no labelled rows")


@pytest.mark.parametrize("kept", [0.1, 0.99])
def test_truncated_parquet_raises(kept: float, workspace: Path) -> None:
    write_rows(Path("bad.parquet"), rows_of("nli"))
    content = Path("bad.parquet").read_bytes()
    Path("bad.parquet").write_bytes(content[: int(kept * len(content))])
    assert_refused(argv_of("scl", "bad.parquet"), "bad.parquet cannot be read as Parquet")


def test_parquet_with_broken_class_names(workspace: Path) -> None:
    rows = rows_of("nli")
    table = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    info = json.dumps({"info": {"features": {"label": {"names": 3, "_type": "Nonsense"}}}})
    pq.write_table(table.replace_schema_metadata({"huggingface": info}), "bad.parquet")
    assert_refused(argv_of("scl", "bad.parquet"), "bad.parquet: the class names")


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize("name", ["*.arrow", "state.json", "dataset_info.json"])
@pytest.mark.parametrize("damage", [_cut, Path.unlink, lambda file: file.write_text("[]")], ids=["cut", "gone", "list"])
def test_damaged_folders_of_datasets_raise(name: str, damage: Callable[[Path], object], workspace: Path) -> None:
    import datasets

    rows = rows_of("nli")
    datasets.Dataset.from_dict({name: [row[name] for row in rows] for name in rows[0]}).save_to_disk("bad")
    for file in Path("bad").glob(name):
        damage(file)
    assert_refused(argv_of("scl", "bad"), "bad")


@pytest.mark.parametrize(
    ("spec", "mention"),
    [
        ("", "must not be empty"),
        (" ", "must not be empty"),
        ("none", "none: neither a file nor a named data set"),
        ("snli,mnli", "neither a file nor a named data set. Separate names by spaces: snli mnli. Named data sets:"),
        ("nil.tsv", "Did you mean 'nli.tsv'?"),
        ("nowhere/nli.tsv", "the folder nowhere does not exist"),
        ("snli", "NEARFAR_DATA is not set"),
        ("snli:nowhere", "has no such split"),
        ("snli:", "after the colon, name each split once"),
        ("nli.tsv:train", "a file has no splits"),
        ("microworld:nowhere", "microworld has no split 'nowhere'"),
        ("hub:x", "a hub data set is named owner/name"),
        ("~nobody_of_this_name/nli.tsv", "Write the full path"),
    ],
)
def test_invalid_specs_raise(spec: str, mention: str, workspace: Path) -> None:
    assert_refused(argv_of("scl", spec), mention)
