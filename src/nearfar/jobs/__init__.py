"""Many runs as jobs: each a function called with values, identified by their hash, its results files in a folder.

>>> from nearfar.jobs import Job, JobStore, run_jobs

A job that is finished is never run again; a run that was stopped continues where it was; the same jobs run in this
process, in worker processes, or on a Ray cluster. Order, shards, retries, failures and events are the same for every
engine.
"""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

from nearfar.disk import create_folder, disk_errors
from nearfar.jobs.job import JSON as JSON
from nearfar.jobs.job import Job as Job
from nearfar.jobs.job import JobStore as JobStore
from nearfar.jobs.job import Outcome as Outcome
from nearfar.jobs.job import Task as Task
from nearfar.jobs.job import perform
from nearfar.types import NearfarError

BUSY_SECONDS = 0.5
"""After this time, a job that another process runs is tried again."""

EventKind: TypeAlias = Literal["found", "started", "waiting", "finished", "retried", "failed", "skipped"]


@dataclass(frozen=True)
class JobEvent:
    """A change in the state of one job."""

    kind: EventKind
    """``found``: finished by an earlier run or another process; ``waiting``: another process runs it now;
    ``retried``: its worker died; ``skipped``: a job that it needs failed."""
    job: Job
    seconds: float | None = None
    """How long a finished job took."""
    message: str = ""
    """Why a job failed, was retried or was skipped."""
    done: int = 0
    """Number of jobs that are finished, failed or skipped, this one included."""
    total: int = 0
    """Number of jobs of the run, those found at the start included."""


OnEvent: TypeAlias = Callable[[JobEvent], None]


class JobFailure(NamedTuple):
    """A job that failed."""

    job: Job
    message: str
    folder: Path | None
    """What the job left, with ``error.txt`` if it raised an exception and ``log.txt`` if it printed something; None if
    it ran in a temporary folder."""


class JobsFailedError(NearfarError):
    """Jobs failed; all jobs that do not need them are finished."""

    def __init__(self, failures: Sequence[JobFailure], skipped: Sequence[Job]) -> None:
        self.failures = tuple(failures)
        self.skipped = tuple(skipped)
        count = f"{len(failures)} {'job' if len(failures) == 1 else 'jobs'} failed"
        lines = [f"{count}; {len(skipped)} that need them were skipped:" if skipped else f"{count}:"]
        for failure in failures:
            see = f" (see {failure.folder})" if failure.folder else ""
            lines.append(f"  {failure.job.function} {failure.job.key}: {failure.message}{see}")
        lines.append("The finished jobs are kept; the same call runs only the others.")
        super().__init__("\n".join(lines))


class Engine(Protocol):
    """Performs tasks, each the description of one job.

    Order, retries, dependencies and events are decided by :func:`nearfar.jobs.run_jobs`.
    """

    slots: int
    """How many tasks it takes at once."""

    def submit(self, task: Task, *, uses: str | None) -> Future[Outcome]:
        """Start a task; called only while fewer than ``slots`` are unfinished. ``uses`` is :attr:`Job.uses`."""

    def close(self) -> None:
        """Stop all workers; unfinished tasks are interrupted."""


class InlineEngine:
    """Performs each task when it is submitted.

    Threads are those of this process, output is not redirected, and a job that ends the process ends the run.
    """

    slots = 1

    def submit(self, task: Task, *, uses: str | None) -> Future[Outcome]:  # noqa: ARG002
        """Perform the task."""
        done: Future[Outcome] = Future()
        done.set_result(perform(task))
        return done

    def close(self) -> None:
        """Nothing runs."""


def run_jobs(
    jobs: Iterable[Job],
    store: JobStore | None,
    *,
    engine: str | Engine = "process",
    workers: int = 1,
    threads: int = 1,
    retries: int = 2,
    shard: tuple[int, int] = (1, 1),
    ray_address: str | None = None,
    on_event: OnEvent | None = None,
) -> None:
    """Run the jobs that are not finished, and before them the unfinished jobs that they need.

    If this process is stopped, finished jobs and the folders of unfinished ones are kept, and the same call continues.
    Several processes can run the same jobs in the same store; each job is run by one of them.

    Args:
        jobs: the jobs whose results are wanted.
        store: where the results are. Without one, each job runs in a temporary folder of the machine that runs it,
            which is its working folder too, and publishes its results itself; all jobs run, so a function must look
            whether its result is there. Two runs may perform the same job, which must write the same bytes each time.
        engine: ``inline``: one after the other in this process; ``process``: in worker processes on this machine;
            ``ray``: as tasks on a Ray cluster, or on a local Ray without ``ray_address``; or an object.
        workers: how many jobs run at once (``process`` and ``ray``); on a cluster, 1 stands for as many as fit.
        threads: threads of each job (``process`` and ``ray``).
        retries: how often a job is run again after its worker died, before it counts as failed.
        shard: ``(number, count)``: run only this part of the jobs, see :func:`nearfar.jobs.shard_of`.
        ray_address: the address of a Ray cluster.
        on_event: called in this process with each change in the state of a job.

    Raises:
        JobsFailedError: jobs failed, by an exception or because their workers died. All others are finished.
        NearfarError: the store cannot be written.
    """
    todo, found = unfinished(shard_of(list(jobs), shard), store)
    loop = _Loop(todo, found, store, retries, on_event)
    if todo:
        if store is not None:
            with disk_errors(store.root):
                create_folder(store.root)
        with _stopped_by_sigterm():
            opened = _open(engine, workers, threads, ray_address) if isinstance(engine, str) else engine
            try:
                loop.run(opened)
            finally:
                opened.close()
    if loop.failures:
        raise JobsFailedError(loop.failures, list(loop.waiting))


