"""Runs of a study, the value of each column of a run, and the data that intervals and tests draw resamples of.

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearfar.evaluation.correlation import AGGREGATES, Aggregate
from nearfar.evaluation.results import (
    ClassificationScores,
    Estimate,
    EvaluationResult,
    GeometryResult,
    ModelGeometry,
    RelatednessScores,
    RetrievalScores,
    SimilarityScores,
)
from nearfar.evaluation.results.record import is_number
from nearfar.evaluation.seen import unseen_scores
from nearfar.evaluation.tables.evaluation import stored_bytes
from nearfar.studies.resampling import (
    TestData,
    classification_data,
    relatedness_data,
    retrieval_data,
    similarity_data,
)
from nearfar.studies.spec import BYTES, GEOMETRY, ONLY_TASK

NOT_MEASURED = "not measured"
"""The reason of a column that the steps of a row do not measure."""
OF_RUNS = ("validation", "seconds")
"""Columns that any run may have or lack."""
UNSEEN_BY_ALL = ".unseen_by_all"
AVERAGE_UNSEEN = f"average{UNSEEN_BY_ALL}"
_DEV = ("dev_accuracy", "dev_matthews", "dev_f1", "dev_pearson", "dev_spearman")
_TRAINING = ("updates_per_second", "steps", "best_step")
"""Columns of a fine-tuned classifier's training."""
Task: TypeAlias = SimilarityScores | ClassificationScores | RelatednessScores | RetrievalScores


@dataclass(frozen=True)
class ColumnValue:
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


@dataclass
class Run:
    """One run of a study and its results; a run without results says in ``missing`` why.

    ``results`` are the results of its last steps: evaluations (fine-tuning writes one too), geometry, or a mapping of
    names to numbers, each of which is a column (``updates_per_second``). An average over the labels of an axis has
    columns alone.
    """

    row: str
    coordinates: Mapping[str, str] = field(default_factory=dict)
    """Axis -> label."""
    replicate: Mapping[str, Any] = field(default_factory=dict)
    """Setting -> its value."""
    results: Sequence[EvaluationResult | GeometryResult | Mapping[str, Any]] = ()
    validation: float | None = None
    """The score that chooses among replicates, x 100."""
    seconds: float | None = None
    key: str = ""
    """Runs with equal keys are the same run."""
    missing: str | None = None
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Measure over training -> points (step, value)."""
    columns: Mapping[str, ColumnValue] = field(default_factory=dict)
    chosen: bool = True
    """Whether it enters means and tests."""
    known: dict[str, "list[_Columns]"] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Aggregate -> the columns of each result, once they were asked for."""

    @property
    def name(self) -> str:
        """The run in words, for messages: ``scl (lambda = 0.3; seed = 1)``."""
        parts = [f"{name} = {value}" for name, value in {**self.coordinates, **self.replicate}.items()]
        return f"{self.row} ({'; '.join(parts)})" if parts else self.row

    @property
    def geometry(self) -> ModelGeometry | None:
        """The last geometry."""
        last = next((one for one in reversed(self.results) if isinstance(one, GeometryResult)), None)
        return None if last is None else list(last.models.values())[-1]


@dataclass
class Group:
    """All replicates of a row at the same coordinates."""

    row: str
    coordinates: dict[str, str]
    runs: list[Run] = field(default_factory=list)
    """Different runs; replicates with the same key are one run."""
    missing: list[Run] = field(default_factory=list)
    fixed: bool = False
    """Whether all replicates are the same run, such as a baseline without training."""

    @property
    def kept(self) -> list[Run]:
        """The runs that enter means and tests."""
        return [run for run in self.runs if run.chosen]


def column_value(column: str, run: Run, aggregate: Aggregate) -> ColumnValue | None:
    """The value of any column but ``average``; None where the run has no such column."""
    if column in OF_RUNS:
        value = getattr(run, column)
        return ColumnValue(value, NOT_MEASURED if value is None else None, kind="number")
    if aggregate not in run.known:
        run.known[aggregate] = [_columns_of(result, aggregate) for result in run.results]
    for result, columns in zip(reversed(run.results), reversed(run.known[aggregate]), strict=True):
        if column in columns:
            return columns[column]()
        for task, why in result.unavailable.items() if isinstance(result, EvaluationResult) else ():
            if column == task or column.startswith(f"{task}."):
                return ColumnValue(None, why, kind="task")
    return None


def available_columns(runs: Sequence[Run]) -> list[str]:
    """The columns that the runs have, for messages: metrics of tasks are left out."""
    names: dict[str, None] = {}
    for result in (result for run in runs for result in run.results):
        tasks = result.all_tasks if isinstance(result, EvaluationResult) else {}
        metrics = tuple(f"{task}." for task in tasks)
        names |= dict.fromkeys(tasks)
        names |= {
            name: None
            for name in _columns_of(result, "all")
            if not name.startswith(metrics)
            and name not in ONLY_TASK
            and not (name.startswith("average:") and name.endswith((".pearson", ".spearman")))
            and not (name.startswith("layer.") and not name.startswith("layer.0."))
        }
    return [*names, "average", *OF_RUNS]


