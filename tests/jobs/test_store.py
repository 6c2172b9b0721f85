"""The folder of finished jobs: what it holds, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nearfar.jobs import Job, JobStore, run_jobs
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
