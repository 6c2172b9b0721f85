"""What another user of the machine can do in shared folders: nothing of it is trusted, followed or overwritten."""

import os
import sys
import tempfile
import time
from pathlib import Path

import pytest

from nearfar import NearfarError
from nearfar.disk import is_private, write_bytes, write_text
from nearfar.disk.folders import folder_lock

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="owners and modes are those of POSIX")


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder, where every user can create files, as in /tmp."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def as_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, this process is another user than the owner of the files."""
    number = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: number)


def test_private_folders(tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True, mode=0o700)
    assert is_private(folder)
    assert not is_private(tmp_path / "missing")
    (tmp_path / "file").touch()
    assert not is_private(tmp_path / "file")
    (tmp_path / "link").symlink_to(folder)
    assert not is_private(tmp_path / "link")
    assert is_private(tmp_path / "link" / ".." / "b")
    for mode, expected in ((0o755, True), (0o770, False), (0o702, False), (0o700, True)):
        folder.chmod(mode)
        assert is_private(folder) is expected
    folder.parent.chmod(0o777)
    assert not is_private(folder)
    folder.parent.chmod(0o1777)
    assert is_private(folder)
    as_another_user(monkeypatch)
    assert not is_private(folder)


@pytest.mark.parametrize("write", [lambda file: write_text(file, "new"), lambda file: write_bytes(file, b"new")])
def test_a_planted_link_is_not_followed(write: object, shared: Path, tmp_path: Path) -> None:
    """Another user foresees the name of the temporary file, and links it to a file of this user."""
    (tmp_path / "valuable").write_text("kept")
    (shared / "result.json.new").symlink_to(tmp_path / "valuable")
    write(shared / "result.json")  # type: ignore[operator]
    assert (tmp_path / "valuable").read_text() == "kept"
    assert (shared / "result.json").read_text() == "new"
    assert not (shared / "result.json").is_symlink()
    assert [one.name for one in shared.iterdir()] == ["result.json"]


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork and file locks")
def test_processes_that_write_the_same_file_publish_only_whole_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of four processes writes a file of one letter many times; every version that a reader sees is whole.

    While one of them looks at what is there, others publish theirs.
    """
    target, size, user = tmp_path / "result.json", 200_000, os.getuid()

    def slowly() -> int:
        time.sleep(0.002)
        return user

    monkeypatch.setattr(os, "getuid", slowly)
    children = []
    for letter in "abcd":
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for _ in range(25):
                    write_text(target, letter * size)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    ends: dict[int, int] = {}
    while len(ends) < len(children):
        for child in set(children) - set(ends):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                ends[child] = os.waitstatus_to_exitcode(status)
        if target.exists():
            text = target.read_text()
            assert len(text) == size
            assert len(set(text)) == 1
    assert list(ends.values()) == [0, 0, 0, 0]
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.skipif(
    getattr(os, "getuid", int)() != 0 or os.name == "nt", reason="only root can make folders of another user"
)
def test_a_folder_that_another_user_planted_is_refused(shared: Path, tmp_path: Path) -> None:
    """Whoever owns the folder of unfinished work could replace the vectors in it."""
    (shared / "out.npy.partial").mkdir()
    (tmp_path / "usual.partial").mkdir()
    with folder_lock(shared / "out.npy.partial"):
        pass
    (shared / "out.npy.partial").mkdir(exist_ok=True)
    os.chown(shared / "out.npy.partial", 12345, 12345)
    with (
        pytest.raises(NearfarError, match=r"out\.npy\.partial: belongs to another user, .*; choose another --output"),
        folder_lock(shared / "out.npy.partial"),
    ):
        pass
    with folder_lock(tmp_path / "usual.partial"):  # not in a folder that everybody can write to
        pass
