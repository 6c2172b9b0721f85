"""What is written survives a power loss: files are flushed before they get their name, and the name after that."""

import os
import re
import shutil
from pathlib import Path

import pytest

import nearfar
from nearfar.disk import create_folder, new_file, publish, write_bytes
from nearfar.disk.folders import check_new_folder, new_folder, restore_folder
from nearfar.types import NearfarError
from tests.flushes import assert_flushed_before, record_flushes

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows cannot flush a folder")


def test_a_file_is_flushed_before_its_name_and_its_name_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    events = record_flushes(monkeypatch)
    write_bytes(Path("x"), b"new")
    assert events == [("flush", "x.new"), ("rename", "x.new", "x"), ("flush", ".")]


def test_a_replaced_folder_goes_after_the_new_one_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x").mkdir()
    Path("x/old").write_text("")
    events = record_flushes(monkeypatch)
    with new_folder(Path("x"), replace=True) as fresh:
        (fresh / "deep").mkdir()
        (fresh / "deep" / "file").write_text("text")
    assert_flushed_before(events, Path("x"), (".x.new/folder", "x"))
    aside = events.index(("rename", "x", ".x.old"))
    assert events.index(("flush", ".x.new/folder/deep/file")) < aside < events.index(("rename", ".x.new/folder", "x"))
    assert sorted(str(path) for path in Path().rglob("*")) == ["x", "x/deep", "x/deep/file"]


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "old").write_text("")
    (tmp_path / "y").write_text("old")

    def fail(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError), new_folder(tmp_path / "x", replace=True) as fresh:
        fail(fresh / "new")
    with pytest.raises(RuntimeError), new_file(tmp_path / "y") as file:
        fail(file)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["x", "x/old", "y"]
    assert (tmp_path / "y").read_text() == "old"


def test_a_kill_between_the_two_renames_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "old").write_text("")

    def killed(source: Path, target: Path, *, durable: bool = True) -> None:
        if target == folder:
            raise KeyboardInterrupt
        publish(source, target, durable=durable)

    monkeypatch.setattr("nearfar.disk.publish", killed)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):  # noqa: PT012
        patch.setattr("nearfar.disk.folders.restore_folder", lambda _: None)
        with new_folder(folder, replace=True) as fresh:
            (fresh / "new").write_text("")
    monkeypatch.undo()
    assert not folder.exists()
    restore_folder(folder)
    assert [path.name for path in folder.iterdir()] == ["old"]
    restore_folder(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.long
def test_names_are_given_nowhere_else() -> None:
    """The order of flushes and renames is tested here, for all of nearfar."""
    source = Path(nearfar.__file__).parent
    renames = re.compile(r"\bos\.(replace|rename|renames|link)\b|\bshutil\.move\b|\.(rename|replace)\([^(),=]*\)")
    found = {
        file.relative_to(source).as_posix() for file in source.rglob("*.py") if renames.search(file.read_text("utf-8"))
    }
    assert found == {"disk/__init__.py"}


def test_a_new_folder_replaces_what_a_killed_process_left(tmp_path: Path) -> None:
    left = tmp_path / ".x.new" / "folder"
    left.mkdir(parents=True)
    (left / "half").write_text("")
    with new_folder(tmp_path / "x") as fresh:
        (fresh / "whole").write_text("")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["x", "x/whole"]


def test_a_finished_folder_is_refused_without_what_a_killed_process_left(tmp_path: Path) -> None:
    (tmp_path / ".x.new" / "folder").mkdir(parents=True)
    (tmp_path / ".x.new" / "folder" / "whole").write_text("")
    shutil.copytree(tmp_path / ".x.new" / "folder", tmp_path / "x")
    with pytest.raises(NearfarError, match="already exists"):
        check_new_folder(tmp_path / "x")
    assert os.listdir(tmp_path) == ["x"]


def test_the_entries_of_new_folders_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    events = record_flushes(monkeypatch)
    create_folder(Path("x/deep/deeper"))
    assert {("flush", "."), ("flush", "x"), ("flush", "x/deep")} <= set(events)
    events.clear()
    create_folder(Path("x/deep/deeper"))
    assert events == []
