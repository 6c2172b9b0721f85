"""What the jobs of a study have measured: cells -> results of each run -> the value of each column.

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

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearfar.data.fingerprints import number_units
from nearfar.disk import read_errors, read_json, read_text
from nearfar.evaluation import results
from nearfar.evaluation.comparison import TaskScores
from nearfar.evaluation.correlation import AGGREGATES, Aggregate
from nearfar.evaluation.results.record import is_number
from nearfar.evaluation.seen import unseen_scores
from nearfar.evaluation.tables.evaluation import stored_bytes
from nearfar.jobs import Job, JobStore
from nearfar.jobs.job import ERROR_FILE
from nearfar.studies.cells import Cell
from nearfar.studies.spec import AVERAGE, BYTES, GEOMETRY, ONLY_TASK, UNSEEN_BY_ALL, Study
from nearfar.studies.steps import NUMBERS, RESULT, RUN
from nearfar.studies.units import TestData
from nearfar.types import NearfarError

NOT_MEASURED = "not measured"
"""The reason of a column that the steps of a row do not measure."""
OF_RUNS = ("validation", "seconds")
"""Columns that any run may have or lack."""
AVERAGE_UNSEEN = f"{AVERAGE}{UNSEEN_BY_ALL}"
_MEASURES = ("uniformity", "alignment")
"""Measures of the training texts, or of the dev pairs, that are recorded at each evaluation during training."""
_AGAIN = "Remove its folder; the job is then run again."
_DEV = ("dev_accuracy", "dev_matthews", "dev_f1", "dev_pearson", "dev_spearman")
_TRAINING = ("updates_per_second", "steps", "best_step")
"""Columns of a fine-tuned classifier's training."""
Masks: TypeAlias = Mapping[tuple[str, tuple[str, ...]], NDArray[np.bool_]]
"""A similarity task and the digests of its subsets -> which of its pairs any run has seen."""


class Value(NamedTuple):
    """A column of one run."""

    value: float | None
    reason: str | None = None
    """Why there is no value."""
    low: float | None = None
    high: float | None = None
    data: tuple[TestData, ...] | None = None
    """What is resampled; the mean over several. None where only replicates can be tested."""
    kind: Literal["task", "score", "number"] = "score"
    """``number`` is a measure of the run that is not compared unless the study asks for it, such as its time."""


Columns: TypeAlias = dict[str, Value]
"""Name of a column -> its value."""


Result: TypeAlias = results.EvaluationResult | results.GeometryResult | Mapping[str, Any]
"""A mapping is of names to numbers, each of which is a column (``updates_per_second``)."""


@dataclass(frozen=True)
class Run:
    """A cell of the table, whose values are so far ``validation`` and ``seconds``, and the results of its last steps.

    Fine-tuning writes an evaluation too.
    """

    cell: results.StudyCell
    measured: Sequence[Result] = ()
    curves: Mapping[str, Mapping[float, float]] = field(default_factory=dict)
    """Measure over training -> step -> value."""

    @property
    def evaluations(self) -> list[results.EvaluationResult]:
        """Its evaluations, the last one first."""
        return [one for one in reversed(self.measured) if isinstance(one, results.EvaluationResult)]


class Measured(NamedTuple):
    """The columns of all runs of a study."""

    columns: tuple[str, ...]
    """Those that are shown."""
    values: list[Columns]
    """Of each run; empty for one without results."""
    numbers: set[str]
    """The columns that no run has a score of."""
    unseen_pairs: dict[str, list[int]]
    """Task -> number of pairs that no run has seen, and of all pairs, where a column is over unseen pairs."""


