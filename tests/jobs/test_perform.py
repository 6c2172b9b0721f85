"""One job: what is on the disk before its folder gets its final name, and disks that are full."""

import errno
import os
from pathlib import Path

import pytest

from nearfar.disk import FolderBusyError, folder_lock
from nearfar.jobs import Job, JobsFailedError, JobStore, Task, run_jobs
from nearfar.jobs.perform import perform
from tests.jobs.functions import HERE, job


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")
def test_every_file_is_on_the_disk_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[tuple[str, int]] = []
    fsync, rename = os.fsync, Path.rename

    def recorded_fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        flushed.append((str(path), path.stat().st_size if path.is_file() else -1))
        fsync(descriptor)

    def recorded_rename(path: Path, target: Path) -> Path:
        flushed.append((f"{path} renamed", -1))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "rename", recorded_rename)
    store, made = JobStore(tmp_path), job("made")
    run_jobs([made], store, engine="inline")
    part = store.part(made)
    renamed = flushed.index((f"{part} renamed", -1))
    final = {str(part / file.relative_to(store.folder(made))): file for file in store.folder(made).rglob("*")}
    assert len(final) == 7
    assert {name: size for name, size in flushed[:renamed] if name not in (str(part), str(tmp_path))} == {
        name: file.stat().st_size if file.is_file() else -1 for name, file in final.items()
    }
    assert flushed[renamed - 1] == (str(part), -1)  # the folder after what is in it
    assert flushed[renamed + 1 :] == [(str(tmp_path), -1)]  # the final name


def test_a_full_disk_fails_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store, made = JobStore(tmp_path), job("made")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(JobsFailedError, match=r"\.part: cannot be written \(No space left on device\)"):
            run_jobs([made], store, engine="inline")
    assert not store.folder(made).exists()
    run_jobs([made], store, engine="inline")
    assert store.is_finished(made)


def test_a_locked_job_is_busy_and_a_finished_one_is_found(tmp_path: Path) -> None:
    store, made = JobStore(tmp_path), job("made")
    task = Task.of(made, store, str(tmp_path))
    assert Task.from_json(task.to_json()) == task
    with folder_lock(store.part(made)):
        with pytest.raises(FolderBusyError, match="another process is using it now"), folder_lock(store.part(made)):
            pass
        assert perform(task).kind == "busy"
    assert perform(task).kind == "finished"
    assert perform(task).kind == "found"
    assert [path.name for path in tmp_path.iterdir()] == [made.key]


def test_a_working_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    task = Task.of(Job(f"{HERE}:nothing"), JobStore(tmp_path / "cells"), str(tmp_path / "gone"))
    before = os.getcwd()
    outcome = perform(task)
    assert (outcome.kind, str(tmp_path / "gone") in outcome.message) == ("failed", True)
    assert os.getcwd() == before
