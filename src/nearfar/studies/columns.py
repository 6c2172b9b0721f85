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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    TransferResults,
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

NOT_MEASURED = "not measured"
"""The reason of a column that the steps of a row do not measure."""
OF_RUNS = ("validation", "seconds")
"""Columns that any run may have or lack."""
UNSEEN_BY_ALL = ".unseen_by_all"
AVERAGE_UNSEEN = f"average{UNSEEN_BY_ALL}"
GEOMETRY = ("uniformity", "alignment", "isotropy", "mean_cosine", "effective_rank")

_SINGLE = ("score", "accuracy", "f1", "matthews", "spearman", "pearson")
_DEV = ("dev_accuracy", "dev_matthews", "dev_f1", "dev_pearson", "dev_spearman")
BYTES = "bytes_per_vector"
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
    for result in reversed(run.results):
        found = None
        if isinstance(result, EvaluationResult):
            found = _of_evaluation(column, result, aggregate)
        elif isinstance(result, GeometryResult):
            found = _of_geometry(column, next(reversed(result.models.values())))
        elif is_number(result.get(column)):
            found = ColumnValue(float(result[column]), kind="number")
        if found is not None:
            return found
    return None


def available_columns(runs: Sequence[Run]) -> list[str]:
    """The columns that the runs have, for messages: metrics of tasks are left out."""
    names: dict[str, None] = {}
    for result in (result for run in runs for result in run.results):
        if isinstance(result, EvaluationResult):
            names |= dict.fromkeys(result.all_tasks)
            averages = [*result.averages, *(result.transfer.averages if result.transfer else ())]
            names |= dict.fromkeys(f"average:{name}" for name in averages)
            names |= dict.fromkeys(one for one in _TRAINING if getattr(result.training, one, None) is not None)
            names |= {BYTES: None} if stored_bytes(result) is not None else {}
        elif isinstance(result, GeometryResult):
            names |= dict.fromkeys(GEOMETRY)
            for model in result.models.values():
                names |= {f"layer.0.{pooling}": None for pooling in model.layers or {}}
        else:
            names |= {str(name): None for name, value in result.items() if is_number(value)}
    return [*names, "average", *OF_RUNS]


def _of_evaluation(column: str, result: EvaluationResult, aggregate: Aggregate) -> ColumnValue | None:
    tasks = result.all_tasks
    if column in _SINGLE:
        return _of_only_task(column, result, aggregate) if len(tasks) == 1 else None
    if column.startswith("average:"):
        return _named_average(column.removeprefix("average:"), result, aggregate)
    if column == BYTES:
        size = stored_bytes(result)
        return None if size is None else ColumnValue(float(size), kind="number")
    if column in _TRAINING:
        value = getattr(result.training, column, None)
        return None if value is None else ColumnValue(float(value), kind="number")
    return _of_tasks(column, result, aggregate)


def _of_tasks(column: str, result: EvaluationResult, aggregate: Aggregate) -> ColumnValue | None:
    """``TASK`` or ``TASK.METRIC``; the longest name of a task that fits."""
    tasks = result.all_tasks
    for task in sorted(tasks, key=len, reverse=True):
        if column == task:
            return _main(task, tasks[task], aggregate)
        if column.startswith(f"{task}."):
            found = _metric(task, tasks[task], column[len(task) + 1 :], aggregate)
            if found is not None:
                return found
    for task, why in result.unavailable.items():
        if column == task or column.startswith(f"{task}."):
            return ColumnValue(None, why, kind="task")
    return None


def _of_only_task(column: str, result: EvaluationResult, aggregate: Aggregate) -> ColumnValue | None:
    ((task, scored),) = result.all_tasks.items()
    if column != "score":
        return _metric(task, scored, column, aggregate)
    found = None if result.training is None else _metric(task, scored, result.training.metric, aggregate)
    return found or _main(task, scored, aggregate)