def measure(study: Study, runs: Sequence[Run]) -> Measured:
    """The value of each column in each run.

    A column on unseen pairs is not shown where no pair was seen, because it repeats another, unless it is all there is.

    Raises:
        NearfarError: all runs are finished, and a column is in none of them.
    """
    finished = [run for run in runs if run.cell.missing is None]
    names = [column for column in study.columns if column not in (AVERAGE, AVERAGE_UNSEEN)]
    masks = seen_by_any(finished)
    known = [{name: column_value(name, run, study.aggregate, masks) for name in names} for run in finished]
    tasks = [name for name in names if any((one := values[name]) and one.kind == "task" for values in known)]
    similarity = [name for name in tasks if any(name == task for task, _ in masks)]
    if len(finished) == len(runs):  # an unfinished run may have a column that the others lack
        for name in names:
            if not any(values[name] for values in known):
                raise NearfarError(
                    f"column {name!r}: no run of the study has it; there are {', '.join(available_columns(runs))}, "
                    "and TASK.METRIC such as stsb.pearson or mrpc.f1."
                )
        for column, members, what in ((AVERAGE, tasks, "task"), (AVERAGE_UNSEEN, similarity, "similarity task")):
            if column in study.columns and not members:
                raise NearfarError(f"column {column!r}: the study has no column that is a {what}.")
    every: list[Columns] = []
    for run, values in zip(finished, known, strict=True):
        columns = {name: value or Value(None, NOT_MEASURED, kind="number") for name, value in values.items()}
        columns[AVERAGE] = mean_value({name: values[name] for name in tasks})
        if AVERAGE_UNSEEN in study.columns:
            columns[AVERAGE_UNSEEN] = mean_value({name: _unseen(name, run, masks) for name in similarity})
        every.append({name: columns[name]._replace(value=rounded(columns[name].value)) for name in study.columns})
    seen = {task for (task, _), mask in masks.items() if mask.any()}
    over = {name: name.removesuffix(UNSEEN_BY_ALL) for name in study.columns if name.endswith(UNSEEN_BY_ALL)}
    repeats = [name for name, task in over.items() if seen.isdisjoint(similarity if task == AVERAGE else [task])]
    shown = tuple(name for name in study.columns if finished and name not in repeats) or study.columns
    scores = {name for columns in every for name, one in columns.items() if one.kind != "number"}
    of_tasks = dict.fromkeys([*over.values(), *(study.columns if AVERAGE_UNSEEN in over else ())])
    masks_of = {task: [mask for (name, _), mask in masks.items() if name == task] for task in of_tasks}
    pairs = {task: [int((~mine[0]).sum()), len(mine[0])] for task, mine in masks_of.items() if len(mine) == 1}
    of_finished = iter(every)
    values_of = [{} if run.cell.missing else next(of_finished) for run in runs]
    return Measured(shown, values_of, {*study.columns} - scores if finished else set(), pairs)


def rounded(value: float | None) -> float | None:
    """A number as it is stored; None where it is undefined."""
    return None if value is None or not np.isfinite(value) else round(float(value), 4)


def mean_value(members: Mapping[str, Value | None]) -> Value:
    """The mean of several columns or runs, by name; undefined where one of them is."""
    for name, one in members.items():
        if one is None or one.value is None:
            return Value(None, f"{name}: {one.reason if one and one.reason else NOT_MEASURED}")
    known = [one for one in members.values() if one is not None]
    if not known:
        return Value(None, NOT_MEASURED)
    data = sum((one.data or () for one in known), ()) if all(one.data for one in known) else None
    return Value(rounded(sum(one.value or 0.0 for one in known) / len(known)), data=data)


def column_value(column: str, run: Run, aggregate: Aggregate, masks: Masks) -> Value | None:
    """Any column but the averages over those of the study; None where the run has no such column.

    The last result that has a column counts; a task that it could not evaluate is without a value.
    """
    if column in OF_RUNS:
        number = run.cell.values.get(column)
        return Value(number, NOT_MEASURED if number is None else None, kind="number")
    if column.endswith(UNSEEN_BY_ALL):
        return _unseen(column.removesuffix(UNSEEN_BY_ALL), run, masks)
    for result in reversed(run.measured):
        if (value := _of_result(column, result, aggregate)) is not None:
            return value
        for task, why in result.unavailable.items() if isinstance(result, results.EvaluationResult) else ():
            if column == task or column.startswith(f"{task}."):
                return Value(None, why, kind="task")
    return None