_Columns: TypeAlias = Mapping[str, Callable[[], ColumnValue]]
"""Name -> a function that returns the value with the data of its resamples."""


def _columns_of(result: EvaluationResult | GeometryResult | Mapping[str, Any], aggregate: Aggregate) -> _Columns:
    """All columns of a result."""
    if isinstance(result, GeometryResult):
        return _of_geometry(next(reversed(result.models.values())))
    if not isinstance(result, EvaluationResult):
        return {str(name): partial(_number, float(value)) for name, value in result.items() if is_number(value)}
    columns: dict[str, Callable[[], ColumnValue]] = {}
    for task in sorted(result.all_tasks, key=len):  # of names that begin alike, the longest is the task's
        own = _of_task(task, result.all_tasks[task], aggregate)
        columns |= {f"{task}.{name}" if name else task: make for name, make in own.items()}
        if len(result.all_tasks) == 1:
            by_training = {} if result.training is None else {"score": own.get(result.training.metric) or own[""]}
            columns |= {name: own[name] for name in ONLY_TASK if name in own} | {"score": own[""], **by_training}
    columns |= _averages(result, aggregate)
    numbers = {name: getattr(result.training, name, None) for name in _TRAINING} | {BYTES: stored_bytes(result)}
    return columns | {name: partial(_number, float(value)) for name, value in numbers.items() if value is not None}


def _number(value: float) -> ColumnValue:
    return ColumnValue(value, kind="number")


def _of_task(task: str, scored: Task, aggregate: Aggregate) -> _Columns:
    """Metric -> its value; "" is the main one."""
    if isinstance(scored, SimilarityScores):
        return _of_similarity(task, scored, aggregate)
    if isinstance(scored, RetrievalScores):
        measures = {
            name: partial(_estimated, score, partial(retrieval_data, task, scored, name))
            for name, score in scored.measures.items()
        }
        return {"": measures[scored.main], **measures}
    dev = {name: value for name in _DEV if (value := getattr(scored, name, None)) is not None}
    columns = {name: partial(ColumnValue, dev.get(name), _lacks(task, name, dev), kind="task") for name in _DEV}
    first = next(iter(dev), "dev")
    columns["dev"] = partial(ColumnValue, dev.get(first), _lacks(task, first, dev), kind="task")
    for name in ONLY_TASK:
        if (estimate := scored.metric(name)) is not None:
            data = classification_data if isinstance(scored, ClassificationScores) else relatedness_data
            columns[name] = partial(_estimated, estimate, partial(data, task, scored, name))  # type: ignore[arg-type]
    return {"": columns["accuracy" if isinstance(scored, ClassificationScores) else "pearson"], **columns}


def _lacks(task: str, name: str, dev: Mapping[str, float]) -> str | None:
    return None if name in dev else f"{task} has no {name}"


def _of_similarity(task: str, scored: SimilarityScores, aggregate: Aggregate) -> _Columns:
    columns: dict[str, Callable[[], ColumnValue]] = {}
    for metric in ("spearman", "pearson"):
        every: dict[str, Callable[[], ColumnValue]] = {
            by: partial(
                _estimated,
                scored.metric(metric).of(by),
                partial(similarity_data, task, scored.subsets, metric, by, run=id(scored)),
            )
            for by in AGGREGATES
        }
        columns |= {f"{metric}.{by}": make for by, make in every.items()} | {metric: every[aggregate]}
        columns |= {"": every[aggregate], **every} if metric == "spearman" else {}
    if scored.unseen is not None:
        columns["unseen"] = partial(_estimated, scored.unseen.spearman, lambda: None)
    for name, subset in scored.subsets.items() if len(scored.subsets) > 1 else ():
        for metric in ("spearman", "pearson"):
            data = partial(similarity_data, f"{task}/{name}", {name: subset}, metric, "all", run=id(scored))
            columns[f"{name}.{metric}"] = partial(_estimated, subset.metric(metric), data)
        columns[name] = columns[f"{name}.spearman"]
    return columns


def _estimated(estimate: Estimate, data: Callable[[], TestData | None]) -> ColumnValue:
    known = None if estimate.score is None else data()
    return ColumnValue(
        estimate.score, estimate.reason, estimate.low, estimate.high, None if known is None else (known,), "task"
    )


def _averages(result: EvaluationResult, aggregate: Aggregate) -> _Columns:
    columns: dict[str, Callable[[], ColumnValue]] = {}

    def add(name: str, metric: str, estimate: Estimate, tasks: Sequence[str]) -> None:
        columns[f"average:{name}"] = partial(_averaged, estimate, tasks, result, metric, aggregate)

    for name, average in result.averages.items():
        for metric in ("pearson", "spearman"):
            add(f"{name}.{metric}", metric, average.metric(metric).of(aggregate), average.tasks)
        columns[f"average:{name}"] = columns[f"average:{name}.spearman"]
    for name, found in result.transfer.averages.items() if result.transfer else ():
        if name not in result.averages:
            add(name, "accuracy", found.accuracy, found.tasks)
    return columns


