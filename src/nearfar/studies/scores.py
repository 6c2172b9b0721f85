"""Runs of a study, read from the folders of their jobs, and the value of each column.

=============================  =====================================================================================
``TASK``                       the main score: Spearman of similarity (by the study's aggregate), accuracy, Pearson of
                               learned relatedness, the main measure of retrieval
``TASK.METRIC``                such as ``mrpc.f1``, ``sts12.pearson``, ``sts12.pearson.wmean``, ``sts12.all``
``TASK.SUBSET``                one subset of a similarity task, ``TASK.SUBSET.pearson``
``TASK.unseen``                Spearman on the pairs that the model of the run has not seen
``TASK.unseen_by_all``         Spearman on the pairs that no run of the study has seen, the same pairs for all runs
``TASK.dev``                   the validation score of a probe or a fine-tuned model; ``TASK.dev_spearman`` and others
``average``                    the mean over the columns of the study that are tasks
``average.unseen_by_all``      the mean over the columns that are similarity tasks, on those pairs
``average:NAME``               an average of the evaluation by name; ``average:NAME.pearson``
``accuracy``, ``spearman`` ..  the metric of the only task; ``score`` is the one that chose the step of fine-tuning
``validation``, ``seconds``    of the run
``bytes_per_vector``           of a stored embedding: 4 for each dimension, unless the evaluation quantizes
``uniformity``, ``alignment``  geometry; also ``isotropy``, ``mean_cosine``, ``effective_rank``
``layer.L.POOLING``            Spearman of layer L (0 are the embeddings) with a pooling
any other name                 a number that the steps of the run have measured, such as ``updates_per_second``
=============================  =====================================================================================
"""

import csv
import io
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearfar.data.fingerprints import number_units
from nearfar.disk import read_errors, read_json, read_text, write_text
from nearfar.evaluation.comparison import TaskScores
from nearfar.evaluation.correlation import AGGREGATES, Aggregate
from nearfar.evaluation.render import csv_lines
from nearfar.evaluation.results import (
    ClassificationScores,
    Estimate,
    EvaluationResult,
    GeometryResult,
    Provenance,
    RetrievalScores,
    SimilarityScores,
    load_result,
)
from nearfar.evaluation.results.record import is_number
from nearfar.evaluation.seen import unseen_scores
from nearfar.evaluation.tables.evaluation import stored_bytes
from nearfar.jobs import Job, JobStore
from nearfar.jobs.job import ERROR_FILE
from nearfar.studies.cells import Cell
from nearfar.studies.groups import NOT_MEASURED, OF_RUNS, ColumnValue, Run
from nearfar.studies.spec import AVERAGE, BYTES, GEOMETRY, ONLY_TASK
from nearfar.studies.steps import NUMBERS, RESULT, RUN
from nearfar.studies.units import TestData
from nearfar.types import NearfarError

MODELS = "models.csv"
MAX_SHOWN = 12
"""Largest number of models that the command prints."""
_MEASURES = ("uniformity", "alignment")
"""Measures of the training texts, or of the dev pairs, that are recorded at each evaluation during training."""
_AGAIN = "Remove its folder; the job is then run again."
UNSEEN_BY_ALL = ".unseen_by_all"
AVERAGE_UNSEEN = f"average{UNSEEN_BY_ALL}"
_DEV = ("dev_accuracy", "dev_matthews", "dev_f1", "dev_pearson", "dev_spearman")
_TRAINING = ("updates_per_second", "steps", "best_step")
"""Columns of a fine-tuned classifier's training."""


Columns: TypeAlias = dict[str, ColumnValue]
"""Name of a column -> its value."""


def column_values(run: Run, columns: Iterable[str], aggregate: Aggregate) -> dict[str, ColumnValue | None]:
    """The values of any columns but ``average`` and those over unseen pairs; None where the run has no such column.

    The last result that has a column counts; a task that it could not evaluate is without a value.
    """
    every = [
        (columns_of(one, aggregate), one.unavailable if isinstance(one, EvaluationResult) else {})
        for one in reversed(run.results)
    ]

    def value(column: str) -> ColumnValue | None:
        if column in OF_RUNS:
            number = getattr(run, column)
            return ColumnValue(number, NOT_MEASURED if number is None else None, kind="number")
        for known, unavailable in every:
            if column in known:
                return known[column]
            for task, why in unavailable.items():
                if column == task or column.startswith(f"{task}."):
                    return ColumnValue(None, why, kind="task")
        return None

    return {column: value(column) for column in columns}


def available_columns(runs: Sequence[Run]) -> list[str]:
    """The columns that the runs have, for messages: metrics of tasks are left out."""
    tasks = [task for run in runs for one in run.evaluations for task in one.all_tasks]
    others = [name for run in runs for one in run.results for name in columns_of(one, "all") if "." not in name]
    return list(dict.fromkeys([*tasks, *others, AVERAGE, *OF_RUNS]))


