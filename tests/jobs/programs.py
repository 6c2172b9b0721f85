"""Programs that run jobs in a process of their own, which tests kill."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.child_programs import environment

PROGRAM = """
import json, sys
from nearfar.jobs import Job, JobStore, run_jobs
from tests.jobs.functions import HERE, diamonds
settings = json.loads(sys.argv[1])
if settings["jobs"] == "diamonds":
    local = {"ran": settings["ran"], "pids": settings["pids"]}
    jobs = []
    for last in diamonds(3, pause=settings["pause"], steps=3):
        made = {}
        def build(job):
            return Job(job.function, job.settings, {n: build(j) for n, j in job.inputs.items()}, local=local)
        jobs.append(build(last))
else:
    jobs = [Job(f"{HERE}:sleeps", local={"pid": settings["pids"], "mended": settings["mended"]})]
run_jobs(jobs, JobStore(settings["cells"]), engine=settings["engine"], workers=2)
"""
"""Runs three graphs of four jobs, or one job that sleeps."""
POLLS = 100_000
"""So often a condition is tried before a test gives up."""


def start(
    folder: Path, *, jobs: str = "diamonds", engine: str = "process", pause: float = 0.0, ignore_sigint: bool = False
) -> subprocess.Popen[bytes]:
    """Start the program with its files in ``folder``: ``cells``, ``ran`` (names of jobs), ``pids`` (of workers).

    With ``ignore_sigint`` it inherits that SIGINT is ignored, as in the background of a shell script.
    """
    files = {name: str(folder / name) for name in ("cells", "ran", "pids", "mended")}
    settings = {**files, "jobs": jobs, "engine": engine, "pause": pause}
    command = [sys.executable, "-c", PROGRAM, json.dumps(settings)]
    if ignore_sigint:
        command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    return subprocess.Popen(command, env=environment(), cwd=folder)


def finish(program: subprocess.Popen[bytes]) -> None:
    """Wait for a program that must succeed."""
    assert program.wait() == 0


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition is true; fails if it never is."""
    for _ in range(POLLS):
        if condition():
            return
        time.sleep(0.002)
    pytest.fail("the condition never became true")


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended, but is not yet reaped, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def children(pid: int) -> list[int]:
    """The processes that a process has started and that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] not in ("Z", "X"):
            found.append(int(stat.parent.name))
    return found
