"""One file: rows by column name in every format, texts as streams; tables and the text of a cell."""

import csv
import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.data import files
from nearfar.data.cells import Location, text_field
from nearfar.data.files import read_file
from nearfar.data.lines import SourceChangedError, blocks, read_texts, summarise_source, verify_unchanged
from nearfar.data.sources import column_names, open_table
from nearfar.types import NearfarError
from tests.invalid_input.tables import FORMATS, row_location, write_rows

ROWS = [("0", 'He said "no".', "tab-free"), ("1", "naïve 👩‍👩‍👧 \u2028 text", "back\\slash"), ("2", '"', "''")]
HEADER = ("label", "premise", "hypothesis")
WANTED = ("hypothesis", "label")  # not all columns, in another order than in the file


def values(path: Path, columns=WANTED) -> list[tuple[object, ...]]:
    return [row for _, row in read_file(path, columns)]


def locations(path: Path, columns=WANTED) -> list[str]:
    return [str(location) for location, _ in read_file(path, columns)]


@pytest.mark.parametrize("extension", [*FORMATS, "csv.gz", "json"])
def test_columns_are_read_by_name_in_the_requested_order(extension, tmp_path):
    path = tmp_path / f"rows.{extension}"
    write_rows(path, [dict(zip(HEADER, row, strict=True)) for row in ROWS])
    assert values(path) == [(hypothesis, label) for label, _, hypothesis in ROWS]
    assert [row[0] for row in values(path, ["premise"])] == [premise for _, premise, _ in ROWS]
    assert locations(path)[0] == f"{path}, {row_location(0, extension)}"
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
    path = tmp_path_factory.mktemp("tsv") / "rows.tsv"
    path.write_bytes("".join("\t".join(row) + end for row in [HEADER, *rows]).encode())
    assert [row for _, row in read_file(path, HEADER, plain=True)] == rows


@pytest.mark.long
@given(rows=st.lists(st.tuples(FIELD, FIELD, FIELD), max_size=5))
def test_csv_round_trip_and_lines(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([HEADER, *rows])
    assert values(path, HEADER) == rows
    # A record starts one line after all line feeds of the records before it.
    starts = [2 + sum(1 + "".join(before).count("\n") for before in rows[:index]) for index in range(len(rows))]
    assert [location.number for location, _ in read_file(path, HEADER)] == starts


def test_byte_order_mark_and_blank_lines_are_skipped_but_counted(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_bytes(b"\xef\xbb\xbflabel\thypothesis\n\n1\tx\n\r\n2\ty")
    assert values(path) == [("x", "1"), ("y", "2")]
    assert [location.number for location, _ in read_file(path, WANTED)] == [3, 5]


def test_rows_are_streamed(tmp_path):
    # An error in the last line is not raised if reading stops before it.
    path = tmp_path / "rows.tsv"
    path.write_text("label\n" + "1\n" * 10 + "1\t1\n")
    rows = read_file(path, ["label"])
    assert [next(rows)[1] for _ in range(10)] == [("1",)] * 10
    with pytest.raises(NearfarError, match="line 12"):
        next(rows)


def write_packed(file: Path, texts: list[str], **settings: object) -> Path:
    table = pa.table({"text": texts, "other": ["x"] * len(texts)})
    pq.write_table(table, file, compression="zstd", use_dictionary=False, **settings)
    return file


def test_a_column_that_unpacks_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "RATIO_FROM", 2**20)
    file = write_packed(tmp_path / "bomb.parquet", ["x" * 2**22])
    assert file.stat().st_size < 2**14
    with pytest.raises(NearfarError, match=r"bomb\.parquet: column 'text' unpacks to 4,\d+,\d+ bytes, from \d+; it is"):
        list(read_file(file, ["text"]))
    assert len(list(read_file(file, ["other"]))) == 1
    assert len(list(read_file(write_packed(tmp_path / "small.parquet", ["x" * 2**19]), ["text"]))) == 1


def test_a_value_that_is_too_long(tmp_path, monkeypatch):
    """As a line of a text file; the footer, which the check above reads, can lie."""
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 2**20)
    file = write_packed(tmp_path / "long.parquet", ["short", "x" * (2**20 + 1)])
    with pytest.raises(NearfarError, match=r"long\.parquet, row 2: column 'text' is longer than 1 MiB"):
        list(read_file(file, ["text"]))


HERE = Location("dev.tsv", 7)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("A man.", "A man."),
        (" A  man.\t", "A man."),
        ("A\x00man\x07\x7f\x85.\n", "A man ."),
        ("a\u00a0\u3000b\u2028c", "a b c"),
        ("👩‍👩‍👧 ❤️ ok", "👩‍👩‍👧 ❤️ ok"),  # with joiners and variation selectors
        ('"quoted" \\n', '"quoted" \\n'),
    ],
)
def test_white_space_is_normalized(value, text):
    assert text_field(value, "premise", HERE) == text


LINES = ["a dog", "", " two  cats ", "naïve 🐶\ttab", "a dog"]


def test_lines_are_unchanged_and_include_blank_ones(tmp_path: Path) -> None:
    (tmp_path / "x.en").write_bytes("".join(f"{line}\r\n" for line in LINES).encode())
    assert list(read_texts(tmp_path / "x.en")) == LINES
    (tmp_path / "x.txt").write_bytes("\n".join(LINES).encode("utf-8-sig"))  # a byte order mark, no final line end
    assert list(read_texts(str(tmp_path / "x.txt"))) == LINES
    (tmp_path / "x.txt").write_text("a dog\n\n")
    assert list(read_texts(tmp_path / "x.txt")) == ["a dog", ""]
    (tmp_path / "x.txt.gz").write_bytes(gzip.compress("\n".join(LINES).encode()))
    assert list(read_texts(tmp_path / "x.txt.gz")) == LINES


def test_changes_are_reported_at_the_end() -> None:
    summary = summarise_source(LINES)
    assert list(verify_unchanged(LINES, summary, "x.txt")) == LINES
    assert list(verify_unchanged([*LINES, "new"], summary, "x.txt")) == LINES  # appended texts are ignored
    for other in (LINES[:-1], [*LINES[:-1], "a cat"]):
        watched = verify_unchanged(other, summary, "x.txt")
        assert [next(watched) for _ in other] == other
        with pytest.raises(SourceChangedError, match=r"x\.txt: changed while it was read"):
            next(watched)


def test_blocks_are_limited_in_texts_and_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{number:02}" for number in range(11)]
    cut = list(blocks(iter(texts), size=4))
    assert [start for start, _ in cut] == [0, 4, 8]
    assert [text for _, block in cut for text in block] == texts
    assert [len(block) for _, block in blocks(texts, size=11)] == [11]
    assert list(blocks([], size=3)) == []
    monkeypatch.setattr("nearfar.data.lines.MAX_BLOCK_CHARACTERS", 5)
    cut = list(blocks(["aaa", "b", "c" * 9, "d", "", "e" * 4], size=10))
    assert cut == [(0, ["aaa", "b"]), (2, ["c" * 9]), (3, ["d", "", "e" * 4])]
    assert [start for start, _ in blocks(["aaa", "bbb", "c"], size=10)] == [0, 1]