def available_columns(runs: Sequence[Run]) -> list[str]:
    """The columns that the runs have, for messages: metrics of tasks are left out."""
    tasks = [task for run in runs for one in run.evaluations for task in one.all_tasks]
    names = [f"average:{name}" for run in runs for one in run.evaluations for name in _averages(one)]
    names += [*ONLY_TASK, *_TRAINING, BYTES, *GEOMETRY]
    names += [name for run in runs for one in run.measured if isinstance(one, Mapping) for name in one]
    has = [name for name in names if any(_of_result(name, one, "all") for run in runs for one in run.measured)]
    return list(dict.fromkeys([*tasks, *has, AVERAGE, *OF_RUNS]))


def _of_result(column: str, result: Result, aggregate: Aggregate) -> Value | None:
    """A column of a result; None where it has none of this name."""
    if isinstance(result, results.EvaluationResult):
        return _of_evaluation(column, result, aggregate)
    if not isinstance(result, results.GeometryResult):
        return _number(result.get(column))
    model = list(result.models.values())[-1]
    if column in GEOMETRY:
        return Value(getattr(model, column))
    layers = {f"layer.{layer}.{name}": one for name, of in (model.layers or {}).items() for layer, one in enumerate(of)}
    return Value(layers[column], "undefined" if layers[column] is None else None) if column in layers else None


def _number(number: object) -> Value | None:
    return Value(float(number), kind="number") if is_number(number) else None  # type: ignore[arg-type]


def _of_evaluation(column: str, result: results.EvaluationResult, aggregate: Aggregate) -> Value | None:
    if column == BYTES:
        return _number(stored_bytes(result))
    if column in _TRAINING:
        return _number(getattr(result.training, column, None))
    tasks = result.all_tasks
    for name, average in _averages(result).items():
        for metric in average.METRICS:
            if column in (f"average:{name}.{metric}", f"average:{name}" if metric == average.METRICS[0] else None):
                estimate = average.metric(metric)
                estimate = estimate if isinstance(estimate, results.Estimate) else estimate.of(aggregate)
                parts = [_of_task(metric, task, tasks[task], aggregate) for task in average.tasks if task in tasks]
                data = sum((one.data or () for one in parts if one), ())
                is_whole = 0 < len(data) == len(average.tasks)
                return Value(estimate.score, estimate.reason, estimate.low, estimate.high, data if is_whole else None)
    for task in sorted(tasks, key=len, reverse=True):  # of names that begin alike, the longest is the task's
        name = "" if column == task else column.removeprefix(f"{task}.")
        if name != column and (value := _of_task(name, task, tasks[task], aggregate)) is not None:
            return value
    if len(tasks) != 1 or column not in ONLY_TASK:
        return None
    ((task, scored),) = tasks.items()
    chosen = result.training.metric if result.training and column == "score" else column
    return _of_task(chosen, task, scored, aggregate) or (
        _of_task("", task, scored, aggregate) if column == "score" else None
    )


def _averages(result: results.EvaluationResult) -> dict[str, Any]:
    return {**(result.transfer.averages if result.transfer else {}), **result.averages}


def _of_task(name: str, task: str, scored: TaskScores, aggregate: Aggregate) -> Value | None:
    """A score of a task by the rest of the column's name; an empty one is the main score."""
    if isinstance(scored, results.SimilarityScores):
        return _of_similarity(name, task, scored, aggregate)
    if isinstance(scored, results.RetrievalScores):
        measure = name or scored.main
        if measure not in scored.measures:
            return None
        per_query = [scored.per_query[measure]]
        data = TestData(task, "mean", (scored.digest, measure), [[]], per_query, id(scored), scored.units)
        return _estimated(scored.measures[measure], data)
    if name in (*_DEV, "dev"):
        dev = {of: value for of in _DEV if (value := getattr(scored, of, None)) is not None}
        value = next(iter(dev.values()), None) if name == "dev" else dev.get(name)
        return Value(value, f"{task} has no {name}" if value is None else None, kind="task")
    is_classified = isinstance(scored, results.ClassificationScores)
    metric = name or ("accuracy" if is_classified else "pearson")
    if metric not in ONLY_TASK or (estimate := scored.metric(metric)) is None:
        return None
    digest: tuple[str, ...] = (scored.digest, str(len(scored.gold))) if is_classified else (scored.digest,)
    predicted = [getattr(scored, "predicted" if is_classified else "predicted_e6")]
    statistic = metric if is_classified else f"{metric}.all"
    return _estimated(estimate, TestData(task, statistic, digest, [scored.gold], predicted, id(scored), scored.units))


