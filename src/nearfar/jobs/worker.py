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

from nearfar.jobs.perform import Task, perform

ABANDONED = 3
"""The exit status of a worker that was in a job when the process that started it died."""


def main() -> None:
    """Perform tasks until stdin ends.

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
