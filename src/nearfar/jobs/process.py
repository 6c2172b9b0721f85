"""The engine of worker processes on this machine, each of which performs many jobs; and what such a process does.

Tasks come to a worker as lines on its stdin, outcomes go as lines to its stdout. It ends when its stdin ends, so also
when the process that started it dies.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue

from nearfar.jobs.job import Outcome, Task, perform
from nearfar.runtime import threads as thread_settings

START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from nearfar.jobs.process import work; work()"
"""The program of a worker. It finds modules where this process does."""
GRACE_SECONDS = 30.0
"""How long a job may save its work after SIGINT, before SIGKILL. A second Ctrl-C ends the wait."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
_HAS_GROUPS = hasattr(os, "killpg")
ABANDONED = 3
"""The exit status of a worker that was in a job when the process that started it died."""


class _Worker:
    """A worker process."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            encoding="utf-8",
            bufsize=1,
            process_group=0 if _HAS_GROUPS else None,  # Ctrl-C reaches only this process, which stops the workers
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._tasks, self._outcomes = self.process.stdin, self.process.stdout
        self._life = threading.Thread(target=self._outlive, daemon=True)
        self._life.start()

    def _outlive(self) -> None:
        """When the process has ended, kill what its job has started, which may hold the pipe of outcomes open."""
        with suppress(ChildProcessError, ProcessLookupError, PermissionError):
            if _HAS_GROUPS:
                os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)  # not reaped, so its number is its own
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def perform(self, task: Task) -> Outcome:
        """Send a task, and wait for its outcome or until the process has ended."""
        with suppress(OSError):  # it has ended
            self._tasks.write(json.dumps(task) + "\n")
        line = self._outcomes.readline()
        if line.endswith("\n"):
            return Outcome(*json.loads(line))
        status = self.end()
        ended = "was killed; the system may have run out of memory" if status == -9 else f"ended with status {status}"
        return Outcome(task.key, "died", message=f"its worker {ended}")

    def interrupt(self) -> None:
        """Ask the worker to stop its job and to end."""
        if self._life.is_alive():
            os.kill(self.process.pid, signal.SIGINT if _HAS_GROUPS else signal.SIGTERM)  # Windows has only the latter

    def end(self) -> int:
        """Close its stdin, which ends a worker, with its job if it has one; returns the exit status."""
        with suppress(OSError):
            self._tasks.close()
        self._life.join(1.0)
        if self._life.is_alive():
            self.process.kill()
            self._life.join()
        self._outcomes.close()
        return int(self.process.returncode)


class ProcessEngine:
    """Performs tasks in up to ``workers`` processes, each with ``threads`` threads.

    A worker is started when a task needs one, and stays for the following tasks, so that it imports torch once, and
    what a function keeps in its module is there for the next job. A worker that dies is replaced. Workers end when
    this process ends, for whatever reason.
    """

    def __init__(self, *, workers: int, threads: int) -> None:
        self.slots = workers
        variables = dict.fromkeys(_THREAD_VARIABLES, str(threads))
        self._environment = {**os.environ, **thread_settings.settings(os.environ), **variables}
        self._workers: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._threads = ThreadPoolExecutor(workers)
        """Each thread waits for the outcome of a worker."""
        self._tasks: list[Future[Outcome]] = []

    def submit(self, task: Task, *, uses: str | None) -> Future[Outcome]:  # noqa: ARG002
        """Give the task to an idle worker, or to a new one."""
        if not self._idle:
            own = {thread_settings.WORKER: str(len(self._workers))}
            self._idle.append(_Worker(self._environment | own))
            self._workers.append(self._idle[-1])
        self._tasks.append(self._threads.submit(self._perform, self._idle.pop(), task))
        return self._tasks[-1]

    def _perform(self, worker: _Worker, task: Task) -> Outcome:
        outcome = worker.perform(task)
        if outcome.kind != "died":
            self._idle.append(worker)
        return outcome

    def close(self) -> None:
        """Stop the workers: SIGINT, which a job may handle for a grace period; then all end."""
        try:
            for worker in self._workers:
                worker.interrupt()
            wait(self._tasks, GRACE_SECONDS)
        finally:  # also after a second Ctrl-C
            for worker in self._workers:
                worker.end()
            self._threads.shutdown()


def work() -> None:
    """Perform tasks until stdin ends: the main function of a worker.

    SIGTERM is treated as SIGINT, which the function of a job can handle: save its work and raise KeyboardInterrupt.
    """
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tasks_in, outcomes_out = os.dup(0), os.dup(1)  # processes that a job starts do not inherit them
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    tasks: SimpleQueue[bytes] = SimpleQueue()
    busy = threading.Event()

    def read_tasks() -> None:
        with open(tasks_in, "rb", buffering=0) as lines:  # a thread in a buffered file prevents a clean exit
            for line in lines:
                tasks.put(line)
        tasks.put(b"")
        if busy.is_set():  # end now, with the processes that the job has started
            if _HAS_GROUPS:
                os.killpg(os.getpid(), signal.SIGKILL)
            os._exit(ABANDONED)

    threading.Thread(target=read_tasks, daemon=True).start()
    try:
        with open(outcomes_out, "w", encoding="utf-8") as outcomes:
            while line := tasks.get():
                busy.set()
                outcome = perform(Task(*json.loads(line)), capture=captured)
                busy.clear()
                outcomes.write(json.dumps(outcome) + "\n")
                outcomes.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # nobody reads the outcomes any more
        sys.exit(ABANDONED)


@contextmanager
def captured(log: Path) -> Iterator[None]:
    """Send everything that this process and its children print inside the block to a file."""
    _flush()
    kept = os.dup(1), os.dup(2)
    with open(log, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        _flush()
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
