"""The results of a study's cells, read from the folders of their jobs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nearfar.commands.study.expand import Cell
from nearfar.commands.study.work import NUMBERS, RESULT, RUN
from nearfar.disk import read_errors, read_json, read_text
from nearfar.evaluation.results import EvaluationResult, GeometryResult, load_result
from nearfar.evaluation.study_table import FinishedCell
from nearfar.jobs import Job, JobStore
from nearfar.jobs.store import ERROR_FILE
from nearfar.types import NearfarError

MEASURES = ("uniformity", "alignment")
"""Measures of the training texts, or of the dev pairs, that are recorded at each evaluation during training."""
FIELDS = ("validation", "seconds")
"""Numbers that are fields of a cell."""
AGAIN = "Remove its folder; the job is then run again."


def collect(cells: Sequence[Cell], store: JobStore) -> list[FinishedCell]:
    """All cells in order, each with its results, or with the reason why it has none.

    Raises:
        NearfarError: the folder of a finished job is damaged.
    """
    read: dict[str, Any] = {}
    return [_collect_cell(cell, store, read) for cell in cells]


def _collect_cell(cell: Cell, store: JobStore, read: dict[str, Any]) -> FinishedCell:
    missing = _missing(cell, store)
    place: dict[str, Any] = {
        "row": cell.row_id,
        "coordinates": cell.coordinates,
        "replicate": cell.replicate,
        "key": cell.key,
    }
    if missing is not None:
        return FinishedCell(**place, missing=missing)
    results = [one for job in cell.jobs for one in _results(job, store, read)]
    trained: Mapping[str, Any] = {}
    curves: dict[str, list[tuple[float, float]]] = {}
    seconds: float | None = None
    if cell.last_training is not None and store.is_finished(cell.last_training):
        folder = store.folder(cell.last_training)
        trained = _numbers(cell.last_training, store)
        curves = training_curves(folder / RUN)
        seconds = _training_seconds(cell.last_training, trained, store)
        if cell.last_training not in cell.jobs:
            results.append({name: value for name, value in trained.items() if name not in FIELDS})
    else:
        timed = [one for job in cell.jobs if (one := store.seconds(job)) is not None]
        seconds = sum(timed) if timed else None
    return FinishedCell(**place, results=results, validation=trained.get("validation"), seconds=seconds, curves=curves)


def _training_seconds(job: Job, trained: Mapping[str, Any], store: JobStore) -> float | None:
    """Time of a training, as scripts are timed: with loading, a teacher's vectors, evaluations and saving.

    A run that was resumed counts the training loop of all its attempts if that is more than its last attempt took.
    """
    loop: float | None = trained.get("seconds")
    whole = store.seconds(job) if job.function.endswith(":train") else None
    known = [one for one in (loop, whole) if one is not None]
    return max(known) if known else None


def _missing(cell: Cell, store: JobStore) -> str | None:
    """Why a cell has no results; None if it has."""
    waiting = [job for job in cell.jobs if not store.is_finished(job)]
    if not waiting:
        return None
    if cell.missing:
        return f"data missing: {', '.join(one.spec for one in cell.missing)}"
    for job in waiting:
        for one in (*job.inputs.values(), job):
            if (error := failure(one, store)) is not None:
                return f"failed: {error}"
    return "not run"


def failure(job: Job, store: JobStore) -> str | None:
    """The message of the exception that ended a job; None if it did not fail."""
    file = store.part(job) / ERROR_FILE
    if not file.is_file():
        return None
    with read_errors(file):
        lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = lines[-1] if lines else "unknown error"
    return last.removeprefix("nearfar.types.NearfarError: ")


def _results(job: Job, store: JobStore, read: dict[str, Any]) -> list[Any]:
    if job.key not in read:
        folder = store.folder(job)
        found: list[Any] = []
        if (folder / RESULT).is_file():
            result = load_result(folder / RESULT)
            if not isinstance(result, EvaluationResult | GeometryResult):
                raise NearfarError(f"{folder / RESULT}: is no result of an evaluation. {AGAIN}")
            found.append(result)
        if (folder / NUMBERS).is_file():
            numbers = {name: value for name, value in _numbers(job, store).items() if name not in FIELDS}
            found.append(numbers)
        if not found:
            raise NearfarError(f"{folder}: has no results. {AGAIN}")
        read[job.key] = found
    return list(read[job.key])


def _numbers(job: Job, store: JobStore) -> Mapping[str, Any]:
    found = read_json(store.folder(job) / NUMBERS, otherwise=AGAIN)
    if not isinstance(found, dict):
        raise NearfarError(f"{store.folder(job) / NUMBERS}: is damaged. {AGAIN}")
    return found


def training_curves(run: Path) -> dict[str, list[tuple[float, float]]]:
    """Measure -> ``(step, value)`` of each evaluation during training."""
    curves: dict[str, list[tuple[float, float]]] = {}
    file = run / "metrics.jsonl"
    for line in read_text(file).splitlines() if file.is_file() else ():
        point = json.loads(line)
        if "best" in point:
            score = point.get(point["metric"])
            measured = {name: point[name] for name in MEASURES if name in point} | {"validation": score}
            for name, value in measured.items():
                if isinstance(value, int | float):
                    curves.setdefault(name, []).append((point["step"], 100 * value if name == "validation" else value))
    return curves
