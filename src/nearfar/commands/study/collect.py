"""The results of a study's cells, read from the folders of their jobs."""

from collections.abc import Mapping, Sequence
from typing import Any

from nearfar.commands.study.expand import Cell
from nearfar.commands.study.work import NUMBERS, RESULT, RUN, training_curves
from nearfar.disk import read_json
from nearfar.evaluation.results import EvaluationResult, GeometryResult
from nearfar.evaluation.results.files import load_any
from nearfar.evaluation.study_table import FinishedCell
from nearfar.jobs import Job, JobStore
from nearfar.types import NearfarError

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
    place = {"row": cell.row_id, "coordinates": cell.coordinates, "replicate": cell.replicate, "key": cell.key}
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
        seconds = trained.get("seconds")
        if not any(isinstance(one, Mapping) and one.items() >= trained.items() for one in results):
            results.append({name: value for name, value in trained.items() if name not in ("validation", "seconds")})
    else:
        seconds = sum(known) if (known := [one for job in cell.jobs if (one := store.seconds(job)) is not None]) else None
    return FinishedCell(
        **place, results=results, validation=trained.get("validation"), seconds=seconds, curves=curves
    )


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
    file = store.part(job) / "error.txt"
    if not file.is_file():
        return None
    lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = lines[-1] if lines else "unknown error"
    return last.removeprefix("nearfar.types.NearfarError: ")


def _results(job: Job, store: JobStore, read: dict[str, Any]) -> list[Any]:
    if job.key not in read:
        folder, found = store.folder(job), []
        if (folder / RESULT).is_file():
            result = load_any(folder / RESULT)
            if not isinstance(result, EvaluationResult | GeometryResult):
                raise NearfarError(f"{folder / RESULT}: is no result of an evaluation. {AGAIN}")
            found.append(result)
        elif (folder / NUMBERS).is_file():
            found.append(_numbers(job, store))
        else:
            raise NearfarError(f"{folder}: has no results. {AGAIN}")
        read[job.key] = found
    return list(read[job.key])


def _numbers(job: Job, store: JobStore) -> Mapping[str, Any]:
    found = read_json(store.folder(job) / NUMBERS, otherwise=AGAIN)
    if not isinstance(found, dict):
        raise NearfarError(f"{store.folder(job) / NUMBERS}: is damaged. {AGAIN}")
    return found
