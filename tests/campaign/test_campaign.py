"""A few cases of the campaign, and what it says of commands that end otherwise than they should."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.campaign import shim
from tests.campaign.forks import Done, in_fork
from tests.campaign.verdict import wrong_ending
from tests.child_programs import ROOT, environment

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and memfd_create")


@pytest.mark.nightly
@pytest.mark.skipif(shim.library() is None, reason="needs a C compiler")
@pytest.mark.parametrize("case", ["itself", "kills: train scl", "kills: encode", "faults: train scl", "inputs: report"])
def test_some_cases(case: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.campaign", "--case", case, "--minutes", "0.5", "--output", tmp_path]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" cases, 0 failed\n") == 2


def test_how_a_fork_ended(tmp_path: Path) -> None:
    assert in_fork(lambda: print(os.getcwd()), tmp_path) == Done(0, f"{tmp_path.resolve()}\n")
    assert in_fork(partial(sys.exit, 3), tmp_path).status == 3
    assert in_fork(lambda: os.kill(os.getpid(), 9), tmp_path).status == -9
    assert "ZeroDivisionError" in in_fork(lambda: 1 // 0, tmp_path).output


@pytest.mark.parametrize(
    ("status", "output", "problem"),
    [
        (2, "nearfar: a.tsv: is empty.\n", ""),
        (1, "nearfar: a.tsv: is empty.\n", "status 1"),
        (-14, "", "waited until it was killed"),
        (2, "Traceback (most recent call last):\nValueError: no", "raised: ValueError: no"),
        (2, "", "without an error message"),
        (2, "nearfar: it is empty.", "does not name a.tsv"),
        (2, "nearfar: a.tsv: ValueError: no.", "contains 'ValueError'"),
        (2, "nearfar: a.tsv: " + "x" * 9999, "characters"),
        (2, "nearfar: a.tsv: no. Tried:\none\ntwo\nthree\nfour", ""),
    ],
)
def test_verdicts(status: int, output: str, problem: str) -> None:
    wrong = wrong_ending(Done(status, output), ["a.tsv"])
    assert problem in wrong
    assert bool(wrong) == bool(problem)
