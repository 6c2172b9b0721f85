"""The provenance of a result: date, command, commit, package versions and hardware."""

import os
import platform
import shlex
import subprocess
import sys
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nearfar.evaluation.results.record import OMITTED, Record
from nearfar.runtime import machine
from nearfar.runtime.versions import package_version

_PACKAGES = ("nearfar", "numpy", "scipy", "torch", "transformers", "tokenizers", "sentence-transformers")
_GENERATED_FOLDERS = ("docs", "studies/results", "benchmarks/results", "tests/campaign/results")
GENERATED_PATHS = tuple(f":(top,exclude){folder}" for folder in _GENERATED_FOLDERS)
"""Git pathspecs of results and of pages generated from them: changes there do not mark a commit as dirty."""


class Provenance(Record):
    """When, how, with what code and on what machine a result was computed."""

    date: str | None = field(default=None, metadata=OMITTED)
    """UTC, ISO 8601."""
    command: str | None = field(default=None, metadata=OMITTED)
    """The command line."""
    commit: str | None = None
    """Of the nearfar checkout, with ``-dirty`` where code was changed; null where nearfar is installed as a package."""
    versions: dict[str, str | None] | None = field(default=None, metadata=OMITTED)
    """Package -> version; null where the package is not installed."""
    hardware: dict[str, Any] | None = field(default=None, metadata=OMITTED)
    """``machine``, ``processor``, ``instruction_sets``, ``cores``, ``threads``, ``accelerator``."""
    kernels: dict[str, Any] | None = field(default=None, metadata=OMITTED)
    """``used`` (names of the compiled kernels) and how they were built, or ``why_not``; where an encoder was loaded."""


def provenance() -> Provenance:
    """The provenance of a result that is computed now, by this process."""
    return Provenance.from_dict(
        {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": shlex.join([_program(), *sys.argv[1:]]),
            "commit": _commit(),
            "versions": {"python": platform.python_version()} | {name: package_version(name) for name in _PACKAGES},
            "hardware": {
                "machine": platform.machine(),
                "processor": machine.processor(),
                "instruction_sets": " ".join(machine.instruction_sets()),
                "cores": os.cpu_count(),
                "threads": _threads(),
                "accelerator": _accelerator(),
            },
            **machine.provenance_info(),
        },
        source="the provenance",
    )


def _program() -> str:
    """The name of the program that runs, without its folder."""
    name = Path(sys.argv[0]).name
    return "nearfar" if name == "__main__.py" else name


def _commit() -> str | None:
    """The commit of the checkout that tracks this file, with -dirty where its code was changed; else None."""
    here = Path(__file__)
    git = ["git", "--no-optional-locks", "-C", str(here.parent)]
    answers = []
    for arguments in (
        ["ls-files", "--error-unmatch", here.name],
        ["rev-parse", "HEAD"],
        ["status", "--porcelain", "--untracked-files=no", "--", ":(top)", *GENERATED_PATHS],
    ):
        try:
            answer = subprocess.run([*git, *arguments], capture_output=True, text=True, check=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            return None
        answers.append(answer.stdout.strip())
    return answers[1] + ("-dirty" if answers[2] else "")


def _threads() -> int | None:
    torch = sys.modules.get("torch")  # if torch was never imported, it computed nothing
    return torch.get_num_threads() if torch else None


def _accelerator() -> str | None:
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None
