"""What the jobs of a study have measured: cells -> results of each run -> the value of each column.

=============================  =====================================================================================
``TASK``                       the main score: Spearman of similarity (by the study's aggregate), accuracy, Pearson of
                               learned relatedness, the main measure of retrieval
``TASK.METRIC``                such as ``mrpc.f1``, ``sts12.pearson``, ``sts12.pearson.wmean``, ``sts12.all``
``TASK.SUBSET``                one subset of a similarity task, ``TASK.SUBSET.pearson``
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
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearfar.data.fingerprints import number_units
from nearfar.disk import read_json, read_text
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
from nearfar.validation import unknown_name_message

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
    data: tuple[TestData, ...] = ()
    """What is resampled; the mean over several. Empty where only replicates can be tested."""
    kind: Literal["task", "score", "number"] = "score"
    """``number`` is a measure of the run that is not compared unless the study asks for it, such as its time."""


ABSENT = Value(None, NOT_MEASURED, kind="number")
"""A column that a run does not have."""
Columns: TypeAlias = dict[str, Value]
"""Name of a column -> its value."""
_Makers: TypeAlias = dict[str, Callable[[], Value]]
"""Name of a column -> what makes its value."""


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


def measure(study: Study, runs: Sequence[Run]) -> tuple[tuple[str, ...], list[Columns], dict[str, list[int]]]:
    """The columns that are shown, and the value of each in each run, which is empty for one without results.

    Then for each task with a column on unseen pairs the number of pairs that no run has seen, and of all pairs. A
    column on unseen pairs is not shown where no pair was seen, because it repeats another, unless it is all there is.

    Raises:
        NearfarError: all runs are finished, and a column is in none of them.
    """
    names = [column for column in study.columns if column not in (AVERAGE, AVERAGE_UNSEEN)]
    masks = seen_by_any(runs)
    known = [{name: column_value(name, run, study.aggregate, masks) for name in names} for run in runs]
    tasks = [name for name in names if any(values[name].kind == "task" for values in known)]
    similarity = [name for name in tasks if any(name == task for task, _ in masks)]
    absent = [name for name in names if all(values[name] is ABSENT for values in known)]
    absent += [AVERAGE] * (AVERAGE in study.columns and not tasks)
    absent += [AVERAGE_UNSEEN] * (AVERAGE_UNSEEN in study.columns and not similarity)
    if absent and not any(run.cell.missing for run in runs):  # an unfinished run may have what the others lack
        have = {name for run in runs for one in run.measured for name in _makers(one, study.aggregate)}
        raise NearfarError(unknown_name_message(absent[0], sorted(have, key=len), what="column of the runs"))
    every: list[Columns] = []
    for run, values in zip(runs, known, strict=True):
        values[AVERAGE] = mean_value({name: values[name] for name in tasks})
        if AVERAGE_UNSEEN in study.columns:
            values[AVERAGE_UNSEEN] = mean_value({name: _unseen(name, run, masks) for name in similarity})
        own = {name: values[name]._replace(value=rounded(values[name].value)) for name in study.columns}
        every.append({} if run.cell.missing else own)
    seen = {task for (task, _), mask in masks.items() if mask.any()}
    over = {name: name.removesuffix(UNSEEN_BY_ALL) for name in study.columns if name.endswith(UNSEEN_BY_ALL)}
    repeats = [name for name, task in over.items() if seen.isdisjoint(similarity if task == AVERAGE else [task])]
    shown = tuple(name for name in study.columns if any(every) and name not in repeats) or study.columns
    pairs = {}
    for task in dict.fromkeys([*over.values(), *(study.columns if AVERAGE_UNSEEN in over else ())]):
        masks_of_task = [mask for (name, _), mask in masks.items() if name == task]
        if len(masks_of_task) == 1:
            pairs[task] = [int((~masks_of_task[0]).sum()), len(masks_of_task[0])]
    return shown, every, pairs


def rounded(value: float | None) -> float | None:
    """A number as it is stored; None where it is undefined."""
    return None if value is None or not np.isfinite(value) else round(float(value), 4)


def mean_value(members: Mapping[str, Value]) -> Value:
    """The mean of several columns or runs, by name; undefined where one of them is."""
    for name, one in members.items():
        if one.value is None:
            return Value(None, f"{name}: {one.reason or NOT_MEASURED}")
    values = [one.value for one in members.values() if one.value is not None]
    data = [one.data for one in members.values()]
    return Value(rounded(sum(values) / len(values)), data=sum(data, ()) if all(data) else ()) if values else ABSENT


def column_value(column: str, run: Run, aggregate: Aggregate, masks: Masks) -> Value:
    """Any column but the averages over those of the study; :data:`ABSENT` where the run has no such column.

    The last result that has a column counts; a task that it could not evaluate is without a value.
    """
    if column in OF_RUNS:
        number = run.cell.values.get(column)
        return Value(number, NOT_MEASURED if number is None else None, kind="number")
    if column.endswith(UNSEEN_BY_ALL):
        return _unseen(column.removesuffix(UNSEEN_BY_ALL), run, masks)
    for result in reversed(run.measured):
        if (make := _makers(result, aggregate).get(column)) is not None:
            return make()
        for task, why in result.unavailable.items() if isinstance(result, results.EvaluationResult) else ():
            if column == task or column.startswith(f"{task}."):
                return Value(None, why, kind="task")
    return ABSENT


def _makers(result: Result, aggregate: Aggregate) -> _Makers:
    """The columns of a result."""
    if isinstance(result, results.EvaluationResult):
        return _of_evaluation(result, aggregate)
    if isinstance(result, Mapping):
        return _numbers(result)
    model = list(result.models.values())[-1]
    values = {name: getattr(model, name) for name in GEOMETRY}
    for pooling, layers in (model.layers or {}).items():
        values |= {f"layer.{layer}.{pooling}": value for layer, value in enumerate(layers)}
    return {name: partial(Value, one, "undefined" if one is None else None) for name, one in values.items()}


def _numbers(numbers: Mapping[str, Any]) -> _Makers:
    return {name: partial(Value, float(one), kind="number") for name, one in numbers.items() if is_number(one)}


def _of_evaluation(result: results.EvaluationResult, aggregate: Aggregate) -> _Makers:
    training = result.training
    makers = _numbers({BYTES: stored_bytes(result), **{name: getattr(training, name, None) for name in _TRAINING}})
    tasks = {task: _of_task(task, scored, aggregate) for task, scored in result.all_tasks.items()}
    averages: dict[str, Any] = {**(result.transfer.averages if result.transfer else {}), **result.averages}
    for name, average in averages.items():
        for metric in reversed(average.METRICS):  # the first one has the short name too
            estimate = average.metric(metric)
            estimate = estimate if isinstance(estimate, results.Estimate) else estimate.of(aggregate)
            parts = [tasks[task].get(metric) for task in average.tasks if task in tasks]
            makers[f"average:{name}.{metric}"] = partial(_of_average, estimate, parts, len(average.tasks))
            makers[f"average:{name}"] = makers[f"average:{name}.{metric}"]
    for task in sorted(tasks, key=len):  # of names that begin alike, the longest is the task's
        makers |= {f"{task}.{name}" if name else task: make for name, make in tasks[task].items()}
    if len(tasks) == 1:
        (own,) = tasks.values()
        chosen = own.get(training.metric, own[""]) if training else own[""]
        makers |= {name: own[name] for name in ONLY_TASK if name in own} | {"score": chosen}
    return makers


def _of_average(estimate: results.Estimate, parts: Sequence[Callable[[], Value] | None], count: int) -> Value:
    """An average of an evaluation, with the data of all its tasks, if these are there."""
    data = sum((make().data for make in parts if make), ())
    return Value(estimate.score, estimate.reason, estimate.low, estimate.high, data if len(data) == count else ())


def _of_task(task: str, scored: TaskScores, aggregate: Aggregate) -> _Makers:
    """The scores of a task by the rest of the column's name; an empty one is the main score."""
    if isinstance(scored, results.SimilarityScores):
        return _of_similarity(task, scored, aggregate)
    makers: _Makers = {}
    if isinstance(scored, results.RetrievalScores):
        for measure, estimate in scored.measures.items():
            per_query = np.array(scored.per_query[measure], dtype=np.float64)
            data = TestData(task, "mean", (scored.digest, measure), None, per_query, id(scored), scored.units)
            makers[measure] = partial(_estimated, estimate, data)
        return makers | {"": makers[scored.main]}
    is_classified = isinstance(scored, results.ClassificationScores)
    digest: tuple[str, ...] = (scored.digest, str(len(scored.gold))) if is_classified else (scored.digest,)
    predicted = np.array(getattr(scored, "predicted" if is_classified else "predicted_e6"), dtype=np.float64)
    gold, sizes = np.array(scored.gold, dtype=np.float64), [len(scored.gold)]
    for metric in ONLY_TASK:
        if (estimate := scored.metric(metric)) is not None:
            statistic = metric if is_classified else f"{metric}.all"
            data = TestData(task, statistic, digest, gold, predicted, id(scored), scored.units, sizes)
            makers[metric] = partial(_estimated, estimate, data)
    dev = {name: getattr(scored, name, None) for name in _DEV}
    dev["dev"] = next((value for value in dev.values() if value is not None), None)
    for name, value in dev.items():
        makers[name] = partial(Value, value, f"{task} has no {name}" if value is None else None, kind="task")
    return makers | {"": makers["accuracy" if is_classified else "pearson"]}


