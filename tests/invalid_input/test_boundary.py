"""Unexpected exceptions become one sentence and a log file; a full disk and too little memory are user errors."""

import errno
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import nearfar
from nearfar.cli import main, use
from nearfar.cli.errors import torch_file_error
from nearfar.types import NearfarError
from tests.invalid_input.cli_runner import BUG_MESSAGE, CliResult, run_cli

COMMAND = "encode m --input t.txt --output x.npy".split()
Raise = Callable[[BaseException], None]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which is also the folder of fault logs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("NEARFAR_DEBUG", raising=False)
    return tmp_path


@pytest.fixture
def raise_in_command(monkeypatch: pytest.MonkeyPatch) -> Raise:
    """Make the command raise an exception."""

    def raise_error(error: BaseException) -> None:
        def verb(arguments: list[str], screen: object) -> int:
            raise error

        monkeypatch.setattr(use, "encode", verb)

    return raise_error


def deep(level: int) -> int:
    return deep(level + 1) + 1


def recursion() -> RecursionError:
    try:
        deep(0)
    except RecursionError as error:
        return error
    raise AssertionError


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
        (ValueError("one\ntwo\n  three"), "ValueError (one two three)"),
        (KeyError("name"), "KeyError ('name')"),
        (AssertionError(), "AssertionError: this"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "some/file.tsv"), "some/file.tsv: IsADirectoryError"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", b"a.tsv"), "a.tsv: FileNotFoundError"),
        (OSError(errno.EXDEV, "Invalid cross-device link", "a.tsv", None, "b.tsv"), "a.tsv: b.tsv: OSError"),
        (OSError("nameless"), "OSError (nameless)"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "UnicodeDecodeError"),
        (RecursionError("maximum recursion depth exceeded"), "RecursionError"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "BrokenPipeError"),  # an error of a worker, not of the output
        (RuntimeError("[bold]not[/wrong] markup"), "[bold]not[/wrong] markup"),
        (RuntimeError("long " * 1000), "long long long"),
        (RuntimeError("\udcff"), "RuntimeError"),
        (StopIteration(), "StopIteration: this"),
        (ExceptionGroup("several", [ValueError("a")]), "ExceptionGroup"),
    ],
)
def test_a_bug_is_one_sentence_and_a_log(raise_in_command: Raise, folder: Path, error: Exception, message: str) -> None:
    raise_in_command(error)
    result = run_cli(COMMAND)
    log = log_path(result)
    assert "nearfar: nearfar encode m --input t.txt --output x.npy: " in result.err
    assert message in result.err
    assert "Traceback" not in result.err
    assert len(result.err) < 1000
    assert log.parent == folder
    text = log.read_text(encoding="utf-8")
    assert text.startswith("command: nearfar encode m --input t.txt --output x.npy\n")
    assert f"torch: {torch.__version__}" in text
    assert f"python: {sys.version.split()[0]}" in text
    assert "Traceback (most recent call last)" in text
    assert "in verb" in text


def test_infinite_recursion_is_a_bug(raise_in_command: Raise) -> None:
    raise_in_command(recursion())
    assert "in deep" in log_path(run_cli(COMMAND)).read_text()


def test_each_bug_has_its_own_log(raise_in_command: Raise, folder: Path) -> None:
    raise_in_command(RuntimeError("again"))
    assert len({log_path(run_cli(COMMAND)) for _ in range(3)}) == len(list(folder.glob("nearfar-bug-*.log"))) == 3


def test_every_process_of_a_group_fails(raise_in_command: Raise, monkeypatch: pytest.MonkeyPatch) -> None:
    raise_in_command(RuntimeError("of the second"))
    monkeypatch.setenv("RANK", "1")
    log_path(run_cli(COMMAND))


def test_a_log_that_cannot_be_written_is_shown(
    raise_in_command: Raise, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "nowhere"))
    raise_in_command(RuntimeError("and a full disk"))
    result = run_cli(COMMAND)
    assert result.status == 70
    assert BUG_MESSAGE in result.err
    assert "no file could be written" in result.err
    assert "Traceback (most recent call last)" in result.err


