"""The results of a study's cells, read from the folders of their jobs, and the list of its trained models."""

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nearfar.disk import read_errors, read_json, read_text, write_text
from nearfar.evaluation.render import csv_lines
from nearfar.evaluation.results import EvaluationResult, GeometryResult, load_result
from nearfar.jobs import Job, JobStore
from nearfar.jobs.job import ERROR_FILE
from nearfar.studies.cells import Cell
from nearfar.studies.scores import OF_RUNS, Run
from nearfar.studies.steps import NUMBERS, RESULT, RUN
from nearfar.types import NearfarError

MODELS = "models.csv"
MAX_SHOWN = 12
"""Largest number of models that the command prints."""
_MEASURES = ("uniformity", "alignment")
"""Measures of the training texts, or of the dev pairs, that are recorded at each evaluation during training."""
_AGAIN = "Remove its folder; the job is then run again."


def collect(cells: Sequence[Cell], store: JobStore) -> list[Run]:
    """All cells in order, each with its results, or with the reason why it has none.

    Raises:
        NearfarError: the folder of a finished job is damaged.
    """
    read: dict[str, list[Any]] = {}
    return [_run(cell, store, read) for cell in cells]


def _run(cell: Cell, store: JobStore, read: dict[str, list[Any]]) -> Run:
    run = Run(cell.row.id, cell.coordinates, cell.replicate, key=cell.key)
    run.missing = _why_missing(cell, store)
    if run.missing is not None:
        return run
    for job in cell.jobs:
        if job.key not in read:
            read[job.key] = _results(job, store)
    results = [one for job in cell.jobs for one in read[job.key]]
    training = cell.last_training
    if training is not None and store.is_finished(training):
        numbers = _numbers(training, store)
        run.validation = numbers.get("validation")
        # As scripts are timed: with loading, a teacher's vectors, evaluations and saving. A run that was resumed counts
        # the training loop of all its attempts if that is more than its last attempt took.
        whole = store.seconds(training) if training.function.endswith(":train") else None
        run.seconds = max((one for one in (numbers.get("seconds"), whole) if one is not None), default=None)
        run.curves = training_curves(store.folder(training) / RUN)
        if training not in cell.jobs:
            results.append(_without_those_of_runs(numbers))
    else:
        timed = [seconds for job in cell.jobs if (seconds := store.seconds(job)) is not None]
        run.seconds = sum(timed) if timed else None
    run.results = results
    return run


def _why_missing(cell: Cell, store: JobStore) -> str | None:
    """Why a cell has no results; None if it has."""
    waiting = [job for job in cell.jobs if not store.is_finished(job)]
    if not waiting:
        return None
    if cell.missing:
        return f"data missing: {', '.join(one.spec for one in cell.missing)}"
    for job in waiting:
        for one in (*job.inputs.values(), job):
            file = store.part(one) / ERROR_FILE
            if file.is_file():
                with read_errors(file):
                    lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                return f"failed: {(lines or ['unknown error'])[-1].removeprefix('nearfar.types.NearfarError: ')}"
    return "not run"


def _results(job: Job, store: JobStore) -> list[Any]:
    folder = store.folder(job)
    results: list[Any] = []
    if (folder / RESULT).is_file():
        result = load_result(folder / RESULT)
        if not isinstance(result, EvaluationResult | GeometryResult):
            raise NearfarError(f"{folder / RESULT}: is no result of an evaluation. {_AGAIN}")
        results.append(result)
    if (folder / NUMBERS).is_file():
        results.append(_without_those_of_runs(_numbers(job, store)))
    if not results:
        raise NearfarError(f"{folder}: has no results. {_AGAIN}")
    return results


def _numbers(job: Job, store: JobStore) -> dict[str, Any]:
    numbers = read_json(store.folder(job) / NUMBERS, otherwise=_AGAIN)
    if not isinstance(numbers, dict):
        raise NearfarError(f"{store.folder(job) / NUMBERS}: is damaged. {_AGAIN}")
    return numbers


def _without_those_of_runs(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in numbers.items() if name not in OF_RUNS}


def training_curves(run: Path) -> dict[str, list[tuple[float, float]]]:
    """Measure -> ``(step, value)`` of each evaluation during training."""
    curves: dict[str, list[tuple[float, float]]] = {}
    file = run / "metrics.jsonl"
    for line in read_text(file).splitlines() if file.is_file() else ():
        point = json.loads(line)
        if "best" in point:
            score = point.get(point["metric"])
            measured = {name: point[name] for name in _MEASURES if name in point}
            measured |= {"validation": 100 * score} if isinstance(score, int | float) else {}
            for name, value in measured.items():
                if isinstance(value, int | float):
                    curves.setdefault(name, []).append((point["step"], value))
    return curves


def write_models(output: Path, cells: Sequence[Cell], store: JobStore) -> None:
    """Write ``models.csv`` into ``output``: row, axes, replicate and run folder of each model that is there.

    A run folder inside ``output`` is written relative to it. Without a model, such as after ``--discard-models``, no
    file is written, and one of before is removed.

    Raises:
        NearfarError: the file cannot be written.
    """
    root, models = output.absolute(), []
    for cell in cells:
        if (training := cell.last_training) is not None and store.is_finished(training):
            run = store.folder(training) / RUN
            if (run / "model").is_dir():
                folder = run if (run / "run.json").is_file() else run / "model"  # of a script
                shown = folder.relative_to(root) if folder.is_relative_to(root) else folder
                models.append((cell.row.id, {**cell.coordinates, **cell.replicate}, str(shown)))
    if not models:
        (output / MODELS).unlink(missing_ok=True)
        return
    names = dict.fromkeys(name for _, place, _ in models for name in place)
    lines = [[row, *(str(place.get(name, "")) for name in names), folder] for row, place, folder in models]
    write_text(output / MODELS, csv_lines([["row", *names, "folder"], *lines]))


def model_lines(output: Path) -> list[str]:
    """The models of a study in words, a line for each; only the name of the file if there are many; empty without.

    Raises:
        NearfarError: the file is damaged.
    """
    file = output / MODELS
    if not file.is_file():
        return []
    header, *models = list(csv.reader(io.StringIO(read_text(file)))) or [[]]
    if len(header) < 2 or any(len(one) != len(header) for one in models):
        raise NearfarError(f"{file}: is damaged. Remove it; nearfar study writes it again.")
    if len(models) > MAX_SHOWN:
        return [f"The run folders of the {len(models)} trained models are listed in {file}."]
    lines = ["Trained models, as run folders (also in models.csv):"]
    for row, *labels, folder in models:
        place = ", ".join(f"{name} {label}" for name, label in zip(header[1:-1], labels, strict=True) if label)
        lines.append(f"  {row}{f' ({place})' if place else ''}: {os.path.normpath(output / folder)}")
    return lines
