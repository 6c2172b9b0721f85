"""Compiles kernels.cpp at the first use, and keeps the library, or the compiler's refusal, in the user's cache.

For each source, flags, compiler and processor the cache holds ``kernels-KEY.json``: the library's name and SHA-256, or
why there is none. A process trusts a library only by its digest, and builds it anew where it differs. Files come into
their places by a rename, so that processes may build at the same time, or be killed.
"""

import ctypes
import hashlib
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from nearfar.runtime import machine

SOURCE = Path(__file__).with_name("kernels.cpp")
FLAGS = ("-O3", "-fno-math-errno", "-std=gnu++17", "-shared", "-fPIC")
COMPILERS = ("c++", "g++", "clang++")
COMPILE_TIMEOUT = 120.0
"""Seconds that a compiler has; it takes about ten."""


class BuiltLibrary(NamedTuple):
    """A library that is loaded, and how it was made."""

    library: ctypes.CDLL
    compiler: str
    """The first line of its ``--version``."""
    flags: list[str]


class KernelBuildError(Exception):
    """Why there is no library, in one line. ``cached``: an earlier process found out."""

    def __init__(self, reason: str, *, cached: bool = False) -> None:
        super().__init__(reason)
        self.cached = cached


def load(*, rebuild: bool = False) -> BuiltLibrary:
    """The library, from the cache or compiled now; ``rebuild`` compiles it in any case.

    Raises:
        KernelBuildError: there is no compiler, it fails, now or earlier, or there is nowhere to write.
    """
    compiler = find_compiler()
    flags = [*FLAGS, f"-march={march()}"]
    key = _key(compiler, flags)
    for folder in () if rebuild else folders():
        if (record := _read(folder / f"kernels-{key}.json")) is None:
            continue
        if "error" in record:
            raise KernelBuildError(record["error"], cached=True)
        if (library := _open(folder / record["library"], record["sha256"])) is not None:
            return BuiltLibrary(library, record["compiler"], record["flags"])
    refused: list[str] = []
    for folder in folders():
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            place = tempfile.TemporaryDirectory(prefix="kernels-build-", dir=folder, ignore_cleanup_errors=True)
        except OSError as error:
            refused.append(f"{abbreviate_home(folder)} cannot be written ({error.strerror or error})")
            continue
        with place as fresh:
            record = _compile(compiler, flags, Path(fresh), folder, key)
        if refused:
            warnings.warn(f"{refused[0]}: the compiled kernels are kept in {abbreviate_home(folder)}.", stacklevel=2)
        library = _open(folder / record["library"], record["sha256"])
        if library is None:
            raise KernelBuildError(f"{abbreviate_home(folder)} does not keep what is written there")
        return BuiltLibrary(library, record["compiler"], record["flags"])
    raise KernelBuildError("; ".join(refused) or "there is no folder to keep them in; set XDG_CACHE_HOME to one")


def find_compiler() -> list[str]:
    """The compiler as the words of a command: what CXX says, or the first of :data:`COMPILERS` that is there.

    Raises:
        KernelBuildError: there is none.
    """
    named = os.environ.get("CXX")
    if named:
        words = [named] if shutil.which(named) else shlex.split(named)
        if words and (found := shutil.which(words[0])):
            return [found, *words[1:]]
        raise KernelBuildError(f"CXX names {named}, which is no program")
    for name in COMPILERS:
        if found := shutil.which(name):
            return [found]
    raise KernelBuildError(f"no C++ compiler was found ({', '.join(COMPILERS)}, or what CXX names)")


def march() -> str:
    """The processor that is compiled for; NEARFAR_KERNELS_MARCH names another than this one, as x86-64-v3."""
    return os.environ.get("NEARFAR_KERNELS_MARCH") or "native"


def folders() -> Iterator[Path]:
    """Where the library may be kept, the best place first: the user's cache, then a folder for temporary files."""
    if cache := os.environ.get("XDG_CACHE_HOME"):
        yield Path(cache) / "nearfar"
    else:
        with suppress(RuntimeError):  # no home folder
            yield Path.home() / ".cache" / "nearfar"
    with suppress(OSError):
        if (place := _private_folder()) is not None:
            yield place


def abbreviate_home(place: Path) -> str:
    """The path, without the name of the home folder."""
    with suppress(RuntimeError, ValueError):
        return str(Path("~") / place.relative_to(Path.home()))
    return str(place)


def _private_folder() -> Path | None:
    """A folder for temporary files that nobody else can write to: what is loaded from it runs as this user."""
    if not hasattr(os, "getuid"):
        return Path(tempfile.gettempdir()) / "nearfar"  # Windows: that folder is the user's own
    folder = Path(tempfile.gettempdir()) / f"nearfar-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
    return folder if mine else None


