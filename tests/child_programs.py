"""Python programs that a test runs in a process of their own, such as those that start a Ray; and what then runs."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nearfar

ROOT = Path(__file__).parents[1]
REPORT = "REPORT "
"""What the line begins with in which a program prints its report, as JSON."""


def environment() -> dict[str, str]:
    """The environment of a process that imports nearfar and the tests from here."""
    places = [str(Path(nearfar.__file__).parents[1]), str(ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}


def output_of(program: str, *arguments: str, folder: Path) -> str:
    """What a program prints that runs in a folder; it must end with status 0."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def report_of(program: str, *arguments: str, folder: Path) -> Any:
    """The report that a program prints."""
    (line,) = [line for line in output_of(program, *arguments, folder=folder).splitlines() if line.startswith(REPORT)]
    return json.loads(line.removeprefix(REPORT))


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition is true; fails if it never is."""
    for _ in range(100_000):
        if condition():
            return
        time.sleep(0.002)
    pytest.fail("the condition never became true")


def running() -> dict[int, int]:
    """Each process that has not ended -> the process that started it."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state not in "ZX":
            parents[int(stat.parent.name)] = int(parent)
    return parents


def children(pid: int) -> list[int]:
    """The processes that a process has started and that still run."""
    return [child for child, parent in running().items() if parent == pid]