def test_debugging_shows_the_traceback(raise_in_command: Raise, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARFAR_DEBUG", "1")
    raise_in_command(RuntimeError("look at me"))
    with pytest.raises(RuntimeError, match="look at me"):
        main(COMMAND)
    assert not list(folder.iterdir())
    raise_in_command(NearfarError("a mistake of the user's"))
    assert main(COMMAND) == 2


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("unable to mmap 82928 bytes from file <x.safetensors>: Cannot allocate memory (12)"),
    ],
)
def test_too_little_memory_is_not_a_bug(raise_in_command: Raise, folder: Path, error: Exception) -> None:
    raise_in_command(error)
    result = run_cli(COMMAND)
    assert result.status == 2
    assert "out of memory; choose a smaller --max-length, or fewer --processes." in result.err
    assert BUG_MESSAGE not in result.err
    assert not list(folder.iterdir())


def test_the_errors_of_torch_name_the_file_and_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "none <here>: (5)"
    with pytest.raises(RuntimeError) as caught:
        torch.UntypedStorage.from_file(str(file), shared=False, nbytes=8)
    found = torch_file_error(caught.value)
    assert found is not None
    assert (found.errno, found.strerror, found.filename) == (errno.ENOENT, os.strerror(errno.ENOENT), str(file))
    assert torch_file_error(RuntimeError("a number (5)")) is None
    assert torch_file_error(ValueError(str(caught.value))) is None


@pytest.mark.parametrize("verb", ["train", "finetune"])
def test_too_little_memory_for_training_names_its_flags(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("nearfar.cli.train.parse", parse)
    result = run_cli([verb, "scl", "--output", "x"])
    assert result.status == 2
    assert "--batch-size" in result.err
    assert "--micro-batch" in result.err


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_not_a_bug(raise_in_command: Raise, folder: Path, number: int) -> None:
    raise_in_command(OSError(number, os.strerror(number), "x.npy"))
    result = run_cli(COMMAND)
    assert result.status == 2
    assert "x.npy: no space is left on the disk; free some, or write to another place." in result.err
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EIO, "Input/output error", "x.npy"), "x.npy: cannot be used (Input/output error); check the"),
        (
            PermissionError(errno.EACCES, "Permission denied", "x.npy"),
            "x.npy: cannot be used (Permission denied); check",
        ),
        (
            OSError(errno.EROFS, "Read-only file system"),
            "a file: cannot be used (Read-only file system); check the disk",
        ),
        (
            RuntimeError("unable to mmap 82928 bytes from file <x.safetensors>: Permission denied (13)"),
            "x.safetensors: cannot be used (Permission denied); check the disk",
        ),
        (OSError(errno.EMFILE, "Too many open files"), "too many open files; raise the limit, as by ulimit -n 4096"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_failures_of_the_file_system_are_not_bugs(
    raise_in_command: Raise, folder: Path, error: OSError, message: str
) -> None:
    raise_in_command(error)
    result = run_cli(COMMAND)
    assert result.status == 2
    assert message in result.err
    assert not list(folder.iterdir())


def test_ctrl_c_and_user_errors_are_not_bugs(raise_in_command: Raise, folder: Path) -> None:
    raise_in_command(KeyboardInterrupt())
    assert run_cli(COMMAND).status == 130
    raise_in_command(SystemExit(3))
    assert run_cli(COMMAND).status == 3
    raise_in_command(NearfarError("m: is no model"))
    assert run_cli(COMMAND) == CliResult(2, "", "nearfar: m: is no model\n")
    assert not list(folder.iterdir())


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="Windows reports it differently")
@pytest.mark.parametrize("words", [["--help"], ["train", "scl", "--help"], ["train"]])
def test_a_closed_output_is_not_a_bug(folder: Path, words: list[str]) -> None:
    """As in ``nearfar --help | head -0``."""
    reading, writing = os.pipe()
    os.close(reading)
    completed = command(words, stdout=writing)
    os.close(writing)
    assert completed.stderr == b""
    assert completed.returncode == 141
    assert not list(folder.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_to_a_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch, unbuffered: str) -> None:
    """Buffered, Python would write again at exit, and fail with status 120."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with open("/dev/full", "wb") as full:
        completed = command(["--help"], stdout=full.fileno())
    assert completed.returncode == 2
    assert completed.stderr.decode() == (
        "nearfar: nearfar --help: no space is left on the disk; free some, or write to another place.\n"
    )


def command(words: list[str], stdout: int) -> "subprocess.CompletedProcess[bytes]":
    """Run the command line in a new process that writes to a file descriptor."""
    source = {**os.environ, "PYTHONPATH": str(Path(nearfar.__file__).parents[1])}
    call = [sys.executable, "-m", "nearfar", *words]
    return subprocess.run(call, stdout=stdout, stderr=subprocess.PIPE, check=False, env=source)
