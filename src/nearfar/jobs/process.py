"""The engine of worker processes on this machine, each of which performs many jobs; and what such a process does.

Tasks come to a worker as lines on its stdin, outcomes go as lines to its stdout. It ends when its stdin ends, so also
when the process that started it dies.
"""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue

from nearfar.jobs.job import Outcome, Task, perform
from nearfar.runtime import threads as thread_settings

START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from nearfar.jobs.process import work; work()"
"""The program of a worker. It finds modules where this process does."""
GRACE_SECONDS = 30.0
"""How long a job may save its work after SIGINT, before SIGKILL. A second Ctrl-C ends the wait."""
CHECK_SECONDS = 1.0
"""How often is checked whether a worker has ended while its pipe is held open by a process that its job started."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
_HAS_GROUPS = hasattr(os, "killpg")
ABANDONED = 3
"""The exit status of a worker that was in a job when the process that started it died."""


class _Worker:
    """A worker process."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.busy = False
        """Whether it has a task."""
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
        self._stdin, self.outcomes = self.process.stdin, self.process.stdout

    def perform(self, task: Task) -> Outcome:
        """Send a task, and wait for its outcome or until the process has ended."""
        with suppress(OSError):  # it has ended
            self._stdin.write(task.to_json() + "\n")
        line = self.outcomes.readline()
        if line.endswith("\n"):
            self.busy = False
            return Outcome(**json.loads(line))
        status = self.end(0)
        self.busy = False  # not before it has ended, so that no other task is sent to it
        return Outcome(task.key, "died", message=f"its worker {describe_exit(status)}")

    def has_ended(self) -> bool:
        """Whether the process has ended. It is not reaped, so no other process gets its number."""
        if not _HAS_GROUPS or self.process.returncode is not None:
            return self.process.poll() is not None
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # the thread that waits for its outcome has just reaped it
            return True

    def interrupt(self) -> None:
        """Ask the worker to stop its job and to end."""
        if not self.has_ended():
            self.process.send_signal(signal.SIGINT if _HAS_GROUPS else signal.SIGTERM)  # Windows has only the latter

    def kill(self) -> None:
        """Kill the process, and what its job has started."""
        if self.process.returncode is None and _HAS_GROUPS:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        elif self.process.returncode is None:
            self.process.kill()

    def end(self, seconds: float) -> int:
        """Close its stdin, which ends an idle worker, and kill what runs after that; returns the exit status."""
        with suppress(OSError):
            self._stdin.close()
        deadline = time.monotonic() + seconds
        while seconds and not self.has_ended() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.kill()
        return self.process.wait()


class ProcessEngine:
    """Performs tasks in up to ``workers`` processes, each with ``threads`` threads.

    A worker is started when a task needs one, and stays for the following tasks, so that it imports torch once, and
    what a function keeps in its module is there for the next job. A worker that dies is replaced. Workers end when
    this process ends, for whatever reason.
    """

    shares_resources = False

    def __init__(self, *, workers: int, threads: int) -> None:
        self.slots = workers
        variables = dict.fromkeys(_THREAD_VARIABLES, str(threads))
        self._environment = {**os.environ, **thread_settings.settings(os.environ), **variables}
        self._workers: list[_Worker] = []
        self._threads = ThreadPoolExecutor(workers)
        """Each thread waits for a task of a worker."""
        self._running: set[Future[Outcome]] = set()

    def submit(self, task: Task, *, uses: str | None) -> None:  # noqa: ARG002
        """Send the task to an idle worker, or to a new one."""
        for worker in [worker for worker in self._workers if not worker.busy and worker.has_ended()]:
            worker.end(0)
            worker.outcomes.close()
            self._workers.remove(worker)
        worker = next((worker for worker in self._workers if not worker.busy), None) or _Worker(self._environment)
        self._workers += [] if worker in self._workers else [worker]
        worker.busy = True
        self._running.add(self._threads.submit(worker.perform, task))

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Wait until a task has ended."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            seconds = max(0.0, min(CHECK_SECONDS, deadline - time.monotonic()))
            ended, self._running = wait(self._running, seconds, FIRST_COMPLETED)
            if ended or time.monotonic() >= deadline:
                return [task.result() for task in ended]
            for worker in self._workers:
                if worker.has_ended():
                    worker.kill()  # what its job has started, and holds its pipe open

    def close(self) -> None:
        """Stop the workers: SIGINT to those with a task, and SIGKILL after a grace period."""
        seconds = CHECK_SECONDS
        try:
            for worker in self._workers:
                if worker.busy:
                    worker.interrupt()
            deadline = time.monotonic() + GRACE_SECONDS
            while self._running and time.monotonic() < deadline:
                self.wait(deadline - time.monotonic())
        except BaseException:  # a second Ctrl-C
            seconds = 0
            raise
        finally:
            for worker in self._workers:
                worker.end(seconds)
            self._threads.shutdown()
            for worker in self._workers:
                worker.outcomes.close()
            self._workers = []


def describe_exit(status: int) -> str:
    """How a process ended, for messages."""
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = "; the system may have run out of memory" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"


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
        if busy.is_set():
            _abandon()

    threading.Thread(target=read_tasks, daemon=True).start()
    try:
        with open(outcomes_out, "w", encoding="utf-8") as outcomes:
            while line := tasks.get():
                busy.set()
                outcome = perform(Task.from_json(line.decode()), capture=captured)
                busy.clear()
                outcomes.write(json.dumps(outcome._asdict()) + "\n")
                outcomes.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # nobody reads the outcomes any more
        sys.exit(ABANDONED)


def _abandon() -> None:
    """End this process now, and the processes that its job has started."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(ABANDONED)


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