def _open(engine: str, workers: int, threads: int, ray_address: str | None) -> Engine:
    """The engine of a name."""
    if engine == "process":
        from nearfar.jobs.process import ProcessEngine

        return ProcessEngine(workers=workers, threads=threads)
    if engine == "ray":
        from nearfar.jobs.ray_cluster import RayEngine

        return RayEngine(workers=workers, threads=threads, address=ray_address)
    if engine != "inline":
        raise NearfarError(f"--engine {engine}: must be one of inline, process, ray.")
    return InlineEngine()


class _Loop:
    """The state of one run."""

    def __init__(
        self, todo: list[Job], found: list[Job], store: JobStore | None, retries: int, on_event: OnEvent | None
    ) -> None:
        self.failures: list[JobFailure] = []
        self.waiting = dict.fromkeys(todo)
        """Jobs that do not run, in the order in which they start where nothing prevents it."""
        self._store, self._retries, self._on_event = store, retries, on_event
        self._done, self._total = 0, len(todo) + len(found)
        self._running: dict[Future[Outcome], Job] = {}
        self._unfinished = set(todo)
        self._attempts = Counter[Job]()
        """How often each job was started, without those that another process ran."""
        self._busy: dict[Job, float] = {}
        """Jobs that another process runs -> when they are tried again."""
        for job in found:
            self._report("found", job)

    def run(self, engine: Engine) -> None:
        """Run all jobs; those that need a failed one still wait at the end."""
        folder = os.getcwd()
        while True:
            for job in self._startable(engine):
                del self.waiting[job]
                if not self._attempts[job]:
                    self._attempts[job] = 1
                    self._report("started", job)
                self._running[engine.submit(Task.of(job, self._store, folder), uses=job.uses)] = job
            pause = BUSY_SECONDS if self._busy.keys() & self.waiting else None
            if self._running:
                wait(self._running, pause, FIRST_COMPLETED)
                for done in [future for future in self._running if future.done()]:
                    self._handle(self._running.pop(done), done.result())
            elif pause is not None:
                time.sleep(pause)
            else:
                break
        for job in self.waiting:
            self._report("skipped", job, message="a job that it needs failed")

    def _startable(self, engine: Engine) -> list[Job]:
        """Jobs whose inputs are finished and for which there is a worker, in order."""
        now, free = time.monotonic(), engine.slots - len(self._running)
        ready = (job for job in self.waiting if self._unfinished.isdisjoint(job.inputs.values()))
        return list(islice((job for job in ready if self._busy.get(job, now) <= now), free))

    def _handle(self, job: Job, outcome: Outcome) -> None:
        attempts, message = self._attempts[job], outcome.message
        if outcome.kind in ("finished", "found"):
            self._report(outcome.kind, job, seconds=outcome.seconds)
            self._unfinished.remove(job)
        elif outcome.kind == "busy":
            if job not in self._busy:
                self._report("waiting", job, message="another process runs it")
            self._busy[job] = time.monotonic() + BUSY_SECONDS
            self.waiting = {job: None, **self.waiting}
        elif outcome.kind == "died" and attempts <= self._retries:
            self._attempts[job] += 1
            self._report("retried", job, message=message)
            self.waiting = {job: None, **self.waiting}
        else:
            message += f", {attempts} times" * (attempts > 1 and outcome.kind == "died")
            self.failures.append(JobFailure(job, message, self._store.part(job) if self._store else None))
            self._report("failed", job, message=message)

    def _report(self, kind: EventKind, job: Job, *, seconds: float | None = None, message: str = "") -> None:
        """Tell the caller of a change; a job that is finished, failed or skipped is done."""
        self._done += kind in ("found", "finished", "failed", "skipped")
        if self._on_event is not None:
            self._on_event(JobEvent(kind, job, seconds, message, self._done, self._total))


def with_inputs(jobs: Iterable[Job]) -> list[Job]:
    """The jobs and all jobs that they need, each once, every job after its inputs."""
    ordered: dict[Job, None] = {}
    for job in jobs:
        if job not in ordered:
            ordered |= dict.fromkeys([*with_inputs(job.inputs.values()), job])
    return list(ordered)


def unfinished(jobs: Iterable[Job], store: JobStore | None) -> tuple[list[Job], list[Job]]:
    """The jobs that must run, every job after its inputs, and the finished jobs that stand in for others.

    The inputs of a finished job are not run, even if their folders have been deleted.
    """
    todo: dict[Job, None] = {}
    found: dict[Job, None] = {}
    for job in jobs:
        if store and store.is_finished(job):
            found[job] = None
        elif job not in todo:
            first, others = unfinished(job.inputs.values(), store)
            todo |= dict.fromkeys([*first, job])
            found |= dict.fromkeys(others)
    return list(todo), list(found)


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
    if count == 1:
        return list(jobs)
    groups: dict[Job, set[Job]] = {}  # of each job, those that it is connected with
    for job in jobs:
        needed = with_inputs([job])
        connected = set(needed).union(*(groups[one] for one in needed if one in groups))
        groups |= dict.fromkeys(connected, connected)
    distinct = {id(group): group for group in groups.values()}.values()
    shards: list[set[Job]] = [set() for _ in range(count)]
    for group in sorted(distinct, key=lambda group: (-len(group), min(job.key for job in group))):
        min(shards, key=len).update(group)
    return [job for job in jobs if job in shards[number - 1]]


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C inside the block, so that workers are stopped; only if nothing else handles it."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def stop(*_: object) -> None:
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as after nohup, or in the background of a script
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
