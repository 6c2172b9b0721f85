"""Unexpected exceptions become one sentence and a log file; a full disk and too little memory are user errors."""

import errno
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from nearfar.cli import use
from nearfar.types import NearfarError
from tests.child_programs import environment
from tests.invalid_input.cli_runner import BUG_MESSAGE, CliResult, run_cli

COMMAND = "encode m --input t.txt --output x.npy".split()
Raise = Callable[[BaseException], CliResult]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which is also the folder of fault logs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("NEARFAR_DEBUG", raising=False)
    return tmp_path


@pytest.fixture
def run_raising(monkeypatch: pytest.MonkeyPatch) -> Raise:
    """Run the command, which raises an exception."""

    def run(error: BaseException) -> CliResult:
        def verb(arguments: list[str], screen: object) -> int:
            raise error

        monkeypatch.setattr(use, "encode", verb)
        return run_cli(COMMAND)

    return run


def log_path(result: CliResult) -> Path:
    """The log file that the message names."""
    assert result.status == 70
    found = re.search(rf"{BUG_MESSAGE}: please report it with the file (\S+\.log)$", result.err.strip())
    assert found, result.err
    assert result.err.count("\n") == 1
    return Path(found[1])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("no such tensor"), "RuntimeError (no such tensor)"),
        (AssertionError(), "AssertionError: this"),
        (OSError(errno.EXDEV, "Invalid cross-device link", "a.tsv", None, "b.tsv"), "a.tsv: b.tsv: OSError"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "BrokenPipeError"),  # an error of a worker, not of the output
        (RuntimeError("[bold]not[/wrong] markup"), "[bold]not[/wrong] markup"),
        (RuntimeError("\udcff"), "RuntimeError"),
    ],
)
def test_a_bug_is_one_sentence_and_a_log(
    run_raising: Raise, folder: Path, error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run_raising(error)
    log = log_path(result)
    assert f"nearfar: nearfar {' '.join(COMMAND)}: " in result.err
    assert message in result.err
    assert "Traceback" not in result.err
    assert len(result.err) < 1000
    assert log.parent == folder
    text = log.read_text(encoding="utf-8")
    assert text.startswith(f"command: nearfar {' '.join(COMMAND)}\n")
    assert f"torch: {version('torch')}" in text  # without the build where the distribution does not name it
    assert f"python: {sys.version.split()[0]}" in text
    assert "Traceback (most recent call last)" in text
    assert "in verb" in text
    monkeypatch.setenv("RANK", "1")  # every process of a group has its own
    assert log_path(run_raising(error)) != log


def test_debugging_shows_the_traceback(run_raising: Raise, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARFAR_DEBUG", "1")
    with pytest.raises(RuntimeError, match="look at me"):
        run_raising(RuntimeError("look at me"))
    assert not list(folder.iterdir())
    assert run_raising(NearfarError("a mistake of the user's")).status == 2


MEMORY = "out of memory; choose a smaller --micro-batch, which leaves the gradient of a training unchanged, a smaller"
NO_SPACE = "x.npy: no space is left on the disk; free some, or write to another place."


def of_torch(what: str) -> RuntimeError:
    return RuntimeError(f"unable to mmap 82928 bytes from file <x.safetensors>: {what}")


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (MemoryError(), 2, MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"), 2, MEMORY),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you"), 2, MEMORY),
        (of_torch("Cannot allocate memory (12)"), 2, MEMORY),
        (OSError(errno.ENOSPC, "No space", "x.npy"), 2, NO_SPACE),
        (OSError(errno.EIO, "Input/output error", "x.npy"), 2, "x.npy: cannot be used (Input/output error); check the"),
        (OSError(errno.EROFS, "Read-only file system"), 2, "a file: cannot be used (Read-only file system); check the"),
        (of_torch("Permission denied (13)"), 2, "x.safetensors: cannot be used (Permission denied); check the disk"),
        (OSError(errno.EMFILE, "Too many open files"), 2, "too many open files; raise the limit, as by ulimit -n 4096"),
        (NearfarError("m: is no model"), 2, "nearfar: m: is no model\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_bug(run_raising: Raise, folder: Path, error: BaseException, status: int, message: str) -> None:
    result = run_raising(error)
    assert result.status == status
    assert message in result.err
    assert BUG_MESSAGE not in result.err
    assert not list(folder.iterdir())


def command(words: list[str], stdout: int) -> "subprocess.CompletedProcess[bytes]":
    """Run the command line in a new process that writes to a file descriptor."""
    call = [sys.executable, "-m", "nearfar", *words]
    return subprocess.run(call, stdout=stdout, stderr=subprocess.PIPE, check=False, env=environment())


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="Windows reports it differently")
def test_a_closed_output_is_not_a_bug(folder: Path) -> None:
    """As in ``nearfar --help | head -0``."""
    reading, writing = os.pipe()
    os.close(reading)
    completed = command(["--help"], stdout=writing)
    os.close(writing)
    assert (completed.stderr, completed.returncode) == (b"", 141)
    assert not list(folder.iterdir())


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_to_a_full_disk_is_reported() -> None:
    """Python would write again at exit, and fail with status 120."""
    with open("/dev/full", "wb") as full:
        completed = command(["--help"], stdout=full.fileno())
    assert completed.returncode == 2
    assert completed.stderr.decode() == (
        "nearfar: nearfar --help: no space is left on the disk; free some, or write to another place.\n"
    )
