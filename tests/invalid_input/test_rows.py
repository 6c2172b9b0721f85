"""Files of rows and texts, by the commands that read them; what each reader refuses is tested in ``tests/data``."""

import gzip
import json
import os
import socket
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearfar import NearfarError
from nearfar.commands.train.run import prepare
from nearfar.config import SupconTextConfig
from nearfar.data import files
from nearfar.data.classification import load_classification
from nearfar.data.labelled import infer_reader, label_summary, load_labelled_task
from nearfar.data.nli import load_nli
from nearfar.data.rows import load_labelled, load_scored
from nearfar.data.sources import MISSING_VALUES, read_columns
from nearfar.data.sts import load_pairs
from tests.invalid_input.cli_runner import assert_refused, run_cli
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

COLUMN = {kind: next(iter(rows_of(kind)[0])) for kind, _ in COMMANDS.values()}
"""Kind of rows -> its first text column."""


@pytest.fixture
def workspace(valid_workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return link_workspace(valid_workspace, tmp_path, monkeypatch)


@pytest.mark.parametrize(("reader", "extension"), paired(COMMANDS, FORMATS))
def test_a_missing_column_and_an_empty_text_are_named(reader: str, extension: str, workspace: Path) -> None:
    kind, file = COMMANDS[reader][0], f"bad.{extension}"
    column = "translation" if reader == "noise" else COLUMN[kind]
    rows = [{"x" + name if name == column else name: value for name, value in row.items()} for row in rows_of(kind)]
    write_rows(Path(file), rows)
    expected = ["triplets need the columns anchor, positive, negative"] if kind == "triplets" else [repr(column)]
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
    ("report", "dangling"): "No such file",
    ("noise", "nothing"): "there is no such file",
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
        assert_refused(argv_of("scl", f"/dev/fd/{read}"), f"/dev/fd/{read}: is a pipe", "write the content to a file")
    finally:
        os.close(read)
        os.close(write)
    for name, words in (
        ("x" * 300, "are too long for a file name"),
        ("x\0y", "cannot contain a NUL character"),
        (os.fsdecode(b"\xff\xfe"), "the name is not UTF-8"),
    ):
        with pytest.raises(NearfarError, match=words):
            list(read_columns(f"{name}.tsv", ("text",)))


HEADER, ROW = b"premise\thypothesis\tlabel\n", b"a dog\ta cat\tneutral\n"
JSON = b'{"premise": "a dog", "hypothesis": "a cat", "label": 1}\n'
CONTENTS: list[tuple[str, bytes, str]] = [
    ("tsv", b"", "bad.tsv is empty"),
    ("tsv.gz", gzip.compress(b""), "bad.tsv.gz is empty"),
    ("tsv", ROW, "a dog, a cat, neutral"),
    ("tsv", HEADER.decode().encode("utf-16"), "It is UTF-16. Save the file as UTF-8"),
    ("tsv", HEADER.decode().encode("utf-16-le"), "contains NUL bytes, as UTF-16 does"),
    ("tsv", gzip.compress(HEADER), "It is gzipped: add .gz to its name"),
    ("csv", b"PK\x03\x04\x14\x00\xff\xfe\n", "It is a ZIP archive, as spreadsheets are"),
    ("csv", b"premise,hypothesis,label\ra,b,neutral\r", "a carriage return without a line feed"),
    ("jsonl", b"3\n", "line 1: a JSON int, not an object"),
    ("jsonl", b'{"premise": ' + b"[" * 10**5 + b"\n", "line 1: not a JSON object: it is nested"),
    ("jsonl", b'{"premise": ' + b"[" * 400 + b"]" * 400 + JSON[19:], "line 1: column 'premise' holds"),
    ("jsonl", JSON.replace(b"1", b"1" * 400), "line 1: unknown label 1111"),
    ("jsonl", JSON.replace(b'"a dog"', b"[" + b"1," * 10**5 + b"1]"), "1, 1... (list), not text"),
    ("jsonl", JSON.replace(b"1", b"NaN"), "line 1: unknown label nan"),
    ("tsv", "\t".join(f"c{n}" for n in range(10**5)).encode(), "no column 'premise'. Its columns: c0, c1"),
    ("parquet", b"PAR1" * 40, "cannot be read as Parquet"),
]


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(CONTENTS)))
def test_invalid_content_raises(number: int, workspace: Path) -> None:
    extension, content, mention = CONTENTS[number]
    Path(f"bad.{extension}").write_bytes(content)
    assert len(assert_refused(argv_of("scl", f"bad.{extension}"), f"bad.{extension}", mention)) < 2000


