"""Scripts outside the package (``studies``, ``docs``): loaded as modules, or run in the process of the tests.

A process of its own costs ten seconds, which it takes to import torch and sentence-transformers.
"""

import importlib.util
import io
import runpy
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType
from typing import Any
from unittest.mock import patch

from nearfar.cli import main
from nearfar.registry import METHODS, unregister_method
from nearfar.types import NearfarError

ROOT = Path(__file__).parents[1]
_run = subprocess.run


@contextmanager
def _without_its_methods() -> Iterator[None]:
    """The methods that a script registers are gone when it ends, so that it can run again."""
    before = set(METHODS)
    try:
        yield
    finally:
        for name in set(METHODS) - before:
            unregister_method(name)


def load_script(path: str) -> ModuleType:
    """The script at ``path``, relative to the repository, as a module; each call runs it again."""
    spec = importlib.util.spec_from_file_location(path.removesuffix(".py").replace("/", "_"), ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    with _without_its_methods():
        spec.loader.exec_module(module)
    return module


def run_here(command: Sequence[Any], **settings: Any) -> CompletedProcess[str]:
    """Runs ``python FILE WORDS`` or ``python -m nearfar WORDS`` in this process, in the place of ``subprocess.run``.

    Both streams are captured, and ``SystemExit`` is the exit status. Other programs get their process.
    """
    program, *words = map(str, command)
    if program != sys.executable:
        return _run(command, **settings)
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors), _without_its_methods():
        try:
            if words[:2] == ["-m", "nearfar"]:
                status = main(words[2:])
            else:
                with (
                    patch.object(sys, "argv", words),
                    patch.object(sys, "path", [str(Path(words[0]).parent), *sys.path]),
                ):
                    runpy.run_path(words[0], run_name="__main__")
                status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
            errors.write(end.code if isinstance(end.code, str) else "")
        except NearfarError as error:  # which would be the last line of a traceback
            status = 1
            errors.write(str(error))
    return CompletedProcess(list(map(str, command)), status, output.getvalue(), errors.getvalue())


def call_here(command: list[str], *, name: str) -> None:
    """:func:`run_here` in the place of the process that a study starts for a script."""
    done = run_here(command)
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
