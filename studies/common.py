"""Shared by the studies: run nearfar commands and measure them, read and keep result files, format tables."""

import json
import os
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from nearfar.evaluation.results import provenance

HERE, ROOT = (Path(os.path.relpath(folder)) for folder in Path(__file__).parents[:2])
"""The folder of the scripts, and that of the repository; relative, because result files record the command line."""
SEEDS = (1, 2, 3)


def results_of(study: str) -> Path:
    """Return the study's results folder; a run with uncommitted changes writes to another folder, and says so."""
    return if_committed(HERE / "results" / study) if "run" in sys.argv[1:2] else HERE / "results" / study


def if_committed(folder: Path) -> Path:
    """Return the folder, or with uncommitted changes another folder, and say so."""
    if not str(provenance().commit or "-dirty").endswith("-dirty"):
        return folder
    folder = ROOT / "runs" / "uncommitted" / folder.name
    print(f"The checkout has uncommitted changes: results go to {folder}.", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def nearfar(
    *command: str, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> dict[str, float]:
    """Run a nearfar command in ``folder``, with one thread unless an ``environment`` is given; returns its seconds.

    ``processor_seconds`` are user and system time over all threads.

    Raises:
        SystemExit: it fails; with the end of its output.
    """
    shown = shlex.join(["nearfar", *command])
    print(shown, flush=True)
    env = {**os.environ, "OMP_NUM_THREADS": "1"} if environment is None else environment
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "nearfar", *command], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{shown}\n{done.stdout[-500:]}\n{done.stderr[-2000:]}")
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 1), "processor_seconds": round(processor, 1)}


def load(file: Path) -> dict[str, Any]:
    """Read a run.json."""
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def interval(test: Mapping[str, Any]) -> str:
    """Format a difference with its interval."""
    return f"{test['difference']:+.2f} [{test['low']:+.2f}, {test['high']:+.2f}]"


def spread(values: Sequence[float]) -> str:
    """Format mean and standard deviation, or a single value."""
    return f"{values[0]:.2f}" if len(values) == 1 else f"{mean(values):.2f} ({stdev(values):.2f})"


def filled(text: str, name: str, lines: Sequence[str], file: Path) -> str:
    """Replace what is between ``<!-- NAME -->`` and ``<!-- end of NAME -->`` in the text of a file by lines."""
    opening, closing = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, opened, rest = text.partition(opening)
    _, closed, after = rest.partition(closing)
    if not opened or not closed:
        raise SystemExit(f"{file} must have a block {opening} ... {closing}.")
    return before + "\n".join([opening, "", *lines, "", closing]) + after


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Format a Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
