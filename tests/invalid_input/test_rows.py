"""Files of rows and texts, by the commands that read them; what each reader refuses is tested in ``tests/data``."""

import gzip
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearfar import NearfarError
from nearfar.data import files
from nearfar.data.cells import Location, label_field
from nearfar.data.classification import load_classification
from nearfar.data.labelled import label_summary
from nearfar.data.sources import read_columns
from tests.invalid_input.cli_runner import assert_refused
from tests.invalid_input.runs import link_runs
from tests.invalid_input.tables import COMMANDS, FORMATS, argv_of, paired, row_location, rows_of, write_rows

COLUMN = {kind: next(iter(rows_of(kind)[0])) for kind, _ in COMMANDS.values()}
"""Kind of rows -> its first text column."""


@pytest.fixture
def workspace(valid_workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return link_runs(valid_workspace, tmp_path, monkeypatch)


@pytest.mark.parametrize(("reader", "extension"), paired(COMMANDS, FORMATS))
def test_a_missing_column_and_an_empty_text_are_named(reader: str, extension: str, workspace: Path) -> None:
    kind, file = COMMANDS[reader][0], f"bad.{extension}"
    column = "translation" if reader == "noise" else COLUMN[kind]
    rows = [{"x" + name if name == column else name: value for name, value in row.items()} for row in rows_of(kind)]
    write_rows(Path(file), rows)
    expected = ["triplets need the columns anchor, positive, negative"] if kind == "triplets" else [repr(column)]
    if kind == "labelled":
        expected = ["labelled data has the columns text and label"] if reader in ("finetune", "evaluate") else expected
    if "no method" in reader:  # then the columns do not say what the rows are
        expected = [f"--{column}-column"]
    assert_refused(argv_of(reader, file), file, *expected, f"x{column}")
    rows = rows_of(kind)
    rows[4][COLUMN[kind]] = " \u00a0"
    write_rows(Path(file), rows)
    location = f"{file}, {row_location(4, extension)}"
    assert_refused(argv_of(reader, file), location, f"column {COLUMN[kind]!r} is empty")


def bind(file: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(file))


OTHERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "is a pipe, not a regular file"),
    "socket": (bind, "is a socket, not a regular file"),
    "device": (lambda file: file.symlink_to("/dev/zero"), "is a device, not a regular file"),
    "folder": (Path.mkdir, "is a folder"),
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
    ("pairs, no method", "folder"): "has no documents",
    ("labelled, no method", "folder"): "has no documents",
    ("compare", "folder"): "neither a model",
    ("compare", "nothing"): "No such file",
    ("report", "folder"): "holds no run and no result files",
    ("report", "dangling"): "No such file",
    ("noise", "nothing"): "there is no such file",
    ("noise", "dangling"): "there is no such file",
}


@pytest.mark.parametrize(("reader", "entry"), dict.fromkeys([*paired(PLACES, OTHERS), *OTHER_MESSAGES]))
def test_a_path_that_is_not_a_file_raises_before_reading(reader: str, entry: str, workspace: Path) -> None:
    argv, extension = PLACES[reader]
    make, words = OTHERS[entry]
    make(workspace / f"bad{extension}")
    message = OTHER_MESSAGES.get((reader, entry), words)
    assert_refused([f"bad{extension}" if word == "FILE" else word for word in argv.split()], f"bad{extension}", message)


def test_other_places_that_are_no_files(workspace: Path) -> None:
    read, write = os.pipe()
    try:
        assert_refused(argv_of("scl", f"/dev/fd/{read}"), f"/dev/fd/{read}: is a pipe", "write its content to a file")
    finally:
        os.close(read)
        os.close(write)
    for name, words in (("x" * 300, "File name too long"), ("x\0y", "NUL character"), ("\udcff", "is not UTF-8")):
        with pytest.raises(NearfarError, match=words):
            list(read_columns(f"{name}.tsv", ("text",)))


@pytest.mark.parametrize("extension", ["tsv", "csv", "jsonl", "json.gz", "tsv.gz", "txt.gz"])
def test_a_line_over_the_limit(extension: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1000)
    content = b"text,text,text\n" + b"x" * 2000 + b"\n"
    file = tmp_path / f"bad.{extension}"
    file.write_bytes(gzip.compress(content) if extension.endswith("gz") else content)
    with pytest.raises(NearfarError, match=r"bad.*, line \d: (the line is longer|not a JSON|not well-formed)"):
        list(files.read_lines(file))


SPECS = {
    "none": "none: neither a file nor a named data set",
    "nil.tsv": "Did you mean 'nli.tsv'?",
    "nowhere/nli.tsv": "the folder nowhere does not exist",
    "snli": "NEARFAR_DATA is not set",
    "snli:nowhere": "has no such split",
    "snli:": "after the colon, name each split once",
    "nli.tsv:train": "a file has no splits",
    "microworld:nowhere": "microworld has no split 'nowhere'",
    "hub:x": "a hub data set is named owner/name",
    "~nobody_of_this_name/nli.tsv": "Write the full path",
}


@pytest.mark.parametrize("spec", SPECS)
def test_invalid_names_of_data(spec: str, workspace: Path) -> None:
    assert_refused(argv_of("scl", spec), SPECS[spec])


# --- labels ---


SAME = {
    "1": [1, 1.0, "1", "1.0", " 1 ", "1.", "1.000"],
    "0": [0, -0.0, "0", "-0.0"],
    "true": [True, "true", "True", "TRUE"],
    "very warm": ["very warm", " very  warm", "very\u00a0warm", "very\nwarm"],
    "007": ["007"],
    "NONE": ["NONE"],
    "1e3": ["1e3"],
    "v2.1": ["v2.1"],
    str(2**62 + 1): [2**62 + 1, str(2**62 + 1)],
}


def test_training_and_test_rows_of_other_formats_have_the_same_labels(workspace: Path) -> None:
    rows = [{"text": f"a dog {n}", "label": n % 2 == 0} for n in range(12)]
    write_rows(Path("train.parquet"), rows)
    write_rows(Path("test.csv"), rows)
    task = load_classification("train.parquet", test="test.csv")
    assert task.label_names == ("false", "true")
    assert task.test.targets == [1, 0] * 6
    Path("bad.tsv").write_text("text\tlabel\na dog\twarm\na cat\tclod\n")
    message = "bad.tsv, line 3: the label 'clod' is not one of"
    assert_refused(argv_of("validation", "bad.tsv"), message, "Did you mean 'cold'?")


def test_which_labels_are_reported() -> None:
    (fact,) = label_summary({f"l{n}": 1000 for n in range(1000)})
    assert fact.startswith("labels: l0 (1,000), l1 (1,000), ")
    assert fact.endswith(" and 980 more")


@pytest.mark.parametrize(("name", "written"), [(name, value) for name, values in SAME.items() for value in values])
def test_a_label_is_equal_in_every_spelling(name: str, written: Any) -> None:
    assert label_field(written, "label", Location("a.tsv", 2)) == name
