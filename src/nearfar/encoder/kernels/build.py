"""Compiles kernels.cpp at the first use, and caches the library in the user's cache folder.

For each combination of source, flags, compiler and processor, the cache has a library ``kernels-KEY.so``. It runs with
the rights of the user, so the folder must be private (:func:`nearfar.disk.is_private`). It is written elsewhere and
renamed once it loads, so that several processes may compile at the same time or be killed.
"""

import ctypes
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from nearfar.disk import is_private, publish
from nearfar.disk.checks import cache_folder
from nearfar.runtime import machine

SOURCE = Path(__file__).with_name("kernels.cpp")
FLAGS = ("-O3", "-fno-math-errno", "-std=gnu++17", "-shared", "-fPIC", "-march=native", "-fopenmp")
COMPILERS = ("c++", "g++", "clang++")
COMPILE_TIMEOUT = 120.0
"""Seconds after which the compiler is killed; it usually takes about ten."""


class KernelBuildError(Exception):
    """Why there is no library, in one line."""


def load(*, rebuild: bool = False) -> ctypes.CDLL:
    """The library, from the cache or compiled now; ``rebuild`` always compiles it.

    Raises:
        KernelBuildError: there is no compiler, it fails, or the cache folder is not private or cannot be written.
    """
    compiler = find_compiler()
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not is_private(folder):
            raise KernelBuildError(
                "the folder nearfar in the user's cache is a link, or other users can write to it or replace it; set "
                "XDG_CACHE_HOME to another folder"
            )
        library = folder / f"kernels-{_key(compiler)}.so"
        if library.exists() and not rebuild:
            return ctypes.CDLL(str(library))
        with tempfile.TemporaryDirectory(prefix="kernels-build-", dir=folder, ignore_cleanup_errors=True) as fresh:
            compiled = _compile(compiler, Path(fresh))
            loaded = ctypes.CDLL(str(compiled))
            publish(compiled, library)
        return loaded
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        reason = " ".join(str(error).split())
        advice = "XDG_CACHE_HOME names another folder, NEARFAR_KERNELS=rebuild compiles again"
        raise KernelBuildError(f"no library in the user's cache ({reason}); {advice}") from None


def find_compiler() -> list[str]:
    """The compiler's command line: the value of CXX, or the first of :data:`COMPILERS` that is installed.

    Raises:
        KernelBuildError: none is installed.
    """
    given = shlex.split(os.environ.get("CXX", ""))
    for words in [given] if given else [[name] for name in COMPILERS]:
        if program := shutil.which(words[0]):
            return [program, *words[1:]]
    raise KernelBuildError(f"no C++ compiler was found ({shlex.join(given) or ', '.join(COMPILERS)}); CXX names one")


def _key(compiler: Sequence[str]) -> str:
    """Hash of everything that the library depends on. The compiler is identified by its file, which updates replace."""
    file, fields = Path(compiler[0]).resolve(), machine.cpu_fields()
    processor = [fields.get(name, "") for name in ("flags", "Features", "CPU part")]
    parts = [*compiler, file, file.stat().st_size, file.stat().st_mtime_ns, *FLAGS, *processor]
    content = f"{parts}{machine.processor()}{platform.machine()}"
    return hashlib.sha256(SOURCE.read_bytes() + content.encode()).hexdigest()[:16]


def _compile(compiler: Sequence[str], folder: Path) -> Path:
    """Compile into a folder; the compiler's first error message is reported in one line, without folders."""
    compiled, name = folder / "kernels.so", Path(compiler[0]).name
    command = [*compiler, *FLAGS, "-o", str(compiled), str(SOURCE)]
    done = subprocess.run(
        command, input="", capture_output=True, errors="replace", timeout=COMPILE_TIMEOUT, check=False
    )
    if done.returncode == 0 and compiled.exists():
        return compiled
    lines = [line.strip() for line in f"{done.stderr}\n{done.stdout}".splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b(error|cannot|unrecognized|unknown)\b", line, re.IGNORECASE)]
    problem = (errors or lines or [f"exit status {done.returncode}"])[0]
    raise KernelBuildError(f"{name}: {problem.replace(str(SOURCE), SOURCE.name)[:200]}")
