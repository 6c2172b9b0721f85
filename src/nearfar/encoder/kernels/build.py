"""Compiles kernels.cpp at the first use, and caches the library in the user's cache folder.

For each combination of source, flags, compiler and processor, the cache has a library ``kernels-KEY-DIGEST.so``. It is
loaded only if its SHA-256 is that in its name; otherwise it is compiled again. It runs with the rights of the user, so
the folder must be private (:func:`nearfar.disk.is_private`). It is written elsewhere and renamed, so that several
processes may compile at the same time or be killed.
"""

import ctypes
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from nearfar.disk import is_private, publish, sha256_of
from nearfar.runtime import machine

SOURCE = Path(__file__).with_name("kernels.cpp")
FLAGS = ("-O3", "-fno-math-errno", "-std=gnu++17", "-shared", "-fPIC", "-march=native", "-fopenmp")
COMPILERS = ("c++", "g++", "clang++")
COMPILE_TIMEOUT = 120.0
"""Seconds after which the compiler is killed; it usually takes about ten."""


class BuiltLibrary(NamedTuple):
    """A loaded library, and the first line of the ``--version`` of the compiler that built it."""

    library: ctypes.CDLL
    compiler: str


class KernelBuildError(Exception):
    """Why there is no library, in one line."""


def load(*, rebuild: bool = False) -> BuiltLibrary:
    """The library, from the cache or compiled now; ``rebuild`` always compiles it.

    Raises:
        KernelBuildError: there is no compiler, it fails, or the cache folder is not private or cannot be written.
    """
    compiler, folder = find_compiler(), cache_folder()
    shown = abbreviate_home(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not is_private(folder):
            raise KernelBuildError(
                f"{shown} is a link, or other users can write to it or replace it; set XDG_CACHE_HOME to another folder"
            )
        version = (_run([*compiler, "--version"]).stdout.splitlines() or [""])[0]
        start = f"kernels-{_key(compiler)}"
        earlier = list(folder.glob(f"{start}-*.so"))
        for library in [] if rebuild else earlier:
            if library.stem == f"{start}-{sha256_of(library)}":
                return BuiltLibrary(ctypes.CDLL(str(library)), version)
        with tempfile.TemporaryDirectory(prefix="kernels-build-", dir=folder, ignore_cleanup_errors=True) as fresh:
            compiled = _compile(compiler, Path(fresh))
            for library in earlier:
                library.unlink(missing_ok=True)
            library = folder / f"{start}-{sha256_of(compiled)}.so"
            publish(compiled, library)
        return BuiltLibrary(ctypes.CDLL(str(library)), version)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = " ".join(str(error).split())
        raise KernelBuildError(f"no library in {shown} ({reason}); XDG_CACHE_HOME names another folder") from None


def find_compiler() -> list[str]:
    """The compiler's command line: the value of CXX, or the first of :data:`COMPILERS` that is installed.

    Raises:
        KernelBuildError: none is installed.
    """
    given = shlex.split(os.environ.get("CXX", ""))
    for words in [given] if given else [[name] for name in COMPILERS]:
        if program := shutil.which(words[0]):
            return [program, *words[1:]]
    if given:
        raise KernelBuildError(f"CXX is {' '.join(given)}, but there is no such program")
    raise KernelBuildError(f"no C++ compiler was found ({', '.join(COMPILERS)}, or the program in CXX)")


def cache_folder() -> Path:
    """The folder of the library: ``nearfar`` in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(cache) if cache else Path.home() / ".cache") / "nearfar"
    except RuntimeError:
        raise KernelBuildError("no cache folder was found; set XDG_CACHE_HOME to one") from None


def abbreviate_home(path: Path) -> str:
    """The path with ``~`` for the home folder."""
    with suppress(RuntimeError, ValueError):
        return str(Path("~") / path.relative_to(Path.home()))
    return str(path)


def _key(compiler: Sequence[str]) -> str:
    """Hash of everything that the library depends on. The compiler is identified by its file, which updates replace."""
    file = Path(compiler[0]).resolve()
    status = file.stat()
    fields = machine.cpu_fields()
    processor = [fields.get(name, "") for name in ("model name", "flags", "Features", "CPU part")]
    parts = [*compiler, str(file), status.st_size, status.st_mtime_ns, *FLAGS, *processor, platform.machine()]
    if not fields:
        parts.append(machine.processor())
    key = hashlib.sha256(SOURCE.read_bytes())
    key.update(json.dumps(parts).encode())
    return key.hexdigest()[:16]


def _compile(compiler: Sequence[str], folder: Path) -> Path:
    """Compile into a folder; the compiler's first error message is reported in one line, without folders."""
    compiled, name = folder / "kernels.so", Path(compiler[0]).name
    done = _run([*compiler, *FLAGS, "-o", str(compiled), str(SOURCE)])
    if done.returncode == 0 and compiled.exists():
        return compiled
    lines = [line.strip() for line in f"{done.stderr}\n{done.stdout}".splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b(error|cannot|unrecognized|unknown)\b", line, re.IGNORECASE)]
    problem = (errors or lines or [f"exit status {done.returncode}"])[0]
    raise KernelBuildError(f"{name}: {problem.replace(str(SOURCE), SOURCE.name)[:200]}")


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=COMPILE_TIMEOUT,
        check=False,
    )
