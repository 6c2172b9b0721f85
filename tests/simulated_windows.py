"""Run by test_simulated_windows.py in a separate process: nearfar on a simulated system without POSIX features.

Removed for nearfar, but not for the libraries it uses: modules and functions of ``os`` that Windows lacks, and opening
folders. Renaming onto an existing file, and renaming or removing a file that is open or memory-mapped, raises as on
Windows (as far as /proc shows open files).
"""

import builtins
import importlib
import json
import os
import pkgutil
import shutil
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import accelerate  # noqa: F401
import datasets  # noqa: F401
import numpy  # noqa: F401
import torch  # noqa: F401
import transformers  # noqa: F401

BLOCKED_MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "posix", "syslog"}
MISSING_OS_FUNCTIONS = (
    "O_DIRECTORY",
    "O_NOFOLLOW",
    "sync_file_range",
    "posix_fadvise",
    "fchmod",
    "killpg",
    "setsid",
    "sched_getaffinity",
)
_import, _open, _rename, _replace, _unlink = builtins.__import__, os.open, os.rename, os.replace, os.unlink


def remove_posix_features() -> None:
    """Remove the POSIX features for the rest of this process."""
    builtins.__import__ = _blocked_import  # type: ignore[assignment]
    importlib.import_module = _blocked_import_module(importlib.import_module)  # type: ignore[assignment]
    for name in MISSING_OS_FUNCTIONS:
        if hasattr(os, name):
            delattr(os, name)
    os.open = _open_files_only
    os.rename = _refuse_existing_target(_refuse_open_file(_rename))
    os.replace = _refuse_open_file(_replace)
    os.unlink = os.remove = _refuse_open_file(_unlink)
    shutil._use_fd_functions = False  # type: ignore[attr-defined]  # remove by name, as on Windows


def _blocked_import(name: str, globals: Any = None, *rest: Any, **more: Any) -> ModuleType:  # noqa: A002  (Python's name)
    if name in BLOCKED_MODULES and str((globals or {}).get("__name__", "")).startswith("nearfar"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return _import(name, globals, *rest, **more)


def _blocked_import_module(original: Callable[..., ModuleType]) -> Callable[..., ModuleType]:
    def load(name: str, package: str | None = None) -> ModuleType:
        if name in BLOCKED_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return original(name, package)

    return load


def _open_files_only(path: Any, flags: int, *rest: Any, **more: Any) -> int:
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", str(path))
    return _open(path, flags, *rest, **more)


def _refuse_existing_target(original: Callable[..., None]) -> Callable[..., None]:
    def rename(source: Any, target: Any, **more: Any) -> None:
        if os.path.exists(target):
            raise FileExistsError(17, "Cannot create a file when that file already exists", str(target))
        original(source, target, **more)

    return rename


def _refuse_open_file(original: Callable[..., None]) -> Callable[..., None]:
    def move(source: Any, *rest: Any, **more: Any) -> None:
        for path in (source, *rest):
            if user := _open_path(os.path.realpath(path)):
                raise PermissionError(13, f"The process cannot access the file because it is in use: {user}", str(path))
        original(source, *rest, **more)

    return move


def _open_path(path: str) -> str | None:
    """Return an open or memory-mapped file that is ``path`` or inside it."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    mapped = [line.split(maxsplit=5)[5] for line in lines if line.count("/")]
    for number in os.listdir("/proc/self/fd"):
        try:
            mapped.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:  # the descriptor of this directory listing
            continue
    return next((file for file in mapped if file == path or file.startswith(path + "/")), None)


def load_all() -> list[str]:
    """Import every module of nearfar."""
    os.name, before = "nt", os.name
    import nearfar.disk  # chooses its locking and flushing by os.name

    os.name = before
    names = [module.name for module in pkgutil.walk_packages(nearfar.__path__, "nearfar.")]
    for name in names:
        if not name.endswith("__main__"):
            importlib.import_module(name)
    return names


def run_commands(folder: Path) -> None:
    """Train, stop, resume, fine-tune, evaluate, predict, encode; all by the command line."""
    from nearfar.cli import main
    from nearfar.training.display import MetricsFile
    from tests.tiny import make_workspace, sentences, write_colours

    os.chdir(folder)
    make_workspace(Path())
    write_colours(Path("labelled.tsv"))
    Path("texts.txt").write_text("\n".join(sentences(60, longest=5)) + "\n", encoding="utf-8")

    on_step = MetricsFile.on_step

    def stop(self: MetricsFile, report: Any) -> None:
        on_step(self, report)
        if report.step == 3:
            signal.raise_signal(signal.SIGINT)

    every = "--checkpoint-every 1 --evaluate-every 2"
    train = (
        f"train scl --model tiny --data nli.tsv --evaluate-on pairs.tsv --batch-size 10 --max-steps 6 {every}".split()
    )
    finetune = "finetune labelled.tsv --model tiny --batch-size 8 --validation-rows 20 --max-steps 3".split()
    MetricsFile.on_step = stop  # type: ignore[method-assign]
    assert main([*train, "--output", "run"]) == 130
    MetricsFile.on_step = on_step  # type: ignore[method-assign]
    for words in (
        [*train, "--output", "run", "--resume"],
        [*finetune, "--output", "classifier"],
        "evaluate run --tasks pairs.tsv --resamples 50 --output result.json".split(),
        "predict classifier --input texts.txt --output labels.tsv".split(),
        "encode run/model --input texts.txt --output vectors.npy".split(),
        "encode run/model --input texts.txt --output vectors.parquet".split(),
        "env --offline".split(),
    ):
        assert main(words) == 0, words
    for record in (
        json.loads(Path("run/run.json").read_text()),
        json.loads(Path("result.json").read_text())["provenance"],
    ):
        assert record["kernels"]["used"] or record["kernels"]["why_not"]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    remove_posix_features()
    print(len(load_all()), "modules")
    if len(sys.argv) > 1:
        run_commands(Path(sys.argv[1]))
    print("done")
