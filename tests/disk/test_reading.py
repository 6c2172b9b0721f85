"""A failed read names the file, and so does a file that somebody changed."""

import errno
import os
from pathlib import Path

import pytest

from nearfar import NearfarError
from nearfar.disk import read_errors, read_json
from nearfar.disk.places import LocalFolder
from nearfar.quantization import read_ranges


def test_a_failed_read_names_the_file() -> None:
    with pytest.raises(NearfarError, match=r"^a/b: cannot be read \(Input/output error\)\.$"), read_errors("a/b"):
        raise OSError(errno.EIO, "Input/output error")  # as from read(), without a name
    with pytest.raises(NearfarError, match=r"^x: cannot be read \(Error of a library\)\.$"), read_errors(Path("x")):
        raise OSError("Error of a library")
    with pytest.raises(ValueError, match="other"), read_errors("x"):
        raise ValueError("other")


def test_a_folder_of_parts_names_the_file_that_cannot_be_read(tmp_path: Path) -> None:
    folder = LocalFolder(str(tmp_path))
    assert folder.read("plan.json") is None
    (tmp_path / "plan.json").write_text("{}")
    assert folder.read("plan.json") == b"{}"
    (tmp_path / "folder").mkdir()  # a file that fails when it is opened or read
    with pytest.raises(NearfarError, match="folder"):
        folder.read("folder")
    with pytest.raises(NearfarError, match="folder"):
        folder.digest("folder")


@pytest.mark.parametrize("text", ['{"a": "x\\ud800y"}', '["\\uDC00"]', '{"\\udbff": 1}'])
def test_half_a_surrogate_pair_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(NearfarError, match=r"a\.json: .*half a surrogate pair"):
        read_json(tmp_path / "a.json")


def test_a_whole_surrogate_pair_is_a_character(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('["\\ud83d\\ude00", "\\\\ud800"]')
    assert read_json(tmp_path / "a.json") == ["\U0001f600", "\\ud800"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_or_a_device_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    folder = LocalFolder(str(tmp_path))
    for name, kind in (("pipe", "a pipe"), ("zero", "a device")):
        file = tmp_path / name
        for read in (
            lambda file=file: read_json(file),
            lambda name=name: folder.read(name),
            lambda name=name: folder.digest(name),
        ):
            with pytest.raises(NearfarError, match=f"{name}: is {kind}, not a regular file"):
                read()
        with pytest.raises(NearfarError, match=f"--calibrate .*{name}: is not a regular file"):
            read_ranges(file, flag="--calibrate")
