"""One job: disks that are full, and folders that another process uses."""

import errno
import os
from pathlib import Path

import pytest

from nearfar.disk import FolderBusyError, folder_lock
from nearfar.jobs import Job, JobsFailedError, JobStore, Task, run_jobs
from nearfar.jobs.perform import perform
from tests.jobs.functions import HERE, job


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
