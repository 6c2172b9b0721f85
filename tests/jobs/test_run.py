"""The loop over jobs: order, failures, retries, waiting, resources; with engines in this process."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from nearfar import jobs as jobs_module
from nearfar.disk.folders import folder_lock
from nearfar.jobs import Job, JobEvent, JobsFailedError, JobStore, Outcome, Task, run_jobs
from nearfar.jobs.job import perform
from tests.jobs.functions import HERE, contents, diamonds, job


class ThreadEngine:
    """Performs tasks in a thread of this process, one after the other, but takes several at once."""

    def __init__(self, slots: int = 2) -> None:
        self.slots = slots
        self.threads = ThreadPoolExecutor(1)
        self.closed = 0

    def submit(self, task: Task, *, uses: str | None) -> Future[Outcome]:
        return self.threads.submit(perform, task)

    def close(self) -> None:
        self.threads.shutdown()
        self.closed += 1


def running_together(events: list[JobEvent]) -> list[set[Job]]:
    """The jobs that were running after each event."""
    running: list[set[Job]] = [set()]
    for event in events:
        running.append(running[-1] | {event.job} if event.kind == "started" else running[-1] - {event.job})
    return running


def kinds(events: list[JobEvent], job: Job) -> list[str]:
    return [event.kind for event in events if event.job == job]


def test_a_diamond_runs_each_job_once_in_order(tmp_path: Path) -> None:
    events: list[JobEvent] = []
    (last,) = diamonds(1)
    engine = ThreadEngine()
    run_jobs([last, last], JobStore(tmp_path), engine=engine, on_event=events.append)
    text = (tmp_path / last.key / "result.txt").read_text(encoding="utf-8")
    assert text == "last 0(left=left 0(first=first 0()),right=right 0(first=first 0()))"
    assert [(event.kind, event.job.settings["name"]) for event in events] == [
        ("started", "first 0"),
        ("finished", "first 0"),
        ("started", "left 0"),
        ("started", "right 0"),
        ("finished", "left 0"),
        ("finished", "right 0"),
        ("started", "last 0"),
        ("finished", "last 0"),
    ]
    assert [event.done for event in events if event.kind == "finished"] == [1, 2, 3, 4]
    assert {event.total for event in events} == {4}
    assert max(map(len, running_together(events))) == 2
    assert engine.closed == 1


def test_finished_jobs_are_found(tmp_path: Path) -> None:
    (last,) = diamonds(1)
    run_jobs([last], JobStore(tmp_path), engine="inline")
    before = contents(tmp_path)
    events: list[JobEvent] = []
    engine = ThreadEngine()
    run_jobs([last], JobStore(tmp_path), engine=engine, on_event=events.append)
    assert [(event.kind, event.job, event.done, event.total) for event in events] == [("found", last, 1, 1)]
    assert contents(tmp_path) == before
    assert engine.closed == 0  # it was never used


def test_a_failure_skips_what_needs_it_and_nothing_else(tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    store = JobStore(tmp_path / "cells")
    bad = Job(f"{HERE}:raises", {"name": "bad", "mended": str(mended)})
    also_bad = Job(f"{HERE}:raises", {"name": "also bad"})
    child = job("child", {"bad": bad, "good": job("good")})
    grandchild = job("grandchild", {"child": child, "also": also_bad})
    other = job("other")
    events: list[JobEvent] = []
    with pytest.raises(JobsFailedError) as caught:
        run_jobs([grandchild, other], store, engine="inline", on_event=events.append)
    assert [failure.job for failure in caught.value.failures] == [bad, also_bad]
    assert caught.value.skipped == (child, grandchild)
    assert caught.value.failures[0].message == "ValueError: bad is no good"
    assert str(caught.value).splitlines() == [
        "2 jobs failed; 2 that need them were skipped:",
        f"  {HERE}:raises {bad.key}: ValueError: bad is no good (see {store.part(bad)})",
        f"  {HERE}:raises {also_bad.key}: ValueError: also bad is no good (see {store.part(also_bad)})",
        "The finished jobs are kept; the same call runs only the others.",
    ]
    assert kinds(events, bad) == ["started", "failed"]
    assert kinds(events, grandchild) == ["skipped"]
    assert max(event.done for event in events) == 6
    assert store.is_finished(other)
    assert store.is_finished(child.inputs["good"])
    assert not store.folder(child).exists()
    assert "ValueError: bad is\nno good" in (store.part(bad) / "error.txt").read_text(encoding="utf-8")
    mended.write_text("", encoding="utf-8")
    run_jobs([child], store, engine="inline")
    names = sorted(path.name for path in store.folder(bad).iterdir())
    assert names == ["attempt.json", "begun.txt", "job.json", "result.txt"]  # no error.txt


@pytest.mark.parametrize("other_finishes", [True, False])
def test_a_job_that_another_process_runs_is_waited_for(
    other_finishes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "BUSY_SECONDS", 0.01)
    store = JobStore(tmp_path)
    (last,) = diamonds(1)
    left = last.inputs["left"]
    elsewhere = JobStore(tmp_path / "elsewhere")
    run_jobs([left], elsewhere, engine="inline")
    lock = folder_lock(store.part(left))
    lock.__enter__()
    events: list[JobEvent] = []

    def on_event(event: JobEvent) -> None:
        events.append(event)
        if event.kind == "finished" and event.job == last.inputs["right"]:  # the others go on meanwhile
            if other_finishes:
                elsewhere.folder(left).rename(store.folder(left))
            lock.__exit__(None, None, None)

    run_jobs([last], store, engine="inline", on_event=on_event)
    assert kinds(events, left) == ["started", "waiting", "found" if other_finishes else "finished"]
    assert kinds(events, last) == ["started", "finished"]
    assert not list(tmp_path.glob("*.part"))


def test_a_system_exit_ends_the_run(tmp_path: Path) -> None:
    store, first = JobStore(tmp_path), Job(f"{HERE}:exits")
    with pytest.raises(SystemExit, match="enough"):  # raised by a job, or by the caller's handler of a signal
        run_jobs([first, job("second")], store, engine="inline")
    assert [path.name for path in tmp_path.iterdir()] == [store.part(first).name]
