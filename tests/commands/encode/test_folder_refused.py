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
    Path("short.parquet").write_text("x")
    pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.array([], pyarrow.string())}), "empty.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"], "id": [1]}), "in/other-id.parquet")
    Path("in/other-id.parquet").rename("other-id.parquet")
    np.save("narrow.npy", np.eye(3, 5, dtype=np.float32))
    Path("mixed").mkdir()
    Path("mixed/a.parquet").write_bytes(Path("in/0.parquet").read_bytes())
    Path("mixed/b.parquet").write_bytes(Path("other-id.parquet").read_bytes())
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--column said", "no column 'said'. Its columns: id, text, kind."),
        ("--column kind", "column 'kind' holds int64, not text."),
        ("--keep id said", "no column 'said'."),
        ("--keep id id", "--keep id: is given twice"),
        ("--keep row", "--keep row: the parts have a column row of their own"),
        ("--keep id --input mixed/*.parquet", "--keep id: is string in"),
        ("--input none/*.parquet", "--input none/*.parquet: no file matches."),
        ("--input in", "--input in: is a folder; name its files, as in --input 'in/*.parquet'."),
        ("--input x.txt", "x.txt: shards are read from .parquet files."),
        ("--input damaged.parquet", "damaged.parquet cannot be read as Parquet: it is cut off, or is another format."),
        ("--input short.parquet", "short.parquet cannot be read as Parquet"),
        ("--input empty.parquet", "--input empty.parquet: holds no rows."),
        ("--input nowhere://x/*.parquet", "--input nowhere://x/*.parquet: cannot be opened (Protocol not known"),
        ("--output x.txt", "--output x.txt: is a file; name a folder for the parts."),
        ("--output x.txt/out", "x.txt is a file, not a folder."),
        ("--output full", "--output full: holds other files, such as notes.txt"),
        ("--output in", "--output in: holds other files, such as 0.parquet"),
        ("--output memory://x --workers 2", "memory://x: only this process sees it"),
        ("--shard 1/2 --overwrite", "--overwrite and --shard: processes would remove each other's parts"),
        ("--ray-address here:1", "--ray-address here:1: needs --engine ray."),
        ("--processes 2", "--processes 2: is for output in one file; give --workers in its place."),
        ("--with-texts", "--with-texts: is for output in one file; give --keep text in its place."),
        ("--quantize int8", "the ranges must be known before; give --calibrate."),
        ("--quantize int8 --calibrate narrow.npy", "--calibrate narrow.npy: its vectors have 5 dimensions"),
    ],
)
def test_it_is_refused(corpus: Path, flags: str, message: str) -> None:
    argv = drop_repeated_flags([*PARTS.split(), *flags.split()])
    before = sorted(os.listdir())
    assert_refused(argv, message)
    assert sorted(os.listdir()) == before  # no folder is left
    assert not Path("in/_nearfar").exists()


@pytest.mark.parametrize("flags", ["--keep id", "--shard 1/2", "--workers 2", "--threads 2", "--engine ray"])
def test_flags_of_parts_need_parts(corpus: Path, flags: str) -> None:
    argv = ["encode", "tiny", "--input", "all.parquet", "--column", "text", "--output", "x.npy", *flags.split()]
    assert_refused(argv, f"{flags.split(maxsplit=1)[0]}: is for output in parts; give --shard-rows with it.")


def test_parts_need_a_column(corpus: Path) -> None:
    argv = "encode tiny --input in/*.parquet --output out".split()
    assert_refused(argv, "--input in/*.parquet: is read as Parquet; name the column of the texts with --column.")


def test_bytes_that_are_not_utf_8_name_their_row(corpus: Path) -> None:
    array = pyarrow.array([b"a dog", b"\xff"], pyarrow.binary())
    text = pyarrow.Array.from_buffers(pyarrow.string(), 2, array.buffers())
    pyarrow.parquet.write_table(pyarrow.table({"text": text}), "x.parquet")
    argv = "encode tiny --input x.parquet --column text --output out --shard-rows 9".split()
    assert_refused(argv, "x.parquet, row 2: column 'text' is not UTF-8 (byte 1 is 0xff).")


def test_an_input_inside_the_output_is_refused(corpus: Path) -> None:
    Path("out/_nearfar").mkdir(parents=True)
    Path("out/_nearfar/x.parquet").write_bytes(Path("all.parquet").read_bytes())
    argv = "encode tiny --input out/**/*.parquet --column text --output out --shard-rows 500".split()
    assert_refused(argv, "has the input", "choose another folder")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a user whose permissions count")
def test_a_folder_that_cannot_be_written_is_an_error_at_once(corpus: Path) -> None:
    Path("closed").mkdir(mode=0o500)
    assert_refused(drop_repeated_flags([*PARTS.split(), "--output", "closed"]), "the folder", "is not writable")
