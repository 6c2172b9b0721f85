"""Shared by the studies: run nearfar commands with one thread each, read result files, format tables."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
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


def nearfar(name: str, *command: str) -> None:
    """Run a nearfar command with one thread; if it fails, exit with its output."""
    print(*command, flush=True)
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "nearfar", *command], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{name}: {done.stdout[-500:]}\n{done.stderr[-2000:]}")


def load(file: Path) -> dict[str, Any]:
    """Read a run.json."""
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def spread(values: Sequence[float]) -> str:
    """Format mean and standard deviation, or a single value."""
    return f"{values[0]:.2f}" if len(values) == 1 else f"{mean(values):.2f} ({stdev(values):.2f})"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Format a Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
