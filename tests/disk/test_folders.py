"""New folders, deleting files and folders, and tables."""

import errno
import os
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from nearfar import NearfarError
from nearfar.data.sources import read_columns
from nearfar.disk import TABLES, disk_errors, new_folder, remove, write_table


def fail(*_: object, **__: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_a_complete_folder_is_no_error_if_the_temporary_one_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, new_folder(tmp_path / "out") as folder:
        (folder / "x").write_text("x")
        patch.setattr(os, "rmdir", fail)
    assert (tmp_path / "out" / "x").read_text() == "x"


def test_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove(tmp_path / "missing")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "inner" / "x").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    remove(tmp_path / "link")  # not what it points to
    assert (tmp_path / "folder" / "inner" / "x").exists()
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fail)
        with pytest.raises(NearfarError, match=r"folder: cannot be deleted \(Input/output error\)"):
            remove(tmp_path / "folder")
    remove(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_a_tokenizer_that_cannot_be_written_is_an_error_of_the_disk(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    message = r"out: cannot be written \(No such file or directory \(os error 2\)\)"
    with pytest.raises(NearfarError, match=message), disk_errors(Path("out")):
        tokenizer.save(str(tmp_path / "missing" / "tokenizer.json"))
    with pytest.raises(Exception, match="other"), disk_errors(Path("out")):
        raise Exception("other")


@pytest.mark.parametrize("suffix", TABLES)
def test_a_table_is_read_as_it_was_written(suffix: str, tmp_path: Path) -> None:
    rows = [('a "b", c', "d"), ("e", "f, 'g'")]
    write_table(tmp_path / f"x{suffix}", ("one", "two"), rows)
    assert [values for _, values in read_columns(tmp_path / f"x{suffix}", ("one", "two"))] == rows