def _of_similarity(name: str, task: str, scored: results.SimilarityScores, aggregate: Aggregate) -> Value | None:
    if name == "unseen":
        return _estimated(scored.unseen.spearman, None) if scored.unseen is not None else None
    subsets = [*scored.subsets] if len(scored.subsets) > 1 else []
    named: dict[str, tuple[str, str | None, Aggregate]] = {}
    for metric in ("pearson", "spearman"):
        own = {metric: (metric, None, aggregate)} | {f"{metric}.{by}": (metric, None, by) for by in AGGREGATES}
        named |= own | {f"{subset}.{metric}": (metric, subset, "all") for subset in subsets}
    named |= {"": named["spearman"]} | {end: named[f"spearman.{end}"] for end in AGGREGATES}
    named |= {subset: named[f"{subset}.spearman"] for subset in subsets}
    if name not in named:
        return None
    metric, part, by = named[name]
    if part is None:
        return _estimated(scored.metric(metric).of(by), _pairs(task, f"{metric}.{by}", scored))
    kept = np.repeat([one == part for one in scored.subsets], [one.pairs for one in scored.subsets.values()])
    data = _pairs(f"{task}/{part}", f"{metric}.all", scored, kept)
    return _estimated(scored.subsets[part].metric(metric), data)


def _pairs(
    task: str, statistic: str, scored: results.SimilarityScores, kept: NDArray[np.bool_] | None = None
) -> TestData:
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


def _estimated(estimate: results.Estimate, data: TestData | None) -> Value:
    """A score with what is resampled, where predictions are stored and the score is defined."""
    known = None if estimate.score is None or data is None or not any(map(len, data.predicted)) else (data,)
    return Value(estimate.score, estimate.reason, estimate.low, estimate.high, known, "task")


def seen_by_any(runs: Iterable[Run]) -> Masks:
    """The similarity tasks of the finished runs of a study, and which of their pairs any run has seen.

    A run has seen a pair if its model was trained on it, or if the pair is in the dev set that chose the training step.
    A model without a record of training has seen nothing.
    """
    masks: dict[tuple[str, tuple[str, ...]], NDArray[np.bool_]] = {}
    for result in (result for run in runs for result in run.evaluations):
        for task, scored in result.tasks.items():
            seen = masks.setdefault(_data_of(task, scored), np.zeros(scored.pairs, dtype=np.bool_))
            if scored.unseen is not None:
                seen[scored.unseen.seen_pairs] = True
    return masks


def _unseen(task: str, run: Run, masks: Masks) -> Value | None:
    """Spearman x 100 over the pairs of all subsets that no run has seen."""
    scored = next((one.tasks[task] for one in run.evaluations if task in one.tasks), None)
    if scored is None:
        return None
    seen = masks[_data_of(task, scored)]
    spearman = unseen_scores(task, scored, seen, resamples=0).spearman
    data = _pairs(task, "spearman.all", scored, ~seen)
    if seen.any():
        data = replace(data, digest=(*data.digest, sha256(np.packbits(seen).tobytes()).hexdigest()[:16]))
    return Value(spearman.score, spearman.reason, data=None if spearman.score is None else (data,))


def _data_of(task: str, scored: results.SimilarityScores) -> tuple[str, tuple[str, ...]]:
    return task, tuple(subset.digest for subset in scored.subsets.values())


