"""A job and its key, the order and the shards of many, and what a job leaves."""

import errno
import hashlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from nearfar.jobs import (
    Job,
    JobEvent,
    JobsFailedError,
    JobStore,
    run_jobs,
    shard_of,
    unfinished,
    with_inputs,
)
from nearfar.types import NearfarError
from tests.jobs.functions import HERE, diamonds, job


def test_the_key_is_the_hash_of_the_canonical_json() -> None:
    start = Job("package.module:name", {"seed": 1})
    job = Job("package.module:other", {"b": [1, "é"], "a": None}, {"start": start})
    text = (
        '{"function":"package.module:other","inputs":{"start":"' + start.key + '"},'
        '"settings":{"a":null,"b":[1,"\\u00e9"]}}'
    )
    assert job.key == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_the_key_does_not_depend_on_order_or_container() -> None:
    first = Job("m:f", {"a": 1, "b": {"c": [1, 2], "d": 0.5}}, {"x": Job("m:g"), "y": Job("m:h")})
    second = Job("m:f", {"b": {"d": 0.5, "c": (1, 2)}, "a": 1.0}, {"y": Job("m:h"), "x": Job("m:g")})
    assert first.key == second.key
    assert first == second
    assert len({first, second}) == 1


CHANGES: dict[str, Callable[[], Job]] = {
    "function": lambda: Job("m:g", {"a": 1}, {"x": Job("m:start")}),
    "value": lambda: Job("m:f", {"a": 2}, {"x": Job("m:start")}),
    "truth": lambda: Job("m:f", {"a": True}, {"x": Job("m:start")}),
    "name": lambda: Job("m:f", {"b": 1}, {"x": Job("m:start")}),
    "input": lambda: Job("m:f", {"a": 1}, {"x": Job("m:start", {"seed": 2})}),
    "input's name": lambda: Job("m:f", {"a": 1}, {"y": Job("m:start")}),
    "input's input": lambda: Job("m:f", {"a": 1}, {"x": Job("m:start", {}, {"z": Job("m:start")})}),
}


def test_the_key_changes_with_every_part() -> None:
    keys = {Job("m:f", {"a": 1}, {"x": Job("m:start")}).key, *(make().key for make in CHANGES.values())}
    assert len(keys) == len(CHANGES) + 1


def test_local_settings_and_resources_are_not_in_the_key() -> None:
    plain = Job("m:f", {"a": 1})
    job = Job("m:f", {"a": 1}, local={"path": "/here"}, uses="gpu")
    assert job == plain
    assert job.describe() == plain.describe()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Job("module.function"), "package.module:name"),
        (lambda: Job("module:a b"), "package.module:name"),
        (lambda: Job(":f"), "package.module:name"),
        (lambda: Job("m:f", {"a": {"b": float("nan")}}), "job m:f: settings: .* not JSON compliant"),
        (lambda: Job("m:f", local={"a": object()}), "local: .* not JSON serializable"),  # type: ignore[dict-item]
    ],
)
def test_what_cannot_be_a_job_is_refused(make: Callable[[], Job], message: str) -> None:
    with pytest.raises(NearfarError, match=message):
        make()


def test_every_job_comes_after_its_inputs_and_once() -> None:
    last = diamonds(3)
    ordered = with_inputs([*last, last[0].inputs["left"]])
    assert len(ordered) == len(set(ordered)) == 12
    position = {one: number for number, one in enumerate(ordered)}
    for one in ordered:
        assert all(position[needed] < position[one] for needed in one.inputs.values())
    assert ordered[:4] == with_inputs(last[:1])  # the first graph is finished first


@pytest.mark.long
def test_inputs_of_finished_jobs_are_not_needed(tmp_path: Path) -> None:
    store = JobStore(tmp_path)
    first = job("first")
    second = job("second", {"first": first})
    third = job("third", {"second": second})
    run_jobs([second], store, engine="inline")
    store.folder(first).rename(tmp_path / "elsewhere")
    todo, found = unfinished([third], store)
    assert (todo, found) == ([third], [second])
    todo, found = unfinished([third, first], store)
    assert (todo, found) == ([third, first], [second])


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
def test_shards_divide_the_jobs(count: int) -> None:
    generator = random.Random(count)
    jobs = [*diamonds(9), *(job(f"alone {number}") for number in range(11))]
    shared = job("shared")
    jobs += [job(f"needs shared {number}", {"shared": shared}) for number in range(4)]
    shards = [shard_of(jobs, (number + 1, count)) for number in range(count)]
    assert sorted(one.key for shard in shards for one in shard) == sorted(one.key for one in jobs)
    needed = [{one.key for one in with_inputs(shard)} for shard in shards]
    assert sum(map(len, needed)) == len(set.union(*needed))  # no job is needed by two shards
    shuffled = jobs.copy()
    generator.shuffle(shuffled)
    assert [set(shard_of(shuffled, (number + 1, count))) for number in range(count)] == [set(one) for one in shards]
    sizes = [len(one) for one in needed]
    assert max(sizes) <= sum(sizes) / count + 5  # the largest group has five jobs


@pytest.mark.parametrize("shard", [(0, 3), (4, 3), (1, 0), (-1, -1)])
def test_a_shard_that_does_not_exist_is_refused(shard: tuple[int, int]) -> None:
    with pytest.raises(NearfarError, match=f"--shard {shard[0]}/{shard[1]}: the number must be from 1 to the count"):
        shard_of([job("a")], shard)


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


def published(folder: Path, count: int = 3) -> list[Job]:
    return [Job(f"{HERE}:publishes", {"number": number}, local={"to": str(folder)}) for number in range(count)]


@pytest.mark.long
@pytest.mark.parametrize("engine", ["inline", "process"])
def test_every_job_runs_in_a_temporary_folder_of_its_own(engine: str, tmp_path: Path) -> None:
    before = os.getcwd()
    events: list[JobEvent] = []
    run_jobs(published(tmp_path), None, engine=engine, on_event=events.append)
    found = [(tmp_path / str(number)).read_text(encoding="utf-8").split("\n") for number in range(3)]
    assert len({folder for folder, _ in found}) == 3
    assert all(folder == working for folder, working in found)
    assert not any(Path(folder).exists() for folder, _ in found)
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "2"]
    assert os.getcwd() == before
    assert [event.kind for event in events].count("finished") == 3
    events.clear()
    run_jobs(published(tmp_path), None, engine=engine, on_event=events.append)
    assert [event.kind for event in events].count("finished") == 3  # only the function knows what is there
