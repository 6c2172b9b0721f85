"""What a job leaves: the folder of a finished one, the temporary one of a job that publishes its own results."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nearfar.disk import FolderBusyError, folder_lock
from nearfar.jobs import Job, JobEvent, JobsFailedError, JobStore, ScratchStore, Task, run_jobs
from nearfar.jobs.perform import perform
from nearfar.types import NearfarError
from tests.jobs.functions import HERE, job


def test_a_finished_job_is_a_folder_with_its_description(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "new" / "cells")
    first = job("first")
    second = Job(f"{HERE}:combine", {"name": "second"}, {"first": first}, local={"pause": 0})
    assert not store.is_finished(second)
    assert store.seconds(second) is None
    run_jobs([second], store, engine="inline")
    assert store.is_finished(first)
    assert store.is_finished(second)
    assert sorted(path.name for path in store.root.iterdir()) == sorted([first.key, second.key])
    assert json.loads((store.folder(second) / "job.json").read_text(encoding="utf-8")) == {
        "key": second.key,
        "function": "tests.jobs.functions:combine",
        "settings": {"name": "second"},
        "inputs": {"first": first.key},
    }
    attempt = json.loads((store.folder(second) / "attempt.json").read_text(encoding="utf-8"))
    assert attempt == {"seconds": store.seconds(second), "local": {"pause": 0}}
    assert (store.folder(second) / "result.txt").read_text(encoding="utf-8") == "second(first=first())"
    assert store.seconds(second) is not None


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda file: file.unlink(), "is not a finished job: job.json is missing"),
    "cut": (lambda file: file.write_text(file.read_text()[:-5]), "job.json: does not describe a job"),
    "no text": (lambda file: file.write_bytes(b"\xff\xfe"), "job.json: is damaged: byte 0 is not UTF-8 text"),
    "list": (lambda file: file.write_text("[1]"), "job.json: does not describe a job"),
    "another job": (
        lambda file: file.write_text(file.read_text().replace("first", "third")),
        "job.json: describes another job, with the key",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_folder_is_named(case: str, tmp_path: Path) -> None:
    store, first = JobStore(tmp_path), job("first")
    run_jobs([first], store, engine="inline")
    damage, message = DAMAGE[case]
    damage(store.folder(first) / "job.json")
    with pytest.raises(NearfarError, match=message) as caught:
        run_jobs([job("second", {"first": first})], store, engine="inline")
    assert str(store.folder(first)) in str(caught.value)
    assert f"Delete the folder {store.folder(first)}; the job is then run again." in str(caught.value)


def test_a_damaged_attempt_is_named(tmp_path: Path) -> None:
    store, first = JobStore(tmp_path), job("first")
    run_jobs([first], store, engine="inline")
    (store.folder(first) / "attempt.json").write_text("{}", encoding="utf-8")
    with pytest.raises(NearfarError, match=r"attempt\.json: has no seconds"):
        store.seconds(first)


def test_a_store_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(NearfarError, match="file: is a file, but finished jobs are kept in a folder"):
        JobStore(tmp_path / "file")


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


def published(folder: Path, count: int = 3) -> list[Job]:
    return [Job(f"{HERE}:publishes", {"number": number}, local={"to": str(folder)}) for number in range(count)]


@pytest.mark.long
@pytest.mark.parametrize("engine", ["inline", "process"])
def test_every_job_runs_in_a_temporary_folder_of_its_own(engine: str, tmp_path: Path) -> None:
    before = os.getcwd()
    events: list[JobEvent] = []
    run_jobs(published(tmp_path), ScratchStore(), engine=engine, on_event=events.append)
    found = [(tmp_path / str(number)).read_text(encoding="utf-8").split("\n") for number in range(3)]
    assert len({folder for folder, _ in found}) == 3
    assert all(folder == working for folder, working in found)
    assert not any(Path(folder).exists() for folder, _ in found)
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "2"]
    assert os.getcwd() == before
    assert [event.kind for event in events].count("finished") == 3
    events.clear()
    run_jobs(published(tmp_path), ScratchStore(), engine=engine, on_event=events.append)
    assert [event.kind for event in events].count("finished") == 3  # only the function knows what is there


@pytest.mark.long
@pytest.mark.parametrize("engine", ["inline", "process"])
def test_a_failure_has_no_folder_to_look_at(engine: str, tmp_path: Path) -> None:
    jobs = [Job(f"{HERE}:raises", {"name": "bad"}), *published(tmp_path)]
    with pytest.raises(JobsFailedError) as error:
        run_jobs(jobs, ScratchStore(), engine=engine)
    (failure,) = error.value.failures
    assert failure.folder is None
    assert "ValueError: bad is no good" in str(error.value)
    assert "(see " not in str(error.value)
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "2"]


def test_a_temporary_folder_that_cannot_be_made_fails_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(JobsFailedError, match="No such file or directory"):
        run_jobs(published(tmp_path, 1), ScratchStore(), engine="inline")


def test_the_shared_folder_is_made(tmp_path: Path) -> None:
    run_jobs(published(tmp_path, 1), ScratchStore(tmp_path / "new" / "folder"), engine="inline")
    assert (tmp_path / "new" / "folder").is_dir()