def collect(cells: Sequence[Cell], store: JobStore) -> list[Run]:
    """All cells in order, each with its results, or with the reason why it has none.

    Raises:
        NearfarError: the folder of a finished job is damaged.
    """
    read = cache(lambda job: _read(job, store))
    return [_run(cell, store, read) for cell in cells]


def _run(cell: Cell, store: JobStore, read: Callable[[Job], tuple[list[Any], dict[str, Any]]]) -> Run:
    known = results.StudyCell(
        row=cell.row.id, coordinates=dict(cell.coordinates), replicate=dict(cell.replicate), key=cell.key
    )
    if (missing := _why_missing(cell, store)) is not None:
        return Run(replace(known, missing=missing))
    measured = [one for job in cell.jobs for one in (*read(job)[0], read(job)[1]) if one]
    training, numbers, curves = cell.last_training, {}, {}
    if training is not None and store.is_finished(training):
        numbers, curves = read(training)[1], training_curves(store.folder(training) / RUN)
        measured += [] if training in cell.jobs else [numbers]
        # As scripts are timed: with loading, a teacher's vectors, evaluations and saving. A run that was resumed counts
        # the training loop of all its attempts if that is more than its last attempt took.
        timed = [numbers.get("seconds"), store.seconds(training) if training.function.endswith(":train") else None]
        seconds = max((one for one in timed if one is not None), default=None)
    else:
        every = [one for job in cell.jobs if (one := store.seconds(job)) is not None]
        seconds = sum(every) if every else None
    values = {"validation": rounded(numbers.get("validation")), "seconds": rounded(seconds)}
    return Run(replace(known, values={name: one for name, one in values.items() if one is not None}), measured, curves)


def _why_missing(cell: Cell, store: JobStore) -> str | None:
    """Why a cell has no results; None if it has."""
    waiting = [job for job in cell.jobs if not store.is_finished(job)]
    if not waiting:
        return None
    if cell.missing:
        return f"data missing: {', '.join(one.spec for one in cell.missing)}"
    for job in (needed for one in waiting for needed in (*one.inputs.values(), one)):
        file = store.part(job) / ERROR_FILE
        if file.is_file():
            with read_errors(file):
                lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return f"failed: {(lines or ['unknown error'])[-1].removeprefix('nearfar.types.NearfarError: ')}"
    return "not run"


def _read(job: Job, store: JobStore) -> tuple[list[Any], dict[str, Any]]:
    """The results of a finished job, and its numbers."""
    measured, numbers, folder = [], {}, store.folder(job)
    if (folder / RESULT).is_file():
        measured = [results.load_result(folder / RESULT)]
        if not isinstance(measured[0], results.EvaluationResult | results.GeometryResult):
            raise NearfarError(f"{folder / RESULT}: is no result of an evaluation. {_AGAIN}")
    if (folder / NUMBERS).is_file():
        numbers = read_json(folder / NUMBERS, otherwise=_AGAIN)
        if not isinstance(numbers, dict):
            raise NearfarError(f"{folder / NUMBERS}: is damaged. {_AGAIN}")
        if "provenance" in numbers:
            source = str(folder / NUMBERS)
            numbers["provenance"] = results.Provenance.from_dict(numbers["provenance"], source=source)
    if not measured and not numbers:
        raise NearfarError(f"{folder}: has no results. {_AGAIN}")
    return measured, numbers


def training_curves(run: Path) -> dict[str, dict[float, float]]:
    """Measure -> step -> its value at each evaluation during training."""
    curves: dict[str, dict[float, float]] = {}
    file = run / "metrics.jsonl"
    for point in map(json.loads, read_text(file).splitlines() if file.is_file() else ()):
        if "best" in point:
            score = point.get(point["metric"])
            measured = {name: point.get(name) for name in _MEASURES}
            measured |= {"validation": 100 * score if is_number(score) else None}
            for name, value in measured.items():
                if is_number(value):
                    curves.setdefault(name, {})[point["step"]] = value
    return curves
