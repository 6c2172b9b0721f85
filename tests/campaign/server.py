"""Runs commands and functions in forks of one process that has imported nearfar, so that a case costs no start-up.

    with Server() as server:
        done = server.command(["encode", ...], cwd=folder)       # nearfar.cli.main in a fork
        done = server.function("tests.campaign.inputs:read", {"file": "a.tsv"}, cwd=folder)  # returns JSON

The process is started with ``OMP_NUM_THREADS=1`` and, if a shim was compiled, with it preloaded; ``shim`` holds the
environment variables that the fork sets before the command, which the shim reads (see ``shim.py``).
"""

import contextlib
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.child_programs import ROOT, environment

PROCESSOR_SECONDS, WALL_SECONDS = 600, 1800
"""Limits of a fork, on a busy machine too: one that waits uses no processor time."""
OTHERS = (
    "pyarrow.parquet",
    "safetensors.numpy",
    "tests.campaign.inputs",
    "tests.campaign.scenarios",
    "tomli_w",
    "tyro",
)
LEFT_OUT = ("__main__", "mteb", "ray", "sentence_transformers", "sklearn")
"""Modules of nearfar that need another package or run when they are imported."""
MEMORY_GIB = 8
"""Address space of a fork; what asks for more gets a MemoryError, not the memory of the machine."""


@dataclass(frozen=True)
class Done:
    """How a fork ended.

    ``status``: exit status, or minus the number of the signal. ``output``: standard output and standard error together.
    ``timed_out``: whether it was killed after :data:`WALL_SECONDS`. ``result``: what a function returned.
    """

    status: int
    output: str
    timed_out: bool = False
    result: Any = None

    @property
    def last_line(self) -> str:
        """The last line of the output that has letters, without the box that rich draws around errors."""
        lines = (line.strip(" │|") for line in reversed(self.output.splitlines()))
        return next((line for line in lines if any(map(str.isalpha, line))), "")


class Server(contextlib.AbstractContextManager["Server"]):
    """A process that forks for each command; ``preload`` is a shared library for ``LD_PRELOAD``."""

    def __init__(self, *, preload: Path | None = None) -> None:
        extra = {"HF_HUB_OFFLINE": "1", "COLUMNS": "400", "NEARFAR_PRECISION": "fp32"}  # the same on every machine
        if preload is not None:
            extra["LD_PRELOAD"] = str(preload)
        self._scratch = tempfile.TemporaryDirectory(prefix="campaign-server-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.campaign.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment() | extra,
            cwd=ROOT,
            text=True,
            start_new_session=True,
        )

    def __exit__(self, *_: object) -> None:
        """End the process and what it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self._scratch.cleanup()

    def command(self, arguments: Sequence[str], *, cwd: Path, shim: Mapping[str, str] | None = None) -> Done:
        """Run ``nearfar ARGUMENTS`` in a fork."""
        return self.function(f"{__name__}:nearfar", {"arguments": list(arguments)}, cwd=cwd, shim=shim)

    def function(
        self, name: str, arguments: Mapping[str, Any], *, cwd: Path, shim: Mapping[str, str] | None = None
    ) -> Done:
        """Call ``module:function`` with keyword arguments in a fork; its result must be JSON."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        scratch = Path(self._scratch.name)
        output, result = scratch / "output.txt", scratch / "result.json"
        result.unlink(missing_ok=True)
        request = {
            "function": name,
            "arguments": dict(arguments),
            "cwd": str(cwd.resolve()),
            "environment": dict(shim or {}),
            "output": str(output),
            "result": str(result),
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("The server of the campaign ended.")
        returned = json.loads(result.read_text()) if result.exists() else None
        return Done(output=output.read_text(errors="replace"), result=returned, **json.loads(line))


def _import_all() -> None:
    """Import what commands import when they run, so that the forks need not: seconds for each case."""
    import nearfar

    for module in pkgutil.walk_packages(nearfar.__path__, "nearfar."):
        if module.name.split(".")[1] not in LEFT_OUT:
            importlib.import_module(module.name)
    for name in OTHERS:
        importlib.import_module(name)


def _serve() -> None:
    """Answer requests, one line of JSON each, until the input ends."""
    _import_all()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(request)
        timed_out = _kill_late(child)
        _, status = os.waitpid(child, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(json.dumps({"timed_out": bool(timed_out), "status": os.waitstatus_to_exitcode(status)}) + "\n")
        answers.flush()


def _kill_late(child: int) -> list[int]:
    """Kill a child after :data:`WALL_SECONDS`; its number is then in the list that is returned."""
    killed: list[int] = []

    def kill(*_: object) -> None:
        killed.append(child)
        os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, kill)
    signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
    return killed


def nearfar(arguments: Sequence[str]) -> None:
    """Run a command; called in a fork."""
    from nearfar.cli import main

    raise SystemExit(main(list(arguments)))


def _run(request: dict[str, Any]) -> None:
    """The fork: runs the command or function, and ends."""
    import resource
    import traceback

    status = 99
    try:
        os.chdir(request["cwd"])
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_GIB << 30, MEMORY_GIB << 30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(request["environment"])
        module, _, name = request["function"].partition(":")
        result = getattr(importlib.import_module(module), name)(**request["arguments"])
        with open(request["result"], "w") as stream:
            json.dump(result, stream)
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 98
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