def _of_similarity(task: str, scored: results.SimilarityScores, aggregate: Aggregate) -> _Makers:
    makers: _Makers = {}
    for metric in ("pearson", "spearman"):  # that of the short names last
        whole: _Makers = {}
        for by in AGGREGATES:
            of_pairs = partial(_pairs, task, f"{metric}.{by}", scored)
            whole[by] = partial(_estimated, scored.metric(metric).of(by), of_pairs)
        parts: _Makers = {}
        for name, subset in scored.subsets.items() if len(scored.subsets) > 1 else ():
            of_pairs = partial(_pairs, f"{task}/{name}", f"{metric}.all", scored, name)
            parts[name] = partial(_estimated, subset.metric(metric), of_pairs)
        makers |= {f"{metric}.{by}": make for by, make in whole.items()} | {metric: whole[aggregate]}
        makers |= {f"{name}.{metric}": make for name, make in parts.items()}
    return makers | whole | parts | {"": whole[aggregate]}


def _pairs(
    task: str, statistic: str, scored: results.SimilarityScores, kept: NDArray[np.bool_] | str | None = None
) -> TestData:
    """All pairs of a similarity task, those of one subset, or those of a mask, within their subsets."""
    every, sizes = list(scored.subsets.values()), [subset.pairs for subset in scored.subsets.values()]
    if not isinstance(kept, np.ndarray):
        kept = np.repeat([kept in (None, name) for name in scored.subsets], sizes)
    counts = np.add.reduceat(kept, [0, *np.cumsum(sizes)[:-1]], dtype=int)
    digest = tuple(f"{name}:{one.digest}" for (name, one), n in zip(scored.subsets.items(), counts, strict=True) if n)
    gold, cosines = (
        np.concatenate([getattr(one, key) for one in every], dtype=np.float64)[kept] for key in ("gold", "cosines_e6")
    )
    units = None if scored.units is None else number_units(np.asarray(scored.units)[kept]).tolist()
    of_pairs = None if units == [*range(int(kept.sum()))] else units  # null where each pair is its own, as in results
    return TestData(task, statistic, digest, gold, cosines, id(scored), of_pairs, counts[counts > 0].tolist())