def _averaged(
    estimate: Estimate, tasks: Sequence[str], result: EvaluationResult, metric: str, aggregate: Aggregate
) -> ColumnValue:
    """An average of an evaluation, with the data of its tasks if they all have some."""
    known = [_of_task(task, result.all_tasks[task], aggregate) for task in tasks if task in result.all_tasks]
    parts = [part for own in known if metric in own for part in own[metric]().data or ()]
    data = tuple(parts) if parts and len(parts) == len(tasks) else None
    return ColumnValue(estimate.score, estimate.reason, estimate.low, estimate.high, data)


def mean_value(members: Mapping[str, ColumnValue | None], *, kind: Literal["task", "score"] = "score") -> ColumnValue:
    """The mean of several columns or runs, by name; undefined where one of them is."""
    for name, member in members.items():
        if member is None or member.value is None:
            why = None if member is None else member.reason
            return ColumnValue(None, f"{name}: {why or 'not measured'}", kind=kind)
    known = [member for member in members.values() if member is not None]
    parts = [member.data for member in known]
    data = tuple(part for some in parts for part in some or ()) if all(parts) else None
    return ColumnValue(
        sum(member.value for member in known if member.value is not None) / len(known), data=data, kind=kind
    )


def _of_geometry(model: ModelGeometry) -> _Columns:
    layers = {
        f"layer.{layer}.{pooling}": partial(ColumnValue, value, "undefined" if value is None else None)
        for pooling, scores in (model.layers or {}).items()
        for layer, value in enumerate(scores)
    }
    return {name: partial(ColumnValue, getattr(model, name)) for name in GEOMETRY} | layers


_TaskData: TypeAlias = tuple[str, tuple[str, ...]]
"""Name of a task, and the digests of its subsets."""


class UnseenByAll:
    """The similarity tasks of the finished runs of a study, and which of their pairs any run has seen.

    A run has seen a pair if its model was trained on it, or if the pair is in the dev set that chose the training step.
    A model without a record of training has seen nothing.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self._seen: dict[_TaskData, NDArray[np.bool_]] = {}
        for run in runs:
            for result in run.results:
                for task, scored in result.tasks.items() if isinstance(result, EvaluationResult) else ():
                    seen = self._seen.setdefault(_data_of(task, scored), np.zeros(scored.pairs, dtype=np.bool_))
                    if scored.unseen is not None:
                        seen[scored.unseen.seen_pairs] = True

    def column(self, column: str, run: Run) -> ColumnValue | None:
        """``TASK.unseen_by_all`` of a run: Spearman x 100 over the unseen pairs of all subsets together."""
        task = column.removesuffix(UNSEEN_BY_ALL)
        for result in reversed(run.results):
            if isinstance(result, EvaluationResult) and task in result.tasks:
                return self._value(task, result.tasks[task])
        return None

    def _value(self, task: str, scored: SimilarityScores) -> ColumnValue:
        seen = self._seen[_data_of(task, scored)]
        spearman = unseen_scores(task, scored, seen, resamples=0).spearman
        if spearman.score is None:
            return ColumnValue(None, spearman.reason)
        return ColumnValue(spearman.score, data=(_unseen_data(task, scored, seen),))

    def counts(self, tasks: Sequence[str]) -> dict[str, list[int]]:
        """Task -> number of pairs that no run has seen, and of all pairs; without tasks whose data differ by run."""
        known = {}
        for task in tasks:
            masks = [mask for (name, _), mask in self._seen.items() if name == task]
            if len(masks) == 1:
                known[task] = [int((~masks[0]).sum()), len(masks[0])]
        return known

    @property
    def tasks(self) -> set[str]:
        """The similarity tasks of all runs."""
        return {task for task, _ in self._seen}


def _data_of(task: str, scored: SimilarityScores) -> _TaskData:
    return task, tuple(subset.digest for subset in scored.subsets.values())


def _unseen_data(task: str, scored: SimilarityScores, seen: NDArray[np.bool_]) -> TestData:
    """What is resampled: the unseen pairs, within their subsets."""
    if not seen.any():
        return similarity_data(task, scored.subsets, "spearman", "all", run=id(scored))
    subsets, start = {}, 0
    for name, one in scored.subsets.items():
        kept = np.flatnonzero(~seen[start : start + one.pairs]).tolist()
        start += one.pairs
        if kept:
            gold, cosines = [one.gold[row] for row in kept], [one.cosines_e6[row] for row in kept]
            subsets[name] = replace(one, pairs=len(kept), gold=gold, cosines_e6=cosines)
    data = similarity_data(task, subsets, "spearman", "all", run=id(scored))
    return replace(data, digest=(*data.digest, sha256(np.packbits(seen).tobytes()).hexdigest()[:16]))
