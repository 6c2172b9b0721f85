"""Shared by the studies: run nearfar commands with one thread each, read result files, format tables."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from nearfar.commands.compare import compare
from nearfar.disk import write_text
from nearfar.evaluation.results import ComparisonResult, EvaluationResult, provenance

HERE = Path(os.path.relpath(Path(__file__).parent))  # relative, because result files record the command line
TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
SEEDS = (1, 2, 3)


def results_of(study: str) -> Path:
    """Return the study's results folder; a run with uncommitted changes writes to another folder, and says so."""
    return if_committed(HERE / "results" / study) if "run" in sys.argv[1:2] else HERE / "results" / study


def if_committed(folder: Path) -> Path:
    """Return the folder, or with uncommitted changes another folder, and say so."""
    if not str(provenance().commit or "-dirty").endswith("-dirty"):
        return folder
    folder = HERE.parent / "runs" / "uncommitted" / folder.name
    print(f"The checkout has uncommitted changes: results go to {folder}.", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def call(name: str, *command: str) -> None:
    """Run a command with one thread; if it fails, exit with its output."""
    print(*command[1:], flush=True)
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stdout[-500:]}\n{done.stderr[-2000:]}")


def nearfar(name: str, *command: str) -> None:
    """Run a nearfar command."""
    call(name, "-m", "nearfar", *command)


def load(file: Path) -> dict[str, Any]:
    """Read a run.json."""
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def scores(files: Sequence[Path], *, tasks: Sequence[str] = TASKS, aggregate: str = "all") -> list[list[float]]:
    """Return for each file Spearman on each task, and the average over the tasks."""
    rows = [[_score(EvaluationResult.load(file), task, aggregate) for task in tasks] for file in files]
    return [[*row, mean(row)] for row in rows]


def _score(result: EvaluationResult, task: str, aggregate: str) -> float:
    score = result.tasks[task].spearman.of(aggregate).score
    if score is None:
        raise SystemExit(f"{result.model}: {task} has no score.")
    return score


def compared(file: Path, first: Sequence[Path], second: Sequence[Path]) -> ComparisonResult:
    """Return the comparison in ``file``; without the file, compare the results of both sides and write it."""
    if file.exists():
        return ComparisonResult.load(file)
    found = compare(list(first), list(second), tasks=TASKS, progress=False)
    assert isinstance(found, ComparisonResult)
    write_text(file, json.dumps(found.to_dict(), indent=1) + "\n")
    return found


def spread(values: Sequence[float]) -> str:
    """Format mean and standard deviation, or a single value."""
    return f"{values[0]:.2f}" if len(values) == 1 else f"{mean(values):.2f} ({stdev(values):.2f})"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Format a Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