def _key(compiler: Sequence[str], flags: Sequence[str]) -> str:
    """Of all that decides what the library is. The compiler goes by its file, which an update replaces."""
    file = Path(compiler[0]).resolve()
    status = file.stat()
    fields = machine.cpu_fields()
    processor = [fields.get(name, "") for name in ("model name", "flags", "Features", "CPU part")]
    parts = [*compiler, str(file), status.st_size, status.st_mtime_ns, *flags, *processor, platform.machine()]
    if not fields:
        parts.append(machine.processor())
    key = hashlib.sha256(SOURCE.read_bytes())
    key.update(json.dumps(parts).encode())
    return key.hexdigest()[:16]


def _compile(compiler: Sequence[str], flags: Sequence[str], fresh: Path, folder: Path, key: str) -> dict[str, Any]:
    """Compile in the folder ``fresh`` and put library and record into ``folder``; a refusal of the compiler too."""
    made, record, name = fresh / "kernels.so", fresh / "record.json", Path(compiler[0]).name
    problem = ""
    for openmp in _openmp():
        all_flags = [*flags, *openmp]
        try:
            done = _run([*compiler, *all_flags, "-o", str(made), str(SOURCE)])
        except OSError as error:
            raise KernelBuildError(f"{name} cannot be run ({error.strerror or error})") from None
        except subprocess.TimeoutExpired:
            problem = f"{name} was still at work after {COMPILE_TIMEOUT:g} seconds"
            break
        if done.returncode < 0:  # somebody ended it, or memory did: the next process tries again
            raise KernelBuildError(f"{name} was killed by signal {-done.returncode}")
        if done.returncode == 0 and made.exists():
            digest = _digest(made)
            library = f"kernels-{key}-{digest[:16]}.so"
            built = {"library": library, "sha256": digest, "compiler": _version(compiler), "flags": all_flags}
            record.write_text(json.dumps(built, indent=1), encoding="utf-8")
            made.replace(folder / library)
            record.replace(folder / f"kernels-{key}.json")
            return built
        problem = problem or f"{name}: {_first_error(done)}"
    with suppress(OSError):
        record.write_text(json.dumps({"error": problem}, indent=1), encoding="utf-8")
        record.replace(folder / f"kernels-{key}.json")
    raise KernelBuildError(problem)


def _openmp() -> list[list[str]]:
    """Flags for several threads, in the order in which they are tried."""
    if machine.SYSTEM != "darwin":
        return [["-fopenmp"]]
    spec = importlib.util.find_spec("torch")
    folder = Path(spec.origin).parent / "lib" if spec and spec.origin else Path()
    if not (folder / "libomp.dylib").exists():
        return [[]]
    # torch's own runtime: a second one in the process would end it.
    return [["-Xpreprocessor", "-fopenmp", f"-L{folder}", "-lomp", f"-Wl,-rpath,{folder}"], []]


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run a command, and end all that it started when its time is over."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=COMPILE_TIMEOUT)
    except BaseException:  # Ctrl-C too, which a session of its own does not get
        _end(process)
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _end(process: "subprocess.Popen[str]") -> None:
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()


def _first_error(done: "subprocess.CompletedProcess[str]") -> str:
    """What a compiler says, in one line, without folders."""
    lines = [line.strip() for line in (done.stderr + "\n" + done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b(error|cannot|unrecognized|unknown)\b", line, re.IGNORECASE)]
    if not lines:
        return "left no library and said nothing" if done.returncode == 0 else f"ended with {done.returncode}"
    return (errors or lines)[0].replace(str(SOURCE), SOURCE.name)[:200]


def _version(compiler: Sequence[str]) -> str:
    try:
        return (_run([*compiler, "--version"]).stdout.splitlines() or [""])[0]
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _read(file: Path) -> dict[str, Any] | None:
    """A record; None where there is none, or it is damaged."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    kinds = ({"error"}, {"library", "sha256", "compiler", "flags"})
    return record if isinstance(record, dict) and set(record) in kinds else None


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _open(file: Path, sha256: str) -> ctypes.CDLL | None:
    """Load the library; None where it is not there or is not what was built.

    Raises:
        KernelBuildError: it is whole, but the system does not load it.
    """
    try:
        if _digest(file) != sha256:
            return None
    except OSError:
        return None
    try:
        return ctypes.CDLL(str(file))
    except OSError as error:
        raise KernelBuildError(
            f"{abbreviate_home(file)} cannot be loaded ({error})".replace(str(file), file.name)
        ) from None
