"""Logs, kills at or fails the system calls of a fork that change files.

The library, compiled from shim.c, must be preloaded into the process that forks. The fork is told what to do by
environment variables (:func:`settings`, and the head of ``shim.c``).
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import unquote

SOURCE = Path(__file__).with_name("shim.c")
PRELOADED = "nearfar-campaign" in os.environ.get("LD_PRELOAD", "")


@cache
def library() -> Path | None:
    """The compiled shim, or None where there is no C compiler or the system is not Linux."""
    compiler = shutil.which("cc")
    if not sys.platform.startswith("linux") or compiler is None:
        return None
    code = b"".join(file.read_bytes() for file in (SOURCE, *sorted(SOURCE.parent.glob("shim_*.h"))))
    folder = Path(tempfile.gettempdir()) / f"nearfar-campaign-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        return None
    built = folder / f"shim-{hashlib.sha256(code).hexdigest()[:16]}.so"
    if not built.exists():
        part = built.with_suffix(f".{os.getpid()}.part")
        command = [compiler, "-O1", "-shared", "-fPIC", "-Wall", "-o", str(part), str(SOURCE), "-ldl", "-lpthread"]
        subprocess.run(command, check=True)
        part.rename(built)
    return built


@dataclass(frozen=True)
class Call:
    """One line of the log; the head of ``shim.c`` describes the fields."""

    number: int
    kind: str
    call: str
    path: str
    path2: str
    size: int = 0
    result: int = 0

    def __str__(self) -> str:
        """The call and its paths, for a message."""
        return f"call {self.number}, {self.call} {self.path}{self.path2 and f' to {self.path2}'}"


def read_log(file: Path) -> list[Call]:
    """The calls of a log in their order; a last line that was cut off is ignored."""
    calls = []
    for line in file.read_bytes().split(b"\n")[:-1]:
        number, kind, call, _, *paths, _, _, size, result = line.decode("utf-8", "surrogateescape").split("\t")
        path, path2 = (unquote(path, errors="surrogateescape") for path in paths)
        calls.append(Call(int(number), kind, call, path, path2, int(size), int(result)))
    return calls


def settings(root: Path, *, log: Path | None = None, **others: str) -> dict[str, str]:
    """The variables of the shim: ``root`` is the folder whose calls count, ``log`` the file to append the log to.

    ``others``: ``kill="before:3"``, ``fail="5:ENOSPC"``.
    """
    shared = {"SHIM_ROOT": str(root.resolve()), "SHIM_LOG": str(log or "")}
    return shared | {f"SHIM_{name.upper()}": value for name, value in others.items()}
