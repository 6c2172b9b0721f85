"""Runs functions in forks of this process, which has imported nearfar, so that a case costs no start-up."""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

PROCESSOR_SECONDS, WALL_SECONDS = 600, 1800
"""Limits of a fork, on a busy machine too: one that waits uses no processor time."""
MEMORY_GIB = 8
"""Address space of a fork; what asks for more gets a MemoryError, not the memory of the machine."""
LIMITED = -signal.SIGALRM
"""The status of a fork that was killed after :data:`WALL_SECONDS`."""


@dataclass(frozen=True)
class Done:
    """How a fork ended: exit status, or minus the number of the signal; and all that it printed."""

    status: int
    output: str

    @property
    def last_line(self) -> str:
        """The last line of the output that has letters, without the box that rich draws around errors."""
        lines = (line.strip(" │|╭─╮╰╯") for line in reversed(self.output.splitlines()))
        return next((line for line in lines if any(map(str.isalpha, line))), "")[:400]


def in_fork(function: Callable[[], object], cwd: Path, environment: Mapping[str, str] | None = None) -> Done:
    """Call a function in a fork, in the folder ``cwd``; ``environment`` are the settings of the shim."""
    output = os.memfd_create("output")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    child = os.fork()
    if child == 0:
        _run(function, cwd, environment or {}, output)
    _, status = os.waitpid(child, 0)
    with open(output, "rb") as printed:
        printed.seek(0)
        return Done(os.waitstatus_to_exitcode(status), printed.read().decode(errors="replace"))


def _run(function: Callable[[], object], cwd: Path, environment: Mapping[str, str], output: int) -> None:
    import resource

    status = 98
    try:
        os.chdir(cwd)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(WALL_SECONDS)
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_GIB << 30, MEMORY_GIB << 30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = os.fdopen(os.dup(1), "w", buffering=1, errors="backslashreplace")
        sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
        os.environ.update({"HF_HUB_OFFLINE": "1", "COLUMNS": "400", "NEARFAR_PRECISION": "fp32", **environment})
        function()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def nearfar(words: str) -> None:
    """Run a command, or with ``exec`` before it a program; called in a fork."""
    if words.startswith("exec "):
        exec(words.removeprefix("exec "), {})
        return
    from nearfar.cli import main

    raise SystemExit(main(words.split()))
