"""Runs one command in this process and checks its exit status and output."""

import faulthandler
import io
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from nearfar.cli import main

HANG_TIMEOUT = 300
"""Seconds until a command counts as hanging, on any machine; the process then dumps all stacks and exits."""
BUG_MESSAGE = "this is a bug in nearfar"


class CliResult(NamedTuple):
    """Exit status and output of a command."""

    status: int
    out: str
    err: str


def run_cli(argv: list[str]) -> CliResult:
    """Run a command and return its exit status and output; an uncaught exception fails the test."""
    out, err = io.StringIO(), io.StringIO()
    faulthandler.dump_traceback_later(HANG_TIMEOUT, exit=True)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            try:
                status = main(argv)
            except SystemExit as left:  # the flag parser
                status = left.code if isinstance(left.code, int) else 1
    finally:
        faulthandler.cancel_dump_traceback_later()
    return CliResult(status, out.getvalue(), err.getvalue())


def assert_refused(argv: list[str], *mentions: str) -> str:
    """Check that the command exits with 2 and one message with each of ``mentions``; returns its output."""
    result = run_cli(argv)
    output = result.out + result.err
    assert result.status == 2, f"exit status {result.status}, not 2\n{output}"
    assert "Traceback" not in output, output
    assert BUG_MESSAGE not in output, output
    flat = " ".join(output.split())
    for words in mentions:
        assert words in flat, f"{words!r} is not in:\n{output}"
    return output


def drop_repeated_flags(argv: list[str]) -> list[str]:
    """``argv`` with each flag once: a later one replaces an earlier one; the command line refuses repeated flags."""
    groups: list[list[str]] = [[]]
    for word in argv:
        if word.startswith("--"):
            groups = [group for group in groups if group[:1] != [word]] + [[word]]
        else:
            groups[-1].append(word)
    return [word for group in groups for word in group]


def copy_workspace(base: Path, folder: Path) -> Path:
    """A copy of the prepared files that a test may change."""
    return Path(shutil.copytree(base, folder, dirs_exist_ok=True, symlinks=True))
