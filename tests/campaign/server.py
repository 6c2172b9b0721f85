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

HOUR = 3600
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
    ``seconds``: processor time. ``peak_mib``: the largest resident size, which includes about 400 MiB of imports. Both
    are 0 if the server does not measure. ``timed_out``: whether it was killed after ``wall_seconds``.
    ``result``: what a function returned.
    """

    status: int
    output: str
    seconds: float
    peak_mib: float
    timed_out: bool = False
    result: Any = None

    @property
    def last_line(self) -> str:
        """The last line of the output that has letters, without the box that rich draws around errors."""
        lines = (line.strip(" │|") for line in reversed(self.output.splitlines()))
        return next((line for line in lines if any(map(str.isalpha, line))), "")


class Server(contextlib.AbstractContextManager["Server"]):
    """A process that forks for each command.

    ``preload``: a shared library for ``LD_PRELOAD``. ``measure``: report time and memory, and keep the limits of time
    that are given. Without it, only a fork that runs for an hour is killed: results depend on no machine's speed.
    """

    def __init__(self, *, preload: Path | None = None, measure: bool = True) -> None:
        self._measure = measure
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

    def command(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        shim: Mapping[str, str] | None = None,
        processor_seconds: int = 600,
        wall_seconds: float | None = None,
    ) -> Done:
        """Run ``nearfar ARGUMENTS`` in a fork whose processor time is limited (SIGXCPU, then SIGKILL).

        After ``wall_seconds`` the fork is killed: one that waits uses no processor time.
        """
        what = {"function": f"{__name__}:nearfar", "arguments": {"arguments": list(arguments)}}
        return self._request(what, cwd, shim, processor_seconds, wall_seconds)

    def function(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        cwd: Path,
        shim: Mapping[str, str] | None = None,
        processor_seconds: int = 600,
        wall_seconds: float | None = None,
    ) -> Done:
        """Call ``module:function`` with keyword arguments in a fork; its result must be JSON."""
        what = {"function": name, "arguments": dict(arguments)}
        return self._request(what, cwd, shim, processor_seconds, wall_seconds)

    def _request(
        self, what: dict[str, Any], cwd: Path, shim: Mapping[str, str] | None, seconds: int, wall_seconds: float | None
    ) -> Done:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        scratch = Path(self._scratch.name)
        if not self._measure:
            seconds, wall_seconds = HOUR, HOUR
        request = {
            **what,
            "cwd": str(cwd.resolve()),
            "environment": dict(shim or {}),
            "seconds": seconds,
            "wall_seconds": wall_seconds or 0,
            "output": str(scratch / "output.txt"),
            "result": str(scratch / "result.json"),
        }
        (scratch / "result.json").unlink(missing_ok=True)
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("The server of the campaign ended.")
        answer = json.loads(line)
        if not self._measure:
            answer |= {"seconds": 0, "peak_mib": 0}
        output = (scratch / "output.txt").read_text(errors="replace")
        result = json.loads((scratch / "result.json").read_text()) if (scratch / "result.json").exists() else None
        return Done(output=output, result=result, **answer)


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
        timed_out = _kill_after(child, request["wall_seconds"])
        _, status, usage = os.wait4(child, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answer = {
            "timed_out": bool(timed_out),
            "status": os.waitstatus_to_exitcode(status),
            "seconds": round(usage.ru_utime + usage.ru_stime, 3),
            "peak_mib": round(usage.ru_maxrss / 1024, 1),
        }
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _kill_after(child: int, seconds: float) -> list[int]:
    """Kill a child when ``seconds`` have passed (0: never); its number is then in the list that is returned."""
    killed: list[int] = []

    def kill(*_: object) -> None:
        killed.append(child)
        os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, kill)
    signal.setitimer(signal.ITIMER_REAL, seconds)
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
        resource.setrlimit(resource.RLIMIT_CPU, (request["seconds"], request["seconds"] + 5))
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
