"""What is written survives a power loss: files are flushed before they get their name, and the name after that."""

import os
import shutil
from pathlib import Path

import pytest

from nearfar.disk import check_new_folder, create_folder, folder_lock, new_folder, write_bytes
from nearfar.types import NearfarError
from tests.flushes import assert_flushed_before, record_flushes

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows cannot flush a folder")


def test_a_file_is_flushed_before_its_name_and_its_name_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    events = record_flushes(monkeypatch)
    write_bytes(Path("x"), b"new")
    assert events == [("flush", "x.new"), ("rename", "x.new", "x"), ("flush", ".")]


def test_a_folder_is_flushed_before_its_name_and_its_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    events = record_flushes(monkeypatch)
    with new_folder(Path("x")) as fresh:
        (fresh / "deep").mkdir(parents=True)
        (fresh / "deep" / "file").write_text("text")
    assert_flushed_before(events, Path("x"), (".x.new/folder", "x"))
    assert os.listdir() == ["x"]


def test_a_new_folder_replaces_what_a_killed_process_left(tmp_path: Path) -> None:
    left = tmp_path / ".x.new" / "folder"
    left.mkdir(parents=True)
    (left / "half").write_text("")
    with new_folder(tmp_path / "x") as fresh:
        fresh.mkdir()
        (fresh / "whole").write_text("")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["x", "x/whole"]


def test_a_finished_folder_is_refused_without_what_a_killed_process_left(tmp_path: Path) -> None:
    (tmp_path / ".x.new" / "folder").mkdir(parents=True)
    (tmp_path / ".x.new" / "folder" / "whole").write_text("")
    shutil.copytree(tmp_path / ".x.new" / "folder", tmp_path / "x")
    with pytest.raises(NearfarError, match="already exists"):
        check_new_folder(tmp_path / "x")
    assert os.listdir(tmp_path) == ["x"]


def test_a_new_folder_of_two_processes_is_refused(tmp_path: Path) -> None:
    with new_folder(tmp_path / "x") as fresh:
        fresh.mkdir()
        with pytest.raises(NearfarError, match="another process"), new_folder(tmp_path / "x"):
            pass
    assert os.listdir(tmp_path) == ["x"]


def test_the_entries_of_new_folders_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    events = record_flushes(monkeypatch)
    create_folder(Path("x/deep/deeper"))
    assert {("flush", "."), ("flush", "x"), ("flush", "x/deep")} <= set(events)
    events.clear()
    create_folder(Path("x/deep/deeper"))
    assert events == []


def test_a_lock_folder_that_goes_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with folder_lock(Path("x/lock"), remove_if_empty=True):
        events = record_flushes(monkeypatch)
    assert {("flush", "x"), ("flush", ".")} <= set(events)
    assert os.listdir() == []