def columns_of(result: EvaluationResult | GeometryResult | Mapping[str, Any], aggregate: Aggregate) -> Columns:
    """All columns of a result."""
    if isinstance(result, GeometryResult):
        model = list(result.models.values())[-1]
        layers = {
            f"layer.{layer}.{pooling}": ColumnValue(value, "undefined" if value is None else None)
            for pooling, scores in (model.layers or {}).items()
            for layer, value in enumerate(scores)
        }
        return {name: ColumnValue(getattr(model, name)) for name in GEOMETRY} | layers
    if not isinstance(result, EvaluationResult):
        return _measures({str(name): value for name, value in result.items() if is_number(value)})
    columns: Columns = {}
    for task in sorted(result.all_tasks, key=len):  # of names that begin alike, the longest is the task's
        own = _of_task(task, result.all_tasks[task], aggregate)
        columns |= {f"{task}.{name}" if name else task: value for name, value in own.items()}
        if len(result.all_tasks) == 1:
            chosen = own.get(result.training.metric) if result.training else None
            columns |= {name: own[name] for name in ONLY_TASK if name in own} | {"score": chosen or own[""]}
    for name, average in result.averages.items():
        for metric in ("pearson", "spearman"):
            estimate = average.metric(metric).of(aggregate)
            columns[f"average:{name}.{metric}"] = _averaged(estimate, average.tasks, metric, columns)
        columns[f"average:{name}"] = columns[f"average:{name}.spearman"]
    for name, accuracy in result.transfer.averages.items() if result.transfer else ():
        if name not in result.averages:
            columns[f"average:{name}"] = _averaged(accuracy.accuracy, accuracy.tasks, "accuracy", columns)
    return columns | _measures(
        {name: getattr(result.training, name, None) for name in _TRAINING} | {BYTES: stored_bytes(result)}
    )


def _measures(numbers: Mapping[str, Any]) -> Columns:
    return {name: ColumnValue(float(one), kind="number") for name, one in numbers.items() if one is not None}


def _of_task(task: str, scored: TaskScores, aggregate: Aggregate) -> Columns:
    """Metric -> its value; "" is the main one."""
    if isinstance(scored, SimilarityScores):
        return _of_similarity(task, scored, aggregate)
    if isinstance(scored, RetrievalScores):
        measures: Columns = {}
        for name, estimate in scored.measures.items():
            per_query = [scored.per_query[name]]
            data = TestData(task, "mean", (scored.digest, name), [[]], per_query, id(scored), scored.units)
            measures[name] = _estimated(estimate, data)
        return {"": measures[scored.main], **measures}
    dev = {name: value for name in _DEV if (value := getattr(scored, name, None)) is not None}
    columns = {name: ColumnValue(dev.get(name), _lacks(task, name, dev), kind="task") for name in _DEV}
    columns["dev"] = columns[next(iter(dev))] if dev else ColumnValue(None, _lacks(task, "dev", dev), kind="task")
    digest: tuple[str, ...] = (scored.digest,)
    is_classified = isinstance(scored, ClassificationScores)
    if is_classified:
        digest = (*digest, str(len(scored.gold)))
    predicted = [getattr(scored, "predicted" if is_classified else "predicted_e6")]
    for name in ONLY_TASK:
        if (metric := scored.metric(name)) is not None:
            statistic = name if is_classified else f"{name}.all"
            data = TestData(task, statistic, digest, [scored.gold], predicted, id(scored), scored.units)
            columns[name] = _estimated(metric, data)
    return {"": columns["accuracy" if is_classified else "pearson"], **columns}


def _lacks(task: str, name: str, dev: Mapping[str, float]) -> str | None:
    return None if name in dev else f"{task} has no {name}"


def _of_similarity(task: str, scored: SimilarityScores, aggregate: Aggregate) -> Columns:
    columns: Columns = {}
    for metric in ("spearman", "pearson"):
        every: Columns = {
            by: _estimated(scored.metric(metric).of(by), _pairs(task, f"{metric}.{by}", scored)) for by in AGGREGATES
        }
        columns |= {f"{metric}.{by}": value for by, value in every.items()} | {metric: every[aggregate]}
        columns |= {"": every[aggregate], **every} if metric == "spearman" else {}
    if scored.unseen is not None:
        columns["unseen"] = _estimated(scored.unseen.spearman, None)
    subset_of_pair = np.repeat([*scored.subsets], [one.pairs for one in scored.subsets.values()])
    for name, subset in scored.subsets.items() if len(scored.subsets) > 1 else ():
        for metric in ("spearman", "pearson"):
            data = _pairs(f"{task}/{name}", f"{metric}.all", scored, subset_of_pair == name)
            columns[f"{name}.{metric}"] = _estimated(subset.metric(metric), data)
        columns[name] = columns[f"{name}.spearman"]
    return columns


