"""Parquet files that unpack to far more than their size are refused before or after one value is read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearfar import NearfarError
from nearfar.data import files
from nearfar.data.files import read_file


def write(file: Path, texts: list[str], **settings: object) -> Path:
    table = pa.table({"text": texts, "other": ["x"] * len(texts)})
    pq.write_table(table, file, compression="zstd", use_dictionary=False, **settings)
    return file


def test_a_column_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "RATIO_FROM", 2**20)
    file = write(tmp_path / "bomb.parquet", ["x" * 2**22])
    assert file.stat().st_size < 2**14
    with pytest.raises(NearfarError, match=r"bomb\.parquet: column 'text' unpacks to 4,\d+,\d+ bytes, from \d+; it is"):
        list(read_file(file, ["text"]))
    assert len(list(read_file(file, ["other"]))) == 1
    assert len(list(read_file(write(tmp_path / "small.parquet", ["x" * 2**19]), ["text"]))) == 1


def test_a_value_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a line of a text file; the footer, which the check above reads, can lie."""
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 2**20)
    file = write(tmp_path / "long.parquet", ["short", "x" * (2**20 + 1)])
    with pytest.raises(NearfarError, match=r"long\.parquet, row 2: column 'text' is longer than 1 MiB"):
        list(read_file(file, ["text"]))
