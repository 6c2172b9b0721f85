"""New folders, deleting, tables, and errors that name the file that cannot be read or written."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

from nearfar import NearfarError
from nearfar.disk import read_errors, read_json, remove
from nearfar.disk.folders import FolderBusyError, folder_lock
from nearfar.disk.places import LocalFolder
from nearfar.quantization import read_ranges


def fail(*_: object, **__: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


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


def test_a_failed_read_names_the_file() -> None:
    with pytest.raises(NearfarError, match=r"^a/b: cannot be read \(Input/output error\)\.$"), read_errors("a/b"):
        raise OSError(errno.EIO, "Input/output error")  # as from read(), without a name
    with pytest.raises(NearfarError, match=r"^x: cannot be read \(Error of a library\)\.$"), read_errors(Path("x")):
        raise OSError("Error of a library")
    with pytest.raises(ValueError, match="other"), read_errors("x"):
        raise ValueError("other")


@pytest.mark.parametrize("text", ['{"a": "x\\ud800y"}', '["\\uDC00"]', '{"\\udbff": 1}'])
def test_half_a_surrogate_pair_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(NearfarError, match=r"a\.json: .*half a surrogate pair"):
        read_json(tmp_path / "a.json")


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


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork and file locks")
def test_processes_that_lock_and_remove_the_same_folder_do_not_fail(tmp_path: Path) -> None:
    """A folder that one process makes may be removed by another, which found it empty, before it is locked."""
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for _ in range(300):
                    with suppress(FolderBusyError), folder_lock(tmp_path / "folder", remove_if_empty=True):
                        pass
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0, 0]
