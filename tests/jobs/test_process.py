"""Worker processes: same files as in this process, surroundings of a job, deaths of workers."""

import os
import signal
from pathlib import Path

import pytest

from nearfar.jobs import Job, JobEvent, JobsFailedError, JobStore, run_jobs
from tests.jobs.functions import HERE, diamonds
from tests.jobs.programs import is_alive, wait_until

pytestmark = pytest.mark.long


def test_workers_live_for_many_jobs(tmp_path: Path) -> None:
    jobs = [
        Job(f"{HERE}:combine", {"name": str(number)}, local={"pids": str(tmp_path / "pids")}) for number in range(20)
    ]
    run_jobs(jobs, JobStore(tmp_path / "cells"), workers=2)
    pids = (tmp_path / "pids").read_text(encoding="utf-8").split()
    assert len(pids) == 20
    assert 1 <= len(set(pids)) <= 2
    assert str(os.getpid()) not in pids
    assert not any(is_alive(int(pid)) for pid in pids)


def test_the_surroundings_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store, made = JobStore(tmp_path / "cells"), Job(f"{HERE}:prints")
    run_jobs([made], store, workers=1, threads=1)
    folder = store.folder(made)
    lines = (folder / "log.txt").read_text(encoding="utf-8").splitlines()
    assert sorted(lines) == ["from a child", "to descriptor 1", "to stderr", "to stdout"]
    assert (folder / "threads.txt").read_text(encoding="utf-8") == "1"
    assert (folder / "folder.txt").read_text(encoding="utf-8") == str(tmp_path)


def test_a_worker_that_dies_is_replaced_and_its_job_retried(tmp_path: Path) -> None:
    child = tmp_path / "child"
    bad = Job(f"{HERE}:dies", {"name": "bad", "times": 2}, local={"child": str(child)})
    last = Job(f"{HERE}:combine", {"name": "last"}, {"bad": bad})
    events: list[JobEvent] = []
    store = JobStore(tmp_path / "cells")
    run_jobs([*diamonds(2), last], store, workers=2, retries=2, on_event=events.append)
    assert [event.kind for event in events if event.job == bad] == ["started", "retried", "retried", "finished"]
    assert (store.folder(last) / "result.txt").read_text(encoding="utf-8") == "last(bad=bad())"
    assert sum(event.kind == "finished" for event in events) == 10
    assert not list(store.root.glob("*.part"))
    if Path("/proc/self/stat").exists():
        wait_until(lambda: not is_alive(int(child.read_text(encoding="utf-8"))))  # what the worker had started


def test_a_worker_that_always_dies_fails_its_job_alone(tmp_path: Path) -> None:
    bad = Job(f"{HERE}:dies", {"name": "bad", "times": 9, "signal": int(signal.SIGKILL)})
    message = "its worker was killed; the system may have run out of memory, 2 times"
    (good,) = diamonds(1)
    store = JobStore(tmp_path / "cells")
    with pytest.raises(JobsFailedError) as caught:
        run_jobs([bad, good], store, retries=1)
    ((job, found, folder),) = caught.value.failures
    assert (job, found, folder) == (bad, message, store.part(bad))
    assert store.is_finished(good)
