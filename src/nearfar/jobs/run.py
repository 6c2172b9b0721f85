"""Runs jobs and the jobs they need: order, retries, failures and events, the same for every engine."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from heapq import heappop, heappush

from nearfar.disk import create_folder, disk_errors, flush_entries
from nearfar.jobs.engine import Engine, Outcome, Task
from nearfar.jobs.events import JobEvent, JobFailure, JobsFailedError
from nearfar.jobs.graph import shard_of, unfinished
from nearfar.jobs.job import Job
from nearfar.jobs.scratch import Store
from nearfar.types import NearfarError

ENGINES = ("inline", "process", "ray")
BUSY_SECONDS = 0.5
"""After this time, a job that another process runs is tried again."""


def run_jobs(
    jobs: Iterable[Job],
    store: Store,
    *,
    engine: str | Engine = "process",
    workers: int = 1,
    threads: int = 1,
    retries: int = 2,
    shard: tuple[int, int] = (1, 1),
    ray_address: str | None = None,
    on_event: Callable[[JobEvent], None] | None = None,
) -> None:
    """Run the jobs that are not finished, and before them the unfinished jobs that they need.

    If this process is stopped, finished jobs and the folders of unfinished ones are kept, and the same call continues.
    Several processes can run the same jobs in the same store; each job is run by one of them.

    Args:
        jobs: the jobs whose results are wanted.
        store: where the results are, and which jobs are finished.
        engine: ``inline``: one after the other in this process; ``process``: in worker processes on this machine;
            ``ray``: as tasks on a Ray cluster, or on a local Ray without ``ray_address``; or an object.
        workers: number of worker processes (``process`` and local Ray).
        threads: threads of each worker (``process`` and ``ray``).
        retries: how often a job is run again after its worker died, before it counts as failed.
        shard: ``(number, count)``: run only this part of the jobs, see :func:`nearfar.jobs.shard_of`.
        ray_address: the address of a Ray cluster.
        on_event: called in this process with each change in the state of a job.

    Raises:
        JobsFailedError: jobs failed, by an exception or because their workers died. All others are finished.
        NearfarError: a finished job's folder is damaged, the store cannot be written, or a value is out of range.
    """
    for name, value, least in (("workers", workers, 1), ("threads", threads, 1), ("retries", retries, 0)):
        if value < least:
            raise NearfarError(f"--{name} {value}: must be at least {least}.")
    if isinstance(engine, str) and engine not in ENGINES:
        raise NearfarError(f"--engine {engine}: must be one of {', '.join(ENGINES)}.")
    wanted = shard_of(list(jobs), shard)
    todo, found = unfinished(wanted, store)
    loop = _Loop(todo, found, store, retries, on_event)
    if todo:
        if store.root is not None:
            with disk_errors(store.root):
                create_folder(store.root)
        with _stopped_by_sigterm():
            opened = engine if not isinstance(engine, str) else _open(engine, store, workers, threads, ray_address)
            try:
                loop.run(opened)
            finally:
                opened.close()
                if store.root is not None:
                    with suppress(OSError):
                        flush_entries(store.root)
    if loop.failures:
        raise JobsFailedError(loop.failures, loop.skipped)


def _open(engine: str, store: Store, workers: int, threads: int, ray_address: str | None) -> Engine:
    if engine == "process":
        from nearfar.jobs.process import ProcessEngine

        return ProcessEngine(workers=workers, threads=threads)
    if engine == "ray":
        from nearfar.jobs.ray_cluster import RayEngine

        return RayEngine(store, workers=workers, threads=threads, address=ray_address)
    from nearfar.jobs.inline import InlineEngine

    return InlineEngine()


class _Loop:
    """The state of one run."""

    def __init__(
        self,
        todo: list[Job],
        found: list[Job],
        store: Store,
        retries: int,
        on_event: Callable[[JobEvent], None] | None,
    ) -> None:
        self.failures: list[JobFailure] = []
        self.skipped: list[Job] = []
        self._store, self._retries, self._on_event = store, retries, on_event
        self._done, self._total = 0, len(todo) + len(found)
        self._jobs = {job.key: job for job in todo}
        self._rank = {job.key: number for number, job in enumerate(todo)}
        self._missing = {job.key: {one.key for one in job.inputs.values()} & self._jobs.keys() for job in todo}
        self._dependents: dict[str, list[str]] = {job.key: [] for job in todo}
        for key, needed in self._missing.items():
            for one in needed:
                self._dependents[one].append(key)
        self._ready = [self._rank[key] for key, needed in self._missing.items() if not needed]  # sorted, so a heap
        self._todo = todo
        self._running: set[str] = set()
        self._attempts = dict.fromkeys(self._jobs, 1)
        self._started: set[str] = set()
        self._busy: dict[str, float] = {}
        """Jobs that another process runs -> when they are tried again."""
        self._waited: set[str] = set()
        for job in found:
            self._end(job, "found")

    def run(self, engine: Engine) -> None:
        """Run all jobs."""
        folder = os.getcwd()
        while self._ready or self._running or self._busy:
            self._retry_busy()
            for job in self._startable(engine.slots):
                self._running.add(job.key)
                if job.key not in self._started:
                    self._started.add(job.key)
                    self._report("started", job)
                engine.submit(Task.of(job, self._store, folder), uses=job.uses)
            pause = max(0.0, min(self._busy.values()) - time.monotonic()) if self._busy else None
            if self._running:
                for outcome in engine.wait(pause):
                    self._handle(outcome)
            elif pause:
                time.sleep(pause)

    def _startable(self, slots: int) -> Iterator[Job]:
        """Ready jobs, in order, for which there is a worker and whose resource is free."""
        put_back = []
        while self._ready and len(self._running) < slots:
            rank = heappop(self._ready)
            job = self._todo[rank]
            if job.uses is not None and any(self._jobs[key].uses == job.uses for key in self._running):
                put_back.append(rank)
            else:
                yield job
        for rank in put_back:
            heappush(self._ready, rank)

    def _retry_busy(self) -> None:
        for key, at in list(self._busy.items()):
            if at <= time.monotonic():
                del self._busy[key]
                heappush(self._ready, self._rank[key])

    def _handle(self, outcome: Outcome) -> None:
        job = self._jobs[outcome.key]
        self._running.remove(job.key)
        if outcome.kind in ("finished", "found"):
            self._end(job, outcome.kind, seconds=outcome.seconds)
            for key in self._dependents[job.key]:
                missing = self._missing.get(key)
                if missing is None:  # skipped, because another input failed
                    continue
                missing.remove(job.key)
                if not missing:
                    heappush(self._ready, self._rank[key])
        elif outcome.kind == "busy":
            self._busy[job.key] = time.monotonic() + BUSY_SECONDS
            if job.key not in self._waited:
                self._waited.add(job.key)
                self._report("waiting", job, message="another process runs it")
        elif outcome.kind == "died" and self._attempts[job.key] <= self._retries:
            self._attempts[job.key] += 1
            self._report("retried", job, message=outcome.message)
            heappush(self._ready, self._rank[job.key])
        else:
            times = self._attempts[job.key]
            message = f"{outcome.message}, {times} times" if times > 1 and outcome.kind == "died" else outcome.message
            self._fail(job, message)

    def _fail(self, job: Job, message: str) -> None:
        self.failures.append(JobFailure(job, message, self._store.part(job)))
        self._end(job, "failed", message=message)
        keys = list(self._dependents[job.key])
        while keys:
            if self._missing.pop(key := keys.pop(), None) is not None:
                self.skipped.append(self._jobs[key])
                self._end(self._jobs[key], "skipped", message=f"{job.function} {job.key} failed")
                keys += self._dependents[key]

    def _end(self, job: Job, kind: str, *, seconds: float | None = None, message: str = "") -> None:
        self._done += 1
        self._report(kind, job, seconds=seconds, message=message)

    def _report(self, kind: str, job: Job, *, seconds: float | None = None, message: str = "") -> None:
        if self._on_event is not None:
            self._on_event(
                JobEvent(
                    kind=kind,  # type: ignore[arg-type]
                    job=job,
                    seconds=seconds,
                    message=message,
                    attempt=self._attempts.get(job.key, 1),
                    done=self._done,
                    total=self._total,
                )
            )


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
