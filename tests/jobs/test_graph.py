"""Order of jobs, jobs that are not needed, and shards."""

import random
from pathlib import Path

import pytest

from nearfar.jobs import Job, JobStore, run_jobs, shard_of, unfinished, with_inputs
from nearfar.types import NearfarError
from tests.jobs.functions import diamonds, job


def test_every_job_comes_after_its_inputs_and_once() -> None:
    last = diamonds(3)
    ordered = with_inputs([*last, last[0].inputs["left"]])
    assert len(ordered) == len(set(ordered)) == 12
    position = {one: number for number, one in enumerate(ordered)}
    for one in ordered:
        assert all(position[needed] < position[one] for needed in one.inputs.values())
    assert ordered[:4] == with_inputs(last[:1])  # the first graph is finished first


@pytest.mark.long
def test_a_long_chain_is_no_recursion() -> None:
    last = Job("m:f")
    for number in range(5000):
        last = Job("m:f", {"number": number}, {"before": last})
    assert len(with_inputs([last])) == 5001
    assert len(shard_of([last], (1, 2))) + len(shard_of([last], (2, 2))) == 1


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