def _main(task: str, scored: Task, aggregate: Aggregate) -> ColumnValue | None:
    if isinstance(scored, SimilarityScores):
        return _metric(task, scored, "spearman", aggregate)
    if isinstance(scored, ClassificationScores):
        return _metric(task, scored, "accuracy", aggregate)
    return _metric(task, scored, "pearson" if isinstance(scored, RelatednessScores) else scored.main, aggregate)


def _metric(task: str, scored: Task, name: str, aggregate: Aggregate) -> ColumnValue | None:
    if isinstance(scored, SimilarityScores):
        return _similarity(task, scored, name, aggregate)
    if isinstance(scored, RetrievalScores):
        found = scored.measures.get(name)
        return None if found is None else _value(found, retrieval_data(task, scored, name))
    if name == "dev" or name in _DEV:
        scores = (getattr(scored, one, None) for one in (_DEV if name == "dev" else [name]))
        value = next((score for score in scores if score is not None), None)
        return ColumnValue(value, None if value is not None else f"{task} has no {name}", kind="task")
    found = scored.metric(name)
    if found is None:
        return None
    if isinstance(scored, ClassificationScores):
        return _value(found, classification_data(task, scored, name))
    return _value(found, relatedness_data(task, scored, name))


def _similarity(task: str, scored: SimilarityScores, name: str, aggregate: Aggregate) -> ColumnValue | None:
    if name == "unseen":
        return None if scored.unseen is None else _value(scored.unseen.spearman, None)
    subset = next((one for one in scored.subsets if name == one or name.startswith(f"{one}.")), None)
    if subset is not None and len(scored.subsets) > 1:
        metric = name[len(subset) + 1 :] or "spearman"
        if metric not in ("spearman", "pearson"):
            return None
        data = similarity_data(f"{task}/{subset}", {subset: scored.subsets[subset]}, metric, "all", run=id(scored))
        return _value(scored.subsets[subset].metric(metric), data)
    metric, _, chosen = name.partition(".")
    if metric in AGGREGATES and not chosen:
        metric, chosen = "spearman", metric
    if metric not in ("spearman", "pearson") or chosen not in ("", *AGGREGATES):
        return None
    by: Aggregate = next((one for one in AGGREGATES if one == chosen), aggregate)
    return _value(scored.metric(metric).of(by), similarity_data(task, scored.subsets, metric, by, run=id(scored)))


def _value(estimate: Estimate, data: TestData | None) -> ColumnValue:
    known = None if data is None or estimate.score is None else (data,)
    return ColumnValue(estimate.score, estimate.reason, estimate.low, estimate.high, known, "task")


def _named_average(name: str, result: EvaluationResult, aggregate: Aggregate) -> ColumnValue | None:
    metric = "spearman"
    if name not in result.averages and name.endswith((".pearson", ".spearman")):
        name, metric = name.rsplit(".", 1)
    if name in result.averages:
        average = result.averages[name]
        return _averaged(average.metric(metric).of(aggregate), average.tasks, result, metric, aggregate)
    transfer: TransferResults | None = result.transfer
    if transfer is not None and name in transfer.averages:
        found = transfer.averages[name]
        return _averaged(found.accuracy, found.tasks, result, "accuracy", aggregate)
    return None


def _averaged(
    estimate: Estimate, tasks: Sequence[str], result: EvaluationResult, metric: str, aggregate: Aggregate
) -> ColumnValue:
    members = [_metric(task, result.all_tasks[task], metric, aggregate) for task in tasks if task in result.all_tasks]
    parts = [member.data for member in members if member is not None and member.data]
    data = tuple(part[0] for part in parts) if parts and len(parts) == len(tasks) else None
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


def _of_geometry(column: str, model: ModelGeometry) -> ColumnValue | None:
    if column in GEOMETRY:
        return ColumnValue(getattr(model, column))
    name, _, rest = column.partition(".")
    layer, _, pooling = rest.partition(".")
    scores = (model.layers or {}).get(pooling) if name == "layer" and layer.isdecimal() else None
    if scores is None or int(layer) >= len(scores):
        return None
    value = scores[int(layer)]
    return ColumnValue(value, "undefined" if value is None else None)


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
