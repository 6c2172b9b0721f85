"""Python programs that a test runs in a process of their own, such as those that start a Ray."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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
