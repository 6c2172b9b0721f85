"""Files with columns: each format is read back as written, and each error names file and line."""

import csv
import gzip
import json
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.data import parquet
from nearfar.data.columns import Location
from nearfar.data.files import EXTENSIONS, is_known, read_file, stem
from nearfar.data.sources import Table, column_names, open_table
from nearfar.types import NearfarError

ROWS = [("0", 'He said "no".', "tab-free"), ("1", "naïve 👩‍👩‍👧 \u2028 text", "back\\slash"), ("2", '"', "''")]
HEADER = ("label", "premise", "hypothesis")
WANTED = ("hypothesis", "label")  # not all columns, in another order than in the file


def values(path: Path, columns=WANTED) -> list[tuple[object, ...]]:
    return [row for _, row in read_file(path, columns)]


def locations(path: Path, columns=WANTED) -> list[str]:
    return [str(location) for location, _ in read_file(path, columns)]


def write_tsv(path: Path, rows, header=HEADER, end="\n") -> Path:
    text = end.join("\t".join(row) for row in [header, *rows]) + end
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def write_csv(path: Path, rows, header=HEADER) -> Path:
    with (
        gzip.open(path, "wt", newline="", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open("w", newline="", encoding="utf-8") as file
    ):
        csv.writer(file).writerows([header, *rows])
    return path


def write_json_lines(path: Path, rows, header=HEADER) -> Path:
    text = "".join(json.dumps(dict(zip(header, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def write_parquet(path: Path, rows, header=HEADER) -> Path:
    pq.write_table(pa.table(dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))), path)
    return path


WRITERS = {"tsv": write_tsv, "csv": write_csv, "jsonl": write_json_lines, "json": write_json_lines}
WRITERS |= {f"{extension}.gz": writer for extension, writer in WRITERS.items()} | {"parquet": write_parquet}


def test_every_extension_is_tested():
    assert sorted(EXTENSIONS) == sorted(f".{extension}" for extension in WRITERS)


@pytest.mark.parametrize("extension", WRITERS)
def test_columns_are_read_by_name_in_the_requested_order(extension, tmp_path):
    path = WRITERS[extension](tmp_path / f"rows.{extension}", ROWS)
    assert values(path) == [(hypothesis, label) for label, _, hypothesis in ROWS]
    assert [row[0] for row in values(path, ["premise"])] == [premise for _, premise, _ in ROWS]
    first = {"parquet": "row 1", "j": "line 1"}.get(extension if extension == "parquet" else extension[0], "line 2")
    assert locations(path)[0] == f"{path}, {first}"
    assert column_names(open_table(path)) == list(HEADER)
    with pytest.raises(NearfarError) as caught:
        values(path, ["premises"])
    for part in (str(path), "'premises'", "label, premise, hypothesis", "Did you mean 'premise'?"):
        assert part in str(caught.value)


FIELD = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TSV_FIELD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r"), min_size=1, max_size=12)


@pytest.mark.long
@given(rows=st.lists(st.tuples(TSV_FIELD, TSV_FIELD, TSV_FIELD), max_size=5), end=st.sampled_from(["\n", "\r\n"]))
def test_tsv_round_trip(rows, end, tmp_path_factory):
    path = write_tsv(tmp_path_factory.mktemp("tsv") / "rows.tsv", rows, end=end)
    assert [row for _, row in read_file(path, HEADER, plain=True)] == rows


@pytest.mark.long
@given(rows=st.lists(st.tuples(FIELD, FIELD, FIELD), max_size=5))
def test_csv_round_trip_and_lines(rows, tmp_path_factory):
    path = write_csv(tmp_path_factory.mktemp("csv") / "rows.csv", rows)
    assert values(path, HEADER) == rows
    # A record starts one line after all line feeds of the records before it.
    starts = [2 + sum(1 + "".join(before).count("\n") for before in rows[:index]) for index in range(len(rows))]
    assert [location.number for location, _ in read_file(path, HEADER)] == starts


@pytest.mark.long
@given(rows=st.lists(st.tuples(FIELD, FIELD, FIELD), min_size=1, max_size=5))
def test_json_lines_round_trip(rows, tmp_path_factory):
    path = write_json_lines(tmp_path_factory.mktemp("json") / "rows.jsonl", rows)
    assert values(path, HEADER) == rows


def test_json_keeps_types_and_parquet_too(tmp_path):
    rows = [(1, 2.5, None), (2, 3.5, None)]
    assert values(write_json_lines(tmp_path / "rows.jsonl", rows), HEADER) == rows
    assert values(write_parquet(tmp_path / "rows.parquet", rows), HEADER) == rows


def test_parquet_written_by_datasets_gives_class_names(tmp_path):
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    table = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, -1]}, features=features)
    table.to_parquet(str(tmp_path / "rows.parquet"))
    assert values(tmp_path / "rows.parquet", ["label", "text"]) == [("yes", "a"), ("no", "b"), (-1, "c")]


def test_parquet_rows_are_counted_across_batches(tmp_path):
    path = write_parquet(tmp_path / "rows.parquet", [(str(n), "p", "h") for n in range(3000)])
    assert [(location.number, row[0]) for location, row in read_file(path, ["label"])] == [
        (n + 1, str(n)) for n in range(3000)
    ]