@pytest.mark.long
def test_a_line_without_line_end_raises(workspace: Path) -> None:
    with open("bad.tsv", "wb") as file:
        file.truncate(files.MAX_LINE_BYTES + 100)  # a sparse file of NUL bytes
    assert_refused(argv_of("scl", "bad.tsv"), "bad.tsv, line 1: the line is longer than 64 MiB")


@pytest.mark.parametrize("extension", ["tsv", "csv", "jsonl", "json.gz", "tsv.gz", "txt.gz"])
def test_a_line_over_the_limit(extension: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1000)
    content = b"text,text,text\n" + b"x" * 2000 + b"\n"
    file = tmp_path / f"bad.{extension}"
    file.write_bytes(gzip.compress(content) if extension.endswith("gz") else content)
    with pytest.raises(NearfarError, match=r"bad.*, line \d: (the line is longer|not a JSON|not well-formed)"):
        list(files.read_lines(file))


def test_a_long_text_in_csv_is_read(tmp_path: Path) -> None:
    """Python's default limit is 131,072 characters."""
    (tmp_path / "long.csv").write_text("text\n" + "x" * 200_000 + "\n")
    ((_, (text,)),) = files.read_file(tmp_path / "long.csv", ["text"])
    assert text == "x" * 200_000


NOT_UTF8 = [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")]
PARQUET: list[tuple[str, Callable[[], pa.Array], str]] = [
    ("premise", lambda: pa.Array.from_buffers(pa.string(), 2, NOT_UTF8), "row 2: column 'premise' is not UTF-8"),
    ("premise", lambda: pa.array([b"a", b"b"]), "row 1: column 'premise' holds b'a' (bytes), not text"),
    ("premise", lambda: pa.array([{"a": 1}, {"a": 2}]), "row 1: column 'premise' holds {'a': 1} (dict)"),
    ("premise", lambda: pa.array([1.5, 2.5]), "row 1: column 'premise' holds 1.5 (float)"),
    ("premise", lambda: pa.array(["a", None]), "row 2: column 'premise' holds None"),
    ("premise", lambda: pa.nulls(2), "row 1: column 'premise' holds None"),
    ("premise", lambda: pa.array([2**62, 2**62], pa.timestamp("us")), "bad.parquet cannot be read as Parquet"),
    ("label", lambda: pa.array(["neutral", "maybe"]).dictionary_encode(), "row 2: unknown label 'maybe'"),
    ("label", lambda: pa.array([True, False]), "row 1: unknown label True"),
    ("premise", lambda: pa.array([], pa.string()), "bad.parquet: no labelled rows"),
]


@pytest.mark.parametrize("number", range(len(PARQUET)))
def test_parquet_columns_of_other_types_raise(number: int, workspace: Path) -> None:
    name, make, mention = PARQUET[number]
    column = make()
    rows = rows_of("nli")[: len(column)]
    table = {key: pa.array([row[key] for row in rows], pa.string()) for key in ("premise", "hypothesis", "label")}
    pq.write_table(pa.table(table | {name: column}), "bad.parquet")
    assert_refused(argv_of("scl", "bad.parquet"), "bad.parquet", mention)


def test_parquet_that_is_cut_off_or_has_broken_class_names(workspace: Path) -> None:
    rows = rows_of("nli")
    table = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    info = json.dumps({"info": {"features": {"label": {"names": 3, "_type": "Nonsense"}}}})
    pq.write_table(table.replace_schema_metadata({"huggingface": info}), "bad.parquet")
    assert_refused(argv_of("scl", "bad.parquet"), "bad.parquet: the class names")
    content = Path("bad.parquet").read_bytes()
    for kept in (0.1, 0.99):
        Path("bad.parquet").write_bytes(content[: int(kept * len(content))])
        assert_refused(argv_of("scl", "bad.parquet"), "bad.parquet cannot be read as Parquet")


@pytest.mark.parametrize("name", ["*.arrow", "state.json", "dataset_info.json"])
@pytest.mark.parametrize("change", [lambda content: content[: len(content) // 2], None], ids=["cut", "gone"])
def test_damaged_folders_of_datasets_raise(name: str, change: Any, workspace: Path) -> None:
    import datasets

    rows = rows_of("nli")
    datasets.Dataset.from_dict({name: [row[name] for row in rows] for name in rows[0]}).save_to_disk("bad")
    for file in Path("bad").glob(name):
        file.write_bytes(change(file.read_bytes())) if change else file.unlink()
    assert_refused(argv_of("scl", "bad"), "bad")


SPECS = {
    "none": "none: neither a file nor a named data set",
    "snli,mnli": "neither a file nor a named data set. Separate names by spaces: snli mnli. Named data sets:",
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


# --- scores ---

NO_SCORES = ("much", "NaN", "-inf", "infinity", "1,5", "1_000", "0x10", "1e999", "True", "3 4", "٣")
NO_SCORES_IN_JSON = ("null", "true", "NaN", "Infinity", "[3]", '{"a": 3}', "1" * 400, "1e999", '"3 4"')


@pytest.mark.parametrize(("score", "reader"), paired(NO_SCORES, ["regression", "evaluate-on", "tasks", "geometry"]))
def test_no_score(reader: str, score: str, workspace: Path) -> None:
    extension = FORMATS[NO_SCORES.index(score) % len(FORMATS)]
    rows = rows_of("scored")
    rows[7]["score"] = score
    write_rows(Path(f"bad.{extension}"), rows)
    location = f"bad.{extension}, {row_location(7, extension)}: column 'score' holds"
    assert_refused(argv_of(reader, f"bad.{extension}"), location, "not a number")


@pytest.mark.parametrize("score", NO_SCORES_IN_JSON)
def test_no_score_in_json(score: str, workspace: Path) -> None:
    lines = [json.dumps(row) for row in rows_of("scored")]
    lines[3] = '{"sentence1": "a", "sentence2": "b", "score": ' + score + "}"
    Path("bad.jsonl").write_text("\n".join(lines))
    output = assert_refused(argv_of("tasks", "bad.jsonl"), "bad.jsonl, line 4: column 'score' holds", "not a number")
    assert len(output) < 600


@pytest.mark.parametrize(("value", "extension"), paired([3, 3.0, "3", " 3.0 ", "30e-1", "+3", "3."], FORMATS))
def test_a_score_is_read_equally_from_every_format(extension: str, value: Any, workspace: Path) -> None:
    rows = rows_of("scored")
    for row in rows:
        row["score"] = value if row is rows[0] else type(value)(row["score"])
    write_rows(Path(f"good.{extension}"), rows)
    assert [pair.score for pair in load_pairs(f"good.{extension}")] == [3.0, *(n % 6 for n in range(1, 12))]
    assert load_scored(f"good.{extension}").targets == [0.6, *(n % 6 / 5 for n in range(1, 12))]


def test_numbers_of_parquet_are_scores(workspace: Path) -> None:
    for column in (
        pa.array([1, 2, 3], pa.int8()),
        pa.array([1, 2, 3], pa.float16()),
        pa.array([Decimal("1.0"), Decimal("2.0"), Decimal("3.0")]),
        pa.array(["1.0", "2", " 3"]).dictionary_encode(),
    ):
        texts = pa.array(["a", "b", "c"])
        pq.write_table(pa.table({"sentence1": texts, "sentence2": texts, "score": column}), "x.parquet")
        assert [pair.score for pair in load_pairs("x.parquet")] == [1.0, 2.0, 3.0]


# --- labels ---


@pytest.mark.parametrize(
    ("label", "reader"), paired(MISSING_VALUES, ("supcon-text", "finetune", "evaluate", "validation", "test"))
)
def test_labels_that_stand_for_missing_values(reader: str, label: str, workspace: Path) -> None:
    extension = FORMATS[MISSING_VALUES.index(label) % len(FORMATS)]
    rows = rows_of("labelled")
    rows[5]["label"] = label
    write_rows(Path(f"bad.{extension}"), rows)
    words = "which marks a missing value" if label else "column 'label' is empty"
    assert_refused(argv_of(reader, f"bad.{extension}"), f"bad.{extension}, {row_location(5, extension)}: ", words)


NO_LABELS = {
    "NaN": "is empty",
    '"0.5"': "numbers with fractions are scores",
    "Infinity": "A label is a string or an integer",
    '{"a": "warm"}': "A label is a string or an integer",
    '"\\ud800"': "half a surrogate pair",
    '"\\u0000"': "is empty",
}


@pytest.mark.parametrize("label", NO_LABELS)
def test_no_label_in_json(label: str, workspace: Path) -> None:
    lines = [json.dumps(row) for row in rows_of("labelled")]
    lines[3] = '{"text": "a", "label": ' + label + "}"
    Path("bad.jsonl").write_text("\n".join(lines))
    assert_refused(argv_of("evaluate", "bad.jsonl"), "bad.jsonl, line 4: column 'label'", NO_LABELS[label])


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


@pytest.mark.parametrize(("name", "written"), [(name, value) for name, values in SAME.items() for value in values])
def test_a_label_is_equal_in_every_spelling(name: str, written: Any, workspace: Path) -> None:
    rows = [{"text": f"a dog {n}", "label": written} for n in range(0, 12, 2)]
    others = [{"text": f"a dog {n}", "label": "other"} for n in range(1, 12, 2)]
    for extension in FORMATS:
        if isinstance(written, str) and "\n" in written and extension.startswith("tsv"):
            continue
        files = [f"written.{extension}", f"other.{extension}"] if extension == "parquet" else [f"both.{extension}"]
        for file, some in zip(files, [rows, others] if extension == "parquet" else [[*rows, *others]], strict=True):
            write_rows(Path(file), some)
        assert set(load_labelled(files).label_names) == {name, "other"}
        if len(files) == 1:
            assert set(infer_reader(files[0], None, "label").label_names) == {name, "other"}
            assert set(load_labelled_task(files[0]).label_names) == {name, "other"}


def test_training_and_test_rows_of_other_formats_have_the_same_labels(workspace: Path) -> None:
    rows = [{"text": f"a dog {n}", "label": n % 2 == 0} for n in range(12)]
    write_rows(Path("train.parquet"), rows)
    write_rows(Path("test.csv"), rows)
    task = load_classification("train.parquet", test="test.csv")
    assert task.label_names == ("false", "true")
    assert task.test.targets == [1, 0] * 6
    Path("bad.tsv").write_text("text\tlabel\na dog\twarm\na cat\tclod\n")
    message = "bad.tsv, line 3: the label 'clod' is not one of"
    assert_refused(argv_of("test", "bad.tsv"), message, "Did you mean 'cold'?")


@pytest.mark.parametrize(
    ("label", "extension"), paired([0, 0.0, "0.0", " ENTAILMENT ", -1, -1.0, "-1.0", "-"], FORMATS)
)
def test_a_label_of_nli_is_equal_in_every_spelling(extension: str, label: Any, workspace: Path) -> None:
    file = f"a.{extension}"
    write_rows(Path(file), [{**row, "label": label} for row in rows_of("nli")[:2]])
    if str(label).startswith("-"):
        with pytest.raises(NearfarError, match=r"no labelled rows \(2 without a label were dropped\)"):
            load_nli(file)
    else:
        assert [row.label for row in load_nli(file).rows] == [0, 0]


@pytest.mark.long
def test_labels_are_listed_and_rare_ones_reported_before_training(workspace: Path) -> None:
    facts = prepare(SupconTextConfig(model="tiny", data=("labelled.tsv",), output="new", batch_size=8)).facts
    assert "labels: cold (30), warm (30)" in facts
    lines = Path("labelled.tsv").read_text().splitlines()
    Path("mine.tsv").write_text("\n".join([*lines, "red dog\twram"]) + "\n")
    result = run_cli("finetune mine.tsv --model tiny --batch-size 8 --max-steps 1 --output new".split())
    assert result.status == 0
    listed = "labels: cold (30), warm (30), wram (1)\n"
    reported = "label 'wram' has 1 row of 61: a misspelling of 'warm'?\n"
    assert result.out.index(listed) < result.out.index(reported) < result.out.index("step 0")
    assert listed.strip() in json.loads(Path("new/run.json").read_text())["data"]


@pytest.mark.parametrize(
    ("counts", "facts"),
    [
        ({"a": 5, "b": 5}, []),
        ({"warm": 30, "Warm": 20}, ["labels 'warm' and 'Warm' differ in capitals only"]),
        ({"positive": 900, "postive": 1}, ["label 'postive' has 1 row of 901: a misspelling of 'positive'?"]),
        ({"cat": 500, "dog": 495, "unicorn": 5}, ["label 'unicorn' has 5 rows of 1,000"]),
        ({"level 1": 500, "level 2": 3}, ["label 'level 2' has 3 rows of 503"]),
        ({"a": 100, "b": 9}, []),
        ({"a": 100, "b": 5}, ["label 'b' has 5 rows of 105"]),
    ],
)
def test_which_labels_are_reported(counts: dict[str, int], facts: list[str]) -> None:
    assert label_summary(counts)[1:] == facts


def test_many_labels_take_few_lines() -> None:
    facts = label_summary({f"l{n}": 1000 if n < 10 else 1 for n in range(1000)})
    assert facts[0].endswith("and 980 more labels")
    assert facts[-1] == "985 more labels are as rare"
    assert len(facts) == 7
