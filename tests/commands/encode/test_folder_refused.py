"""Inputs, outputs and flags that parts cannot be made of: one sentence each, and nothing is written."""

import os
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from tests.corpora import make_corpus
from tests.invalid_input.cli_runner import assert_refused, drop_repeated_flags

PARTS = "encode tiny --input in/*.parquet --column text --output out --shard-rows 50"


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_corpus(tmp_path, monkeypatch)
    Path("x.txt").write_text("a dog\n")
    Path("damaged.parquet").write_bytes(Path("all.parquet").read_bytes()[:-9])
    pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.array([], pyarrow.string())}), "empty.parquet")
    np.save("narrow.npy", np.eye(3, 5, dtype=np.float32))
    Path("mixed").mkdir()
    Path("mixed/a.parquet").write_bytes(Path("in/0.parquet").read_bytes())
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"], "id": [1]}), "mixed/b.parquet")
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--column said", "no column 'said', or several. Its columns: id, text, kind."),
        ("--column kind", "column 'kind' holds int64, not text."),
        ("--keep id said", "no column 'said'"),
        ("--keep id --input mixed/*.parquet", "--keep id: is string in"),
        ("--input none/*.parquet", "--input none/*.parquet: no file matches"),
        ("--input in", "--input in: no file matches; name the files of a folder as in 'FOLDER/*.parquet'."),
        ("--input damaged.parquet", "damaged.parquet cannot be read as Parquet: "),
        ("--input empty.parquet", "--input empty.parquet: holds no rows."),
        ("--input nowhere://x/*.parquet", "--input nowhere://x/*.parquet: cannot be opened (Protocol not known"),
        ("--output x.txt/out", "x.txt is a file, not a folder."),
        ("--output full", "--output full: holds other files, such as notes.txt"),
        ("--quantize int8 --calibrate narrow.npy", "--calibrate narrow.npy: its vectors have 5 dimensions"),
    ],
)
def test_it_is_refused(corpus: Path, flags: str, message: str) -> None:
    argv = drop_repeated_flags([*PARTS.split(), *flags.split()])
    before = sorted(os.listdir())
    assert_refused(argv, message)
    assert sorted(os.listdir()) == before  # no folder is left
    assert not Path("in/_nearfar").exists()


def test_an_input_inside_the_output_is_refused(corpus: Path) -> None:
    Path("out/_nearfar").mkdir(parents=True)
    Path("out/_nearfar/x.parquet").write_bytes(Path("all.parquet").read_bytes())
    argv = "encode tiny --input out/**/*.parquet --column text --output out --shard-rows 500".split()
    assert_refused(argv, "has the input", "choose another folder")