def test_rows_of_parquet_are_right_if_the_file_cannot_be_closed(tmp_path, monkeypatch):
    rows = [("a", "b", "c")] * 3
    file = write_parquet(tmp_path / "rows.parquet", rows)

    def close(self, force=False):
        raise OSError("error closing file")

    monkeypatch.setattr(pq.ParquetFile, "close", close)
    assert values(file, HEADER) == rows
    read = read_file(file, HEADER)
    next(iter(read))
    read.close()


def test_byte_order_mark_and_blank_lines_are_skipped_but_counted(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_bytes(b"\xef\xbb\xbflabel\thypothesis\n\n1\tx\n\r\n2\ty")
    assert values(path) == [("x", "1"), ("y", "2")]
    assert [location.number for location, _ in read_file(path, WANTED)] == [3, 5]


def test_a_missing_file_suggests_a_similar_name(tmp_path):
    (tmp_path / "train_partial.tsv").touch()
    with pytest.raises(NearfarError, match=r"train_partail.tsv: no such file. Did you mean 'train_partial.tsv'?"):
        read_file(tmp_path / "train_partail.tsv", WANTED)
    with pytest.raises(NearfarError, match=r"the folder .*nowhere does not exist"):
        read_file(tmp_path / "nowhere" / "dev.tsv", WANTED)


def test_rows_are_streamed(tmp_path):
    # An error in the last line is not raised if reading stops before it.
    path = tmp_path / "rows.tsv"
    path.write_text("label\n" + "1\n" * 10 + "1\t1\n")
    rows = read_file(path, ["label"])
    assert [next(rows)[1] for _ in range(10)] == [("1",)] * 10
    with pytest.raises(NearfarError, match="line 12"):
        next(rows)


def test_names():
    assert str(Location("a.tsv", 7)) == "a.tsv, line 7"
    assert stem(Path("sets/surprise.OnWN.tsv")) == "surprise.OnWN"
    assert stem(Path("dev.jsonl.gz")) == "dev"
    assert stem(Path("sets/saved")) == "saved"
    assert is_known(Path("A.TSV.GZ"))
    assert not is_known(Path("a.gz"))


def test_a_damaged_parquet_file_is_an_error_without_names_of_classes(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b"]}), path)
    content = bytearray(path.read_bytes())
    length = int.from_bytes(content[-8:-4], "little")
    content[-8 - length : -8 - length + 20] = b"\xff" * 20
    path.write_bytes(content)
    for read in (lambda: list(read_file(path, ("text",))), lambda: column_names(Table(str(path), path))):
        with pytest.raises(NearfarError, match=r"cannot be read as Parquet: .") as caught:
            read()
        assert "Exception" not in str(caught.value)
        assert str(caught.value).isprintable()


def test_a_key_twice_in_a_json_object_is_an_error_if_it_is_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "id": 1, "id": 2, "more": {"text": 1}}\n{"text": "b", "text": "c", "id": 3}\n')
    with pytest.raises(NearfarError, match="line 2: the key 'text' occurs twice"):
        list(read_file(path, ("text",)))
    with pytest.raises(NearfarError, match="line 1: the key 'id' occurs twice"):
        list(read_file(path, ("id",)))
    path.write_text('{"text": "a", "id": 1, "id": 2, "more": {"text": 1, "text": 2}}\n')
    assert values(path, ("text",)) == [("a",)]


def test_names_of_a_saved_data_set(tmp_path):
    datasets.Dataset.from_dict({"b": [1], "a": ["x"]}).save_to_disk(tmp_path / "saved")
    assert column_names(open_table(tmp_path / "saved")) == ["b", "a"]


def write_packed(file: Path, texts: list[str], **settings: object) -> Path:
    table = pa.table({"text": texts, "other": ["x"] * len(texts)})
    pq.write_table(table, file, compression="zstd", use_dictionary=False, **settings)
    return file


def test_a_column_that_unpacks_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "RATIO_FROM", 2**20)
    file = write_packed(tmp_path / "bomb.parquet", ["x" * 2**22])
    assert file.stat().st_size < 2**14
    with pytest.raises(NearfarError, match=r"bomb\.parquet: column 'text' unpacks to 4,\d+,\d+ bytes, from \d+; it is"):
        list(read_file(file, ["text"]))
    assert len(list(read_file(file, ["other"]))) == 1
    assert len(list(read_file(write_packed(tmp_path / "small.parquet", ["x" * 2**19]), ["text"]))) == 1


def test_a_value_that_is_too_long(tmp_path, monkeypatch):
    """As a line of a text file; the footer, which the check above reads, can lie."""
    monkeypatch.setattr(parquet, "MAX_LINE_BYTES", 2**20)
    file = write_packed(tmp_path / "long.parquet", ["short", "x" * (2**20 + 1)])
    with pytest.raises(NearfarError, match=r"long\.parquet, row 2: column 'text' is longer than 1 MiB"):
        list(read_file(file, ["text"]))
