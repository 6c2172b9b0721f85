"""The engine of worker processes on this machine, each of which performs many jobs; and what such a process does.

A worker gets tasks and returns outcomes through a pipe. It ends when the pipe is closed, and when the process that
started it dies.
"""

import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from nearfar.jobs.job import Outcome, Task, perform
from nearfar.runtime import threads as thread_settings

GRACE_SECONDS = 30.0
"""How long a job may save its work after SIGINT, before SIGKILL. A second Ctrl-C ends the wait."""
CHECK_SECONDS = 1.0
"""How often is checked whether a worker has ended while its pipe is held open by a process that its job started."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
_HAS_GROUPS = hasattr(os, "killpg")


class _Worker(NamedTuple):
    """A worker process, and this end of its pipe."""

    process: BaseProcess
    pipe: Connection

    @staticmethod
    def start(variables: Mapping[str, str]) -> "_Worker":
        """Start a worker, which finds modules where this process does."""
        context = multiprocessing.get_context("spawn")
        pipe, other_end = context.Pipe()
        process = context.Process(target=work, args=(other_end, variables))
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")  # else a script without a main guard would run in the worker
        try:
            process.start()
        finally:
            sys.modules["__main__"] = main
        other_end.close()
        return _Worker(process, pipe)

    def kill(self) -> None:
        """Kill the process, and what its job has started."""
        with suppress(ProcessLookupError, PermissionError):
            if _HAS_GROUPS and self.process.pid:
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()

    def end(self, seconds: float) -> int:
        """Close the pipe, which ends an idle worker, and kill what runs after that; returns the exit status."""
        self.pipe.close()
        self.process.join(seconds)
        self.kill()
        self.process.join()
        return self.process.exitcode or 0


class ProcessEngine:
    """Performs tasks in up to ``workers`` processes, each with ``threads`` threads.

    A worker is started when a task needs one, and stays for the following tasks, so that it imports torch once, and
    what a function keeps in its module is there for the next job. A worker that dies is replaced. Workers end when
    this process ends, for whatever reason.
    """

    shares_resources = False

    def __init__(self, *, workers: int, threads: int) -> None:
        self.slots = workers
        counts = dict.fromkeys(_THREAD_VARIABLES, str(threads))
        self._variables = {**thread_settings.settings(os.environ), **counts}
        self._idle: list[_Worker] = []
        self._running: dict[Connection, tuple[_Worker, Task]] = {}

    def submit(self, task: Task) -> None:
        """Send the task to an idle worker, or to a new one."""
        while self._idle and not self._idle[-1].process.is_alive():
            self._idle.pop().end(0)
        worker = self._idle.pop() if self._idle else _Worker.start(self._variables)
        self._running[worker.pipe] = worker, task
        with suppress(OSError):  # it has died
            worker.pipe.send(task)

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Wait until a task has ended."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            ended = wait([*self._running], max(0.0, min(CHECK_SECONDS, deadline - time.monotonic())))
            if ended or time.monotonic() >= deadline:
                return [self._outcome(*self._running.pop(pipe)) for pipe in self._running.copy() if pipe in ended]
            for worker, _ in self._running.values():
                if not worker.process.is_alive():
                    worker.kill()  # what its job has started, and holds its pipe open

    def _outcome(self, worker: _Worker, task: Task) -> Outcome:
        try:
            outcome: Outcome = worker.pipe.recv()
        except (EOFError, OSError):
            return Outcome(task.key, "died", message=f"its worker {describe_exit(worker.end(0))}")
        self._idle.append(worker)
        return outcome

    def close(self) -> None:
        """Stop the workers: SIGINT to those with a task, and SIGKILL after a grace period."""
        seconds = CHECK_SECONDS
        try:
            for worker, _ in self._running.values():
                if _HAS_GROUPS and worker.process.pid and worker.process.is_alive():
                    os.kill(worker.process.pid, signal.SIGINT)
                else:
                    worker.process.terminate()  # Windows has no SIGINT for one process
            deadline = time.monotonic() + GRACE_SECONDS
            while self._running and time.monotonic() < deadline:
                self.wait(deadline - time.monotonic())
        except BaseException:  # a second Ctrl-C
            seconds = 0
            raise
        finally:
            workers = [*self._idle, *(worker for worker, _ in self._running.values())]
            for worker in workers:
                worker.pipe.close()
            for worker in workers:
                worker.end(seconds)


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


def work(pipe: Connection, variables: Mapping[str, str]) -> None:
    """Perform tasks until the pipe is closed: the main function of a worker.

    SIGTERM is treated as SIGINT, which the function of a job can handle: save its work and raise KeyboardInterrupt.
    """
    if _HAS_GROUPS:
        os.setpgid(0, 0)  # Ctrl-C reaches only the process that started this one, which stops the workers
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(variables)  # before torch is imported
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        while True:
            pipe.send(perform(pipe.recv(), capture=captured))
    except (EOFError, ConnectionError):
        return
    except KeyboardInterrupt:
        sys.exit(130)


def _end_with_parent() -> None:
    """End this process, and what its job has started, when the process that started it has died."""
    if parent := multiprocessing.parent_process():
        parent.join()
    if _HAS_GROUPS:
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


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
