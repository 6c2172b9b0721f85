"""Columns of a table: the value of each run, and the data that intervals and tests draw resamples of.

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
from dataclasses import dataclass
from typing import Literal, TypeAlias

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
from nearfar.evaluation.stored import stored_bytes
from nearfar.evaluation.study_table.cells import FinishedCell
from nearfar.evaluation.study_table.plan import NOT_MEASURED
from nearfar.evaluation.study_table.resampling import (
    TestData,
    classification_data,
    relatedness_data,
    retrieval_data,
    similarity_data,
)

OF_CELLS = ("validation", "seconds")
"""Columns that any run may have or lack."""
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


def column_value(column: str, cell: FinishedCell, aggregate: Aggregate) -> ColumnValue | None:
    """The value of any column but ``average``; None where the run has no such column."""
    if column in OF_CELLS:
        value = getattr(cell, column)
        return ColumnValue(value, NOT_MEASURED if value is None else None, kind="number")
    for result in reversed(cell.results):
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


def available_columns(cells: Sequence[FinishedCell]) -> list[str]:
    """The columns that the runs have, for messages: metrics of tasks are left out."""
    names: dict[str, None] = {}
    for result in (result for cell in cells for result in cell.results):
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
    return [*names, "average", *OF_CELLS]


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
