"""How OpenMP threads wait, and their number: environment variables that the runtime reads once, when torch loads it.

By default, a thread that waits for the other threads of its process spins for milliseconds. This is fast if the process
has the cores to itself. If two runs share the cores, spinning threads take time from the threads they wait for, and
both runs become several times slower. :func:`set_up` shortens the spinning; the command line calls it before torch is
imported. A program that imports nearfar must call it itself, before it imports torch::

    from nearfar.runtime import threads

    threads.set_up()
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SPIN_COUNT = "1000"
"""Spins of a waiting thread before it sleeps: a few microseconds, about as long as it takes to wake a thread up."""
WAIT_VARIABLES = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": SPIN_COUNT, "KMP_BLOCKTIME": "1"}
"""The standard's variable; libgomp's (torch for Linux); and libomp's (macOS) and libiomp's (Windows), in milliseconds.
"""
WORKER = "NEARFAR_WORKER"
"""In a worker process, the variable with its number among the workers of a pool, from 0 on."""
THREAD_COUNT_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
CGROUP = Path("/sys/fs/cgroup")


def set_up() -> None:
    """Set the variables that the user has not set in this process's environment.

    If torch is already imported, nothing is set, because the runtime has read its variables.
    """
    if "torch" not in sys.modules:
        os.environ.update(settings(os.environ))


@contextmanager
def child_environment() -> Iterator[None]:
    """Set the variables inside the block, so that processes started there inherit them."""
    chosen = settings(os.environ)
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name in chosen:
            os.environ.pop(name, None)


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables to add to ``environment``.

    If ``environment`` has one of :data:`WAIT_VARIABLES`, none of them is added. The number of threads is set only if
    the container's CPU quota is smaller than the number of cores and the user has not set it; otherwise torch chooses.
    """
    chosen = {} if any(name in environment for name in WAIT_VARIABLES) else dict(WAIT_VARIABLES)
    quota = cpu_quota()
    limited = quota is not None and quota < available_cores()
    if limited and not any(name in environment for name in THREAD_COUNT_VARIABLES):
        chosen["OMP_NUM_THREADS"] = str(quota)
    return chosen


def available_cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota() -> int | None:
    """The container's CPU quota in cores, rounded up; None if there is no limit or it is unknown."""
    try:
        quota, period = (CGROUP / "cpu.max").read_text(encoding="ascii").split()
        return -(-int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):  # no version 2 of cgroups, or "max"
        return None