def _pairs(task: str, statistic: str, scored: SimilarityScores, kept: NDArray[np.bool_] | None = None) -> TestData:
    """All pairs of a similarity task, or those of a mask, within their subsets."""
    kept = np.ones(scored.pairs, dtype=np.bool_) if kept is None else kept
    ends = np.cumsum([subset.pairs for subset in scored.subsets.values()])[:-1]
    masks = zip(scored.subsets.items(), np.split(kept, ends), strict=True)
    parts = {name: (one, mask) for (name, one), mask in masks if mask.any()}
    digest = tuple(f"{name}:{one.digest}" for name, (one, _) in parts.items())
    gold, cosines = (
        [np.asarray(getattr(one, key))[mask].tolist() for one, mask in parts.values()] for key in ("gold", "cosines_e6")
    )
    units = None if scored.units is None else number_units(np.asarray(scored.units)[kept]).tolist()
    of_pairs = None if units == [*range(int(kept.sum()))] else units  # null where each pair is its own, as in results
    return TestData(task, statistic, digest, gold, cosines, id(scored), of_pairs)


def _estimated(estimate: Estimate, data: TestData | None) -> ColumnValue:
    """A score with what is resampled, where predictions are stored and the score is defined."""
    known = None if estimate.score is None or data is None or not any(map(len, data.predicted)) else (data,)
    return ColumnValue(estimate.score, estimate.reason, estimate.low, estimate.high, known, "task")


def _averaged(estimate: Estimate, tasks: Sequence[str], metric: str, columns: Columns) -> ColumnValue:
    """An average of an evaluation, with the data of its tasks if they all have some."""
    known = [columns[name].data or () for task in tasks if (name := f"{task}.{metric}") in columns]
    parts = sum(known, ())
    data = parts if parts and len(parts) == len(tasks) else None
    return ColumnValue(estimate.score, estimate.reason, estimate.low, estimate.high, data)


class UnseenByAll:
    """The similarity tasks of the finished runs of a study, and which of their pairs any run has seen.

    A run has seen a pair if its model was trained on it, or if the pair is in the dev set that chose the training step.
    A model without a record of training has seen nothing.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self._seen: dict[tuple[str, tuple[str, ...]], NDArray[np.bool_]] = {}
        """Name of a task and the digests of its subsets -> a mask of its pairs."""
        for result in (result for run in runs for result in run.evaluations):
            for task, scored in result.tasks.items():
                seen = self._seen.setdefault(_data_of(task, scored), np.zeros(scored.pairs, dtype=np.bool_))
                if scored.unseen is not None:
                    seen[scored.unseen.seen_pairs] = True

    def column(self, column: str, run: Run) -> ColumnValue | None:
        """``TASK.unseen_by_all`` of a run: Spearman x 100 over the unseen pairs of all subsets together."""
        task = column.removesuffix(UNSEEN_BY_ALL)
        scored = next((one.tasks[task] for one in reversed(run.evaluations) if task in one.tasks), None)
        if scored is None:
            return None
        seen = self._seen[_data_of(task, scored)]
        spearman = unseen_scores(task, scored, seen, resamples=0).spearman
        data = _pairs(task, "spearman.all", scored, ~seen)
        if seen.any():
            data = replace(data, digest=(*data.digest, sha256(np.packbits(seen).tobytes()).hexdigest()[:16]))
        return ColumnValue(spearman.score, spearman.reason, data=None if spearman.score is None else (data,))

    def counts(self, tasks: Iterable[str]) -> dict[str, list[int]]:
        """Task -> number of pairs that no run has seen, and of all pairs; without tasks whose data differ by run."""
        masks = {task: [mask for (name, _), mask in self._seen.items() if name == task] for task in tasks}
        return {task: [int((~mine[0]).sum()), len(mine[0])] for task, mine in masks.items() if len(mine) == 1}

    def any_of(self, tasks: Collection[str]) -> bool:
        """Whether any run has seen a pair of these tasks."""
        return any(mask.any() for (name, _), mask in self._seen.items() if name in tasks)

    @property
    def tasks(self) -> set[str]:
        """The similarity tasks of all runs."""
        return {task for task, _ in self._seen}


def _data_of(task: str, scored: SimilarityScores) -> tuple[str, tuple[str, ...]]:
    return task, tuple(subset.digest for subset in scored.subsets.values())


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
    if "provenance" in numbers:
        numbers["provenance"] = Provenance.from_dict(numbers["provenance"], source=str(store.folder(job) / NUMBERS))
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
