"""The main function of a worker process: tasks come as lines on its stdin, outcomes go as lines to its stdout.

The worker ends when its stdin ends, so also when the process that started it dies.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue

from nearfar.jobs.cores import pin
from nearfar.jobs.engine import Task
from nearfar.jobs.perform import perform

ABANDONED = 3
"""The exit status of a worker that was in a job when the process that started it died."""


def main(cores: int) -> None:
    """Perform tasks until stdin ends; ``cores``: to how many cores to pin this process, 0 for none.

    SIGTERM is treated as SIGINT, which the function of a job can handle: save its work and raise KeyboardInterrupt.
    """
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tasks_in, outcomes_out = os.dup(0), os.dup(1)  # processes that a job starts do not inherit them
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    if cores:
        pin(cores)
    tasks: SimpleQueue[Task | None] = SimpleQueue()
    busy = threading.Event()

    def read_tasks() -> None:
        for line in _lines(tasks_in):
            tasks.put(Task.from_json(line))
        tasks.put(None)
        if busy.is_set():
            _abandon()

    threading.Thread(target=read_tasks, daemon=True).start()
    try:
        while (task := tasks.get()) is not None:
            busy.set()
            outcome = perform(task, capture=captured)
            busy.clear()
            _write(outcomes_out, json.dumps(outcome._asdict()) + "\n")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # nobody reads the outcomes any more
        sys.exit(ABANDONED)


def _abandon() -> None:
    """End this process now, and the processes that its job has started."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(ABANDONED)


def _lines(descriptor: int) -> Iterator[str]:
    """The lines of a pipe until it ends, unbuffered: a thread that waits in a buffered file prevents a clean exit."""
    kept = b""
    while True:
        try:
            read = os.read(descriptor, 1 << 16)
        except OSError:
            return
        if not read:
            return
        *lines, kept = (kept + read).split(b"\n")
        for line in lines:
            yield line.decode()


def _write(descriptor: int, text: str) -> None:
    content = text.encode()
    while content:
        content = content[os.write(descriptor, content) :]


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
