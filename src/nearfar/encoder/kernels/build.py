"""Compiles kernels.cpp at the first use, and caches the library, or the compiler's error, in the user's cache folder.

For each combination of source, flags, compiler and processor, the cache has a file ``kernels-KEY.json`` with the
library's name and SHA-256, or with the error. A library is loaded only if its digest matches, otherwise it is compiled
again. It runs with the rights of the user, so the folder must be private (:func:`nearfar.disk.is_private`).
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
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from nearfar.disk import is_private, private_temporary_folder, publish, sha256_of
from nearfar.runtime import machine
from nearfar.types import NearfarError

SOURCE = Path(__file__).with_name("kernels.cpp")
FLAGS = ("-O3", "-fno-math-errno", "-std=gnu++17", "-shared", "-fPIC", "-march=native", "-fopenmp")
_LIBRARY = re.compile(r"kernels-[0-9a-f]{16}-[0-9a-f]{16}\.so")
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
        KernelBuildError: there is no compiler; it fails now or failed earlier; or no folder can be written.
    """
    compiler = find_compiler()
    key = _key(compiler)
    problems: list[str] = []
    for folder in folders():
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not is_private(folder):
                problems.append(f"{abbreviate_home(folder)} is a link, or other users can write to it or replace it")
                continue
            record = None if rebuild else _read(folder / f"kernels-{key}.json")
            if record is not None and "error" in record:
                raise KernelBuildError(record["error"], cached=True)
            library = None if record is None else _open(folder / record["library"], record["sha256"])
            if record is None or library is None:
                with tempfile.TemporaryDirectory(
                    prefix="kernels-build-", dir=folder, ignore_cleanup_errors=True
                ) as fresh:
                    record = _compile(compiler, Path(fresh), folder, key)
                if problems:
                    kept = f"the compiled kernels are kept in {abbreviate_home(folder)}"
                    warnings.warn(f"{problems[0]}: {kept}.", stacklevel=2)
                library = _open(folder / record["library"], record["sha256"])
        except OSError as error:
            problems.append(f"{abbreviate_home(folder)} cannot be written ({error.strerror or error})")
            continue
        if library is None:
            raise KernelBuildError(f"{abbreviate_home(folder)} lost or changed the compiled library")
        return BuiltLibrary(library, record["compiler"])
    raise KernelBuildError("; ".join(problems) or "no cache folder was found; set XDG_CACHE_HOME to one")


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


def folders() -> Iterator[Path]:
    """Folders for the library, in order of preference: the user's cache, then a private temporary folder."""
    if cache := os.environ.get("XDG_CACHE_HOME"):
        yield Path(cache) / "nearfar"
    else:
        with suppress(RuntimeError):  # no home folder
            yield Path.home() / ".cache" / "nearfar"
    if (private := private_temporary_folder("nearfar-kernels-")) is not None:
        yield private


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


def _compile(compiler: Sequence[str], fresh: Path, folder: Path, key: str) -> dict[str, Any]:
    """Compile in the folder ``fresh``, then move library and record to ``folder``; record a compiler error too.

    Raises:
        KernelBuildError: the compiler fails, is killed, or cannot be run.
    """
    compiled, record, name = fresh / "kernels.so", fresh / "record.json", Path(compiler[0]).name
    try:
        done = _run([*compiler, *FLAGS, "-o", str(compiled), str(SOURCE)])
    except OSError as error:
        raise KernelBuildError(f"{name} cannot be run ({error.strerror or error})") from None
    except subprocess.TimeoutExpired:
        problem = f"{name} did not finish within {COMPILE_TIMEOUT:g} seconds"
    else:
        if done.returncode < 0:  # killed, perhaps for lack of memory: not recorded, so the next process tries again
            raise KernelBuildError(f"{name} was killed by signal {-done.returncode}")
        if done.returncode == 0 and compiled.exists():
            digest = sha256_of(compiled)
            library = f"kernels-{key}-{digest[:16]}.so"
            built = {"library": library, "sha256": digest, "compiler": _version(compiler)}
            record.write_text(json.dumps(built, indent=1), encoding="utf-8")
            publish(compiled, folder / library)
            publish(record, folder / f"kernels-{key}.json")
            return built
        problem = f"{name}: {_first_error(done)}"
    with suppress(OSError):
        record.write_text(json.dumps({"error": problem}, indent=1), encoding="utf-8")
        publish(record, folder / f"kernels-{key}.json")
    raise KernelBuildError(problem)


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run a command, and kill it with all its children after :data:`COMPILE_TIMEOUT`."""
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, errors="replace", start_new_session=True) as process:
        try:
            out, err = process.communicate(timeout=COMPILE_TIMEOUT)
        except BaseException:  # including Ctrl-C, which a child in a new session does not receive
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


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


def _read(file: Path) -> dict[str, Any] | None:
    """A record; None if it is missing or damaged."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    kinds = ({"error"}, {"library", "sha256", "compiler"})
    if not isinstance(record, dict) or set(record) not in kinds:
        return None
    return record if "error" in record or _LIBRARY.fullmatch(str(record["library"])) else None


def _open(file: Path, sha256: str) -> ctypes.CDLL | None:
    """Load the library; None if it is missing or its digest differs.

    Raises:
        KernelBuildError: its digest matches, but the system cannot load it.
    """
    try:
        if sha256_of(file) != sha256:
            return None
    except (OSError, NearfarError):
        return None
    try:
        return ctypes.CDLL(str(file))
    except OSError as error:
        raise KernelBuildError(
            f"{abbreviate_home(file)} cannot be loaded ({error})".replace(str(file), file.name)
        ) from None