def _estimated(estimate: results.Estimate, data: TestData | Callable[[], TestData]) -> Value:
    """A score with what is resampled, where predictions are stored and the score is defined."""
    known = data if isinstance(data, TestData) else data()
    stored = (known,) if estimate.score is not None and len(known.predicted) else ()
    return Value(estimate.score, estimate.reason, estimate.low, estimate.high, stored, "task")


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


def _unseen(task: str, run: Run, masks: Masks) -> Value:
    """Spearman x 100 over the pairs of all subsets that no run has seen."""
    scored = next((one.tasks[task] for one in run.evaluations if task in one.tasks), None)
    if scored is None:
        return ABSENT
    seen = masks[_data_of(task, scored)]
    spearman = unseen_scores(task, scored, seen, resamples=0).spearman
    data = _pairs(task, "spearman.all", scored, ~seen)
    if seen.any():
        data = replace(data, digest=(*data.digest, sha256(np.packbits(seen).tobytes()).hexdigest()[:16]))
    return Value(spearman.score, spearman.reason, data=() if spearman.score is None else (data,))


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
        seconds = sum(filter(None, map(store.seconds, cell.jobs))) or None
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
            lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return f"failed: {(lines or ['unknown error'])[-1].removeprefix('nearfar.types.NearfarError: ')}"
    return "not run"


def _read(job: Job, store: JobStore) -> tuple[list[Any], dict[str, Any]]:
    """The results of a finished job, and its numbers."""
    measured, folder = [], store.folder(job)
    if (folder / RESULT).is_file():
        measured = [results.load_result(folder / RESULT)]
    numbers = read_json(folder / NUMBERS, otherwise=_AGAIN) if (folder / NUMBERS).is_file() else {}
    if not isinstance(numbers, dict) or not (measured or numbers):
        raise NearfarError(f"{folder}: its results are missing or damaged. {_AGAIN}")
    if "provenance" in numbers:
        source = str(folder / NUMBERS)
        numbers["provenance"] = results.Provenance.from_dict(numbers["provenance"], source=source)
    return measured, numbers


def training_curves(run: Path) -> dict[str, dict[float, float]]:
    """Measure -> step -> its value at each evaluation during training."""
    curves: dict[str, dict[float, float]] = {}
    file = run / "metrics.jsonl"
    for point in map(json.loads, read_text(file).splitlines() if file.is_file() else ()):
        if "best" in point:
            scores = {name: point.get(name) for name in _MEASURES} | {"validation": point.get(point["metric"])}
            for name, value in scores.items():
                if is_number(value):
                    curves.setdefault(name, {})[point["step"]] = 100 * value if name == "validation" else value
    return curves
