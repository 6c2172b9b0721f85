"""The order of jobs, and their division into shards."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from nearfar.jobs.job import Job
from nearfar.jobs.scratch import Store
from nearfar.types import NearfarError


def with_inputs(jobs: Iterable[Job]) -> list[Job]:
    """The jobs and all jobs that they need, each once, every job after its inputs."""
    return list(_walk(jobs, lambda _: False))


def unfinished(jobs: Iterable[Job], store: Store) -> tuple[list[Job], list[Job]]:
    """The jobs that must run, every job after its inputs, and the finished jobs that stand in for others.

    The inputs of a finished job are not run, even if their folders have been deleted.

    Raises:
        NearfarError: the folder of a finished job is damaged.
    """
    found: list[Job] = []

    def is_finished(job: Job) -> bool:
        if finished := store.is_finished(job):
            found.append(job)
        return finished

    return list(_walk(jobs, is_finished)), found


def shard_of(jobs: Sequence[Job], shard: tuple[int, int]) -> list[Job]:
    """The jobs of shard ``(number, count)``, numbered from 1, in the given order.

    Jobs that need a common job are in the same shard. The division depends on the keys alone, so it is the same on
    every machine. The groups of connected jobs, the largest first, go one by one to the shard with the fewest jobs.

    Raises:
        NearfarError: the number is not in 1 to count.
    """
    number, count = shard
    if count < 1 or not 1 <= number <= count:
        raise NearfarError(f"--shard {number}/{count}: the number must be from 1 to the count, such as 3/40.")
    members: dict[str, list[Job]] = {}
    root = _components(with_inputs(jobs))
    for job in with_inputs(jobs):
        members.setdefault(root[job.key], []).append(job)
    groups = sorted(members.items(), key=lambda item: (-len(item[1]), min(job.key for job in item[1])))
    sizes = [0] * count
    mine: set[str] = set()
    for name, group in groups:
        smallest = sizes.index(min(sizes))
        sizes[smallest] += len(group)
        if smallest == number - 1:
            mine.add(name)
    return [job for job in jobs if root[job.key] in mine]


def _components(jobs: Sequence[Job]) -> Mapping[str, str]:
    """Key -> the key that represents its group of connected jobs."""
    parent = {job.key: job.key for job in jobs}

    def find(key: str) -> str:
        while parent[key] != key:
            parent[key] = key = parent[parent[key]]
        return key

    for job in jobs:
        for needed in job.inputs.values():
            parent[find(job.key)] = find(needed.key)
    return {key: find(key) for key in parent}


def _walk(jobs: Iterable[Job], is_finished: Callable[[Job], bool]) -> Iterator[Job]:
    """Jobs that are not finished, depth first; no recursion, so chains of any length are fine."""
    seen: set[str] = set()
    stack: list[tuple[Job, bool]] = [(job, False) for job in reversed(list(jobs))]
    while stack:
        job, inputs_done = stack.pop()
        if inputs_done:
            yield job
        elif job.key not in seen:
            seen.add(job.key)
            if is_finished(job):
                continue
            stack.append((job, True))
            stack.extend((needed, False) for needed in reversed(list(job.inputs.values())))
