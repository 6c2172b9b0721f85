"""How threads wait, and how many there are: variables that the OpenMP runtime reads once, when torch loads it.

A thread that waits for the others of its process spins, by default for milliseconds. That is fast alone. Where two runs
share the cores, it takes the time of the very threads that are waited for, and both runs slow down many times.
:func:`set_up` shortens the spinning; the command line calls it before torch is imported. A program that imports nearfar
calls it itself, before it imports torch::

    from nearfar.runtime import threads

    threads.set_up()
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SPIN_COUNT = "1000"
"""Spins of a waiting thread before it sleeps: some microseconds, about as long as it takes to wake it up."""
WAIT_VARIABLES = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": SPIN_COUNT, "KMP_BLOCKTIME": "1"}
"""The variable of the standard, that of libgomp (torch for Linux), and that of libomp (macOS) and libiomp (Windows), in
milliseconds."""
THREAD_COUNT_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
CGROUP = Path("/sys/fs/cgroup")


def set_up() -> dict[str, str]:
    """Set the variables in this process's environment, but for those that the user set; returns what was set.

    Once torch is imported the runtime has read its variables, and nothing is set.
    """
    if "torch" in sys.modules:
        return {}
    chosen = settings(os.environ)
    os.environ.update(chosen)
    return chosen


@contextmanager
def child_environment() -> Iterator[None]:
    """Processes that are started inside have the variables, also where this process has them not."""
    chosen = settings(os.environ)
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name in chosen:
            os.environ.pop(name, None)


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What to set beside what ``environment`` has.

    A variable about waiting that is there leaves all waiting to the user. The number of threads is torch's own choice
    (the cores, or OMP_NUM_THREADS), but where a container's quota of processor time is smaller.
    """
    chosen = {} if any(name in environment for name in WAIT_VARIABLES) else dict(WAIT_VARIABLES)
    quota = cpu_quota()
    if (
        quota is not None
        and quota < available_cores()
        and not any(name in environment for name in THREAD_COUNT_VARIABLES)
    ):
        chosen["OMP_NUM_THREADS"] = str(quota)
    return chosen


def available_cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_quota() -> int | None:
    """The cores' worth of time that the container has, rounded up; None where there is no limit, or no telling."""
    try:
        quota, period = (CGROUP / "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        try:
            old = CGROUP / "cpu"
            quota, period = ((old / f"cpu.cfs_{name}_us").read_text(encoding="ascii") for name in ("quota", "period"))
        except (OSError, ValueError):
            return None
    try:
        cores_worth = -(-int(quota) // int(period))
    except (ValueError, ZeroDivisionError):  # "max"
        return None
    return cores_worth if cores_worth > 0 else None  # the old kind has -1 for no limit
