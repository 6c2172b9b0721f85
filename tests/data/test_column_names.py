"""Column names of every file format, and of files that have none."""

from pathlib import Path

import pytest

from nearfar import NearfarError
from nearfar.data.sources import column_names, open_table
from tests.invalid_input.tables import FORMATS, rows_of, write_rows


@pytest.mark.parametrize("extension", [*FORMATS, "csv.gz", "json"])
def test_names_are_in_the_order_of_the_file(tmp_path: Path, extension: str) -> None:
    file = tmp_path / f"rows.{extension}"
    write_rows(file, rows_of("scored")) if extension != "json" else file.write_text(
        '\n{"sentence1": "a", "sentence2": "b", "score": 1}\n{"other": 2}\n', encoding="utf-8"
    )
    assert column_names(open_table(file)) == ["sentence1", "sentence2", "score"]


def test_names_of_a_saved_data_set(tmp_path: Path) -> None:
    from datasets import Dataset

    Dataset.from_dict({"b": [1], "a": ["x"]}).save_to_disk(tmp_path / "saved")
    assert column_names(open_table(tmp_path / "saved")) == ["b", "a"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.tsv", b"", "rows.tsv is empty; its first line should name the columns"),
        ("rows.jsonl", b"\n", "rows.jsonl is empty; each line should be a JSON object"),
        ("rows.jsonl", b"[1]\n", "rows.jsonl, line 1: a JSON list, not an object"),
        ("rows.parquet", b"text", "rows.parquet cannot be read as Parquet"),
        ("rows.txt", b"a text\n", "rows.txt: unknown extension. Files with columns end in .tsv"),
        ("rows.csv", b'"a\n', "rows.csv, line 1: not well-formed CSV"),
    ],
)
def test_files_without_columns(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(NearfarError) as error:
        column_names(open_table(tmp_path / name))
    assert message in str(error.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NearfarError, match=r"nowhere\.tsv"):
        column_names(open_table(tmp_path / "nowhere.tsv"))
