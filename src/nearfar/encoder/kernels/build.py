"""Compiles kernels.cpp at the first use, and caches the library, or the compiler's error, in the user's cache folder.

For each combination of source, flags, compiler and processor, the cache has a library ``kernels-KEY.so`` and a file
``kernels-KEY.json`` with its SHA-256, or with the error. A library is loaded only if its digest matches; otherwise it
is compiled again. It runs with the rights of the user, so the folder must be private (:func:`nearfar.disk.is_private`).
Files are written elsewhere and renamed, so that several processes may compile at the same time or be killed.
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
from nearfar.types import NearfarError

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
    """Why there is no library, in one line. ``cached``: the error is that of an earlier process."""

    def __init__(self, reason: str, *, cached: bool = False) -> None:
        super().__init__(reason)
        self.cached = cached


def load(*, rebuild: bool = False) -> BuiltLibrary:
    """The library, from the cache or compiled now; ``rebuild`` always compiles it.

    Raises:
        KernelBuildError: there is no compiler; it fails now or failed earlier; or the cache folder is not private or
            cannot be written.
    """
    compiler, folder = find_compiler(), cache_folder()
    shown, library = abbreviate_home(folder), folder / f"kernels-{_key(compiler)}.so"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not is_private(folder):
            raise KernelBuildError(
                f"{shown} is a link, or other users can write to it or replace it; set XDG_CACHE_HOME to another folder"
            )
        if not rebuild and (cached := _cached(library)) is not None:
            return cached
        with tempfile.TemporaryDirectory(prefix="kernels-build-", dir=folder, ignore_cleanup_errors=True) as fresh:
            return _compile(compiler, Path(fresh), library)
    except OSError as error:
        raise KernelBuildError(
            f"{shown} cannot be written ({error.strerror or error}); set XDG_CACHE_HOME to another folder"
        ) from None


def find_compiler() -> list[str]:
    """The compiler's command line: the value of CXX, or the first of :data:`COMPILERS` that is installed.

    Raises:
        KernelBuildError: none is installed.
    """
    from_environment = os.environ.get("CXX")
    if from_environment:
        words = [from_environment] if shutil.which(from_environment) else shlex.split(from_environment)
        if words and (program := shutil.which(words[0])):
            return [program, *words[1:]]
        raise KernelBuildError(f"CXX is {from_environment}, but there is no such program")
    for name in COMPILERS:
        if program := shutil.which(name):
            return [program]
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


def _cached(library: Path) -> BuiltLibrary | None:
    """The library in the cache; None if it or its record is missing or damaged.

    Raises:
        KernelBuildError: it could not be built earlier.
    """
    try:
        record = json.loads(library.with_suffix(".json").read_text(encoding="utf-8"))
        if "error" in record:
            raise KernelBuildError(record["error"], cached=True)
        if sha256_of(library) == record["sha256"]:
            return BuiltLibrary(ctypes.CDLL(str(library)), record["compiler"])
    except (OSError, ValueError, TypeError, KeyError, NearfarError):
        pass
    return None


def _compile(compiler: Sequence[str], fresh: Path, library: Path) -> BuiltLibrary:
    """Compile in the folder ``fresh``, then move library and record into the cache; record an error too.

    Raises:
        KernelBuildError: the compiler fails, is killed, or cannot be run; the library cannot be loaded.
    """
    compiled, record, name = fresh / "kernels.so", fresh / "record.json", Path(compiler[0]).name

    def publish_record(**content: str) -> None:
        record.write_text(json.dumps(content, indent=1), encoding="utf-8")
        publish(record, library.with_suffix(".json"))

    try:
        done = _run([*compiler, *FLAGS, "-o", str(compiled), str(SOURCE)])
    except OSError as error:
        raise KernelBuildError(f"{name} cannot be run ({error.strerror or error})") from None
    except subprocess.TimeoutExpired:
        problem = f"{name} did not finish within {COMPILE_TIMEOUT:g} seconds"
    else:
        if done.returncode < 0:  # killed, perhaps for lack of memory: not recorded, so the next process tries again
            raise KernelBuildError(f"{name} was killed by signal {-done.returncode}")
        problem = f"{name}: {_first_error(done)}"
        if done.returncode == 0 and compiled.exists():
            try:
                built = BuiltLibrary(ctypes.CDLL(str(compiled)), _version(compiler))
            except OSError as error:
                problem = f"the compiled library cannot be loaded ({error})".replace(str(compiled), library.name)
            else:
                digest = sha256_of(compiled)
                publish(compiled, library)
                publish_record(sha256=digest, compiler=built.compiler)
                return built
    with suppress(OSError):
        publish_record(error=problem)
    raise KernelBuildError(problem)


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


def _first_error(done: "subprocess.CompletedProcess[str]") -> str:
    """The compiler's first error message, in one line, without folders."""
    lines = [line.strip() for line in (done.stderr + "\n" + done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b(error|cannot|unrecognized|unknown)\b", line, re.IGNORECASE)]
    if not lines:
        return "gave no library and no message" if done.returncode == 0 else f"exit status {done.returncode}"
    return (errors or lines)[0].replace(str(SOURCE), SOURCE.name)[:200]


def _version(compiler: Sequence[str]) -> str:
    try:
        return (_run([*compiler, "--version"]).stdout.splitlines() or [""])[0]
    except (OSError, subprocess.TimeoutExpired):
        return ""
