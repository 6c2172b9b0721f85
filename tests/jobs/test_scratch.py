"""Jobs that publish their own results: a temporary folder each, in this process and in workers; nothing is kept."""

import os
from pathlib import Path

import pytest

from nearfar.jobs import Job, JobEvent, JobsFailedError, ScratchStore, run_jobs
from tests.jobs.functions import HERE


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
